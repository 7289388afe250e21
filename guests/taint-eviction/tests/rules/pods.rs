//! Pods that are created, bound, change their tolerations, and are deleted.

use davit_guest::Step;
use davit_guest::testing::{Harness, START};
use serde_json::{Value, json};
use taint_eviction::{TIMERS, TaintEviction};

use crate::common::{
    SECOND, condition, defaults, deletions, harness, left, messages, node, node_with, pod, seconds,
    taint, timer, uid, waits,
};

/// A cluster with the node `node` under `taint1`.
fn tainted() -> Harness<TaintEviction> {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.run();
    harness
}

#[test]
fn te_02_a_pod_that_is_not_scheduled_is_ignored() {
    let mut harness = tainted();
    harness.put(pod("pod1").node("").into());
    harness.advance(SECOND);
    assert_eq!(left(&harness), ["pod1"]);
    assert!(harness.executions().is_empty());
}

#[test]
fn te_03_a_pod_on_an_untainted_node_stays() {
    let mut harness = tainted();
    harness.put(node_with("other", &[]));
    harness.put(pod("pod1").node("other").into());
    harness.advance(SECOND);
    assert_eq!(left(&harness), ["pod1"]);
    assert!(harness.executions().is_empty());
}

/// Marked first, then deleted with its own grace period.
#[test]
fn te_04_a_pod_on_a_tainted_node_is_marked_and_deleted() {
    let mut harness = tainted();
    harness.put(pod("pod1").finalizer().into());
    harness.run();
    let stored = harness.object("Pod", "default/pod1").unwrap();
    assert!(stored["metadata"]["deletionTimestamp"].is_string());
    let status = &stored["status"];
    assert_eq!(status["conditions"], json!([condition(0, 1)]));
    assert_eq!(status["phase"], "Running");
    let [carried] = harness.executions() else {
        panic!("{:?}", harness.executions());
    };
    let [Step::Event(_), Step::Patch(patch), Step::Delete(options)] = &carried.plan.steps[..]
    else {
        panic!("{:?}", carried.plan.steps);
    };
    assert_eq!(patch.subresource, "status");
    assert_eq!(options.grace_period_seconds, None);
    assert_eq!(options.propagation_policy, "");
}

