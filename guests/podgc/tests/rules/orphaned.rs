//! Pods whose node is missing.

use std::time::Duration;

use davit_guest::testing::{Harness, START};
use davit_guest::{DeleteOptions, Step, Verdict};
use podgc::{ORPHANED, PodGc};
use serde_json::{Value, json};

use crate::common::{
    PERIOD, QUARANTINE, assert_counted, handled, harness, patched, pod, ready_node,
    without_threshold,
};

const SECOND: Duration = Duration::from_secs(1);

/// The seconds after the start at which nodes were read.
fn live_reads(harness: &Harness<PodGc>) -> Vec<u64> {
    let reads = harness.live_reads().into_iter();
    reads.map(|(at, _)| (at - START).as_secs()).collect()
}

fn waits(harness: &Harness<PodGc>, node: &str) -> bool {
    harness.pending(ORPHANED, node).is_some()
}

/// Asserts that every pod still exists and that none was attempted.
#[track_caller]
fn assert_kept(harness: &Harness<PodGc>, pods: usize) {
    assert_eq!(handled(harness), [""; 0]);
    assert_eq!(harness.keys("Pod").len(), pods);
}

#[test]
fn pgc_09_nodes_in_the_cache_keep_their_pods() {
    let mut harness = without_threshold();
    for number in 1..=2 {
        let name = format!("existing{number}");
        harness.put(ready_node(&name));
        harness.put(pod(&format!("a{number}")).node(&name).into());
        harness.put(
            pod(&format!("b{number}"))
                .node(&name)
                .phase("Failed")
                .into(),
        );
    }
    harness.advance(QUARANTINE + PERIOD);
    assert_kept(&harness, 4);
    assert!(!waits(&harness, "existing1") && !waits(&harness, "existing2"));
    assert!(live_reads(&harness).is_empty());
}

/// And E8: the cache lags, so the node starts another quarantine.
#[test]
fn pgc_10_nodes_on_the_server_keep_their_pods() {
    let mut harness = without_threshold();
    for number in 1..=2 {
        let name = format!("existing{number}");
        harness.put_on_server(ready_node(&name));
        harness.put(pod(&format!("a{number}")).node(&name).into());
    }
    harness.advance(QUARANTINE);
    assert_eq!(live_reads(&harness), [40, 40]);
    harness.advance(PERIOD);
    assert_kept(&harness, 2);
    assert!(waits(&harness, "existing1") && waits(&harness, "existing2"));
    harness.advance(QUARANTINE);
    assert_eq!(live_reads(&harness), [40, 40, 80, 80]);
    assert_kept(&harness, 2);
}

/// The empty name is not a missing node: pods that wait for the scheduler would
/// be deleted with it.
#[test]
fn pods_without_a_node_are_not_orphans() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("").phase("Pending").into());
    harness.put(pod("b").node("gone").finalizer().into());
    harness.advance(2 * QUARANTINE);
    assert_eq!(patched(&harness), ["b"]);
    assert_eq!(harness.keys("Pod"), ["default/a", "default/b"]);
    assert!(!waits(&harness, ""));
}

#[test]
fn any_number_of_missing_nodes_is_found() {
    let mut harness = without_threshold();
    for number in 0..1_001 {
        let name = format!("{number:04}");
        harness.put(pod(&name).node(&name).into());
    }
    let decision = harness.decide(podgc::PASSES, podgc::PASS);
    assert_eq!(decision.commands.len(), 1_001);
}

/// Pods of these phases on a node that does not exist, after the quarantine.
fn orphans(phases: &[&str]) -> Harness<PodGc> {
    let mut harness = without_threshold();
    for (name, phase) in ["a", "b", "c"].into_iter().zip(phases) {
        harness.put(pod(name).node("deleted").phase(phase).into());
    }
    harness.run();
    assert_kept(&harness, phases.len());
    harness.advance(QUARANTINE);
    harness
}

#[test]
fn pgc_11_without_nodes_terminated_pods_are_deleted_unpatched() {
    let harness = orphans(&["Failed", "Succeeded"]);
    assert_eq!(handled(&harness), ["a", "b"]);
    assert_eq!(patched(&harness), [""; 0]);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert_counted(&harness, "orphaned", 2, 0);
}

#[test]
fn pgc_12_without_nodes_a_running_pod_is_patched_and_deleted() {
    let harness = orphans(&["Failed", "Succeeded", "Running"]);
    assert_eq!(handled(&harness), ["a", "b", "c"]);
    assert_eq!(patched(&harness), ["c"]);
    assert_counted(&harness, "orphaned", 3, 0);
}

