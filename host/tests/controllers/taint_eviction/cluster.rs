//! Tainted nodes, and pods that tolerate some of the taints.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::bench::{Bench, text};

/// A configuration with this controller alone.
pub(crate) fn taint_eviction(mode: &str, config: &str) -> String {
    format!(
        "controllers:\n- name: taint-eviction\n  module: {{builtin: taint-eviction}}\n  mode: {mode}\n  config: {config}\n"
    )
}

/// The key of the taints that tests put on nodes.
pub(crate) const KEY: &str = "kubernetes.io/e2e-evict-taint-key";

/// Gives a node `NoExecute` taints of these keys, and no other taint.
pub(crate) async fn taint(bench: &Bench, node: &str, keys: &[&str]) {
    let taints: Vec<Value> = keys
        .iter()
        .map(|key| json!({"key": key, "value": "evictTaintVal", "effect": "NoExecute"}))
        .collect();
    let patch = json!({"spec": {"taints": taints}});
    let path = format!("/api/v1/nodes/{node}");
    bench.must("PATCH", &path, &patch).await;
}

/// Lets the host reconcile every listed pod. From then on, only a change of its node
/// concerns a pod. A call about pods that is in flight when a taint is added reads
/// their nodes itself: how many calls do so depends on the load of the machine,
/// although the time is virtual, because a guest yields to others by the machine's own
/// clock.
pub(crate) async fn until_resynced() {
    sleep(Duration::from_secs(10)).await;
}

/// The toleration of a taint with that key, for this many seconds or forever.
pub(crate) fn toleration(key: &str, seconds: Option<i64>) -> Value {
    let mut toleration = json!({
        "key": key, "operator": "Exists", "effect": "NoExecute",
    });
    if let Some(seconds) = seconds {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    toleration
}

/// A running pod with these tolerations that is removed as soon as it is deleted;
/// returns its uid.
pub(crate) async fn pod(bench: &Bench, name: &str, node: &str, tolerations: &[Value]) -> String {
    let running = json!({"phase": "Running"});
    bench
        .pod_with(name, node, &running, |pod| {
            pod["spec"]["tolerations"] = json!(tolerations);
            pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        })
        .await
}

/// The same, but it stays, marked, after its deletion.
pub(crate) async fn held_pod(
    bench: &Bench,
    name: &str,
    node: &str,
    tolerations: &[Value],
) -> String {
    let running = json!({"phase": "Running"});
    bench
        .pod_with(name, node, &running, |pod| {
            pod["spec"]["tolerations"] = json!(tolerations);
            pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
        })
        .await
}

/// Changes a pod's tolerations: the API server allows additional ones, and other times.
pub(crate) async fn set_tolerations(bench: &Bench, name: &str, tolerations: &[Value]) {
    let path = format!("/api/v1/namespaces/{}/pods/{name}", bench.namespace);
    let patch = json!({"spec": {"tolerations": tolerations}});
    bench.must("PATCH", &path, &patch).await;
}

pub(crate) fn is_terminating(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

pub(crate) fn disruption_target(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget")
}

/// Asserts that exactly these pods exist, for this long.
#[track_caller]
pub(crate) fn assert_left(left: &BTreeSet<String>, expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(ToString::to_string).collect();
    assert_eq!(*left, expected);
}

/// The messages of events, in byte order.
pub(crate) fn messages(events: &[Value]) -> Vec<String> {
    let mut messages: Vec<String> = events.iter().map(|it| text(it, "/message")).collect();
    messages.sort();
    messages
}
