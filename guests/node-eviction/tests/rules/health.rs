//! When a node counts as unresponsive, and when its pods are evicted:
//! node-lifecycle's tests of health, with the outcome for eviction.
//!
//! Node-lifecycle itself sets the conditions to Unknown; that stays in
//! kube-controller-manager. The purpose here: pods are evicted from such a node
//! when the timeout is over, and from no other.

use serde_json::{Value, json};

use crate::common::Cluster;

/// The timeout, and the pass after it.
const EVICTED_AFTER: u64 = 305;

/// A node with one pod, beside a healthy one.
fn cluster(ready: Option<&str>) -> Cluster {
    let mut cluster = Cluster::with_witness();
    cluster.node("node", "here", ready);
    cluster.pod("pod", "node");
    cluster
}

#[test]
fn ne_11_update_health_status() {
    // First seen long ago, without any report.
    let mut never = cluster(None);
    never.assert_evicted_after("pod", EVICTED_AFTER);
    // First seen a moment ago, without a report yet.
    let mut recent = cluster(None);
    recent.assert_quiet(60);
    // It has not posted its status for long. Its pods are marked.
    let mut stale = cluster(Some("True"));
    stale.post("node");
    stale.pass(100);
    stale.silence("node");
    stale.assert_evicted_after("pod", EVICTED_AFTER);
    assert_eq!(stale.get("pod")["status"]["reason"], "NodeLost");
    // It posts its status.
    let mut fresh = cluster(Some("True"));
    fresh.post("node");
    fresh.assert_quiet(900);
}

#[test]
fn ne_12_a_new_node_without_status_and_lease_keeps_its_pods() {
    cluster(None).assert_quiet(60);
}

#[test]
fn ne_13_a_new_node_with_a_renewed_lease_keeps_its_pods() {
    let mut cluster = cluster(None);
    cluster.renew("node");
    cluster.assert_quiet(900);
}

#[test]
fn ne_14_an_old_node_without_a_lease_loses_its_pods() {
    cluster(None).assert_evicted_after("pod", EVICTED_AFTER);
}

#[test]
fn ne_15_an_old_node_with_a_renewed_lease_keeps_its_pods() {
    let mut cluster = cluster(None);
    cluster.pass(200);
    cluster.renew("node");
    cluster.assert_quiet(900);
}

#[test]
fn ne_16_an_old_node_with_an_expired_lease_loses_its_pods() {
    let mut cluster = cluster(None);
    cluster.renew("node");
    cluster.pass(200);
    cluster.silence("node");
    cluster.assert_evicted_after("pod", EVICTED_AFTER);
}

#[test]
fn ne_17_a_stale_status_with_a_renewed_lease_keeps_the_pods() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.assert_quiet(900);
}

/// An operator deletes it. The kubelet, which posts no status that is the same, creates it again.
#[test]
fn the_pods_of_a_healthy_node_stay_when_its_lease_is_deleted() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(900);
    cluster.stop_renewing("node");
    cluster.harness.remove("Lease", "kube-node-lease/node");
    cluster.assert_quiet(15);
    cluster.renew("node");
    cluster.assert_quiet(900);
}

/// It stays away with its lease: the time starts when the lease goes, whether it was silent before or
/// not.
#[test]
fn a_node_without_its_lease_is_silent_from_then_on() {
    for silent in [0, 200] {
        let mut cluster = cluster(Some("True"));
        cluster.renew("node");
        cluster.pass(900);
        cluster.stop_renewing("node");
        cluster.pass(silent);
        cluster.harness.remove("Lease", "kube-node-lease/node");
        cluster.assert_quiet(300);
        cluster.pass(15);
        assert!(cluster.is_evicted("pod"));
    }
}

#[test]
fn ne_18_a_fresh_status_with_an_expired_lease_keeps_the_pods() {
    let mut cluster = cluster(Some("True"));
    cluster.put_lease("node");
    cluster.post("node");
    cluster.assert_quiet(900);
}

#[test]
fn ne_19_a_stale_status_with_an_expired_lease_evicts_the_pods() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.post("node");
    cluster.pass(200);
    cluster.silence("node");
    cluster.assert_evicted_after("pod", EVICTED_AFTER);
    assert_eq!(cluster.get("pod")["status"]["reason"], "NodeLost");
}