#[test]
fn pgc_13_until_the_quarantine_is_over_pods_are_kept() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("deleted").phase("Failed").into());
    harness.advance(QUARANTINE / 2);
    assert_kept(&harness, 1);
    harness.advance(Duration::from_millis(19_999));
    assert_kept(&harness, 1);
    assert!(live_reads(&harness).is_empty());
    // An early reconcile changes nothing.
    harness.enqueue(ORPHANED, "deleted");
    harness.run();
    assert!(live_reads(&harness).is_empty());
    let item = harness.pending(ORPHANED, "deleted").unwrap();
    assert_eq!((item.created_at, item.due_at), (START, START + 40 * SECOND));
}

#[test]
fn pgc_14_a_node_with_another_name_does_not_count() {
    let mut harness = without_threshold();
    harness.put(ready_node("existing"));
    harness.put(pod("a").node("deleted").into());
    harness.advance(QUARANTINE);
    assert_eq!(handled(&harness), ["a"]);
    assert_eq!(patched(&harness), ["a"]);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn pgc_15_only_pods_on_the_missing_node_are_deleted() {
    let mut harness = without_threshold();
    harness.put(ready_node("existing"));
    harness.put(pod("a").node("deleted").phase("Failed").into());
    harness.put(pod("b").node("existing").phase("Succeeded").into());
    harness.put(pod("c").node("deleted").into());
    harness.advance(QUARANTINE);
    assert_eq!(handled(&harness), ["a", "c"]);
    assert_eq!(patched(&harness), ["c"]);
    assert_eq!(harness.keys("Pod"), ["default/b"]);
}

/// A pod on the missing node, in the middle of the quarantine.
fn half_way() -> Harness<PodGc> {
    let mut harness = without_threshold();
    harness.put(pod("a").node("node").into());
    harness.advance(QUARANTINE / 2);
    harness
}

#[test]
fn pgc_16_a_node_that_appears_on_the_server_keeps_its_pods() {
    let mut harness = half_way();
    harness.put_on_server(ready_node("node"));
    harness.advance(QUARANTINE);
    assert_kept(&harness, 1);
    assert_eq!(live_reads(&harness), [40]);
}

/// And E7: no live read.
#[test]
fn pgc_17_a_node_that_appears_in_the_cache_keeps_its_pods() {
    let mut harness = half_way();
    harness.put(ready_node("node"));
    harness.advance(QUARANTINE);
    assert_kept(&harness, 1);
    assert!(live_reads(&harness).is_empty());
    assert!(!waits(&harness, "node"));
}

#[test]
fn pgc_18_a_node_that_disappears_from_the_server_loses_its_pods() {
    let mut harness = without_threshold();
    harness.put_on_server(ready_node("node"));
    harness.put(pod("a").node("node").phase("Failed").into());
    harness.advance(QUARANTINE / 2);
    harness.remove_from_server("Node", "node");
    harness.advance(QUARANTINE / 2);
    assert_eq!(handled(&harness), ["a"]);
}

#[test]
fn pgc_19_a_node_that_disappears_from_the_cache_starts_its_quarantine() {
    let mut harness = without_threshold();
    harness.put(ready_node("node"));
    harness.put(pod("a").node("node").phase("Failed").into());
    harness.advance(QUARANTINE);
    harness.hide("Node", "node");
    harness.run();
    assert_kept(&harness, 1);
    let item = harness.pending(ORPHANED, "node").unwrap();
    assert_eq!(item.due_at - harness.now(), 40 * SECOND);
    assert!(live_reads(&harness).is_empty());
}

/// Upstream asserts the requests; this test asserts the steps and their effect
/// on the pod.
#[test]
fn pgc_25_an_orphaned_pod_gets_its_condition_before_it_is_deleted() {
    let mut harness = without_threshold();
    let ready = json!([{"type": "Ready", "status": "True"}]);
    let held = pod("a").node("gone").finalizer();
    harness.put(held.set("/status/conditions", ready).into());
    harness.advance(QUARANTINE);
    let [execution] = harness.executions() else {
        panic!("one plan, not {:?}", harness.executions());
    };
    let [Step::Patch(_), Step::Delete(options)] = execution.plan.steps.as_slice() else {
        panic!("a patch and a deletion");
    };
    assert_eq!(*options, DeleteOptions::force());
    let pod = harness.object("Pod", "default/a").unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        pod["status"],
        json!({
            "phase": "Failed",
            "observedGeneration": 1,
            "conditions": [
                {"type": "Ready", "status": "True"},
                {
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "DeletionByPodGC",
                    "message": "PodGC: node no longer exists",
                    "observedGeneration": 1,
                    "lastTransitionTime": "2023-11-14T22:14:00Z",
                },
            ],
        })
    );
}

#[test]
fn pgc_33_the_observed_generation_is_the_pods_generation() {
    let mut harness = without_threshold();
    let held = pod("a").node("gone").finalizer();
    harness.put(held.set("/metadata/generation", 7).into());
    harness.advance(QUARANTINE);
    let status = &harness.object("Pod", "default/a").unwrap()["status"];
    assert_eq!(status["observedGeneration"], 7);
    assert_eq!(status["conditions"][0]["observedGeneration"], 7);
}

