//! A cluster for the controller's tests.

#![allow(clippy::expect_used, reason = "a helper of tests")]

use std::time::Duration;

use davit_guest::testing::{Harness, Pod, START};
use davit_guest::{Instant, QueueName, Step, Time};
use serde_json::{Value, json};
use taint_eviction::{EVICTIONS, TIMERS, TaintEviction};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) const DELETIONS: &str = "taint_eviction_controller_pod_deletions_total";
pub(crate) const LATENCY: &str = "taint_eviction_controller_pod_deletion_duration_seconds";

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn harness(config: &Value) -> Harness<TaintEviction> {
    Harness::new(config).expect("a valid configuration")
}

pub(crate) fn defaults() -> Harness<TaintEviction> {
    harness(&Value::Null)
}

pub(crate) fn pod(name: &str) -> Pod {
    Pod::new(name)
}

/// The node `node` with `NoExecute` taints of these keys.
pub(crate) fn node(keys: &[&str]) -> Value {
    let taints = keys.iter().map(|key| taint(key, "", "NoExecute"));
    node_with("node", &taints.collect::<Vec<_>>())
}

pub(crate) fn node_with(name: &str, taints: &[Value]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

pub(crate) fn taint(key: &str, value: &str, effect: &str) -> Value {
    json!({"key": key, "value": value, "effect": effect})
}

/// The uid that the harness gives a pod of this name.
pub(crate) fn uid(name: &str) -> String {
    format!("Pod/default/{name}")
}

/// The key of the timer of the pod of this name, for a taint of this key.
pub(crate) fn timer(name: &str, taint: &str) -> String {
    format!("{} {taint}", uid(name))
}

/// Whether a timer or an eviction of the pod with this name is pending.
pub(crate) fn waits(harness: &Harness<TaintEviction>, name: &str) -> bool {
    let timers = ["taint1", "taint2"].map(|taint| timer(name, taint));
    let mut timers = timers.iter().map(|key| (TIMERS, key));
    let waits = |(queue, key): (QueueName, &String)| harness.pending(queue, key).is_some();
    timers.any(waits) || waits((EVICTIONS, &uid(name)))
}

/// The names of the pods on the API server.
pub(crate) fn left(harness: &Harness<TaintEviction>) -> Vec<String> {
    let keys = harness.keys("Pod").into_iter();
    keys.map(|key| match key.rsplit_once('/') {
        Some((_, name)) => name.to_owned(),
        None => key,
    })
    .collect()
}

/// The names of the deleted or evicted pods, and the seconds after the start,
/// in order.
pub(crate) fn deletions(harness: &Harness<TaintEviction>) -> Vec<(&str, u64)> {
    let plans = harness.executions().iter();
    plans
        .filter(|it| {
            let steps = it.plan.steps.iter();
            let mut deleting = steps.filter(|it| matches!(it, Step::Delete(_) | Step::Evict(_)));
            deleting.next().is_some()
        })
        .map(|it| (it.plan.target.name.as_str(), (it.at - START).as_secs()))
        .collect()
}

/// The messages of the events so far, in order.
pub(crate) fn messages(harness: &Harness<TaintEviction>) -> Vec<&str> {
    let plans = harness.executions().iter();
    plans
        .flat_map(|it| &it.plan.steps)
        .filter_map(|step| match step {
            Step::Event(event) => Some(event.message.as_str()),
            _ => None,
        })
        .collect()
}

/// The time so many seconds after the start, or before it.
pub(crate) fn time(seconds: i64) -> String {
    Time::from(Instant::from_millis(START.as_millis() + seconds * 1_000)).to_string()
}

/// The condition with which the controller marks a pod.
pub(crate) fn condition(at: i64, generation: i64) -> Value {
    json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": time(at),
        "observedGeneration": generation,
    })
}

#[track_caller]
pub(crate) fn assert_counted(harness: &Harness<TaintEviction>, deletions: f64, latencies: &[f64]) {
    let counted = harness.metric(DELETIONS, &[]);
    assert!((counted - deletions).abs() < 0.5, "{counted} deletions");
    let observed = harness.observed(LATENCY, &[]);
    assert_eq!(observed.len(), latencies.len(), "{observed:?}");
    for (one, other) in observed.iter().zip(latencies) {
        assert!((one - other).abs() < 1e-9, "{observed:?}");
    }
}
