//! PodGC on pods and nodes that were recorded from a real cluster: it deletes exactly
//! the pods that the rules name. The test computes the expectation from the recordings
//! in another way.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use crate::bench::{on_the_sim, podgc, text};

const PODS: &str = include_str!("../../core/tests/data/podlist.json");
const NODES: &str = include_str!("../data/nodelist.json");

fn items(list: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(list).unwrap();
    list["items"].as_array().unwrap().clone()
}

fn key(pod: &Value) -> String {
    let namespace = text(pod, "/metadata/namespace");
    format!("{namespace}/{}", text(pod, "/metadata/name"))
}

fn is_terminating(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn is_out_of_service(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    let ready = conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
        .is_some_and(|condition| condition["status"] == "True");
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut keys = taints.map(|taint| text(taint, "/key"));
    !ready && keys.any(|key| key == "node.kubernetes.io/out-of-service")
}

/// The pods that the stages of podgc.md delete, in their order.
fn expected(threshold: usize) -> BTreeSet<String> {
    let (pods, nodes) = (items(PODS), items(NODES));
    let mut gone = BTreeSet::new();
    let mut terminated: Vec<&Value> = pods
        .iter()
        .filter(|pod| {
            let phase = text(pod, "/status/phase");
            !["Pending", "Running", "Unknown"].contains(&phase.as_str())
        })
        .collect();
    terminated.sort_by_key(|pod| {
        let evicted =
            text(pod, "/status/reason") == "Evicted" && text(pod, "/status/phase") == "Failed";
        let created = text(pod, "/metadata/creationTimestamp");
        (!evicted, created, text(pod, "/metadata/name"), key(pod))
    });
    if threshold > 0 {
        let excess = terminated.len().saturating_sub(threshold);
        gone.extend(terminated.iter().take(excess).map(|pod| key(pod)));
    }
    for pod in &pods {
        let node = text(pod, "/spec/nodeName");
        let known = nodes.iter().find(|n| text(n, "/metadata/name") == node);
        let orphaned = !node.is_empty() && known.is_none();
        let stuck =
            is_terminating(pod) && (node.is_empty() || known.is_some_and(is_out_of_service));
        if orphaned || stuck {
            gone.insert(key(pod));
        }
    }
    gone
}

fn check(threshold: usize, at_least: usize) {
    on_the_sim(|bench| async move {
        let sim = bench.sim();
        let loaded = sim.load(NODES).unwrap() + sim.load(PODS).unwrap();
        assert_eq!(loaded, 196 + 12);
        let before: BTreeSet<String> = items(PODS).iter().map(key).collect();
        let config = format!("{{terminatedPodThreshold: {threshold}}}");
        let _host = bench.host(&podgc("Enforce", &config)).await;
        sleep(Duration::from_secs(120)).await;
        let left: BTreeSet<String> = sim.list("v1", "Pod", "").unwrap().iter().map(key).collect();
        let deleted: BTreeSet<String> = before.difference(&left).cloned().collect();
        assert_eq!(deleted, expected(threshold));
        assert!(deleted.len() >= at_least, "{deleted:?}");
    });
}

#[test]
fn with_the_default_threshold_the_rules_decide_which_recorded_pods_go() {
    check(12_500, 5);
}

#[test]
fn with_a_threshold_of_ten_the_rules_decide_which_recorded_pods_go() {
    check(10, 10);
}