#[test]
fn pgc_35_orphaned_pods_with_a_finalizer_fail_and_stay() {
    for (phase, expected) in [
        ("Pending", "Failed"),
        ("Succeeded", "Succeeded"),
        ("Failed", "Failed"),
    ] {
        let mut harness = without_threshold();
        harness.put(pod("a").node("gone").phase(phase).finalizer().into());
        harness.advance(QUARANTINE);
        let pod = harness.object("Pod", "default/a").unwrap();
        assert!(pod["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(pod["status"]["phase"], expected, "{phase}");
        let condition = &pod["status"]["conditions"][0];
        if phase == "Pending" {
            assert_eq!(condition["type"], "DisruptionTarget");
            assert_eq!(condition["observedGeneration"], 1);
        } else {
            assert!(condition.is_null(), "{phase}: {condition}");
        }
    }
}

/// Upstream keeps reading a node that has no pods left.
#[test]
fn e5_a_missing_node_is_read_once_and_done_without_pods() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("gone").into());
    harness.advance(Duration::from_secs(200));
    assert_eq!(live_reads(&harness), [40]);
    assert!(!waits(&harness, "gone"));
}

#[test]
fn a_missing_node_with_pods_left_is_read_again_each_period() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("gone").finalizer().into());
    harness.advance(Duration::from_secs(90));
    assert_eq!(live_reads(&harness), [40, 60, 80]);
    assert_counted(&harness, "orphaned", 3, 0);
    assert_eq!(
        patched(&harness),
        ["a"],
        "a failed pod is not patched again"
    );
}

#[test]
fn e6_a_late_pod_on_a_verified_missing_node_does_not_wait_again() {
    let mut harness = without_threshold();
    harness.put(pod("held").node("gone").finalizer().into());
    harness.advance(Duration::from_secs(50));
    harness.put(pod("late").node("gone").into());
    harness.advance(Duration::from_secs(10));
    assert_eq!(handled(&harness), ["held", "held", "late"]);
    assert_eq!(harness.keys("Pod"), ["default/held"]);
}

#[test]
fn e9_a_node_that_was_created_again_is_the_same_node() {
    let mut harness = half_way();
    let mut created = ready_node("node");
    created["metadata"]["uid"] = json!("another");
    harness.put(created);
    harness.advance(2 * QUARANTINE);
    assert_kept(&harness, 1);
}

#[test]
fn e14_without_a_quarantine_pods_are_deleted_immediately() {
    let mut harness = harness(&json!({"quarantine": "0s"}));
    harness.put(pod("a").node("gone").into());
    harness.run();
    assert_eq!(handled(&harness), ["a"]);
    assert_eq!(live_reads(&harness), [0]);
}

#[test]
fn the_quarantine_starts_when_the_node_is_deleted() {
    let mut harness = without_threshold();
    harness.put(ready_node("node"));
    harness.put(pod("a").node("node").into());
    harness.advance(5 * SECOND);
    harness.remove("Node", "node");
    harness.advance(39 * SECOND);
    assert_kept(&harness, 1);
    harness.advance(SECOND);
    assert_eq!(handled(&harness), ["a"]);
    assert_eq!(live_reads(&harness), [45]);
}

#[test]
fn the_quarantine_starts_again_after_the_node_was_back() {
    let mut harness = half_way();
    harness.put(ready_node("node"));
    harness.advance(5 * SECOND);
    harness.remove("Node", "node");
    harness.advance(39 * SECOND);
    assert_kept(&harness, 1);
    harness.advance(SECOND);
    assert_eq!(live_reads(&harness), [65]);
    assert_eq!(handled(&harness), ["a"]);
}

#[test]
fn a_node_that_comes_back_after_its_pods_were_deleted_keeps_the_next() {
    let mut harness = without_threshold();
    harness.put(pod("held").node("node").finalizer().into());
    harness.advance(QUARANTINE);
    harness.put(ready_node("node"));
    harness.put(pod("new").node("node").into());
    harness.clear_executions();
    harness.advance(QUARANTINE);
    assert_eq!(handled(&harness), [""; 0]);
    assert!(!waits(&harness, "node"));
}

