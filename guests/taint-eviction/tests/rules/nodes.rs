//! Nodes that appear, change their taints, and disappear.

use davit_guest::{Command, Step, Verdict};
use serde_json::{Value, json};
use taint_eviction::{EVICTIONS, NODES, PODS, TIMERS};

use crate::common::{
    SECOND, defaults, deletions, left, messages, node, node_with, pod, seconds, taint, timer, waits,
};

/// `TestFilterNoExecuteTaints`
#[test]
fn te_01_only_no_execute_taints_evict() {
    let mut harness = defaults();
    let taints = |effects: &[&str]| -> Vec<Value> {
        let taints = (1..).zip(effects);
        taints
            .map(|(number, effect)| taint(&format!("taint{number}"), "", effect))
            .collect()
    };
    harness.put(node_with("a", &taints(&["NoSchedule", "PreferNoSchedule"])));
    harness.put(node_with("b", &taints(&["NoSchedule", "NoExecute"])));
    harness.put(node_with("c", &taints(&["NoExecute", ""])));
    harness.put(pod("on-a").node("a").into());
    harness.put(pod("on-b").node("b").into());
    // It tolerates the node's other taints.
    let tolerant = pod("on-b-tolerant").node("b").tolerates("taint2", None);
    harness.put(tolerant.into());
    let tolerant = pod("on-c-tolerant").node("c").tolerates("taint1", None);
    harness.put(tolerant.into());
    harness.run();
    assert_eq!(left(&harness), ["on-a", "on-b-tolerant", "on-c-tolerant"]);
}

#[test]
fn te_13_a_new_node_without_taints_keeps_its_pods() {
    let mut harness = defaults();
    harness.put(pod("pod1").into());
    harness.run();
    harness.put(node(&[]));
    harness.advance(SECOND);
    assert_eq!(left(&harness), ["pod1"]);
}

#[test]
fn te_14_a_new_node_with_a_taint_loses_its_pods() {
    let mut harness = defaults();
    harness.put(pod("pod1").into());
    harness.run();
    harness.put(node(&["taint1"]));
    harness.run();
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn te_15_a_new_node_with_a_taint_keeps_the_pods_that_tolerate_it() {
    let mut harness = defaults();
    harness.put(pod("pod1").tolerates("taint1", None).into());
    harness.run();
    harness.put(node(&["taint1"]));
    harness.advance(seconds(1000));
    assert_eq!(left(&harness), ["pod1"]);
}

/// In Kubernetes: the node is no longer among the tainted ones. Here the guest
/// keeps no such list; the purpose is that PodGC deletes the pods of a node
/// that is gone. And E6: Kubernetes lets the timers end.
#[test]
fn te_16_a_node_that_is_gone_evicts_no_pod() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("early").tolerates("taint1", Some(10)).into());
    harness.run();
    assert!(waits(&harness, "early"));
    harness.remove("Node", "node");
    harness.run();
    assert!(!waits(&harness, "early"));
    assert_eq!(
        messages(&harness),
        ["Cancelling deletion of Pod default/early"]
    );
    harness.put(pod("late").into());
    harness.advance(seconds(100));
    assert_eq!(left(&harness), ["early", "late"]);
}

#[test]
fn te_17_an_added_taint_evicts() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").into());
    harness.run();
    assert_eq!(left(&harness), ["pod1"]);
    harness.put(node(&["taint1"]));
    harness.run();
    assert_eq!(deletions(&harness), [("pod1", 0)]);
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn te_18_an_added_taint_that_is_tolerated_does_not_evict() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.run();
    harness.put(node(&["taint1"]));
    harness.advance(seconds(99));
    assert_eq!(left(&harness), ["pod1"]);
}

#[test]
fn te_19_one_intolerable_taint_of_two_evicts() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.run();
    harness.put(node(&["taint1", "taint2"]));
    harness.run();
    assert_eq!(deletions(&harness), [("pod1", 0)]);
}

/// And E3
#[test]
fn te_20_a_taint_that_is_removed_in_time_evicts_no_pod() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").tolerates("taint1", Some(1)).into());
    harness.run();
    harness.put(node(&[]));
    harness.advance(seconds(2));
    assert_eq!(left(&harness), ["pod1"]);
    assert_eq!(
        messages(&harness),
        ["Cancelling deletion of Pod default/pod1"]
    );
    assert!(deletions(&harness).is_empty());
}

