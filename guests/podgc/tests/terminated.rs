//! Terminated pods above the threshold.

mod common;

use common::{PERIOD, assert_counted, handled, harness, patched, pod, ready_node};
use davit_guest::testing::Harness;
use podgc::PodGc;
use serde_json::{Value, json};

/// Runs one pass over pods of these names, phases and reasons, each an hour
/// younger than the one before it.
fn pass(threshold: i32, pods: &[(&str, &str, &str)]) -> Harness<PodGc> {
    let mut harness = harness(&json!({"terminatedPodThreshold": threshold}));
    harness.put(ready_node("node"));
    for (hours, (name, phase, reason)) in (0..).zip(pods) {
        let pod = pod(name).phase(phase).reason(reason).created(hours);
        harness.put(pod.into());
    }
    harness.run();
    harness
}

/// All of these pods have ended, so none of them is patched.
#[track_caller]
fn assert_deleted(threshold: i32, pods: &[(&str, &str, &str)], deleted: &[&str]) {
    let harness = pass(threshold, pods);
    assert_eq!(handled(&harness), deleted);
    assert_eq!(patched(&harness), [""; 0]);
    assert_eq!(harness.keys("Pod").len(), pods.len() - deleted.len());
    assert_counted(&harness, "terminated", deleted.len(), 0);
}

const FAILED_SUCCEEDED_FAILED: [(&str, &str, &str); 3] = [
    ("a", "Failed", ""),
    ("b", "Succeeded", ""),
    ("c", "Failed", ""),
];

#[test]
fn pgc_01_failed_and_succeeded_pods_are_deleted() {
    assert_deleted(1, &FAILED_SUCCEEDED_FAILED, &["a", "b"]);
}

#[test]
fn pgc_02_threshold_0_disables_the_stage() {
    assert_deleted(0, &[("a", "Failed", ""), ("b", "Succeeded", "")], &[]);
}

#[test]
fn pgc_03_threshold_1_keeps_the_youngest() {
    assert_deleted(1, &FAILED_SUCCEEDED_FAILED, &["a", "b"]);
}

#[test]
fn pgc_04_a_running_pod_does_not_count() {
    assert_deleted(
        1,
        &[
            ("a", "Running", ""),
            ("b", "Succeeded", ""),
            ("c", "Failed", ""),
        ],
        &["b"],
    );
}

#[test]
fn pgc_05_the_older_one_is_deleted() {
    assert_deleted(1, &[("a", "Failed", ""), ("b", "Succeeded", "")], &["a"]);
}

#[test]
fn pgc_06_below_the_threshold_nothing_is_deleted() {
    assert_deleted(5, &[("a", "Failed", ""), ("b", "Succeeded", "")], &[]);
}

#[test]
fn pgc_07_evicted_first() {
    assert_deleted(
        1,
        &[
            ("a", "Failed", ""),
            ("b", "Succeeded", ""),
            ("c", "Failed", "Evicted"),
        ],
        &["c", "a"],
    );
}

#[test]
fn pgc_08_an_evicted_pod_before_an_older_one() {
    assert_deleted(
        1,
        &[
            ("a", "Running", ""),
            ("b", "Succeeded", ""),
            ("c", "Failed", "Evicted"),
        ],
        &["c"],
    );
}

#[test]
fn pgc_38_of_1000_pods_100_are_left() {
    let names: Vec<String> = (0..1_000)
        .map(|number| format!("pod-{number:04}"))
        .collect();
    let pods: Vec<(&str, &str, &str)> = names
        .iter()
        .map(|name| (name.as_str(), "Failed", ""))
        .collect();
    let harness = pass(100, &pods);
    let left = harness.keys("Pod");
    assert_eq!(left.len(), 100);
    assert_eq!(left.first(), Some(&"default/pod-0900"));
    assert_counted(&harness, "terminated", 900, 0);
}

#[test]
fn only_pending_running_and_unknown_pods_are_alive() {
    for (phase, alive) in [
        ("Pending", true),
        ("Running", true),
        ("Unknown", true),
        ("Succeeded", false),
        ("Failed", false),
        ("", false),
        ("Hibernating", false),
    ] {
        let harness = pass(1, &[("a", phase, ""), ("b", phase, "")]);
        let expected: &[&str] = if alive { &[] } else { &["a"] };
        assert_eq!(handled(&harness), expected, "phase \"{phase}\"");
    }
}

#[test]
fn e1_a_pod_without_a_phase_is_marked_and_deleted() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    let mut phaseless: Value = pod("a").finalizer().into();
    phaseless["status"] = json!({});
    harness.put(phaseless);
    harness.put(pod("b").phase("Failed").created(1).into());
    harness.run();
    assert_eq!(patched(&harness), ["a"]);
    let pod = harness.object("Pod", "default/a").unwrap();
    assert_eq!(
        pod["status"],
        json!({"phase": "Failed", "observedGeneration": 1})
    );
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_counted(&harness, "terminated", 1, 0);
}

#[test]
fn e2_a_pod_is_handled_once_a_pass() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(pod("a").phase("Failed").node("").terminating().into());
    harness.put(pod("b").phase("Failed").node("").created(1).into());
    harness.run();
    assert_eq!(handled(&harness), ["a"]);
    assert_counted(&harness, "terminated", 1, 0);
    assert_counted(&harness, "unscheduled", 0, 0);
}