#[test]
fn a_node_that_cannot_be_read_keeps_its_pods_and_is_read_again() {
    for class in [
        "server",
        "timeout",
        "forbidden",
        "throttled",
        "something-new",
    ] {
        let mut harness = without_threshold();
        harness.put(pod("a").node("gone").into());
        harness.fail_reads("Node", "gone", class);
        harness.advance(QUARANTINE + 4 * SECOND);
        assert_kept(&harness, 1);
        if class == "throttled" {
            // The host itself repeats it first.
            harness.advance(QUARANTINE);
            assert_kept(&harness, 1);
            assert!(live_reads(&harness).len() > 2);
            harness.heal();
            harness.advance(QUARANTINE);
            assert_eq!(handled(&harness), ["a"]);
            continue;
        }
        assert_eq!(live_reads(&harness), [40, 41, 43], "{class}");
        harness.heal();
        harness.advance(3 * SECOND);
        assert_eq!(handled(&harness), ["a"], "{class}");
    }
}

#[test]
fn a_pod_that_cannot_be_marked_is_not_deleted() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("gone").into());
    harness.put(pod("b").node("gone").into());
    harness.fail_writes("Pod", "default/a", "server");
    harness.advance(QUARANTINE);
    assert_eq!(harness.keys("Pod"), ["default/a"]);
    assert_eq!(
        harness.object("Pod", "default/a").unwrap()["status"]["phase"],
        "Running"
    );
    assert_counted(&harness, "orphaned", 2, 1);
    harness.heal();
    harness.advance(SECOND);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert_counted(&harness, "orphaned", 3, 1);
}

#[test]
fn a_pod_that_is_disrupted_already_gets_the_new_reason() {
    let mut harness = without_threshold();
    let former = json!([{
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "m", "lastProbeTime": null, "lastTransitionTime": "2023-11-14T22:00:00Z",
    }]);
    let held = pod("a").node("gone").finalizer();
    harness.put(held.set("/status/conditions", former).into());
    harness.advance(QUARANTINE);
    let status = &harness.object("Pod", "default/a").unwrap()["status"];
    let condition: &Value = &status["conditions"][0];
    assert_eq!(condition["reason"], "DeletionByPodGC");
    assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:00:00Z");
    assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
}

#[test]
fn nodes_that_exist_at_the_start_cost_nothing_later() {
    let mut harness = without_threshold();
    for number in 0..10 {
        harness.put(ready_node(&format!("worker-{number}")));
    }
    harness.run();
    for number in 0..10 {
        assert!(!waits(&harness, &format!("worker-{number}")));
    }
}

/// A node with more pods than one answer may have: each pod is deleted once in
/// a period, also those after pods that stay, and a call reads no more than its
/// page.
#[test]
fn the_pods_of_one_node_are_deleted_in_pages() {
    let mut harness = without_threshold();
    for number in 0..4_000 {
        let orphan = pod(&format!("orphan-{number:05}")).node("gone");
        let stays = number < 1_500;
        harness.put(if stays { orphan.finalizer() } else { orphan }.into());
    }
    harness.advance(crate::common::QUARANTINE);
    let reads = live_reads(&harness);
    assert_eq!(reads, [40; 4], "the server is asked before each part");
    let mut names = handled(&harness);
    assert_eq!(names.len(), 4_000);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 4_000);
    assert_eq!(harness.keys("Pod").len(), 1_500);
    // Pods that stay are retried in each period.
    harness.advance(PERIOD);
    assert_eq!(handled(&harness).len(), 5_500);
}

/// A call reads no more than its page, and the node comes back while its pods
/// are deleted: the rest is kept.
#[test]
fn a_node_that_comes_back_between_two_pages_keeps_the_rest() {
    let mut harness = harness(&json!({"quarantine": "0s"}));
    for number in 0..2_500 {
        harness.put(pod(&format!("orphan-{number:05}")).node("gone").into());
    }
    let before = harness.objects_read();
    let first = harness.decide(ORPHANED, "gone");
    assert_eq!(first.plans.len(), 1_000);
    assert_eq!(harness.objects_read() - before, 1_000);
    let Verdict::ContinueFrom(cursor) = first.verdict else {
        panic!("{:?}", first.verdict);
    };
    let second = harness.decide_page(ORPHANED, "gone", &cursor);
    assert_eq!(second.plans[0].target.name, "orphan-01000");
    harness.put_on_server(ready_node("gone"));
    let second = harness.decide_page(ORPHANED, "gone", &cursor);
    assert_eq!((second.plans, second.verdict), (vec![], Verdict::Done));
}

/// A quarantine may last for days; an API server that was away is asked again soon.
#[test]
fn a_node_that_cannot_be_read_is_read_again_soon_however_long_the_quarantine_is() {
    let hour = Duration::from_secs(3_600);
    let mut harness = harness(&json!({"quarantine": "2h", "terminatedPodThreshold": -1}));
    harness.put(pod("orphan").node("gone").into());
    harness.advance(hour);
    harness.fail_reads("Node", "gone", "server");
    harness.advance(3 * hour);
    assert_eq!(harness.keys("Pod"), ["default/orphan"]);
    harness.heal();
    harness.advance(Duration::from_secs(60));
    assert_eq!(harness.keys("Pod"), [""; 0]);
}