#[test]
fn te_21_of_several_tolerations_the_first_to_end_evicts() {
    let mut harness = defaults();
    harness.put(node(&[]));
    let pod = pod("pod1")
        .tolerates("taint1", Some(1))
        .tolerates("taint2", Some(100));
    harness.put(pod.into());
    harness.run();
    harness.put(node(&["taint1", "taint2"]));
    harness.advance(seconds(5));
    assert_eq!(deletions(&harness), [("pod1", 1)]);
}

/// `TestGetMinTolerationTime`: what is tolerated forever shortens nothing, and a taint that is not tolerated
/// leaves no time.
#[test]
fn te_25_the_shortest_tolerated_time_counts() {
    for (times, expected) in [
        ([Some(1), Some(2)], Some(1)),
        ([Some(1), None], Some(1)),
        ([None, Some(1)], Some(1)),
        ([None, None], None),
    ] {
        let mut harness = defaults();
        harness.put(node(&[]));
        let pod = pod("pod1")
            .tolerates("taint1", times[0])
            .tolerates("taint2", times[1]);
        harness.put(pod.into());
        harness.run();
        harness.put(node(&["taint1", "taint2"]));
        harness.advance(seconds(5));
        let expected: Vec<_> = expected.iter().map(|after| ("pod1", *after)).collect();
        assert_eq!(deletions(&harness), expected, "{times:?}");
    }
}

/// `TestUpdateNodeWithMultipleTaints` (and E2): a pod that tolerates one taint
/// forever and the other for a minute has a timer only while the other exists.
#[test]
fn te_22_a_timer_runs_only_while_its_taint_exists() {
    let mut harness = defaults();
    let pod = pod("pod1")
        .tolerates("taint1", None)
        .tolerates("taint2", Some(60));
    harness.put(pod.into());
    harness.put(node(&["taint1"]));
    harness.run();
    assert!(!waits(&harness, "pod1"));
    harness.put(node(&["taint1", "taint2"]));
    harness.run();
    assert!(waits(&harness, "pod1"));
    harness.put(node(&["taint1"]));
    harness.run();
    assert!(!waits(&harness, "pod1"));
    harness.advance(seconds(100));
    assert_eq!(left(&harness), ["pod1"]);
}

/// `TestUpdateNodeWithMultiplePods`
#[test]
fn te_23_pods_with_different_tolerations_leave_at_different_times() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").into());
    harness.put(pod("pod2").tolerates("taint1", Some(1)).into());
    harness.put(pod("pod3").tolerates("taint1", None).into());
    harness.run();
    harness.put(node(&["taint1"]));
    harness.advance(seconds(100));
    assert_eq!(deletions(&harness), [("pod1", 0), ("pod2", 1)]);
    assert_eq!(left(&harness), ["pod3"]);
}

/// `TestUpdateNodeWithMultiplePods`
#[test]
fn te_24_all_pods_that_do_not_tolerate_all_taints_leave_immediately() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").tolerates("taint1", Some(1)).into());
    harness.put(pod("pod2").tolerates("taint2", Some(1)).into());
    harness.put(pod("pod3").into());
    harness.run();
    harness.put(node(&["taint1", "taint2"]));
    harness.run();
    let gone = deletions(&harness);
    assert_eq!(gone, [("pod1", 0), ("pod2", 0), ("pod3", 0)]);
}

/// `TestEventualConsistency`: the cache shows `pod2` only after the node's taint
/// has evicted `pod1`.
fn late_pod(was_there: bool, toleration: Option<i64>) -> (Vec<(String, u64)>, Vec<String>) {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").into());
    let mut late = pod("pod2");
    if let Some(seconds) = toleration {
        late = late.tolerates("taint1", Some(seconds));
    }
    if was_there {
        harness.put(late.clone().node("").into());
    }
    harness.run();
    harness.put(node(&["taint1"]));
    harness.run();
    assert_eq!(deletions(&harness), [("pod1", 0)]);
    harness.advance(SECOND);
    harness.put(late.into());
    harness.advance(SECOND);
    let gone = deletions(&harness).into_iter();
    let gone = gone.map(|(name, at)| (name.to_owned(), at)).collect();
    let left = left(&harness);
    (gone, left)
}

