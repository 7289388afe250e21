//! `davit grant`, and the Controller in the API server afterwards.

use std::time::Duration;

use davit::commands::grant::Grant;
use serde_json::{Value, json};

use crate::cluster::{Cluster, spec};

const AT: &str = "2026-11-20T10:00:00.000Z";

/// For a cluster without a host.
const NO_WAIT: Duration = Duration::ZERO;

/// A Controller that lacks a rule, as the host reports it.
async fn not_granted() -> Cluster {
    let mut spec = spec(1);
    spec["permissions"] = json!({"writes": [{"verb": "delete", "resource": "pods"}]});
    let cluster = Cluster::new();
    cluster.create("podgc", spec).await.unwrap();
    let status = json!({
        "observedGeneration": 1,
        "conditions": [{
            "type": "Granted", "status": "False", "reason": "NotGranted",
            "message": "aaaa declares more", "lastTransitionTime": AT,
        }],
        "missingPermissions": {"reads": [{"resource": "pods", "fields": ["spec.nodeName"]}]},
    });
    cluster.change("podgc", json!({"status": status}));
    cluster
}

async fn grant(cluster: &Cluster) -> Grant {
    let grant = Grant::read(&cluster.client, "podgc").await.unwrap();
    grant.expect("a rule is missing")
}

#[tokio::test]
async fn a_grant_adds_the_rules_that_it_has_printed() {
    let cluster = not_granted().await;
    let grant = grant(&cluster).await;
    let shown = grant.yaml().unwrap();
    let (comment, yaml) = shown.split_once('\n').unwrap();
    assert_eq!(comment, "# aaaa declares more");
    let yaml: Value = serde_saphyr::from_str(yaml).unwrap();
    assert_eq!(yaml["metadata"]["name"], "podgc");
    // The host writes the status all the time.
    cluster.change("podgc", json!({"status": {"summary": "another"}}));
    grant.apply(NO_WAIT).await.unwrap();
    let permissions = &cluster.get("podgc")["spec"]["permissions"];
    assert_eq!(*permissions, yaml["spec"]["permissions"]);
    let expected = json!({
        "reads": [{"resource": "pods", "fields": ["spec.nodeName"]}],
        "writes": [{"verb": "delete", "resource": "pods"}],
    });
    assert_eq!(*permissions, expected);
}

#[tokio::test]
async fn a_grant_for_a_controller_that_has_changed_is_refused() {
    let cluster = not_granted().await;
    let grant = grant(&cluster).await;
    let module = json!({"spec": {"module": {"builtin": "taint-eviction", "digest": null}}});
    cluster.change("podgc", module);
    let before = cluster.get("podgc");
    assert_eq!(
        grant.apply(NO_WAIT).await.unwrap_err().to_string(),
        "the Controller podgc changed meanwhile, and no rule was added: \
         davit grant podgc shows the rules that it lacks now"
    );
    assert_eq!(cluster.get("podgc"), before);
    let unread = Grant::read(&cluster.client, "podgc").await;
    let unread = unread.err().unwrap().to_string();
    assert!(
        unread.contains("the host has not read the present spec yet"),
        "{unread}"
    );
}

#[tokio::test]
async fn a_grant_without_missing_rules_changes_nothing() {
    let cluster = not_granted().await;
    let granted = json!({
        "type": "Granted", "status": "True", "reason": "Granted", "message": "",
        "lastTransitionTime": AT,
    });
    cluster.change("podgc", json!({"status": {"conditions": [granted]}}));
    assert!(
        Grant::read(&cluster.client, "podgc")
            .await
            .unwrap()
            .is_none()
    );
    let loading = json!({
        "type": "Granted", "status": "Unknown", "reason": "NotReached",
        "message": "not known", "lastTransitionTime": AT,
    });
    cluster.change("podgc", json!({"status": {"conditions": [loading]}}));
    let unknown = Grant::read(&cluster.client, "podgc").await;
    let unknown = unknown.err().unwrap().to_string();
    assert!(unknown.contains("is not known yet"), "{unknown}");
}