#[test]
fn e10_a_negative_threshold_disables_only_this_stage() {
    for threshold in [0, -1, i32::MIN] {
        let mut harness = harness(&json!({"terminatedPodThreshold": threshold}));
        harness.put(ready_node("node"));
        harness.put(pod("ended").phase("Failed").into());
        harness.put(pod("unscheduled").node("").terminating().into());
        harness.run();
        assert_eq!(handled(&harness), ["unscheduled"], "threshold {threshold}");
    }
}

#[test]
fn e11_a_pod_with_finalizers_is_deleted_again_each_pass() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    harness.put(pod("a").phase("Failed").finalizer().into());
    harness.put(pod("b").phase("Failed").created(1).into());
    harness.advance(2 * common::PERIOD);
    assert_eq!(handled(&harness), ["a", "a", "a"]);
    assert_eq!(harness.keys("Pod"), ["default/a", "default/b"]);
    assert_counted(&harness, "terminated", 3, 0);
}

#[test]
fn ties_are_broken_by_name_then_namespace_then_uid() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    let ended = |name: &str| pod(name).phase("Succeeded");
    harness.put(ended("b").into());
    harness.put(ended("a").namespace("z").uid("1").into());
    harness.put(ended("a").namespace("y").uid("2").into());
    harness.put(
        ended("c")
            .set("/metadata/creationTimestamp", Value::Null)
            .into(),
    );
    harness.put(ended("0").created(1).into());
    harness.run();
    let order: Vec<String> = harness
        .carried_out()
        .iter()
        .map(|it| format!("{}/{}", it.plan.target.namespace, it.plan.target.name))
        .collect();
    assert_eq!(order, ["default/c", "y/a", "z/a", "default/b"]);
}

#[test]
fn a_failed_deletion_is_counted_and_tried_again_in_the_next_pass() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    harness.put(pod("a").phase("Failed").into());
    harness.put(pod("b").phase("Failed").created(1).into());
    harness.fail_writes("Pod", "default/a", "server");
    harness.run();
    assert_counted(&harness, "terminated", 1, 1);
    harness.heal();
    harness.advance(common::PERIOD);
    assert_eq!(harness.keys("Pod"), ["default/b"]);
    assert_counted(&harness, "terminated", 2, 1);
}

#[test]
fn a_pod_that_is_gone_already_is_no_error() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    harness.put(pod("a").phase("Failed").into());
    harness.put(pod("b").phase("Failed").created(1).into());
    harness.remove_from_server("Pod", "default/a");
    harness.run();
    assert_eq!(handled(&harness), ["a"]);
    assert_counted(&harness, "terminated", 1, 0);
}

#[test]
fn e15_a_pod_of_the_same_name_is_left_alone() {
    for (phase, patches) in [("Failed", 0), ("", 1)] {
        let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
        harness.put(ready_node("node"));
        harness.put(pod("a").phase(phase).uid("old").into());
        harness.put(pod("b").phase("Failed").created(1).into());
        harness.put_on_server(pod("a").uid("new").into());
        harness.run();
        assert_eq!(handled(&harness), ["a"]);
        assert_eq!(patched(&harness).len(), patches);
        let survivor = harness.object("Pod", "default/a").unwrap();
        assert_eq!(survivor["metadata"]["uid"], "new");
        assert_eq!(survivor["status"]["phase"], "Running");
        assert_counted(&harness, "terminated", 1, 0);
    }
}

/// An orphan that was marked and is not deleted yet is `Failed` for a moment:
/// it must not push another pod over the threshold. Where its node exists it
/// counts like any other.
#[test]
fn an_orphan_that_is_being_deleted_does_not_count() {
    for (node, left) in [("missing", 3), ("node", 2)] {
        let mut harness = harness(&json!({"terminatedPodThreshold": 2}));
        harness.put(ready_node("node"));
        harness.put(pod("a").phase("Failed").into());
        harness.put(pod("b").phase("Failed").created(1).into());
        let marked = pod("c")
            .phase("Failed")
            .created(2)
            .set("/spec/nodeName", node);
        let marked = marked.set(
            "/status/conditions",
            json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]),
        );
        harness.put(marked.into());
        harness.run();
        assert_eq!(harness.keys("Pod").len(), left, "{node}");
    }
}

/// The host takes 10,000 plans in one decision, and no decision that has more.
#[test]
fn a_backlog_is_worked_off_in_several_passes() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    for number in 0..5_002 {
        let pod = pod(&format!("pod-{number:05}")).phase("Failed");
        harness.put(pod.created(number / 1000).into());
    }
    // Another stage has its turn meanwhile.
    harness.put(pod("unbound").node("").terminating().finalizer().into());
    harness.run();
    assert_eq!(harness.keys("Pod").len(), 5_003 - 5_000);
    assert!(handled(&harness).contains(&"unbound"));
    for _ in 0..3 {
        harness.advance(PERIOD);
    }
    assert_eq!(
        harness.keys("Pod"),
        ["default/pod-05001", "default/unbound"]
    );
}
