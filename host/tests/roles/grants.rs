//! What a module may do that does not ship with Davit: what an operator grants, even if
//! Davit's own account may do more.

use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::cluster::{Cluster, module};

const NAME: &str = "podgc";
const READS_SECRETS: [&str; 2] = ["list secrets", "watch secrets"];

/// A cluster with a Secret, PodGC, and a module that an attacker put in a `ConfigMap`.
/// Davit's account may read them all.
fn cluster() -> Cluster {
    let cluster = Cluster::new();
    let sim = &cluster.sim;
    cluster.allow("reads-everything", &["get", "list", "watch"], &[""]);
    cluster.bind("reads-everything", "davit");
    let password = ByteString(b"the password".to_vec());
    sim.create(json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "database", "namespace": "default"},
        "data": {"password": password},
    }))
    .unwrap();
    sim.create(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "guests", "namespace": "davit-system"},
        "binaryData": {"odd.wasm": module("fixture_odd.wasm")},
    }))
    .unwrap();
    cluster
}

/// The module in the `ConfigMap`, as a shadow of what runs.
fn attack() -> Value {
    json!({
        "module": {
            "builtin": null,
            "configMap": {"namespace": "davit-system", "name": "guests", "key": "odd.wasm"},
        },
        "config": {"describe": "secrets", "reconcile": "done", "terminatedPodThreshold": null},
        "rollout": {"steps": ["shadow until promoted"]},
    })
}

fn has_read_secrets(cluster: &Cluster) -> bool {
    READS_SECRETS
        .iter()
        .any(|one| cluster.used().contains(*one))
}

#[test]
fn a_candidate_that_declares_secrets_starts_only_when_they_are_granted() {
    let cluster = cluster();
    cluster.add(NAME, &json!({"terminatedPodThreshold": 1}));
    let _davit = cluster.run();
    cluster.until("PodGC runs", |_| cluster.is(NAME, "Synced", "True"));
    assert_eq!(
        cluster.condition(NAME, "Granted")["reason"],
        "ShipsWithDavit"
    );

    cluster.change(NAME, json!({"spec": attack()}));
    cluster.until("the candidate is refused", |_| {
        cluster.is(NAME, "Granted", "False")
    });
    std::thread::sleep(Duration::from_secs(1));
    assert!(!has_read_secrets(&cluster), "not even as a shadow");
    let present = cluster.status(NAME);
    assert_eq!(present["candidate"], Value::Null);
    assert!(cluster.is(NAME, "Synced", "True"), "what ran continues");
    let message = cluster.condition(NAME, "Granted")["message"].to_string();
    assert!(message.contains("read secrets (data)"), "{message}");
    assert!(message.contains("davit grant podgc"), "{message}");

    let (shown, rules) = cluster.command(&["grant", NAME]);
    assert!(shown && rules.contains("resource: secrets"), "{rules}");
    assert!(!has_read_secrets(&cluster), "it only shows the rules");
    let (granted, done) = cluster.command(&["grant", NAME, "--apply"]);
    assert!(granted && done.starts_with(rules.trim_end()), "{done}");
    // Davit's own account may read them. The controller's may not.
    cluster.until("the account is refused", |_| {
        let condition = cluster.condition(NAME, "Authorized");
        let message = condition["message"].as_str().unwrap_or_default();
        condition["status"] == "False" && message.contains("list secrets, watch secrets")
    });
    std::thread::sleep(Duration::from_secs(1));
    assert!(!has_read_secrets(&cluster), "not even as a shadow");
    cluster.bind("reads-everything", "davit-podgc");
    cluster.until("the candidate starts", |_| {
        !cluster.status(NAME)["candidate"].is_null()
    });
    cluster.until("it watches Secrets", |_| has_read_secrets(&cluster));
    assert!(cluster.is(NAME, "Granted", "True"));
    // The rules cover what ran without rules before.
    assert_eq!(cluster.status(NAME)["stable"], present["stable"]);
    assert!(cluster.is(NAME, "Synced", "True"));
    let (_, nothing) = cluster.command(&["grant", NAME]);
    assert!(
        nothing.contains("everything that the guest declares is granted"),
        "{nothing}"
    );
}

#[test]
fn a_module_that_does_not_ship_with_davit_may_do_nothing_without_permissions() {
    let cluster = cluster();
    cluster.add(NAME, &json!({}));
    let mut spec = attack();
    spec["config"]["describe"] = json!("");
    cluster.change(NAME, json!({"spec": spec}));
    let _davit = cluster.run();
    cluster.until("it is refused", |_| cluster.is(NAME, "Granted", "False"));
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        !cluster.used().contains("list pods"),
        "{:?}",
        cluster.used()
    );
    let (granted, done) = cluster.command(&["grant", NAME, "--apply"]);
    assert!(granted, "{done}");
    cluster.until("it runs", |_| cluster.is(NAME, "Synced", "True"));
    let spec = &cluster.get(NAME)["spec"];
    let expected = json!({
        "reads": [{"resource": "pods"}],
        "writes": [
            {"verb": "delete", "resource": "pods"},
            {"verb": "patch", "resource": "pods/status"},
        ],
    });
    assert_eq!(spec["permissions"], expected);
}

#[test]
fn rules_for_a_spec_that_no_host_has_read_are_not_printed() {
    let cluster = cluster();
    cluster.add(NAME, &json!({}));
    let (shown, why) = cluster.command(&["grant", NAME, "--apply"]);
    assert!(
        !shown && why.contains("has not read the present spec yet"),
        "{why}"
    );
    assert_eq!(cluster.get(NAME)["spec"]["permissions"], Value::Null);
}
