//! A call that waits for a live read answers from what was known when it started.
//! If a taint goes meanwhile and comes back, its time starts again: a pod leaves
//! later than it has to, never earlier.

use std::ops::RangeInclusive;
use std::time::Duration;

use davit_guest::testing::Harness;
use serde_json::json;
use taint_eviction::{EVICTIONS, NODES, PODS, TIMERS, TaintEviction};

use crate::common::{
    defaults, deletions, left, messages, node, node_with, pod, seconds, taint, timer, uid,
};

/// A pod that tolerates its node's taint for 60 seconds has just come.
fn with_new_pod(mut harness: Harness<TaintEviction>) -> Harness<TaintEviction> {
    harness.put(node(&["taint1"]));
    harness.run();
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness
}

fn policies() -> [Harness<TaintEviction>; 3] {
    policies_of(with_new_pod)
}

fn policies_of(
    set_up: fn(Harness<TaintEviction>) -> Harness<TaintEviction>,
) -> [Harness<TaintEviction>; 3] {
    ["shorten-only", "recompute", "keep"]
        .map(|policy| set_up(crate::common::harness(&json!({"reschedule": policy}))))
}

/// The pod is there after the first of these seconds, and gone after the last.
fn leaves_within(harness: &mut Harness<TaintEviction>, span: RangeInclusive<u64>) {
    harness.advance(seconds(*span.start()));
    assert_eq!(left(harness), ["pod"]);
    harness.advance(seconds(span.end() - span.start()));
    assert_eq!(left(harness), [""; 0]);
}

#[test]
fn a_timer_left_for_a_taint_that_is_gone_does_not_count_when_it_is_back() {
    for mut harness in policies() {
        harness.call_during(PODS, &uid("pod"), |harness| {
            harness.advance(seconds(5));
            harness.put(node(&[]));
            harness.run();
        });
        harness.advance(seconds(45));
        harness.put(node(&["taint1"]));
        leaves_within(&mut harness, 59..=120);
    }
}

/// The taint is back before the call ends, and the node's own call has started the
/// pod's time again.
#[test]
fn a_timer_left_for_a_taint_that_is_back_does_not_end_its_new_time() {
    for mut harness in policies() {
        harness.call_during(PODS, &uid("pod"), |harness| {
            harness.advance(seconds(5));
            harness.put(node(&[]));
            harness.run();
            harness.advance(seconds(5));
            harness.put(node(&["taint1"]));
            harness.run();
        });
        leaves_within(&mut harness, 59..=120);
    }
}

/// The timer runs out when the taint is back, before the node's own call has ended.
#[test]
fn a_timer_left_for_a_taint_that_is_gone_does_not_evict_when_it_is_due() {
    for mut harness in policies() {
        harness.call_during(PODS, &uid("pod"), |harness| {
            harness.advance(seconds(5));
            harness.put(node(&[]));
            harness.run();
        });
        harness.advance(seconds(45));
        harness.put(node(&["taint1"]));
        harness.call_during(NODES, "node", |harness| harness.advance(seconds(20)));
        leaves_within(&mut harness, 39..=100);
    }
}

/// The watch of nodes is stuck: a live read alone shows that the taint is gone.
#[test]
fn a_gap_that_only_a_live_read_shows_starts_the_time_again() {
    for mut harness in policies() {
        harness.call_during(PODS, &uid("pod"), |harness| {
            harness.advance(seconds(5));
            harness.put_on_server(node(&[]));
            // The live read for this pod finds it, and has the node read again.
            harness.put(pod("other").into());
            harness.advance(seconds(5));
        });
        assert_eq!(left(&harness), ["other", "pod"]);
        harness.remove("Pod", "default/other");
        harness.put_on_server(node(&["taint1"]));
        leaves_within(&mut harness, 59..=120);
    }
}

/// What a pod's own call starts before the node's call has seen the taint.
#[test]
fn a_pod_that_is_decided_before_its_node_leaves_in_time() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.call_during(PODS, &uid("pod"), |_| {});
    harness.advance(seconds(60));
    assert_eq!(deletions(&harness), [("pod", 60)]);
}

/// A call that started before notes a pod that is gone, when nothing names the pod any more.
#[test]
fn a_pod_that_goes_with_its_taint_during_a_call_leaves_no_timer() {
    for (queue, key) in [(PODS, uid("pod")), (NODES, "node".to_owned())] {
        let mut harness = defaults();
        if queue == NODES {
            harness.put(pod("pod").tolerates("taint1", Some(86_400)).into());
            harness.run();
            harness.put(node(&["taint1"]));
        } else {
            harness.put(node(&["taint1"]));
            harness.run();
            harness.put(pod("pod").tolerates("taint1", Some(86_400)).into());
        }
        harness.call_during(queue, &key, |harness| {
            harness.put(node(&[]));
            harness.run();
            harness.remove("Pod", "default/pod");
            harness.run();
        });
        harness.run();
        let notes = harness.notes();
        assert!(
            !notes.iter().any(|note| note.starts_with("pod/")),
            "{notes:?}"
        );
        let timer = format!("{} taint1", uid("pod"));
        assert!(harness.pending(TIMERS, &timer).is_none());
    }
}

