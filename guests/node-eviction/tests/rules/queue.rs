//! The order of evictions: the tests of the rate-limited queue. The rates are in the
//! host's tests.

use node_eviction::{EVICTED, QUEUED};

use crate::common::Cluster;

/// The timeout, and the pass after it.
const EVICTED_AFTER: u64 = 305;

/// Nodes that have just stopped, each with a pod, beside a healthy one.
fn cluster(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::with_witness();
    for node in nodes {
        cluster.well(node, "here");
        cluster.pod(&format!("pod-{node}"), node);
    }
    cluster.pass(10);
    for node in nodes {
        cluster.silence(node);
    }
    cluster
}

/// The nodes whose eviction was announced, in order.
fn announced(cluster: &Cluster) -> Vec<String> {
    let events = cluster.events("Node").into_iter();
    events.map(|(node, ..)| node).collect()
}

/// `TestUniqueQueueGet`: every pass finds the node, and it has one turn.
#[test]
fn ne_35_a_node_is_queued_once() {
    let mut cluster = cluster(&["a", "b"]);
    cluster.pass(EVICTED_AFTER + 600);
    assert_eq!(announced(&cluster), ["a", "b"]);
}

/// `TestAddNode`
#[test]
fn ne_36_nodes_are_queued_in_the_order_of_their_outages() {
    let mut cluster = cluster(&["b"]);
    for node in ["c", "a"] {
        cluster.pass(20);
        cluster.node(node, "here", Some("True"));
        cluster.pod(&format!("pod-{node}"), node);
    }
    // Nodes without a lease: their time starts with the next pass.
    cluster.pass(EVICTED_AFTER + 5);
    assert_eq!(announced(&cluster), ["b", "c", "a"]);
}

/// `TestDelNode`: a healthy node is in no queue.
#[test]
fn ne_37_a_node_that_is_back_leaves_the_queue() {
    let mut cluster = cluster(&["a"]);
    cluster
        .harness
        .fail_writes("Pod", "default/pod-a", "server");
    cluster.pass(EVICTED_AFTER);
    assert!(cluster.harness.pending(EVICTED, "a").is_some());
    cluster.renew("a");
    cluster.pass(5);
    assert_eq!(cluster.harness.pending(QUEUED, "a"), None);
    assert_eq!(cluster.harness.pending(EVICTED, "a"), None);
}

/// `TestTry`: a node that fails is retried, and delays no other.
#[test]
fn ne_38_a_node_that_fails_delays_no_other() {
    let mut cluster = cluster(&["a", "b"]);
    cluster.harness.fail_reads("Node", "a", "server");
    // One node in ten seconds.
    cluster.pass(EVICTED_AFTER + 10);
    assert_eq!(cluster.evicted(), ["pod-b"]);
    cluster.harness.heal();
    cluster.pass(60);
    assert_eq!(cluster.evicted(), ["pod-a", "pod-b"]);
}

/// `TestTryRemovingWhileTry`: the node comes back while its eviction is in
/// progress; the rest of its pods stay.
#[test]
fn ne_40_a_node_that_comes_back_during_its_eviction_keeps_the_rest() {
    let mut cluster = cluster(&["a"]);
    cluster.pod("other", "a");
    cluster
        .harness
        .fail_writes("Pod", "default/pod-a", "server");
    cluster.pass(EVICTED_AFTER);
    assert_eq!(cluster.evicted(), ["other"]);
    cluster.renew("a");
    cluster.harness.heal();
    cluster.pass(600);
    assert_eq!(cluster.evicted(), ["other"]);
}

/// `TestClear`: when all zones are down, the queue is empty.
#[test]
fn ne_41_the_queue_is_cleared_when_all_zones_are_down() {
    let mut cluster = cluster(&["a", "b"]);
    cluster.pod("other", "a");
    cluster
        .harness
        .fail_writes("Pod", "default/pod-a", "server");
    cluster.harness.fail_reads("Node", "b", "server");
    cluster.pass(260);
    cluster.silence("witness");
    cluster.pass(48);
    assert_eq!(cluster.evicted(), ["other"]);
    assert!(cluster.harness.pending(QUEUED, "b").is_some());
    cluster.pass(12);
    cluster.harness.heal();
    cluster.pass(10);
    for node in ["a", "b"] {
        assert_eq!(cluster.harness.pending(QUEUED, node), None, "{node}");
    }
    // The guest records which nodes had a turn.
    assert!(cluster.harness.pending(EVICTED, "a").is_some());
    assert!(cluster.harness.pending(EVICTED, "b").is_none());
    cluster.pass(3_600);
    assert_eq!(cluster.evicted(), ["other"]);
    // One is back: the others' timeout starts again.
    cluster.renew("witness");
    cluster.pass(300);
    assert_eq!(cluster.evicted(), ["other"]);
    cluster.pass(10);
    assert_eq!(cluster.evicted(), ["other", "pod-a", "pod-b"]);
}

/// `TestAddAfterTry`: a node that had its turn gets no other in this outage,
/// and one in the next.
#[test]
fn ne_43_a_node_has_one_turn_in_an_outage() {
    let mut cluster = cluster(&["a"]);
    cluster.pass(EVICTED_AFTER + 900);
    assert_eq!(announced(&cluster), ["a"]);
    assert!((cluster.evictions("here") - 1.0).abs() < 1e-9);
    cluster.renew("a");
    cluster.pod("second", "a");
    cluster.pass(100);
    cluster.silence("a");
    cluster.pass(EVICTED_AFTER);
    assert_eq!(announced(&cluster), ["a", "a"]);
    assert!((cluster.evictions("here") - 2.0).abs() < 1e-9);
}
