//! No pod is evicted for a taint that only the cache still shows.

use davit_guest::testing::Harness;
use serde_json::{Value, json};
use taint_eviction::{NODES, TIMERS, TaintEviction};

use crate::common::{
    defaults, deletions, left, messages, node, node_with, pod, seconds, taint, waits,
};

/// The node `node`, tainted in the cache. The API server has the given node by
/// now, but the watch shows nothing.
fn stale(now: Option<Value>) -> Harness<TaintEviction> {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.run();
    harness.remove_from_server("Node", "node");
    if let Some(now) = now {
        harness.put_on_server(now);
    }
    harness
}

fn recreated(keys: &[&str]) -> Value {
    let mut node = node(keys);
    if let Some(metadata) = node.pointer_mut("/metadata") {
        *metadata = json!({"name": "node", "uid": "another"});
    }
    node
}

/// The names of the nodes that were read live, in order.
fn reads(harness: &Harness<TaintEviction>) -> Vec<String> {
    let reads = harness.live_reads().into_iter();
    reads.map(|(_, target)| target.name).collect()
}

#[test]
fn a_pod_that_is_bound_after_an_untaint_stays() {
    for now in [None, Some(node(&[])), Some(recreated(&[]))] {
        let mut harness = stale(now);
        harness.put(pod("pod").into());
        harness.run();
        assert_eq!(reads(&harness), ["node"]);
        harness.advance(seconds(600));
        assert_eq!(left(&harness), ["pod"]);
        assert_eq!(messages(&harness), [""; 0]);
        // It is read from time to time until the cache is found to be right.
        let read = reads(&harness).len();
        assert!((60..200).contains(&read), "{read} in ten minutes");
        harness.put(node(&[]));
        harness.advance(seconds(600));
        // Once for the node's change, and once more to see that the cache is right.
        assert_eq!(reads(&harness).len(), read + 2);
    }
}

/// The cache never shows that the taint was gone, and so no trigger shows that
/// it was added again.
#[test]
fn a_taint_that_is_back_before_the_cache_missed_it_evicts() {
    let mut harness = stale(Some(node(&[])));
    harness.put(pod("pod").into());
    harness.advance(seconds(60));
    assert_eq!(left(&harness), ["pod"]);
    harness.put_on_server(node(&["taint1"]));
    harness.advance(seconds(5));
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn a_node_that_was_created_again_with_a_taint_evicts() {
    let mut harness = stale(Some(recreated(&["taint2"])));
    harness.put(pod("pod").into());
    harness.run();
    assert_eq!(left(&harness), [""; 0]);
}

#[test]
fn a_timer_that_ends_after_an_untaint_is_cancelled() {
    let mut harness = stale(Some(node(&["taint1"])));
    harness.put(pod("pod").tolerates("taint1", Some(10)).into());
    harness.run();
    assert_eq!(reads(&harness), [""; 0], "a timer needs no proof");
    harness.put_on_server(node(&[]));
    harness.advance(seconds(600));
    assert_eq!(left(&harness), ["pod"]);
    assert!(!waits(&harness, "pod"));
    let cancelled = "Cancelling deletion of Pod default/pod";
    assert_eq!(messages(&harness), [cancelled]);
}

/// The taints of the API server decide, not those of the cache.
#[test]
fn a_taint_that_was_replaced_counts_with_its_present_value() {
    let mut harness = stale(Some(node(&["taint2"])));
    harness.put(pod("pod").tolerates("taint2", Some(10)).into());
    harness.advance(seconds(9));
    assert_eq!(left(&harness), ["pod"]);
    assert!(
        harness
            .pending(TIMERS, &crate::common::timer("pod", "taint2"))
            .is_some()
    );
    // The watch continues: the timer continues.
    harness.put(node(&["taint2"]));
    harness.advance(seconds(1));
    assert_eq!(deletions(&harness), [("pod", 10)]);
}

#[test]
fn a_node_is_read_once_for_all_of_its_pods() {
    for lasts in [None, Some(10)] {
        let mut harness = defaults();
        let nodes = ["a", "b", "c"];
        for name in nodes {
            harness.put(node_with(name, &[]));
            for number in 0..20 {
                let pod = pod(&format!("{name}-{number}")).node(name);
                let pod = match lasts {
                    Some(_) => pod.tolerates("taint1", lasts),
                    None => pod,
                };
                harness.put(pod.into());
            }
        }
        harness.run();
        for name in nodes {
            harness.put(node_with(name, &[taint("taint1", "", "NoExecute")]));
        }
        harness.advance(seconds(600));
        assert_eq!(left(&harness), [""; 0]);
        assert_eq!(reads(&harness), nodes, "{lasts:?}");
    }
}

/// The taints are unknown then: no pod is evicted, and whatever needs no proof
/// continues.
#[test]
fn a_node_that_cannot_be_read_evicts_no_pod_yet() {
    for class in ["server", "timeout", "throttled", "forbidden"] {
        let mut harness = defaults();
        harness.put(node(&[]));
        harness.put(pod("now").into());
        harness.put(pod("later").tolerates("taint1", Some(60)).into());
        harness.run();
        harness.fail_reads("Node", "node", class);
        harness.put(node(&["taint1"]));
        // The host repeats a throttled read for some seconds.
        harness.advance(seconds(10));
        assert!(waits(&harness, "later"), "{class}");
        harness.advance(seconds(3600));
        assert_eq!(left(&harness), ["later", "now"], "{class}");
        assert!(harness.pending(NODES, "node").is_some(), "{class}");
        let tries = reads(&harness).len();
        assert!((100..400).contains(&tries), "{class}: {tries} in an hour");
        harness.heal();
        harness.advance(seconds(30));
        assert_eq!(left(&harness), [""; 0], "{class}");
    }
}

/// What was true when an eviction was decided may be wrong when it is retried.
#[test]
fn a_later_attempt_needs_a_new_proof() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    harness.put(pod("pod").into());
    harness.fail_writes("Pod", "default/pod", "server");
    harness.advance(seconds(60));
    harness.put_on_server(node(&[]));
    harness.heal();
    harness.advance(seconds(600));
    assert_eq!(left(&harness), ["pod"]);
    assert!(!waits(&harness, "pod"));
    assert_eq!(
        messages(&harness).last(),
        Some(&"Cancelling deletion of Pod default/pod")
    );
}

/// Pods that wait for long share a live read, too.
#[test]
fn attempts_that_fail_for_long_read_their_node_from_time_to_time() {
    let mut harness = defaults();
    harness.put(node(&["taint1"]));
    for number in 0..20 {
        let name = format!("pod-{number}");
        harness.put(pod(&name).into());
        harness.fail_writes("Pod", &format!("default/{name}"), "server");
    }
    harness.advance(seconds(600));
    assert_eq!(left(&harness).len(), 20);
    assert!(harness.executions().len() > 20 * 20);
    let read = reads(&harness).len();
    assert!((10..=61).contains(&read), "{read} in ten minutes");
}
