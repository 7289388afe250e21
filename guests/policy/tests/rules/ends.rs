//! When a pod ended.

use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, START, rules};

const LONG_AGO: &str = "2023-11-11T22:13:20Z";

fn ended_at(name: &str, time: Value) -> Value {
    json!({"name": name, "state": {"terminated": {"exitCode": 137, "finishedAt": time}}})
}

/// The pods that are left half an hour and more than an hour after the start, if pods go an
/// hour after their end.
fn left(status: Value) -> [usize; 2] {
    let mut harness = rules(json!([{
        "name": "ended",
        "match": {"resource": "pods"},
        "when": "now - finishedAt(object) > duration('1h')",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    harness.put(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ci", "name": "a"},
        "status": status,
    }));
    [30 * MINUTE, HOUR].map(|time| {
        harness.advance(time);
        harness.keys("Pod").len()
    })
}

/// The kubelet does not know when a container ended that it has lost: then the pod's
/// conditions say when the pod was evicted.
#[test]
fn a_pod_with_a_container_without_an_end_ended_when_its_conditions_changed() {
    let evicted = json!([
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO},
        {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": START},
    ]);
    for containers in [
        json!([ended_at("main", Value::Null)]),
        json!([
            ended_at("main", json!(LONG_AGO)),
            ended_at("other", Value::Null)
        ]),
        json!([{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]),
        json!([{"name": "main"}]),
        json!([]),
    ] {
        let status = json!({
            "phase": "Failed", "reason": "Evicted", "conditions": evicted,
            "initContainerStatuses": [ended_at("init", json!(LONG_AGO))],
            "containerStatuses": containers,
        });
        assert_eq!(left(status), [1, 0], "{containers}");
    }
}

#[test]
fn the_end_of_an_init_container_alone_is_no_end_of_a_pod() {
    let status = json!({
        "phase": "Failed", "reason": "Evicted",
        "initContainerStatuses": [ended_at("init", json!(LONG_AGO))],
        "containerStatuses": [ended_at("main", Value::Null)],
    });
    assert_eq!(left(status), [1, 1]);
}

/// A failed init container ends its pod, whose containers never run.
#[test]
fn a_pod_ended_with_its_last_container() {
    let scheduled = json!([
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": LONG_AGO},
    ]);
    for (init, main) in [(json!(START), Value::Null), (json!(LONG_AGO), json!(START))] {
        let status = json!({
            "phase": "Failed", "conditions": scheduled,
            "initContainerStatuses": [ended_at("init", init.clone())],
            "containerStatuses": [ended_at("main", main.clone())],
        });
        assert_eq!(left(status), [1, 0], "{init} {main}");
    }
}
