//! The chart of `cargo xtask chart`, as Helm renders it. Skipped without kubectl or without
//! Helm's library for Python (`helm-python-sdk`).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The objects of YAML texts, in an order that does not depend on the texts.
fn objects<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    let parse = |text: &str| serde_saphyr::from_multiple::<Value>(text).unwrap();
    let mut objects: Vec<Value> = texts.into_iter().flat_map(parse).collect();
    objects.retain(|object| !object.is_null());
    objects.sort_by_key(|object| {
        let metadata = &object["metadata"];
        let parts = [&object["kind"], &metadata["namespace"], &metadata["name"]];
        parts.map(|part| part.as_str().unwrap_or_default().to_owned())
    });
    objects
}

fn succeeded(output: &Output) -> &str {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    str::from_utf8(&output.stdout).unwrap()
}

/// The objects that kustomize renders of an overlay; none without kubectl.
fn kustomized(overlay: &str) -> Option<Vec<Value>> {
    let mut kubectl = Command::new("kubectl");
    let kubectl = kubectl
        .current_dir(workspace())
        .args(["kustomize", overlay]);
    let Ok(output) = kubectl.output() else {
        println!("kubectl is not installed: no chart is rendered");
        return None;
    };
    Some(objects([succeeded(&output)]))
}

/// The objects that Helm renders of a chart; none without Helm.
fn rendered(chart: &Path, values: &Value) -> Option<Vec<Value>> {
    let output = helm(chart, values)?;
    let texts: Vec<String> = serde_json::from_str(succeeded(&output)).unwrap();
    Some(objects(texts.iter().map(String::as_str)))
}

fn helm(chart: &Path, values: &Value) -> Option<Output> {
    let script = workspace().join("host/xtask/tests/chart/render.py");
    let mut python = Command::new("python3");
    python.arg(script).arg(chart).arg(values.to_string());
    let output = python.output().ok()?;
    if output.status.code() == Some(3) {
        println!("helm-python-sdk is not installed: no chart is rendered");
        return None;
    }
    Some(output)
}

fn deployment(objects: &[Value]) -> &Value {
    let mut all = objects.iter();
    all.find(|object| object["kind"] == "Deployment").unwrap()
}

/// Writes the chart of an overlay. Tests run at once: each has charts of its own.
fn chart(test: &str, overlay: &str) -> PathBuf {
    let name = overlay.replace('/', "-");
    let chart = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chart-{test}-{name}"));
    let mut xtask = Command::new(env!("CARGO_BIN_EXE_xtask"));
    xtask.args(["chart", overlay, "--output"]).arg(&chart);
    succeeded(&xtask.current_dir(workspace()).output().unwrap());
    chart
}

#[test]
fn helm_renders_what_kustomize_renders() {
    for overlay in [
        "deploy/base",
        "deploy/overlays/single",
        "deploy/overlays/cache",
        "deploy/overlays/journal",
        "deploy/overlays/file",
    ] {
        let Some(expected) = kustomized(overlay) else {
            return;
        };
        let chart = chart("same", overlay);
        let is_defined = expected
            .iter()
            .any(|object| object["kind"] == "CustomResourceDefinition");
        // `helm install` fails at a file of definitions without any.
        assert_eq!(chart.join("crds").exists(), is_defined, "{overlay}");
        let Some(found) = rendered(&chart, &json!({})) else {
            return;
        };
        assert_eq!(found, expected, "{overlay}");
    }
}

#[test]
fn values_change_the_deployment() {
    let overlay = "deploy/base";
    if kustomized(overlay).is_none() {
        return;
    }
    let values = json!({
        "namespace": "other", "replicas": 3, "image": "example.com/davit:2",
        "arguments": ["--http1"], "resources": {"limits": {"memory": "1Gi"}},
    });
    let Some(objects) = rendered(&chart("values", overlay), &values) else {
        return;
    };
    let deployment = deployment(&objects);
    assert_eq!(deployment["metadata"]["namespace"], "other");
    assert_eq!(deployment["spec"]["replicas"], 3);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.com/davit:2");
    // Helm merges maps: the requests stay.
    assert_eq!(container["resources"]["limits"]["memory"], "1Gi");
    let arguments = container["args"].as_array().unwrap();
    assert_eq!(arguments.last(), Some(&json!("--http1")));
    let mut texts = objects.iter().map(Value::to_string);
    assert_eq!(texts.find(|one| one.contains("davit-system")), None);
}

/// Names that YAML would read as something else than text.
#[test]
fn a_namespace_that_exists_is_not_created_whatever_its_name() {
    let overlay = "deploy/base";
    if kustomized(overlay).is_none() {
        return;
    }
    let chart = chart("namespace", overlay);
    for namespace in ["123", "on", "1e3"] {
        let values = json!({"namespace": namespace, "createNamespace": false});
        let Some(objects) = rendered(&chart, &values) else {
            return;
        };
        let mut kinds = objects.iter().map(|object| &object["kind"]);
        assert!(kinds.all(|kind| kind != "Namespace"));
        let deployment = deployment(&objects);
        assert_eq!(deployment["metadata"]["namespace"], namespace);
    }
}

/// Two hosts would write without Leases.
#[test]
fn no_value_makes_two_replicas_without_leases() {
    let overlay = "deploy/overlays/single";
    if kustomized(overlay).is_none() {
        return;
    }
    let Some(objects) = rendered(&chart("single", overlay), &json!({"replicas": 2})) else {
        return;
    };
    let deployment = deployment(&objects);
    assert_eq!(deployment["spec"]["replicas"], 1);
    let values = json!({"arguments": ["--single"]});
    let output = helm(&chart("replicated", "deploy/base"), &values).unwrap();
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("overlays/single"), "{errors}");
}
