//! `davit check` and `davit inspect --rbac`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::program::server::davit;
use crate::program::{CommandOutput, Site, guests, output_of};

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../deploy")
        .join(path)
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// Checks a file without a cluster.
fn offline(flag: &str, path: &Path) -> CommandOutput {
    let mut command = davit();
    command.args(["check", "--offline", "-o", "json", flag]);
    command.arg(path).arg("--guests").arg(guests());
    output_of(command.output().unwrap())
}

fn findings(output: &CommandOutput) -> Vec<Value> {
    let all: Value = serde_json::from_str(&output.out).unwrap();
    all["findings"].as_array().unwrap().clone()
}

/// The message of a finding.
fn message(output: &CommandOutput, level: &str, check: &str) -> String {
    let all = findings(output);
    let mut all = all.iter();
    let found = all.find(|one| one["level"] == level && one["check"] == check);
    let found = found.unwrap_or_else(|| panic!("{level} {check}: {output:?}"));
    found["message"].as_str().unwrap().to_owned()
}

fn config(controller: &str) -> tempfile::NamedTempFile {
    file(&format!("controllers:\n  - {controller}\n"))
}

#[test]
fn each_error_in_a_file_is_found_without_a_cluster() {
    let good = config("{name: podgc, module: {builtin: podgc}}");
    let output = offline("--config", good.path());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        message(&output, "ok", "module").contains("sha256:"),
        "{output:?}"
    );
    assert!(
        message(&output, "ok", "guest").contains("podgc 0."),
        "{output:?}"
    );
    message(&output, "not-checked", "permissions");

    let digest = "0".repeat(64);
    let pinned =
        format!("{{name: podgc, module: {{builtin: podgc, digest: \"sha256:{digest}\"}}}}");
    for (controller, check, part) in [
        (
            "{name: podgc, module: {builtin: nothing}}",
            "module",
            "nothing",
        ),
        (pinned.as_str(), "module", &digest),
        (
            "{name: podgc, module: {builtin: podgc}, config: {terminatedPodTreshold: 1}}",
            "config",
            "terminatedPodTreshold",
        ),
        (
            "{name: podgc, module: {file: Cargo.toml}}",
            "guest",
            "WebAssembly",
        ),
        (
            "{name: podgc, module: {builtin: podgc}, modus: DryRun}",
            "spec",
            "modus",
        ),
    ] {
        let bad = config(controller);
        let output = offline("--config", bad.path());
        assert_eq!(output.code, 1, "{controller}: {output:?}");
        let message = message(&output, "error", check);
        assert!(message.contains(part), "{controller}: {output:?}");
        assert!(output.err.contains("failed"), "{output:?}");
    }
}

#[test]
fn an_unsigned_module_is_found() {
    let guest = guests().join("podgc.wasm");
    let controller = file(&format!(
        "apiVersion: davit.dev/v1alpha1\nkind: Controller\nmetadata: {{name: podgc}}\nspec:\n  \
         mode: Enforce\n  module: {{file: {guest}}}\n  permissions: {{reads: [], writes: []}}\n",
        guest = guest.display()
    ));
    let output = offline("--filename", controller.path());
    assert!(message(&output, "warning", "module").contains("DryRunOnly executes none"));

    // The owner of the file names the module.
    let config = config(&format!(
        "{{name: podgc, mode: Enforce, module: {{file: {}}}}}",
        guest.display()
    ));
    let output = offline("--config", config.path());
    assert_eq!(output.code, 0, "{output:?}");
    assert!(!output.out.contains("nor signed"), "{output:?}");
}

#[test]
fn the_shipped_controllers_pass_the_checks() {
    for name in [
        "podgc",
        "garbage-collector",
        "taint-eviction",
        "storage-version-gc",
        "node-eviction",
    ] {
        let path = deploy(&format!("controllers/{name}/controller.yaml"));
        let output = offline("--filename", &path);
        assert_eq!(output.code, 0, "{output:?}");
        assert!(
            findings(&output)
                .iter()
                .any(|one| one["controller"] == name)
        );
    }
    let output = offline("--filename", &deploy("base/rbac.yaml"));
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("holds no Controller"), "{output:?}");
}

