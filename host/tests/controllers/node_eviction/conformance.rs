//! The rules that need neither a kubelet nor an hour, on any API server. The nodes
//! report themselves as not ready.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::config;
use crate::bench::{Bench, RunningHost, on_any_server, text};
use crate::objects::is_going;

/// Short periods: the test ends before a silent node counts as unresponsive.
const HASTY: &str = "{nodeMonitorPeriod: 1s, podEvictionTimeout: 5s, skipTaintedNodes: false}";

/// Three nodes of one zone and one of another, so that neither zone is down when one
/// node is. Each has a pod that stays, marked, after its deletion.
struct Zones {
    nodes: Vec<String>,
}

impl Zones {
    async fn new(bench: &mut Bench) -> Self {
        let mut nodes = Vec::new();
        for (zone, name) in [("a", "a-0"), ("a", "a-1"), ("a", "a-2"), ("b", "b-0")] {
            let node = bench.node(name).await;
            let zone = format!("{}-{zone}", bench.namespace);
            let labels = json!({"topology.kubernetes.io/zone": zone});
            let patch = json!({"metadata": {"labels": labels}});
            let path = format!("/api/v1/nodes/{node}");
            bench.must("PATCH", &path, &patch).await;
            let running = json!({"phase": "Running"});
            let hold = |pod: &mut Value| {
                pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
            };
            bench.pod_with(name, &node, &running, hold).await;
            nodes.push(node);
        }
        Self { nodes }
    }

    /// The node that goes down.
    fn down(&self) -> &str {
        &self.nodes[1]
    }
}

async fn enforcing(bench: &Bench) -> RunningHost {
    bench.host(&config("Enforce", HASTY)).await
}

/// `TestPodStatusChange`, for a node that is not ready.
#[test]
fn ne_01_the_pods_of_a_node_that_is_not_ready_are_evicted() {
    on_any_server(|mut bench| async move {
        let zones = Zones::new(&mut bench).await;
        let host = enforcing(&bench).await;
        bench.set_ready(zones.down(), "False").await;
        let pod = bench.until_pod("a-1", is_going).await;
        assert_eq!(pod["status"]["reason"], "NodeLost");
        let node = zones.down();
        assert_eq!(
            text(&pod, "/status/message"),
            format!("Node {node} which was running pod a-1 is unresponsive")
        );
        assert_eq!(pod["status"]["phase"], "Running");
        for other in ["a-0", "a-2", "b-0"] {
            assert!(!is_going(&bench.get_pod(other).await), "{other}");
        }
        // A pod that is bound to it later is evicted too, without another turn.
        let running = json!({"phase": "Running"});
        bench.pod_with("late", node, &running, |_| {}).await;
        bench
            .until_pod("late", |pod| pod.is_null() || is_going(pod))
            .await;
        host.host.stop().await;
        bench
    });
}

#[test]
fn a_node_that_is_ready_again_in_time_keeps_its_pods() {
    on_any_server(|mut bench| async move {
        let zones = Zones::new(&mut bench).await;
        let host = enforcing(&bench).await;
        for _ in 0..3 {
            bench.set_ready(zones.down(), "False").await;
            sleep(Duration::from_secs(3)).await;
            bench.set_ready(zones.down(), "True").await;
            sleep(Duration::from_secs(3)).await;
        }
        assert!(!is_going(&bench.get_pod("a-1").await));
        host.host.stop().await;
        bench
    });
}
