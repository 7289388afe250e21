//! When the time of each taint starts, and what ends it.

use davit_guest::testing::{Harness, Pod};
use serde_json::{Value, json};
use taint_eviction::{EVICTIONS, PODS, TIMERS, TaintEviction};

use crate::common::{
    SECOND, defaults, deletions, harness, left, messages, node, node_with, pod, seconds, taint,
    time, timer, uid, waits,
};

const POLICIES: [&str; 3] = ["keep", "shorten-only", "recompute"];

/// A pod that tolerates `taint1` for 60 s and `taint2` for 15 s, on a node that
/// has these taints, each from that second on.
fn tainted_at(policy: &str, taints: &[(u64, &[&str])]) -> Harness<TaintEviction> {
    let mut harness = harness(&json!({"reschedule": policy}));
    harness.put(node(&[]));
    let pod = pod("pod")
        .tolerates("taint1", Some(60))
        .tolerates("taint2", Some(15));
    harness.put(pod.into());
    let mut now = 0;
    for (at, keys) in taints {
        harness.advance(seconds(at - now));
        harness.put(node(keys));
        now = *at;
    }
    harness.advance(seconds(600));
    harness
}

#[test]
fn each_taint_has_its_own_start() {
    for (taints, shortened, kept) in [
        (&[(0, &["taint1", "taint2"][..])][..], 15, 15),
        (&[(0, &["taint1"]), (30, &["taint1", "taint2"])], 45, 60),
        // Too late to make a difference.
        (&[(0, &["taint1"]), (50, &["taint1", "taint2"])], 60, 60),
        // The earlier taint is gone.
        (
            &[
                (0, &["taint1"]),
                (30, &["taint1", "taint2"]),
                (40, &["taint1"]),
            ],
            60,
            60,
        ),
        (&[(0, &["taint1", "taint2"]), (10, &["taint1"])], 60, 60),
        // The remaining taint was there before, or is added in the same moment.
        (
            &[
                (0, &["taint1"]),
                (30, &["taint1", "taint2"]),
                (40, &["taint2"]),
            ],
            45,
            60,
        ),
        (&[(0, &["taint1"]), (50, &["taint2"])], 65, 65),
        (&[(0, &["taint2"]), (10, &["taint1"])], 70, 70),
        // It is added again.
        (
            &[
                (0, &["taint1", "taint2"]),
                (10, &["taint1"]),
                (20, &["taint1", "taint2"]),
            ],
            35,
            60,
        ),
    ] {
        for (policy, expected) in POLICIES.into_iter().zip([kept, shortened, shortened]) {
            let harness = tainted_at(policy, taints);
            assert_eq!(
                deletions(&harness),
                [("pod", expected)],
                "{policy} {taints:?}"
            );
            assert!(!waits(&harness, "pod"));
        }
    }
}

/// No timer is ever due later than an event announced.
#[test]
fn a_later_time_has_its_event() {
    let cancelled = "Cancelling deletion of Pod default/pod";
    let marked = "Marking for deletion Pod default/pod";
    for (taints, expected) in [
        (
            &[(0, &["taint1"][..]), (30, &["taint1", "taint2"][..])][..],
            &[marked][..],
        ),
        (
            &[(0, &["taint1", "taint2"]), (10, &["taint1"])],
            &[cancelled, marked],
        ),
        (&[(0, &["taint1", "taint2"]), (10, &["taint2"])], &[marked]),
        (&[(0, &["taint1", "taint2"]), (10, &[])], &[cancelled]),
    ] {
        let harness = tainted_at("shorten-only", taints);
        assert_eq!(messages(&harness), expected, "{taints:?}");
    }
}

/// The key identifies a taint, as everywhere in Kubernetes.
#[test]
fn another_value_is_the_same_taint() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.advance(seconds(50));
    harness.put(node_with("node", &[taint("taint1", "other", "NoExecute")]));
    harness.advance(seconds(600));
    assert_eq!(deletions(&harness), [("pod", 60)]);
}

#[test]
fn a_pod_that_comes_later_has_all_of_its_time() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.advance(seconds(1000));
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.advance(seconds(600));
    assert_eq!(deletions(&harness), [("pod", 1060)]);
}

