//! The examples of the documentation, on a cluster in memory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::bench::process::{Process, free_port, get, until};
use crate::program::{davit, sim};

fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    examples.join(name)
}

/// Runs kubectl; none if it is not installed.
fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> Option<String> {
    let kubectl = Command::new("kubectl")
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .output();
    let output = kubectl.ok()?;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The walk through the README: a lower threshold deletes nothing as a shadow, and
/// deletes the oldest pods once it is promoted.
#[test]
fn the_example_of_the_readme_is_a_shadow_first_and_deletes_after_its_promotion() {
    let (sim, kubeconfig) = sim(&[&example("cluster.yaml")]);
    let crds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    let Some(_) = kubectl(&kubeconfig, &["apply", "-k", crds.to_str().unwrap()]) else {
        return;
    };
    let kubectl = |arguments: &[&str]| kubectl(&kubeconfig, arguments).unwrap();
    kubectl(&["create", "namespace", "davit-system"]);
    let controller = example("podgc.yaml");
    kubectl(&["apply", "-f", controller.to_str().unwrap()]);
    let server = format!("127.0.0.1:{}", free_port());
    let mut host = davit();
    host.args(["run", "--http", &server, "--insecure-http", "--kubeconfig"])
        .arg(&kubeconfig)
        .stderr(Stdio::null());
    let host = Process(host.spawn().unwrap());
    let pods = || kubectl(&["get", "pods", "-o", "name"]).lines().count();
    let status = || -> Value {
        let controller = kubectl(&["get", "controller", "podgc", "-o", "json"]);
        serde_json::from_str::<Value>(&controller).unwrap()["status"].clone()
    };
    until("the stable revision runs", || {
        status()["summary"] == "Running"
    });

    let patch = r#"{"spec": {"config": {"terminatedPodThreshold": 6}}}"#;
    kubectl(&[
        "patch",
        "controller",
        "podgc",
        "--type=merge",
        "--patch",
        patch,
    ]);
    until("the decisions are compared", || {
        status()["candidate"]["comparison"]["onlyCandidate"] == 6
    });
    let page = get(&format!("http://{server}/controllers/podgc/disagreements"));
    let (_, page) = page.unwrap();
    let page: Value = serde_json::from_str(&page).unwrap();
    assert_eq!(page["disagreements"][0]["result"], "only-candidate");
    assert_eq!(pods(), 12);

    let promoted = davit()
        .args(["promote", "podgc", "--full", "--kubeconfig"])
        .arg(&kubeconfig)
        .output()
        .unwrap();
    assert!(promoted.status.success(), "{promoted:?}");
    until("the promoted revision deletes the oldest pods", || {
        pods() == 6
    });
    assert!(kubectl(&["get", "pods"]).contains("job-12"));
    assert_eq!(host.terminate(), 0);
    assert_eq!(sim.terminate(), 0);
}
