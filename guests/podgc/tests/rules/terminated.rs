//! Terminated pods above the threshold.

use davit_guest::Verdict;
use davit_guest::testing::{Dice, Harness};
use podgc::PodGc;
use serde_json::{Value, json};

use crate::common::{PERIOD, assert_counted, handled, harness, hour, patched, pod, ready_node};

/// Runs one pass over pods of these names, phases and reasons, each an hour
/// younger than the one before it.
fn pass(threshold: i32, pods: &[(&str, &str, &str)]) -> Harness<PodGc> {
    let mut harness = harness(&json!({"terminatedPodThreshold": threshold}));
    harness.put(ready_node("node"));
    for (hours, (name, phase, reason)) in (0..).zip(pods) {
        let pod = pod(name).phase(phase).reason(reason).created(hour(hours));
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
fn pgc_07_evicted_pods_are_deleted_first() {
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
fn pgc_08_an_evicted_pod_is_deleted_before_an_older_one() {
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
    assert_eq!(left.first().map(String::as_str), Some("default/pod-0900"));
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
    harness.put(pod("b").phase("Failed").created(hour(1)).into());
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
fn e2_a_pod_is_deleted_once_a_pass() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(pod("a").phase("Failed").node("").terminating().into());
    harness.put(pod("b").phase("Failed").node("").created(hour(1)).into());
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
    harness.put(pod("b").phase("Failed").created(hour(1)).into());
    harness.advance(2 * crate::common::PERIOD);
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
    harness.put(ended("d").created(hour(-1)).into());
    harness.put(
        ended("c")
            .set("/metadata/creationTimestamp", Value::Null)
            .into(),
    );
    harness.put(ended("0").created(hour(1)).into());
    harness.run();
    let order: Vec<String> = harness
        .executions()
        .iter()
        .map(|it| format!("{}/{}", it.plan.target.namespace, it.plan.target.name))
        .collect();
    assert_eq!(order, ["default/c", "default/d", "y/a", "z/a", "default/b"]);
}

#[test]
fn a_failed_deletion_is_counted_and_retried_in_the_next_pass() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    harness.put(pod("a").phase("Failed").into());
    harness.put(pod("b").phase("Failed").created(hour(1)).into());
    harness.fail_writes("Pod", "default/a", "server");
    harness.run();
    assert_counted(&harness, "terminated", 1, 1);
    harness.heal();
    harness.advance(crate::common::PERIOD);
    assert_eq!(harness.keys("Pod"), ["default/b"]);
    assert_counted(&harness, "terminated", 2, 1);
}

#[test]
fn a_pod_that_is_gone_already_is_not_an_error() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    harness.put(pod("a").phase("Failed").into());
    harness.put(pod("b").phase("Failed").created(hour(1)).into());
    harness.remove_from_server("Pod", "default/a");
    harness.run();
    assert_eq!(handled(&harness), ["a"]);
    assert_counted(&harness, "terminated", 1, 0);
}

#[test]
fn e15_another_pod_with_the_same_name_is_kept() {
    for (phase, patches) in [("Failed", 0), ("", 1)] {
        let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
        harness.put(ready_node("node"));
        harness.put(pod("a").phase(phase).uid("old").into());
        harness.put(pod("b").phase("Failed").created(hour(1)).into());
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
        harness.put(pod("b").phase("Failed").created(hour(1)).into());
        let marked = pod("c")
            .phase("Failed")
            .created(hour(2))
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

/// A finalizer keeps a pod of a missing node after its deletion. It counts, and it is
/// deleted in its turn: no other pod goes in its place.
#[test]
fn an_orphan_that_a_finalizer_keeps_costs_no_other_pod_its_place() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    let kept = pod("a").phase("Failed").node("missing").terminating();
    let kept = kept.finalizer().conditions(
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}]),
    );
    harness.put(kept.into());
    for (name, hours) in [("b", 1), ("c", 2)] {
        harness.put(pod(name).phase("Failed").created(hour(hours)).into());
    }
    harness.run();
    assert_eq!(harness.keys("Pod"), ["default/a", "default/c"]);
}