#[test]
fn the_controllers_of_a_cluster_are_checked_and_not_changed() {
    let site = Site::new();
    site.podgc(1, &[]);
    let before = site.get();
    let guests = guests();
    let check = ["check", "--guests", guests.to_str().unwrap()];
    let text = site.must(&check);
    for (level, check) in [("ok", "cluster"), ("ok", "module"), ("ok", "resources")] {
        let is_it = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words[0] == level && words[2] == check
        };
        assert!(text.lines().any(is_it), "{level} {check}: {text}");
    }
    assert_eq!(site.get(), before);

    site.change(&json!({"spec": {"config": {"quarantin": "1s"}}}));
    let output = site.davit(&check);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("quarantin"), "{output:?}");
    let output = site.davit(&[&check[..], &["other"]].concat());
    assert!(
        output.out.contains("there is no controller of this name"),
        "{output:?}"
    );
}

#[test]
fn an_unreachable_cluster_is_an_error() {
    let nowhere = file(
        &json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "x", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        })
        .to_string(),
    );
    let kubeconfig = nowhere.path().to_str().unwrap();
    let output = davit()
        .args(["check", "--kubeconfig", kubeconfig])
        .output()
        .unwrap();
    let output = output_of(output);
    assert_eq!(output.code, 1, "{output:?}");
    assert!(output.out.contains("does not answer"), "{output:?}");
}

/// The permissions that roles grant: `ClusterRole`, or the namespace of a `Role`; verb,
/// group, resource.
fn granted(documents: &str) -> BTreeSet<[String; 4]> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(documents).unwrap();
    let texts = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items
            .map(|item| item.as_str().unwrap().to_owned())
            .collect()
    };
    let mut granted = BTreeSet::new();
    for role in &documents {
        let namespace = role["metadata"]["namespace"].as_str();
        let place = namespace.unwrap_or("ClusterRole");
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        let place = place.to_owned();
                        granted.insert([place, verb, group.clone(), resource.clone()]);
                    }
                }
            }
        }
        // A binding belongs to the role before it, and names Davit's account.
        if let Some(subjects) = role["subjects"].as_array() {
            let subject = json!({
                "kind": "ServiceAccount", "name": "davit", "namespace": "davit-system",
            });
            assert_eq!(subjects.as_slice(), [subject], "{role}");
            assert_eq!(role["roleRef"]["name"], role["metadata"]["name"]);
        }
    }
    granted
}

fn roles(guest: &str, arguments: &[&str]) -> String {
    let guest = guests().join(format!("{}.wasm", guest.replace('-', "_")));
    let mut command = davit();
    command
        .arg("inspect")
        .arg(guest)
        .arg("--rbac")
        .args(arguments);
    let output = output_of(command.output().unwrap());
    assert_eq!(output.code, 0, "{output:?}");
    output.out
}

/// The shipped roles grant the permissions that the guests declare, and no others.
#[test]
fn the_shipped_roles_are_what_inspect_prints() {
    let evicting = file("{deletion: evict}");
    let evicting = ["--config", evicting.path().to_str().unwrap()];
    for (name, also) in [
        ("podgc", None),
        ("garbage-collector", None),
        ("taint-eviction", Some(evicting)),
        ("storage-version-gc", None),
        ("node-eviction", None),
    ] {
        let path = deploy(&format!("controllers/{name}/rbac.yaml"));
        let shipped = granted(&std::fs::read_to_string(path).unwrap());
        let mut printed = granted(&roles(name, &[]));
        printed.extend(
            also.map(|also| granted(&roles(name, &also)))
                .into_iter()
                .flatten(),
        );
        assert_eq!(printed, shipped, "{name}");
    }
}

#[test]
fn with_a_service_account_the_write_permissions_are_its_own() {
    let text = roles("podgc", &["--service-account", "podgc", "--name", "mine"]);
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let by_account = |account: &str| -> Vec<&str> {
        let bindings = documents
            .iter()
            .filter(|one| one["subjects"][0]["name"] == account);
        bindings
            .map(|one| one["roleRef"]["name"].as_str().unwrap())
            .collect()
    };
    assert_eq!(by_account("davit"), ["davit-mine"]);
    assert_eq!(by_account("podgc"), ["davit-mine-writes"]);
    let writes = documents
        .iter()
        .find(|one| one["kind"] == "ClusterRole" && one["metadata"]["name"] == "davit-mine-writes");
    let rules = writes.unwrap()["rules"].as_array().unwrap();
    let verbs: Vec<&Value> = rules.iter().map(|rule| &rule["verbs"][0]).collect();
    assert_eq!(verbs, ["delete", "patch"]);
}