#[track_caller]
fn assert_late_pod(was_there: bool, toleration: Option<i64>, goes: bool) {
    let (gone, left) = late_pod(was_there, toleration);
    let mut expected = vec![("pod1".to_owned(), 0)];
    if goes {
        expected.push(("pod2".to_owned(), 1));
    }
    assert_eq!(gone, expected);
    assert_eq!(left.len(), usize::from(!goes));
}

#[test]
fn te_26_a_pod_that_is_scheduled_late_leaves() {
    assert_late_pod(true, None, true);
}

#[test]
fn te_27_a_pod_with_a_toleration_that_is_scheduled_late_stays() {
    assert_late_pod(true, Some(100), false);
}

#[test]
fn te_28_a_pod_that_is_created_late_leaves() {
    assert_late_pod(false, None, true);
}

#[test]
fn te_29_a_pod_with_a_toleration_that_is_created_late_stays() {
    assert_late_pod(false, Some(100), false);
}

/// In Kubernetes these are the helpers that write a node's taints; this
/// controller writes none. Their purpose here is which changes of a node's
/// taints count: key and effect identify a taint, and a new value is compared
/// again.
#[test]
fn te_51_key_and_effect_identify_a_taint() {
    let tolerated = || taint("key", "old", "NoExecute");
    let exact = json!({
        "key": "key", "operator": "Equal", "value": "old", "effect": "NoExecute",
    });
    for (taints, stays) in [
        // No taint, the same taint, another order, one more with another
        // effect.
        (vec![], true),
        (vec![tolerated()], true),
        (vec![taint("key", "new", "NoSchedule"), tolerated()], true),
        (vec![tolerated(), taint("key", "old", "NoSchedule")], true),
        (vec![taint("other", "old", "PreferNoSchedule")], true),
        // Another value, key, or effect of the same key.
        (vec![taint("key", "new", "NoExecute")], false),
        (vec![taint("other", "old", "NoExecute")], false),
        (vec![tolerated(), taint("other", "", "NoExecute")], false),
        (vec![taint("key", "", "NoExecute")], false),
    ] {
        let mut harness = defaults();
        harness.put(node_with("node", &[tolerated()]));
        harness.put(pod("pod1").toleration(exact.clone()).into());
        harness.run();
        assert_eq!(left(&harness), ["pod1"]);
        harness.put(node_with("node", &taints));
        harness.run();
        assert_eq!(left(&harness).len(), usize::from(stays), "{taints:?}");
    }
}

/// Other changes of a node trigger no reconcile: not even its pods are read.
#[test]
fn a_heartbeat_triggers_no_reconcile() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").tolerates("taint1", Some(100)).into());
    harness.run();
    let read = harness.objects_read();
    let mut beat = node(&["taint1"]);
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = json!("2026-01-01T00:00:00Z");
    harness.put(beat);
    assert_eq!(harness.pending(NODES, "node"), None);
    harness.run();
    assert_eq!(harness.objects_read(), read);
}

#[test]
fn a_node_reads_no_other_nodes_pods() {
    let mut harness = defaults();
    harness.put(node(&[]));
    for number in 0..200 {
        let on = format!("other-{}", number % 10);
        harness.put(pod(&format!("o-{number}")).node(&on).into());
    }
    for number in 0..5 {
        harness.put(pod(&format!("pod{number}")).into());
    }
    harness.run();
    let read = harness.objects_read();
    harness.put(node(&["taint1"]));
    harness.run();
    assert_eq!(left(&harness).len(), 200);
    let read = harness.objects_read() - read;
    // The node and its pods, before and after the live read of the node; then
    // the pod and its node for each eviction.
    assert_eq!(read, 2 * (1 + 5) + 5 * 2);
    assert_eq!(harness.live_reads().len(), 1);
}

/// A taint that replaces another has a time of its own, from then on.
#[test]
fn an_exchanged_taint_has_its_own_time() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    let pod = pod("pod1")
        .tolerates("taint1", Some(10))
        .tolerates("taint2", Some(300));
    harness.put(pod.into());
    harness.advance(seconds(8));
    harness.put(node(&["taint2"]));
    harness.advance(seconds(1000));
    assert_eq!(deletions(&harness), [("pod1", 308)]);
}