/// There was no time that could have started.
#[test]
fn a_taint_that_was_tolerated_forever_counts_from_the_change() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod").tolerates("taint1", None).into());
    harness.advance(seconds(1000));
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.advance(seconds(600));
    assert_eq!(deletions(&harness), [("pod", 1060)]);
}

/// The cache shows one change.
#[test]
fn a_node_created_again_under_its_name_starts_again() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.advance(seconds(50));
    let mut again = node(&["taint1"]);
    again["metadata"]["uid"] = json!("another");
    harness.remove_from_server("Node", "node");
    harness.put(again);
    // What enqueues the pod again does not find the former node's timer.
    harness.enqueue(PODS, &uid("pod"));
    harness.advance(seconds(600));
    assert!(
        matches!(deletions(&harness)[..], [("pod", 110)]),
        "{:?}",
        deletions(&harness)
    );
}

/// Only the watch shows a second taint: the timer of the first continues.
#[test]
fn a_taint_that_only_the_cache_shows_ends_no_other_taints_time() {
    for policy in POLICIES {
        let mut harness = harness(&json!({"reschedule": policy}));
        harness.put(node(&["taint1", "taint2"]));
        let tolerant = pod("pod")
            .tolerates("taint1", Some(60))
            .tolerates("taint2", Some(15));
        harness.put(tolerant.into());
        harness.run();
        harness.put_on_server(node(&["taint1"]));
        harness.advance(seconds(59));
        assert_eq!(left(&harness), ["pod"], "{policy}");
        harness.advance(SECOND);
        assert_eq!(deletions(&harness), [("pod", 60)], "{policy}");
    }
}

/// The cause of a failing eviction is removed while another taint's time is
/// running: that time counts from its own start.
#[test]
fn an_eviction_is_cancelled_for_a_taint_that_is_still_tolerated() {
    for (evicting, at) in [("taint2", 15), ("untolerated", 20)] {
        let mut harness = defaults();
        harness.put(node(&["taint1"]));
        let tolerant = pod("pod")
            .tolerates("taint1", Some(60))
            .tolerates("taint2", Some(15));
        harness.put(tolerant.into());
        harness.advance(seconds(20 - (at % 20)));
        harness.put(node(&["taint1", evicting]));
        harness.fail_writes("Pod", "default/pod", "server");
        harness.advance(seconds(25));
        assert!(harness.pending(EVICTIONS, &uid("pod")).is_some());
        harness.put(node(&["taint1"]));
        harness.run();
        harness.heal();
        assert_eq!(harness.pending(EVICTIONS, &uid("pod")), None);
        harness.clear_executions();
        harness.advance(seconds(600));
        assert_eq!(deletions(&harness), [("pod", 60)], "{evicting}");
        assert_eq!(messages(&harness), ["Marking for deletion Pod default/pod"]);
    }
}

/// The same if only the API server shows it.
#[test]
fn an_eviction_that_is_retried_decides_on_the_present_taints() {
    let mut harness = defaults();
    harness.put(node(&["taint1", "taint2"]));
    let tolerant = pod("pod")
        .tolerates("taint1", Some(60))
        .tolerates("taint2", Some(15));
    harness.put(tolerant.into());
    harness.advance(seconds(10));
    harness.fail_writes("Pod", "default/pod", "server");
    harness.advance(seconds(10));
    harness.put_on_server(node(&["taint1"]));
    harness.heal();
    harness.advance(seconds(30));
    let gone = deletions(&harness).into_iter();
    // A live read confirms the taints for 10 s.
    let late: Vec<_> = gone.filter(|(_, at)| (31..60).contains(at)).collect();
    assert!(late.is_empty(), "{late:?}");
}