/// The node's condition becomes Unknown, as node-lifecycle writes it, when the
/// time is over; it makes no difference whether it is written.
#[test]
fn a_condition_that_became_unknown_does_not_restart_the_timeout() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(100);
    cluster.silence("node");
    cluster.pass(50);
    cluster.declare("node", "Unknown");
    cluster.assert_evicted_after("pod", EVICTED_AFTER - 50);
}

/// `TestApplyNoExecuteTaintsToUnreachableNode`: a node that stopped is found
/// once, whatever other condition it has. Here: its pods are evicted, the node
/// itself is never written.
#[test]
fn ne_26_a_node_that_stopped_while_not_ready() {
    let mut cluster = cluster(Some("False"));
    cluster.renew("node");
    cluster.pass(100);
    cluster.silence("node");
    // Not ready from the start: the timeout counts from the last heartbeat.
    cluster.assert_evicted_after("pod", EVICTED_AFTER);
    let nodes = cluster.harness.executions().iter();
    let nodes = nodes.filter(|done| done.plan.target.kind == "Node");
    for done in nodes {
        let steps = &done.plan.steps;
        assert!(
            steps
                .iter()
                .all(|it| matches!(it, davit_guest::Step::Event(_)))
        );
    }
}

/// `TestApplyNoExecuteTaintsToNodesEnqueueTwice`: a node that came back and
/// failed again is handled again, after a timeout of its own.
#[test]
fn ne_27_a_node_that_fails_twice_is_evicted_twice() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(10);
    cluster.silence("node");
    cluster.assert_evicted_after("pod", EVICTED_AFTER);
    cluster.renew("node");
    cluster.pass(20);
    cluster.pod("second", "node");
    cluster.pass(100);
    assert_eq!(cluster.evicted(), ["pod"]);
    cluster.silence("node");
    cluster.assert_evicted_after("second", EVICTED_AFTER);
}

/// `TestSwapUnreachableNotReadyTaints`: Unknown becomes False. Here: a node
/// that reports again has the whole timeout to become ready.
#[test]
fn ne_28_a_node_that_reports_again_has_the_whole_timeout() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(10);
    cluster.silence("node");
    cluster.pass(295);
    cluster.renew("node");
    cluster.set_ready("node", "False");
    cluster.assert_evicted_after("pod", EVICTED_AFTER);
}