/// A call decides about one page, and the pass continues without waiting for
/// the next period.
#[test]
fn a_backlog_is_deleted_in_one_pass() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    harness.put(ready_node("node"));
    for number in 0..5_002 {
        let pod = pod(&format!("pod-{number:05}")).phase("Failed");
        harness.put(pod.created(hour(number / 1000)).into());
    }
    // Meanwhile another stage has its turn.
    harness.put(pod("unbound").node("").terminating().finalizer().into());
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    assert_eq!(first.plans.len(), 1_000 + 1);
    harness.run();
    // That pod was marked as failed meanwhile, and counts from then on.
    let left = ["default/pod-05001", "default/unbound"];
    assert_eq!(harness.keys("Pod"), left);
    harness.advance(PERIOD);
    assert_eq!(harness.keys("Pod"), left);
}

/// Many pods with few times, few names and every phase are deleted in
/// upstream's order, across every boundary between two calls of a pass.
#[test]
fn the_order_holds_from_the_first_to_the_last() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 300}));
    harness.put(ready_node("node"));
    let mut dice = Dice::new(1);
    let mut next = |below| usize::try_from(dice.below(below)).unwrap();
    let mut expected = Vec::new();
    for number in 0..4_000 {
        let phase = ["Succeeded", "Failed", "", "Hibernating", "Running"][next(5)];
        let reason = ["", "Evicted", "NodeLost"][next(3)];
        let name = format!("pod-{}", next(50));
        let namespace = format!("ns-{number}");
        let age = next(4);
        let pod = pod(&name).namespace(&namespace).phase(phase).reason(reason);
        let pod = match age {
            0 => pod.set("/metadata/creationTimestamp", Value::Null),
            hours => pod.created(hour(i64::try_from(hours).unwrap())),
        };
        harness.put(pod.into());
        if phase != "Running" {
            let evicted = phase == "Failed" && reason == "Evicted";
            expected.push((!evicted, age, name, namespace));
        }
    }
    expected.sort();
    expected.truncate(expected.len() - 300);
    assert!(expected.len() > 2_500);
    harness.run();
    let executions = harness.executions().iter();
    let order: Vec<(&str, &str)> = executions
        .map(|it| {
            (
                it.plan.target.name.as_str(),
                it.plan.target.namespace.as_str(),
            )
        })
        .collect();
    let expected: Vec<(&str, &str)> = expected
        .iter()
        .map(|(_, _, name, namespace)| (name.as_str(), namespace.as_str()))
        .collect();
    assert_eq!(order, expected);
}

/// Finalizers keep the oldest pods: the pods after them are deleted in the same
/// pass.
#[test]
fn pods_that_stay_delay_no_others() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 100}));
    harness.put(ready_node("node"));
    for number in 0..3_000 {
        let pod = pod(&format!("pod-{number:05}")).phase("Failed");
        let pod = if number < 1_500 { pod.finalizer() } else { pod };
        harness.put(pod.into());
    }
    for pass in 1..3 {
        harness.run();
        assert_eq!(harness.keys("Pod").len(), 1_500 + 100);
        let stuck = 1_500 * pass;
        assert_counted(&harness, "terminated", 1_400 + stuck, 0);
        harness.advance(PERIOD);
    }
}

/// A page deletes no pod for which others have made room since the first page, whether
/// the cache shows the deletions of the first page by then, some of them, or none.
#[test]
fn every_page_counts_again() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1_000}));
    harness.put(ready_node("node"));
    let key = |number: usize| format!("default/pod-{number:05}");
    for number in 0..4_000 {
        let pod = pod(&format!("pod-{number:05}")).phase("Failed");
        let evicted = number < 300;
        let pod = if evicted { pod.reason("Evicted") } else { pod };
        harness.put(pod.into());
    }
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    assert_eq!(first.plans.len(), 1_000);
    let Verdict::ContinueFrom(cursor) = first.verdict else {
        panic!("{:?}", first.verdict);
    };
    for number in 2_500..4_000 {
        harness.remove("Pod", &key(number));
    }
    for observed in [0..0, 0..1, 1..400, 400..1_000] {
        for number in observed.clone() {
            harness.remove("Pod", &key(number));
        }
        let second = harness.decide_page(podgc::PASSES, podgc::PASS, &cursor);
        let plans = second.plans.iter();
        let names: Vec<&str> = plans.map(|plan| plan.target.name.as_str()).collect();
        assert_eq!((names.len(), names[0]), (500, "pod-01000"), "{observed:?}");
        assert_eq!(second.verdict, Verdict::Done);
    }
    for number in 1_000..1_600 {
        harness.remove("Pod", &key(number));
    }
    let second = harness.decide_page(podgc::PASSES, podgc::PASS, &cursor);
    assert_eq!(second.plans, []);
}

