//! Timers that end, fail, are cancelled and counted.

use davit_guest::testing::{Harness, START};
use davit_guest::{DeleteOptions, Event, FailureClass, Step};
use serde_json::{Value, json};
use taint_eviction::{EVICTIONS, TaintEviction};

use crate::common::{
    SECOND, assert_counted, condition, defaults, deletions, harness, left, messages, node, pod,
    seconds, uid, waits,
};

/// The node under `taint1` with that many pods, and how long they tolerate it.
fn timers(pods: usize, lasts: Option<i64>) -> Harness<TaintEviction> {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    for number in 0..pods {
        let mut pod = pod(&format!("pod{number}"));
        if let Some(seconds) = lasts {
            pod = pod.tolerates("taint1", Some(seconds));
        }
        harness.put(pod.into());
    }
    harness
}

fn event(message: &str) -> Event {
    Event {
        event_type: "Normal".to_owned(),
        reason: "TaintManagerEviction".to_owned(),
        message: message.to_owned(),
        component: "taint-eviction-controller".to_owned(),
    }
}

fn events(harness: &Harness<TaintEviction>) -> Vec<(&str, &Event)> {
    let plans = harness.executions().iter().map(|it| &it.plan);
    plans
        .flat_map(|plan| {
            plan.steps
                .iter()
                .map(|step| (plan.target.uid.as_str(), step))
        })
        .filter_map(|(uid, step)| match step {
            Step::Event(event) => Some((uid, event)),
            _ => None,
        })
        .collect()
}

/// `TestEmitPodDeletionEvent`. Kubernetes omits the uid.
#[test]
fn te_30_a_deletion_has_its_event() {
    let mut harness = timers(1, None);
    harness.run();
    let expected = event("Marking for deletion Pod default/pod0");
    assert_eq!(events(&harness), [("Pod/default/pod0", &expected)]);
}

/// `TestEmitCancelPodDeletionEvent`
#[test]
fn te_31_a_cancelled_deletion_has_its_event() {
    let mut harness = timers(1, Some(10));
    harness.run();
    harness.put(node(&[]));
    harness.run();
    let expected = event("Cancelling deletion of Pod default/pod0");
    assert_eq!(events(&harness), [("Pod/default/pod0", &expected)]);
}

/// `TestExecute`. A worker queue of immediate work in Kubernetes; its purpose
/// is that each pod is deleted once, and immediately.
#[test]
fn te_32_five_pods_are_evicted_immediately() {
    let mut harness = timers(5, None);
    harness.run();
    let names = ["pod0", "pod1", "pod2", "pod3", "pod4"];
    assert_eq!(deletions(&harness), names.map(|name| (name, 0)));
    assert_eq!(left(&harness), [""; 0]);
}

/// `TestExecuteDelayed`: an eviction that is pending already is not enqueued
/// twice.
#[test]
fn te_33_five_timers_end_once_each() {
    let mut harness = timers(5, Some(10));
    harness.run();
    for number in 0..5 {
        harness.enqueue(taint_eviction::PODS, &uid(&format!("pod{number}")));
    }
    harness.enqueue(taint_eviction::NODES, "node");
    harness.advance(seconds(9));
    assert_eq!(left(&harness).len(), 5);
    harness.advance(SECOND);
    let names = ["pod0", "pod1", "pod2", "pod3", "pod4"];
    assert_eq!(deletions(&harness), names.map(|name| (name, 10)));
    harness.advance(seconds(100));
    assert_eq!(deletions(&harness).len(), 5);
}

/// `TestCancel`
#[test]
fn te_34_a_cancelled_timer_does_not_end() {
    let mut harness = timers(5, Some(10));
    harness.advance(SECOND);
    for name in ["pod2", "pod4"] {
        harness.put(pod(name).tolerates("taint1", None).into());
    }
    harness.advance(seconds(100));
    assert_eq!(left(&harness), ["pod2", "pod4"]);
    assert_eq!(deletions(&harness).len(), 3);
}