/// A node, what happens to it, and after how many more seconds its pod is
/// evicted; none for never.
type Case = (&'static str, fn(&mut Cluster), Option<u64>);

/// `TestTryUpdateNodeHealth`: the record of a node from one pass to the next.
/// Here: from when the timeout counts.
#[test]
fn ne_32_try_update_node_health() {
    let cases: [Case; 9] = [
        ("never ready, silent", |_| {}, Some(EVICTED_AFTER)),
        (
            "became ready",
            |cluster| {
                cluster.pass(200);
                cluster.set_ready("node", "True");
                cluster.renew("node");
            },
            None,
        ),
        (
            "became ready, and silent",
            |cluster| {
                cluster.pass(200);
                cluster.set_ready("node", "True");
            },
            Some(EVICTED_AFTER),
        ),
        (
            "lost its condition",
            |cluster| {
                cluster.set_ready("node", "True");
                cluster.renew("node");
                cluster.pass(200);
                cluster.silence("node");
                cluster.change("node", |node| node["status"]["conditions"] = json!([]));
            },
            Some(EVICTED_AFTER),
        ),
        (
            "not ready all the time",
            |cluster| {
                cluster.set_ready("node", "False");
                cluster.renew("node");
                cluster.pass(200);
            },
            Some(EVICTED_AFTER - 200),
        ),
        (
            "not ready, and ready for a moment",
            |cluster| {
                cluster.set_ready("node", "False");
                cluster.renew("node");
                cluster.pass(200);
                cluster.set_ready("node", "True");
                cluster.pass(5);
                cluster.set_ready("node", "False");
            },
            Some(EVICTED_AFTER),
        ),
        (
            "not ready, and ready between two looks",
            |cluster| {
                cluster.set_ready("node", "False");
                cluster.renew("node");
                cluster.pass(200);
                cluster.set_ready("node", "True");
                cluster.set_ready("node", "False");
                cluster.change("node", |node| {
                    let transition = json!("2023-11-14T22:17:00Z");
                    node["status"]["conditions"][0]["lastTransitionTime"] = transition;
                });
            },
            Some(EVICTED_AFTER),
        ),
        (
            "another one by that name",
            |cluster| {
                cluster.set_ready("node", "False");
                cluster.renew("node");
                cluster.pass(200);
                cluster.change("node", |node| node["metadata"]["uid"] = json!("another"));
            },
            Some(EVICTED_AFTER),
        ),
        (
            "other conditions change",
            |cluster| {
                cluster.set_ready("node", "False");
                cluster.renew("node");
                cluster.pass(200);
                cluster.change("node", |node| {
                    let conditions = node["status"]["conditions"].as_array_mut();
                    let pressure = json!({"type": "DiskPressure", "status": "True"});
                    conditions.unwrap().push(pressure);
                });
            },
            Some(EVICTED_AFTER - 200),
        ),
    ];
    for (case, happens, evicted_after) in cases {
        println!("{case}");
        let mut cluster = cluster(None);
        happens(&mut cluster);
        match evicted_after {
            Some(seconds) => cluster.assert_evicted_after("pod", seconds),
            None => cluster.assert_quiet(900),
        }
    }
}

/// An agent on the node that posts conditions of its own is not the kubelet.
#[test]
fn another_agents_heartbeat_does_not_count() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(10);
    cluster.silence("node");
    for minute in 1..=5 {
        let now = cluster.now();
        cluster.change("node", |node| {
            let problem = json!({
                "type": "KernelDeadlock", "status": "False", "lastHeartbeatTime": now,
            });
            let conditions = node["status"]["conditions"].as_array_mut().unwrap();
            conditions.truncate(1);
            conditions.push(problem);
        });
        cluster.pass(if minute < 5 { 60 } else { 59 });
    }
    cluster.pass(1);
    assert!(!cluster.is_evicted("pod"));
    cluster.pass(5);
    assert!(cluster.is_evicted("pod"));
}

/// The kubelet's times are never compared with this clock.
#[test]
fn a_node_whose_clock_is_wrong_is_healthy() {
    let mut cluster = cluster(Some("True"));
    for renewal in 0..90 {
        cluster.harness.put(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "node", "namespace": "kube-node-lease"},
            "spec": {"renewTime": format!("1971-01-01T00:{:02}:00.000000Z", renewal % 60)},
        }));
        cluster.pass(10);
    }
    assert!(cluster.harness.executions().is_empty());
}

/// The cache lags: the API server has a newer heartbeat, and nothing is done.
#[test]
fn a_silence_is_proven_before_any_eviction() {
    let lease = |time: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "node", "namespace": "kube-node-lease"},
            "spec": {"renewTime": time},
        })
    };
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(10);
    cluster.silence("node");
    cluster
        .harness
        .put_on_server(lease("2023-11-14T22:17:00.000000Z"));
    cluster.assert_quiet(600);
    // The cache has caught up, and the node has been silent since.
    cluster.harness.show("Lease", "kube-node-lease/node");
    cluster.assert_evicted_after("pod", EVICTED_AFTER);
}

#[test]
fn a_node_that_became_ready_on_the_server_keeps_its_pods() {
    let mut cluster = cluster(Some("False"));
    cluster.renew("node");
    let ready: Value = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    cluster.harness.put_on_server(ready);
    cluster.assert_quiet(600);
}

/// `PodGC` handles a deleted node, even if the cache still shows it.
#[test]
fn a_node_that_is_gone_evicts_no_pod() {
    let mut cluster = cluster(Some("True"));
    cluster.renew("node");
    cluster.pass(10);
    cluster.silence("node");
    cluster.pass(200);
    cluster.harness.remove_from_server("Node", "node");
    cluster.assert_quiet(600);
    cluster.harness.show("Node", "node");
    cluster.assert_quiet(600);
}