#[test]
fn te_05_a_pod_that_tolerates_for_a_while_is_not_deleted_yet() {
    let mut harness = tainted();
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.advance(seconds(99));
    assert_eq!(left(&harness), ["pod1"]);
    assert!(harness.executions().is_empty());
    harness.advance(SECOND);
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn te_06_a_pod_that_tolerates_forever_stays() {
    let mut harness = tainted();
    harness.put(pod("pod1").tolerates("taint1", None).into());
    harness.advance(seconds(100_000));
    assert_eq!(left(&harness), ["pod1"]);
    assert!(!waits(&harness, "pod1"));
    assert!(harness.executions().is_empty());
}

#[test]
fn te_07_a_pod_that_tolerates_another_taint_is_deleted() {
    let mut harness = tainted();
    harness.put(pod("pod1").tolerates("taint2", None).into());
    harness.run();
    assert_eq!(left(&harness), [""; 0]);
    assert_eq!(deletions(&harness), [("pod1", 0)]);
}

/// In Kubernetes: does not panic. Here: its timer is cancelled with it.
#[test]
fn te_08_a_deleted_pod_leaves_no_timer() {
    let mut harness = tainted();
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.run();
    assert!(waits(&harness, "pod1"));
    harness.remove("Pod", "default/pod1");
    harness.run();
    assert!(!waits(&harness, "pod1"));
    harness.advance(seconds(200));
    assert!(harness.executions().is_empty());
}

#[test]
fn te_09_a_pod_that_is_scheduled_onto_a_tainted_node_is_deleted() {
    let mut harness = tainted();
    harness.put(pod("pod1").node("").into());
    harness.run();
    harness.put(pod("pod1").uid(&uid("pod1")).into());
    harness.run();
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn te_10_a_pod_with_a_toleration_stays_on_a_tainted_node() {
    let mut harness = tainted();
    let pod = pod("pod1").tolerates("taint1", Some(100));
    harness.put(pod.clone().node("").into());
    harness.run();
    harness.put(pod.into());
    harness.advance(seconds(50));
    assert_eq!(left(&harness), ["pod1"]);
}

#[test]
fn te_11_removing_a_toleration_deletes_immediately() {
    for policy in ["keep", "shorten-only", "recompute"] {
        let mut harness = harness(&json!({"reschedule": policy}));
        harness.put(node(&["taint1"]));
        harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
        harness.advance(seconds(7));
        harness.put(pod("pod1").into());
        harness.advance(SECOND);
        assert_eq!(left(&harness), [""; 0], "{policy}");
        assert_eq!(deletions(&harness), [("pod1", 7)], "{policy}");
        // It is not cancelled in between.
        assert_eq!(
            messages(&harness),
            ["Marking for deletion Pod default/pod1"]
        );
    }
}

#[test]
fn te_12_lengthening_a_toleration_changes_nothing() {
    let mut harness = tainted();
    harness.put(pod("pod1").tolerates("taint1", Some(1)).into());
    harness.run();
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.advance(SECOND);
    assert_eq!(deletions(&harness), [("pod1", 1)]);
    assert_eq!(left(&harness), [""; 0]);
}

/// When each policy deletes a pod whose 100 s become another time after 5 s.
#[test]
fn a_changed_toleration_counts_from_the_start_of_its_time() {
    for (policy, lasts, expected) in [
        ("keep", 10, 100),
        ("keep", 1000, 100),
        ("keep", 0, 100),
        ("shorten-only", 10, 10),
        ("shorten-only", 1000, 100),
        ("shorten-only", 0, 5),
        ("recompute", 10, 10),
        ("recompute", 1000, 1000),
        ("recompute", 0, 5),
    ] {
        let mut harness = harness(&json!({"reschedule": policy}));
        harness.put(node(&["taint1"]));
        harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
        harness.advance(seconds(5));
        harness.put(pod("pod1").tolerates("taint1", Some(lasts)).into());
        harness.advance(seconds(2000));
        let told = messages(&harness);
        assert_eq!(
            deletions(&harness),
            [("pod1", expected)],
            "{policy} {lasts}"
        );
        // A longer time always comes with an event.
        let cancelled = told.contains(&"Cancelling deletion of Pod default/pod1");
        assert_eq!(cancelled, expected > 100, "{policy} {lasts}: {told:?}");
    }
}

/// The eviction decides last: here, the pod's change is observed only after its
/// time is over.
#[test]
fn a_time_that_became_longer_unobserved_is_recomputed() {
    let mut harness = harness(&json!({"reschedule": "recompute"}));
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.advance(seconds(50));
    harness.put(pod("pod1").tolerates("taint1", Some(200)).into());
    harness.enqueue(TIMERS, &timer("pod1", "taint1"));
    harness.advance(seconds(149));
    assert_eq!(left(&harness), ["pod1"]);
    harness.advance(SECOND);
    assert_eq!(deletions(&harness), [("pod1", 200)]);
}

/// E1
#[test]
fn zero_and_negative_seconds_are_no_time() {
    for none in [0, -1, i64::MIN] {
        let mut harness = tainted();
        harness.put(pod("pod1").tolerates("taint1", Some(none)).into());
        harness.run();
        assert_eq!(deletions(&harness), [("pod1", 0)]);
    }
}

/// Kubernetes overflows: some of these become forever, others 290 ms.
#[test]
fn a_very_long_toleration_is_a_timer_that_can_be_cancelled() {
    for long in [9_223_372_037, 18_446_744_074, i64::MAX] {
        for policy in ["keep", "shorten-only", "recompute"] {
            let mut harness = harness(&json!({"reschedule": policy}));
            harness.put(node(&["taint1"]));
            harness.put(pod("pod1").tolerates("taint1", Some(long)).into());
            harness.advance(seconds(50_000));
            assert_eq!(left(&harness), ["pod1"], "{policy} {long}");
            assert!(waits(&harness, "pod1"));
            harness.put(node(&[]));
            harness.run();
            assert!(!waits(&harness, "pod1"));
            assert_eq!(
                messages(&harness),
                ["Cancelling deletion of Pod default/pod1"]
            );
        }
    }
}

/// E4 and E5: Kubernetes deletes the new pod when the old pod's time is over.
#[test]
fn a_pod_created_again_under_its_name_has_its_own_time() {
    for (node_of_second, expected) in [("other", None), ("node", Some(15))] {
        let mut harness = tainted();
        harness.put(node_with("other", &[]));
        let tolerant = pod("pod1").tolerates("taint1", Some(10));
        harness.put(tolerant.clone().uid("first").into());
        harness.advance(seconds(5));
        // The cache shows nothing of the time in between.
        harness.remove_from_server("Pod", "default/pod1");
        harness.put(tolerant.uid("second").node(node_of_second).into());
        harness.advance(seconds(100));
        let expected: Vec<_> = expected.map(|at| ("pod1", at)).into_iter().collect();
        assert_eq!(deletions(&harness), expected, "{node_of_second}");
        let of_first = |it: &&davit_guest::testing::Execution| it.plan.target.uid == "first";
        assert_eq!(harness.executions().iter().filter(of_first).count(), 0);
        assert_eq!(harness.pending(TIMERS, "first taint1"), None);
    }
}

/// E8
#[test]
fn a_pod_keeps_its_timer_when_something_else_changes() {
    let mut harness = tainted();
    let tolerant = pod("pod1").tolerates("taint1", Some(10));
    harness.put(tolerant.clone().into());
    harness.run();
    let before = harness.pending(TIMERS, &timer("pod1", "taint1"));
    harness.advance(SECOND);
    let read = harness.objects_read();
    harness.put(
        tolerant
            .conditions(json!([{"type": "Ready", "status": "False"}]))
            .into(),
    );
    harness.run();
    assert_eq!(harness.pending(TIMERS, &timer("pod1", "taint1")), before);
    assert_eq!(
        harness.objects_read(),
        read,
        "a change of its status triggers no reconcile"
    );
}

/// E13
#[test]
fn a_toleration_of_everything_bounds_every_taint() {
    let mut harness = defaults();
    harness.put(node(&["taint1", "taint2"]));
    let all = json!({"operator": "Exists", "tolerationSeconds": 30});
    harness.put(pod("bounded").toleration(all).into());
    harness.put(pod("free").toleration(json!({"operator": "Exists"})).into());
    harness.advance(seconds(100));
    assert_eq!(deletions(&harness), [("bounded", 30)]);
    assert_eq!(left(&harness), ["free"]);
}

/// Of two tolerations of one taint, the first counts, however long it is.
#[test]
fn the_first_toleration_that_matches_counts() {
    let mut harness = tainted();
    let pod = pod("pod1")
        .tolerates("taint1", Some(100))
        .tolerates("taint1", Some(1))
        .tolerates("taint1", None);
    harness.put(pod.into());
    harness.advance(seconds(1000));
    assert_eq!(deletions(&harness), [("pod1", 100)]);
}

/// E14
#[test]
fn comparison_operators_match_only_if_configured() {
    for (on, expected) in [(false, &[][..]), (true, &["pod1"])] {
        let mut harness = harness(&json!({"tolerationComparisonOperators": on}));
        let risk = taint("risk", "5", "NoExecute");
        harness.put(node_with("node", &[risk]));
        let less = json!({"key": "risk", "operator": "Lt", "value": "10"});
        harness.put(pod("pod1").toleration(less).into());
        let greater = json!({"key": "risk", "operator": "Gt", "value": "10"});
        harness.put(pod("pod2").toleration(greater).into());
        harness.run();
        assert_eq!(left(&harness), expected, "{on}");
    }
}

/// E7: the phase does not matter, and a terminating pod is marked only.
#[test]
fn a_terminating_pod_is_marked_and_not_deleted_again() {
    let mut harness = tainted();
    harness.put(pod("pod1").finalizer().terminating().into());
    harness.put(pod("pod2").set("/status/phase", "Succeeded").into());
    harness.advance(SECOND);
    assert_eq!(deletions(&harness), [("pod2", 0)]);
    let stored = harness.object("Pod", "default/pod1").unwrap();
    assert_eq!(stored["status"]["conditions"], json!([condition(0, 1)]));
    let plans = harness.executions().len();
    // Nothing is done twice.
    harness.put(node(&["taint1", "taint2"]));
    harness.advance(SECOND);
    assert_eq!(harness.executions().len(), plans);
}

/// An older generation in the condition is no reason to write it again.
#[test]
fn an_existing_condition_is_not_written_again() {
    let mut harness = tainted();
    let conditions = json!([condition(-60, 1), {"type": "Ready", "status": "True"}]);
    let marked = pod("pod1").finalizer().conditions(conditions.clone());
    harness.put(marked.set("/metadata/generation", 2).into());
    harness.run();
    let stored = harness.object("Pod", "default/pod1").unwrap();
    assert_eq!(stored["status"]["conditions"], conditions);
    assert!(stored["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn another_condition_of_that_type_is_replaced_in_its_place() {
    let mut harness = tainted();
    let other = json!({
        "type": "DisruptionTarget", "status": "False", "reason": "Other", "message": "m",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    });
    let ready = json!({"type": "Ready", "status": "True"});
    let held = pod("pod1").finalizer().conditions(json!([other, ready]));
    harness.put(held.into());
    harness.run();
    let stored = harness.object("Pod", "default/pod1").unwrap();
    let conditions: &Value = &stored["status"]["conditions"];
    assert_eq!(*conditions, json!([condition(0, 1), ready]));
}

/// The pod's own event comes late: the timer counts from when it is observed.
#[test]
fn a_pod_that_the_cache_does_not_show_waits_for_it() {
    let mut harness = tainted();
    harness.put_on_server(pod("pod1").tolerates("taint1", Some(10)).into());
    harness.advance(seconds(30));
    assert_eq!(left(&harness), ["pod1"]);
    harness.show("Pod", "default/pod1");
    harness.run();
    let before = harness.pending(TIMERS, &timer("pod1", "taint1")).unwrap();
    assert_eq!(
        (before.created_at, before.due_at),
        (START + seconds(30), START + seconds(40))
    );
}