/// A lengthened toleration is too late once the pod's time is over.
#[test]
fn an_eviction_continues_while_its_taint_exists() {
    let mut harness = defaults();
    harness.put(node(&["taint1", "taint2"]));
    let tolerant = |second| {
        pod("pod")
            .tolerates("taint1", Some(60))
            .tolerates("taint2", Some(second))
    };
    harness.put(tolerant(15).into());
    harness.advance(seconds(10));
    harness.fail_writes("Pod", "default/pod", "server");
    harness.advance(seconds(10));
    harness.put(tolerant(1000).into());
    harness.advance(SECOND);
    harness.heal();
    harness.advance(seconds(30));
    assert_eq!(left(&harness), [""; 0]);
}

fn added(at: i64) -> Value {
    json!(time(at))
}

/// `taint1`, added at that second after the start.
fn taint_added(at: i64) -> Value {
    let mut taint = taint("taint1", "", "NoExecute");
    taint["timeAdded"] = added(at);
    taint
}

/// The node, created 1,000 s before the start, with a taint.
fn aged(taint: Value) -> Value {
    let mut node = node_with("node", &[taint]);
    node["metadata"]["creationTimestamp"] = added(-1_000);
    node
}

/// A pod that tolerates `taint1` for 60 s and was created at that second.
fn created(at: i64) -> Pod {
    let tolerant = pod("pod").tolerates("taint1", Some(60));
    tolerant.set("/metadata/creationTimestamp", added(at))
}

#[test]
fn if_configured_a_time_counts_from_when_the_taint_was_added() {
    let scheduled = |pod: Pod, status: &str, at| {
        pod.conditions(json!([
            {"type": "PodScheduled", "status": status, "lastTransitionTime": added(at)},
        ]))
    };
    for (node, pod, expected) in [
        // A second later: the API server has dropped the fraction.
        (aged(taint_added(-40)), created(-900), 21),
        (aged(taint_added(-500)), created(-900), 0),
        // The pod was created later, or bound later.
        (aged(taint_added(-500)), created(-40), 21),
        (
            aged(taint_added(-500)),
            scheduled(created(-900), "True", -30),
            31,
        ),
        (
            aged(taint_added(-40)),
            scheduled(created(-900), "False", -30),
            21,
        ),
        // Impossible times.
        (aged(taint_added(3_600)), created(-900), 60),
        (aged(taint_added(-1_001)), created(-900), 60),
        (aged(taint("taint1", "", "NoExecute")), created(-900), 60),
        (aged(taint_added(-40)), created(3_600), 60),
    ] {
        let mut harness = harness(&json!({"countFrom": "TimeAdded"}));
        harness.put(node.clone());
        harness.put(pod.into());
        harness.advance(seconds(600));
        assert_eq!(deletions(&harness), [("pod", expected)], "{node}");
    }
}

/// By default, no live read.
#[test]
fn by_default_a_time_counts_from_when_the_taint_was_seen() {
    let mut harness = defaults();
    harness.put(aged(taint_added(-40)));
    harness.put(created(-900).into());
    harness.advance(seconds(30));
    // It is the same taint.
    harness.put(aged(taint_added(20)));
    harness.advance(seconds(600));
    assert_eq!(deletions(&harness), [("pod", 60)]);
}

/// It was gone in between, although no event showed it.
#[test]
fn a_taint_that_was_added_again_has_a_new_start() {
    for policy in POLICIES {
        let config = json!({"countFrom": "TimeAdded", "reschedule": policy});
        let mut harness = harness(&config);
        harness.put(aged(taint_added(0)));
        harness.put(created(-900).into());
        harness.advance(seconds(40));
        harness.put(aged(taint_added(30)));
        harness.advance(seconds(600));
        assert_eq!(deletions(&harness), [("pod", 91)], "{policy}");
        let told = messages(&harness);
        assert_eq!(told.len(), 2, "{policy}: {told:?}");
    }
}

/// The taint that caused an eviction is replaced before the eviction succeeds
/// or has its turn, and the eviction is reconciled before the change of the
/// node.
#[test]
fn an_eviction_does_not_end_the_time_of_a_new_taint() {
    for evicting in ["taint2", "untolerated"] {
        let mut harness = defaults();
        harness.put(node(&[evicting]));
        let tolerant = pod("pod")
            .tolerates("taint1", Some(60))
            .tolerates("taint2", Some(0));
        harness.put(tolerant.into());
        harness.fail_writes("Pod", "default/pod", "server");
        harness.advance(seconds(20));
        assert!(harness.pending(EVICTIONS, &uid("pod")).is_some());
        harness.heal();
        harness.put(node(&["taint1"]));
        harness.enqueue(EVICTIONS, &uid("pod"));
        harness.clear_executions();
        harness.advance(seconds(600));
        assert_eq!(deletions(&harness), [("pod", 80)], "{evicting}");
    }
}

