//! Rules as an operator gives them to a cluster: with an account and roles of their own.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::process::{davit, guests};

const NAME: &str = "many";
/// Deletes a `ConfigMap` of more than three parts. One whose number is no number makes it fail.
const POLICY: &str = "
apiVersion: davit.dev/v1alpha1
kind: Controller
metadata: {name: many}
spec:
  mode: Enforce
  serviceAccountName: davit-many
  module: {builtin: policy}
  permissions:
    reads: [{resource: configmaps, fields: ['data[\"parts\"]', metadata.deletionTimestamp]}]
    writes: [{resource: configmaps, verb: delete}]
  config:
    rules:
    - name: too-many
      match: {resource: configmaps, namespaces: [ci]}
      when: int(object.data.parts) > 3
      do: {delete: {}}
";

/// A cluster with the policy, and the roles that `davit inspect --rbac` prints for it.
fn cluster() -> Cluster {
    let cluster = Cluster::new();
    let file = cluster.directory.path().join("many.yaml");
    std::fs::write(&file, POLICY).unwrap();
    let mut inspect = davit();
    inspect.args(["inspect", "--rbac", "--name", NAME]);
    inspect.args(["--service-account", "davit-many"]);
    inspect
        .arg("--config")
        .arg(&file)
        .arg("--guests")
        .arg(guests());
    let roles = inspect.output().unwrap();
    assert!(roles.status.success(), "{roles:?}");
    let roles = String::from_utf8(roles.stdout).unwrap();
    let roles: Vec<Value> = serde_saphyr::from_multiple(&roles).unwrap();
    let controller = serde_saphyr::from_str(POLICY).unwrap();
    for object in roles.into_iter().chain([controller]) {
        cluster.sim.create(object).unwrap();
    }
    cluster
}

fn add(cluster: &Cluster, name: &str, parts: &str) {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": name}, "data": {"parts": parts},
    });
    cluster.sim.create(object).unwrap();
}

#[test]
fn a_rule_that_fails_is_in_the_status_and_in_what_davit_get_prints() {
    let cluster = cluster();
    for (name, parts) in [("large", "4"), ("odd", "many"), ("small", "3")] {
        add(&cluster, name, parts);
    }
    let _davit = cluster.run();
    let is_left = |name: &str| cluster.sim.get("v1", "ConfigMap", "ci", name).is_ok();
    cluster.until("the rule deletes the other one", |_| !is_left("large"));
    cluster.until("the failure is reported", |_| {
        cluster.status(NAME)["reports"][0]["count"].as_u64() >= Some(1)
    });
    let report = &cluster.status(NAME)["reports"][0];
    assert_eq!(report["name"], "too-many");
    let message = report["message"].as_str().unwrap();
    let expected = "v1 ConfigMap ci/odd: int(object.data.parts) > 3 fails: ";
    assert!(message.starts_with(expected), "{message}");
    let (found, tree) = cluster.command(&["get", NAME]);
    assert!(found, "{tree}");
    assert!(tree.contains("reports of the guest"), "{tree}");
    let mut lines = tree.lines();
    let line = lines.find(|line| line.contains("too-many (")).unwrap();
    assert!(line.ends_with(message), "{tree}");

    // What came before it has been judged.
    add(&cluster, "later", "5");
    cluster.until("a later one is deleted", |_| !is_left("later"));
    assert!(is_left("odd") && is_left("small"));
    let denied = cluster.denied();
    assert!(denied.is_empty(), "{denied:?}");
}