/// The deletion of many orphans fails after they were marked. They do not
/// count, they cost no other pod its place, and a call's time stays bounded.
#[test]
fn many_marked_orphans_neither_count_nor_delay_others() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 10}));
    harness.put(ready_node("node"));
    let marked = json!([
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    ]);
    for number in 0..10_500 {
        let pod = pod(&format!("orphan-{number:05}")).phase("Failed");
        let pod = pod.node("missing").finalizer();
        harness.put(pod.set("/status/conditions", marked.clone()).into());
    }
    for number in 0..50 {
        let pod = pod(&format!("pod-{number:05}")).phase("Failed");
        harness.put(pod.created(hour(1)).into());
    }
    let before = harness.objects_read();
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    assert!(harness.objects_read() - before < 25_000);
    assert_eq!(first.plans, []);
    harness.run();
    assert_eq!(handled(&harness).len(), 40);
    assert_eq!(harness.keys("Pod").len(), 10_500 + 10);
    assert!(handled(&harness).contains(&"pod-00039"));
}

/// What a call reads does not depend on the number of ended pods.
#[test]
fn the_first_of_30_000_terminated_pods_go_in_the_first_call() {
    let mut harness = harness(&json!({}));
    harness.put(ready_node("node"));
    for number in 0..30_000 {
        let created = format!("2026-11-{:02}T10:00:00Z", 30 - number / 2_000);
        let pod = pod(&format!("pod-{number:06}"))
            .phase(["Succeeded", "Failed"][number % 2])
            .set("/metadata/creationTimestamp", created);
        let evicted = number % 2_000 == 1;
        let pod = if evicted { pod.reason("Evicted") } else { pod };
        harness.put(pod.into());
    }
    let before = harness.objects_read();
    let decision = harness.decide(podgc::PASSES, podgc::PASS);
    assert!(harness.objects_read() - before < 3_000);
    let names: Vec<&str> = decision
        .plans
        .iter()
        .map(|plan| plan.target.name.as_str())
        .collect();
    let evicted = (0..15)
        .rev()
        .map(|day| format!("pod-{:06}", day * 2_000 + 1));
    let others = (28_000..).filter(|number| number % 2_000 != 1);
    let others = others.map(|number| format!("pod-{number:06}"));
    let expected: Vec<String> = evicted.chain(others).take(1_000).collect();
    assert_eq!(names, expected);
    let next = "16500/1000/ended/2026-11-16T10:00:00Z/default/pod-028985";
    assert_eq!(decision.verdict, Verdict::ContinueFrom(next.to_owned()));
}

/// Finalizers hold the oldest pods, more than a call counts again.
#[test]
fn pods_that_are_held_cost_no_other_pod_its_place_however_many_they_are() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 500}));
    harness.put(ready_node("node"));
    let name = |number: usize| format!("pod-{number:06}");
    for number in 0..12_500 {
        let created = hour(i64::try_from(number).unwrap() / 1_000);
        let pod = pod(&name(number)).phase("Failed").created(created);
        harness.put(pod.into());
    }
    let mut cursor = String::new();
    for _ in 0..11 {
        let page = harness.decide_page(podgc::PASSES, podgc::PASS, &cursor);
        assert_eq!(page.plans.len(), 1_000);
        let Verdict::ContinueFrom(next) = page.verdict else {
            panic!("{:?}", page.verdict);
        };
        cursor = next;
    }
    // Somebody deletes younger ones: of the excess of 12,000 that the pass started with, 11,500 are
    // left, and 11,000 of them are decided about.
    for number in 12_000..12_500 {
        harness.remove("Pod", &format!("default/{}", name(number)));
    }
    let last = harness.decide_page(podgc::PASSES, podgc::PASS, &cursor);
    let deleted: Vec<_> = last.plans.iter().map(|plan| &plan.target.name).collect();
    let expected: Vec<String> = (11_000..11_500).map(name).collect();
    assert_eq!(deleted, expected.iter().collect::<Vec<_>>());
}