/// The timer of the former node is due before the change of the node is
/// reconciled.
#[test]
fn a_timer_of_a_former_node_with_that_name_evicts_no_pod() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.advance(seconds(50));
    let mut again = node(&["taint1"]);
    again["metadata"]["uid"] = json!("another");
    harness.remove_from_server("Node", "node");
    // Only the live read shows it.
    harness.put_on_server(again.clone());
    harness.advance(seconds(14));
    assert_eq!(left(&harness), ["pod"]);
    harness.put(again);
    harness.advance(seconds(600));
    let gone = deletions(&harness);
    assert!(matches!(gone[..], [("pod", 110..=125)]), "{gone:?}");
}

/// It is another taint for a pod that tolerates its values differently.
#[test]
fn another_value_that_is_tolerated_for_less_counts_from_its_own_start() {
    let tolerates = |pod: Pod, value: &str, seconds: i64| {
        pod.toleration(json!({
            "key": "taint1", "operator": "Equal", "value": value, "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }))
    };
    for (policy, changed, expected) in [
        ("shorten-only", 100, 160),
        ("recompute", 100, 160),
        // Never later than announced, unless that is configured.
        ("shorten-only", 960, 1_000),
        ("recompute", 960, 1_020),
        ("keep", 100, 1_000),
    ] {
        let mut harness = harness(&json!({"reschedule": policy}));
        harness.put(node_with("node", &[taint("taint1", "soon", "NoExecute")]));
        let tolerant = tolerates(pod("pod"), "soon", 1_000);
        harness.put(tolerates(tolerant, "now", 60).into());
        harness.advance(seconds(changed));
        harness.put(node_with("node", &[taint("taint1", "now", "NoExecute")]));
        harness.advance(SECOND);
        // Enqueueing the pod again changes nothing.
        harness.enqueue(PODS, &uid("pod"));
        harness.advance(seconds(2_000));
        assert_eq!(
            deletions(&harness),
            [("pod", expected)],
            "{policy} {changed}"
        );
    }
}

/// A call that started before the pod was deleted ends after its deletion was
/// observed.
#[test]
fn nothing_is_kept_of_a_pod_that_was_deleted_during_a_call() {
    for queue in [TIMERS, EVICTIONS] {
        let mut harness = defaults();
        harness.put(node(&["taint1"]));
        harness.put(pod("pod").tolerates("taint1", Some(60)).into());
        harness.run();
        assert_eq!(harness.notes(), ["node/node", "pod/Pod/default/pod"]);
        // The state when the call's answer comes after the pod's own item.
        harness.hide("Pod", "default/pod");
        let key = if queue == TIMERS {
            timer("pod", "taint1")
        } else {
            uid("pod")
        };
        let decision = harness.decide(queue, &key);
        assert!(
            decision.commands.iter().any(|it| matches!(
                it,
                davit_guest::Command::SetNote(note) if note.value.is_none()
            )),
            "{queue}: {decision:?}"
        );
    }
}

/// That timer belonged to a taint that existed when it started.
#[test]
fn a_timer_of_a_former_version_is_not_the_start_of_a_later_taint() {
    let mut harness = defaults();
    harness.put(node(&[]));
    let tolerant = pod("pod")
        .tolerates("taint1", Some(600))
        .tolerates("taint2", Some(15));
    harness.put(tolerant.into());
    harness.run();
    harness.enqueue_after(TIMERS, &uid("pod"), seconds(600));
    harness.advance(seconds(30));
    harness.put(node(&["taint1", "taint2"]));
    harness.advance(seconds(1_000));
    assert_eq!(deletions(&harness), [("pod", 45)]);
}