/// `TestCancelAndReadd`
#[test]
fn te_35_a_cancelled_timer_can_be_started_again() {
    let mut harness = timers(5, Some(10));
    harness.advance(SECOND);
    for name in ["pod2", "pod4"] {
        harness.put(pod(name).tolerates("taint1", None).into());
    }
    harness.advance(SECOND);
    harness.put(pod("pod2").tolerates("taint1", Some(10)).into());
    harness.advance(seconds(100));
    assert_eq!(left(&harness), ["pod4"]);
    let gone = deletions(&harness);
    assert_eq!(gone.len(), 4);
    assert_eq!(gone.last(), Some(&("pod2", 12)));
}

#[test]
fn deletions_are_counted_and_their_latency_is_in_seconds() {
    let mut harness = timers(2, Some(10));
    harness.put(pod("untolerant").into());
    harness.advance(seconds(20));
    assert_counted(&harness, 3.0, &[0.0, 0.0, 0.0]);
}

/// Kubernetes stops after five attempts in 50 ms.
#[test]
fn a_failed_eviction_is_retried_until_it_succeeds() {
    for class in ["server", "conflict", "throttled", "timeout"] {
        let mut harness = timers(1, None);
        harness.fail_writes("Pod", "default/pod0", class);
        harness.advance(seconds(3600));
        assert_eq!(left(&harness), ["pod0"], "{class}");
        let tries = harness.executions().len();
        assert!((100..200).contains(&tries), "{class}: {tries} in an hour");
        assert_counted(&harness, 0.0, &[]);
        harness.heal();
        harness.advance(seconds(30));
        assert_eq!(left(&harness), [""; 0], "{class}");
        // One event.
        assert_eq!(
            messages(&harness),
            ["Marking for deletion Pod default/pod0"]
        );
        // Its time was over an hour before.
        let latency = harness.observed(crate::common::LATENCY, &[]);
        assert!((3600.0..3630.0).contains(&latency[0]), "{latency:?}");
    }
}

/// The latency counts from the end of the pod's time, not from its start.
#[test]
fn the_latency_of_a_failed_eviction_counts_from_the_end_of_its_timer() {
    let mut harness = timers(1, Some(100));
    harness.run();
    harness.fail_writes("Pod", "default/pod0", "server");
    harness.advance(seconds(102));
    harness.heal();
    harness.advance(seconds(10));
    let latency = harness.observed(crate::common::LATENCY, &[]);
    assert!((2.0..5.0).contains(&latency[0]), "{latency:?}");
}

/// And the latency of a pod with a timer that gets a taint which it does not
/// tolerate at all.
#[test]
fn the_latency_of_an_overtaken_timer_counts_from_its_cause() {
    let mut harness = timers(1, Some(100));
    harness.advance(seconds(50));
    harness.fail_writes("Pod", "default/pod0", "server");
    harness.put(node(&["taint1", "taint2"]));
    harness.advance(seconds(2));
    harness.heal();
    harness.advance(seconds(10));
    let latency = harness.observed(crate::common::LATENCY, &[]);
    assert!((2.0..5.0).contains(&latency[0]), "{latency:?}");
}

/// A pending retry can still be cancelled, with an event that takes the first
/// one back.
#[test]
fn an_eviction_that_is_retried_can_be_cancelled() {
    let mut harness = timers(1, None);
    harness.fail_writes("Pod", "default/pod0", "server");
    harness.advance(seconds(60));
    harness.put(node(&[]));
    harness.run();
    harness.heal();
    harness.advance(seconds(600));
    assert_eq!(left(&harness), ["pod0"]);
    assert!(!waits(&harness, "pod0"));
    assert_eq!(
        messages(&harness),
        [
            "Marking for deletion Pod default/pod0",
            "Cancelling deletion of Pod default/pod0"
        ]
    );
}

/// Kubernetes takes 404 for an error. Here it is the wanted result, and so is
/// another pod with that name.
#[test]
fn a_pod_that_is_gone_already_is_not_a_failure() {
    for successor in [None, Some(pod("pod0").uid("second"))] {
        let mut harness = defaults();
        harness.put(node(&[]));
        harness.put(pod("pod0").into());
        harness.run();
        harness.remove_from_server("Pod", "default/pod0");
        if let Some(successor) = successor.clone() {
            harness.put_on_server(successor.into());
        }
        harness.put(node(&["taint1"]));
        harness.advance(seconds(600));
        assert_eq!(harness.executions().len(), 1);
        assert!(harness.executions()[0].result.is_err());
        assert!(!waits(&harness, "pod0"));
        let left = harness.object("Pod", "default/pod0");
        assert_eq!(left.is_some(), successor.is_some());
        assert_eq!(
            left.as_ref().map(|it| &it["metadata"]["deletionTimestamp"]),
            left.as_ref().map(|_| &Value::Null)
        );
    }
}