/// Other pods are none of its business.
#[test]
fn a_pod_of_a_node_without_a_taint_is_not_decided_about() {
    let mut harness = defaults();
    harness.put(node(&[]));
    harness.run();
    let read = harness.objects_read();
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness.run();
    assert_eq!(harness.objects_read(), read);
    harness.put(node(&["taint1"]));
    harness.run();
    assert!(harness.objects_read() > read);
}

/// Its taint stays, and the node changes: it has another one, which the pod tolerates for long.
fn change_node(harness: &mut Harness<TaintEviction>) {
    harness.put(node(&["taint1", "taint2"]));
    harness.run();
}

/// A pod that tolerates the first taint of its node for 60 seconds, and another for an hour.
fn with_two_times(mut harness: Harness<TaintEviction>) -> Harness<TaintEviction> {
    harness.put(node(&["taint1"]));
    let pod = pod("pod").tolerates("taint1", Some(60));
    harness.put(pod.tolerates("taint2", Some(3_600)).into());
    harness.run();
    harness
}

/// Nothing cancelled the eviction of the pod, which is gone.
fn has_left(harness: &Harness<TaintEviction>) {
    assert_eq!(left(harness), [""; 0]);
    let cancelled = messages(harness).into_iter();
    let cancelled: Vec<&str> = cancelled.filter(|it| it.contains("ancel")).collect();
    assert_eq!(cancelled, [""; 0]);
}

/// An item in a call is not pending.
#[test]
fn a_time_does_not_start_again_while_its_end_is_decided_about() {
    for mut harness in policies_of(with_two_times) {
        harness.advance(Duration::from_millis(59_999));
        harness.call_during(TIMERS, &timer("pod", "taint1"), change_node);
        harness.advance(seconds(1));
        has_left(&harness);
    }
}

/// The node's call sees that no timer is pending, because the timer's call waits for a live read. It
/// ends after it, and after the first attempt to evict the pod.
#[test]
fn a_call_that_ends_later_does_not_start_a_time_again_that_is_over() {
    for mut harness in policies_of(with_two_times) {
        harness.advance(seconds(59));
        harness.delay_requests(seconds(2));
        harness.fail_writes("Pod", "default/pod", "server");
        harness.advance(seconds(3));
        assert!(harness.pending(TIMERS, &timer("pod", "taint1")).is_none());
        harness.put(node(&["taint1", "taint2"]));
        harness.call_during(NODES, "node", |harness| harness.advance(seconds(10)));
        harness.heal();
        harness.delay_requests(Duration::ZERO);
        harness.advance(seconds(20));
        has_left(&harness);
    }
}

/// The taint goes, and comes back: the end of its former time is forgotten.
#[test]
fn a_time_that_was_over_starts_again_when_the_taint_is_back() {
    for mut harness in policies_of(with_two_times) {
        harness.advance(seconds(59));
        harness.fail_writes("Pod", "default/pod", "server");
        harness.advance(seconds(5));
        assert!(harness.pending(EVICTIONS, &uid("pod")).is_some());
        harness.put(node(&[]));
        harness.run();
        harness.heal();
        harness.advance(seconds(5));
        harness.put(node(&["taint1"]));
        leaves_within(&mut harness, 59..=120);
    }
}

/// Nor is one whose plan is under way: here, when it fails.
#[test]
fn a_time_does_not_start_again_while_its_eviction_is_under_way() {
    for mut harness in policies() {
        harness.advance(seconds(59));
        harness.delay_requests(seconds(2));
        harness.fail_writes("Pod", "default/pod", "server");
        harness.advance(seconds(6));
        assert!(harness.pending(EVICTIONS, &uid("pod")).is_none());
        let taints = [
            taint("taint1", "", "NoExecute"),
            taint("another", "", "NoSchedule"),
        ];
        harness.put(node_with("node", &taints));
        harness.run();
        harness.advance(seconds(4));
        assert_eq!(left(&harness), ["pod"]);
        harness.heal();
        harness.delay_requests(Duration::ZERO);
        harness.advance(seconds(20));
        has_left(&harness);
    }
}

/// The timer's call has read the node before it was deleted, and ends when another node has its name
/// and its taint: the pod's time under that one has just started.
#[test]
fn the_end_of_a_time_is_that_of_one_node() {
    for mut harness in policies_of(with_two_times) {
        harness.advance(seconds(59));
        harness.delay_requests(seconds(2));
        harness.advance(seconds(4));
        harness.remove("Node", "node");
        harness.run();
        let mut second = node(&["taint1"]);
        second["metadata"]["uid"] = json!("second");
        harness.put(second.clone());
        harness.run();
        harness.advance(seconds(5));
        harness.delay_requests(Duration::ZERO);
        let more = second["spec"]["taints"].as_array_mut();
        more.unwrap().push(taint("another", "", "NoSchedule"));
        harness.put(second);
        harness.advance(seconds(40));
        assert_eq!(left(&harness), ["pod"]);
        harness.advance(seconds(60));
        assert_eq!(left(&harness), [""; 0]);
    }
}