/// Removed and added again, it starts again.
#[test]
fn a_taint_that_is_added_again_starts_again() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").tolerates("taint1", Some(10)).into());
    harness.advance(seconds(8));
    harness.put(node(&[]));
    harness.advance(SECOND);
    harness.put(node(&["taint1"]));
    harness.advance(seconds(100));
    assert_eq!(deletions(&harness), [("pod1", 19)]);
}

/// The timer is dequeued in the moment in which the taint is removed: the
/// node's item finds nothing to cancel, and the timer adds the event itself.
#[test]
fn a_timer_that_ends_as_the_taint_is_removed_is_cancelled() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").tolerates("taint1", Some(10)).into());
    harness.run();
    harness.put(node(&[]));
    let decision = harness.decide(TIMERS, &timer("pod1", "taint1"));
    // The pod's record is deleted.
    let [Command::SetNote(_)] = &decision.commands[..] else {
        panic!("{:?}", decision.commands);
    };
    let [Step::Event(event)] = &decision.plans[0].steps[..] else {
        panic!("{:?}", decision.plans);
    };
    assert_eq!(event.message, "Cancelling deletion of Pod default/pod1");
    assert_eq!(decision.plans[0].when_cancelled, None);
}

/// And so does an eviction that is reconciled before the node is.
#[test]
fn an_eviction_that_starts_as_the_taint_is_removed_is_cancelled() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").into());
    harness.fail_writes("Pod", "default/pod1", "server");
    harness.advance(SECOND);
    harness.heal();
    harness.put(node(&[]));
    harness.enqueue(EVICTIONS, "Pod/default/pod1");
    harness.advance(seconds(100));
    assert_eq!(left(&harness), ["pod1"]);
    assert_eq!(
        messages(&harness),
        [
            "Marking for deletion Pod default/pod1",
            "Cancelling deletion of Pod default/pod1"
        ]
    );
}

/// There was no event for an eviction that never started.
#[test]
fn an_eviction_that_never_started_is_cancelled_without_an_event() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.put(pod("pod1").into());
    harness.enqueue(EVICTIONS, "Pod/default/pod1");
    harness.advance(seconds(100));
    assert_eq!(left(&harness), ["pod1"]);
    assert_eq!(messages(&harness), [""; 0]);
}

/// Two items can be about one pod at once, and the one with the older state can
/// end last: it is requeued after a cancellation.
#[test]
fn an_item_with_cancellations_is_requeued() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod1").tolerates("taint1", Some(10)).into());
    harness.run();
    harness.put(node(&[]));
    // The timer is cancelled, the pod's record goes, and the node's own item notes
    // that the taint is gone.
    for (queue, key, commands) in [(NODES, "node", 3), (PODS, "Pod/default/pod1", 2)] {
        let decision = harness.decide(queue, key);
        assert_eq!(decision.verdict, Verdict::RequeueAfter(0), "{queue}");
        assert_eq!(decision.commands.len(), commands, "{queue}");
        let condition = decision.plans[0].when_cancelled.as_ref().unwrap();
        assert_eq!(condition.queue, TIMERS.as_str());
    }
    harness.run();
    let decision = harness.decide(NODES, "node");
    assert_eq!(decision.verdict, Verdict::Done);
    assert!(decision.commands.is_empty() && decision.plans.is_empty());
}

/// A pod that somebody else deletes while its eviction keeps failing gets no
/// event that it may stay.
#[test]
fn the_eviction_of_a_terminating_pod_is_not_cancelled() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    let held = pod("pod1").finalizer();
    harness.put(held.clone().into());
    harness.fail_writes("Pod", "default/pod1", "server");
    harness.advance(SECOND);
    harness.heal();
    harness.put(held.terminating().into());
    harness.put(node(&[]));
    harness.enqueue(EVICTIONS, "Pod/default/pod1");
    harness.advance(seconds(100));
    assert_eq!(
        messages(&harness),
        ["Marking for deletion Pod default/pod1"]
    );
}