/// If the condition cannot be written, the pod is not deleted.
#[test]
fn a_pod_that_cannot_be_marked_is_not_deleted() {
    let mut harness = timers(1, None);
    harness.fail_writes("Pod", "default/pod0", "forbidden");
    harness.run();
    assert!(!harness.executions().is_empty());
    for execution in harness.executions() {
        let (step, failure) = execution.result.clone().unwrap_err();
        assert_eq!(failure.class, FailureClass::Forbidden);
        let failed = &execution.plan.steps[step as usize];
        assert!(matches!(failed, Step::Patch(_)));
    }
    // Permissions rarely change within a second.
    let timer = harness.pending(EVICTIONS, &uid("pod0")).unwrap();
    assert_eq!(timer.due_at, START + seconds(30));
}

/// With budgets, the API server writes the condition if it admits the eviction.
#[test]
fn an_eviction_through_the_api_leaves_the_condition_to_the_api_server() {
    let mut harness = harness(&json!({"deletion": "evict"}));
    harness.put(node(&["taint1"]));
    harness.put(pod("pod0").finalizer().into());
    harness.put(pod("pod1").finalizer().terminating().into());
    harness.run();
    let [carried] = harness.executions() else {
        panic!("{:?}", harness.executions());
    };
    let [Step::Event(_), Step::Evict(options)] = &carried.plan.steps[..] else {
        panic!("{:?}", carried.plan.steps);
    };
    assert_eq!(*options, DeleteOptions::new());
    let stored = harness.object("Pod", "default/pod0").unwrap();
    let conditions = &stored["status"]["conditions"];
    assert_eq!(conditions[0]["reason"], "EvictionByEvictionAPI");
    assert_eq!(conditions.as_array().unwrap().len(), 1);
    assert!(stored["metadata"]["deletionTimestamp"].is_string());
    assert_counted(&harness, 1.0, &[0.0]);
}

/// The condition stays if only the deletion fails: the next attempt does not
/// write it again.
#[test]
fn a_marked_pod_is_only_deleted() {
    let mut harness = timers(0, None);
    let conditions = json!([condition(-5, 1)]);
    harness.put(pod("pod0").conditions(conditions).into());
    harness.run();
    let steps = &harness.executions()[0].plan.steps;
    assert!(matches!(steps[..], [Step::Event(_), Step::Delete(_)]));
    assert_eq!(left(&harness), [""; 0]);
}

/// A failed eviction waits for its back-off, also when another time is over.
#[test]
fn another_taint_does_not_shorten_the_back_off_of_an_eviction() {
    let mut harness = defaults();
    harness.put(node(&["taint1", "taint2"]));
    let pod = pod("pod0").tolerates("taint1", Some(10));
    harness.put(pod.tolerates("taint2", Some(14)).into());
    harness.fail_writes("Pod", "default/pod0", "forbidden");
    harness.advance(seconds(13));
    let attempts = harness.executions().len();
    assert!(attempts > 0);
    let due_at = harness.pending(EVICTIONS, &uid("pod0")).unwrap().due_at;
    assert!(due_at > START + seconds(16));
    harness.advance(seconds(3));
    assert_eq!(harness.executions().len(), attempts);
    let eviction = harness.pending(EVICTIONS, &uid("pod0")).unwrap();
    assert_eq!(eviction.due_at, due_at);
}

/// A pod is gone while its eviction waits for another attempt.
#[test]
fn the_eviction_of_a_pod_that_is_gone_is_cancelled() {
    let mut harness = timers(1, None);
    harness.fail_writes("Pod", "default/pod0", "forbidden");
    harness.run();
    assert!(harness.pending(EVICTIONS, &uid("pod0")).is_some());
    harness.remove("Pod", "default/pod0");
    harness.run();
    assert_eq!(harness.pending(EVICTIONS, &uid("pod0")), None);
}
