//! A cluster for the collector's tests.

#![allow(clippy::expect_used, reason = "a helper of tests")]

use std::time::Duration;

use davit_guest::testing::{Execution, Harness, Pod, START};
use davit_guest::{Instant, Step};
use podgc::PodGc;
use serde_json::{Value, json};

pub(crate) const DELETIONS: &str = "pod_gc_collector_force_delete_pods_total";
pub(crate) const ERRORS: &str = "pod_gc_collector_force_delete_pod_errors_total";

/// kube-controller-manager's pause between two passes.
pub(crate) const PERIOD: Duration = Duration::from_secs(20);
/// Its quarantine.
pub(crate) const QUARANTINE: Duration = Duration::from_secs(40);

pub(crate) fn harness(config: &Value) -> Harness<PodGc> {
    Harness::new(config).expect("a valid configuration")
}

/// A collector that ignores terminated pods.
pub(crate) fn without_threshold() -> Harness<PodGc> {
    harness(&json!({"terminatedPodThreshold": -1}))
}

pub(crate) fn pod(name: &str) -> Pod {
    Pod::new(name)
}

/// So many hours after the harness starts, or before.
pub(crate) fn hour(hours: i64) -> Instant {
    Instant::from_millis(START.as_millis() + hours * 3_600_000)
}

/// A node that is ready or not, with a taint of this key and effect.
pub(crate) fn node(name: &str, ready: &str, taint: Option<(&str, &str)>) -> Value {
    let taints: Vec<Value> = taint
        .map(|(key, effect)| json!({"key": key, "effect": effect}))
        .into_iter()
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": taints},
        "status": {"conditions": [
            {"type": "MemoryPressure", "status": "True"},
            {"type": "Ready", "status": ready},
        ]},
    })
}

pub(crate) fn ready_node(name: &str) -> Value {
    node(name, "True", None)
}

/// The names of the pods whose plans were executed, in order.
pub(crate) fn handled(harness: &Harness<PodGc>) -> Vec<&str> {
    let plans = harness.executions().iter();
    plans.map(|it| it.plan.target.name.as_str()).collect()
}

/// The names of the pods whose status was patched, in order.
pub(crate) fn patched(harness: &Harness<PodGc>) -> Vec<&str> {
    let patched = |it: &&Execution| matches!(it.plan.steps.first(), Some(Step::Patch(_)));
    let plans = harness.executions().iter().filter(patched);
    plans.map(|it| it.plan.target.name.as_str()).collect()
}

/// A counter for the namespace `default`.
#[track_caller]
pub(crate) fn assert_counted(
    harness: &Harness<PodGc>,
    reason: &str,
    deletions: usize,
    errors: usize,
) {
    for (metric, expected) in [(DELETIONS, deletions), (ERRORS, errors)] {
        let counted = harness.metric(metric, &["default", reason]);
        let expected = f64::from(u32::try_from(expected).expect("a small number"));
        assert!(
            (counted - expected).abs() < 0.5,
            "{metric} for {reason} is {counted}, and should be {expected}"
        );
    }
}
