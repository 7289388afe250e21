//! A call that waits for a live read answers from what was known when it started.
//! If a taint goes meanwhile and comes back, its time starts again: a pod leaves
//! later than it has to, never earlier.

use std::ops::RangeInclusive;

use davit_guest::testing::Harness;
use serde_json::json;
use taint_eviction::{NODES, PODS, TIMERS, TaintEviction};

use crate::common::{defaults, deletions, left, node, pod, seconds, uid};

/// A pod that tolerates its node's taint for 60 seconds has just come.
fn with_new_pod(mut harness: Harness<TaintEviction>) -> Harness<TaintEviction> {
    harness.put(node(&["taint1"]));
    harness.run();
    harness.put(pod("pod").tolerates("taint1", Some(60)).into());
    harness
}

fn policies() -> [Harness<TaintEviction>; 3] {
    ["shorten-only", "recompute", "keep"]
        .map(|policy| with_new_pod(crate::common::harness(&json!({"reschedule": policy}))))
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
