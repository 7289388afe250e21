//! Eviction from unresponsive nodes as a Davit guest, as
//! kube-controller-manager did it until 1.26 without taint-based eviction.
//!
//! A node that has been silent (module `health`), or has reported that it is
//! not ready, for longer than a timeout is enqueued for its zone (module
//! `pass`). The queue's rate depends on how much of the zone is down (module
//! `zone`); while all zones are down, the rate is 0. When a node's turn comes,
//! all of its pods are evicted except static pods and those of `DaemonSet`s
//! (modules `evict` and `daemon`).
//!
//! The rules are those of `DeletePods` (pkg/controller/util/node) and of the
//! node lifecycle controller of 1.26 and 1.36.
//! docs/controllers/node-eviction.md lists the differences.

mod config;
mod daemon;
mod evict;
mod health;
mod pass;
mod timer;
mod view;
mod zone;

use davit_guest::{
    ApiResource, ConfigError, Context, Controller, Decision, Index, Manifest, Object, Permission,
    QueueSpec, Tick, Watch, WorkItem,
};

pub use config::Config;
use view::Node;

/// The queue of the pass over all nodes.
pub const MONITOR: &str = "node_monitor";
/// The key of the pass over all nodes.
pub const PASS: &str = "pass";
/// The queue of the nodes that wait for their turn in their zone.
pub const QUEUED: &str = "node_evictions";
/// The queue of the nodes that had their turn and are still down.
pub const EVICTED: &str = "evicted_nodes";
/// The queue of recorded times: its items are never due.
pub const TIMERS: &str = "node_timers";

/// The taints that node-lifecycle sets for taint-based eviction.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Eviction from unresponsive nodes.
#[derive(Debug)]
pub struct NodeEviction {
    config: Config,
}

davit_guest::export!(NodeEviction);

impl Controller for NodeEviction {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    fn manifest(&self) -> Manifest {
        let summary = "Evicts the pods of nodes that have not responded for some minutes, at a \
                       rate that depends on how much of their zone is down.";
        let period = self.config.node_monitor_period;
        Manifest {
            watches: watches(),
            // No trigger: silence is not a change.
            triggers: Vec::new(),
            queues: vec![
                QueueSpec::new(MONITOR).priority(1).retry(period, period),
                QueueSpec::new(QUEUED).workers(4),
                QueueSpec::new(EVICTED).workers(4),
                QueueSpec::new(TIMERS),
            ],
            ticks: vec![Tick::new(MONITOR, PASS, period)],
            permissions: vec![
                Permission::new("get", "", "nodes"),
                Permission::new("get", "coordination.k8s.io", "leases"),
                Permission::new("get", "", "pods"),
                Permission::new("patch", "", "pods/status"),
                Permission::new("delete", "", "pods"),
                Permission::new("create", "", "events"),
            ],
            metrics: zone::metrics(),
            config_schema: include_str!("../config.schema.json").to_owned(),
            ..Manifest::new("node-eviction", env!("CARGO_PKG_VERSION"), summary)
        }
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Decision {
        match item.queue.as_str() {
            QUEUED => evict::queued(&self.config, cx, item),
            EVICTED => evict::evicted(&self.config, cx, item),
            TIMERS => Decision::requeue_after(timer::NEVER),
            _ => pass::reconcile(&self.config, cx),
        }
    }
}

/// Whether taint-based eviction handles this node.
fn is_left_to_taints(config: &Config, node: &Object<Node>) -> bool {
    let mut taints = node.view.taints.iter();
    config.skip_tainted_nodes
        && taints.any(|it| it.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&&*it.key))
}

fn watches() -> Vec<Watch> {
    let nodes = || ApiResource::new("", "v1", "nodes");
    let leases = ApiResource::new("coordination.k8s.io", "v1", "leases");
    let daemon_sets = ApiResource::new("apps", "v1", "daemonsets");
    vec![
        Watch::of(view::NODES, nodes()),
        Watch::of(view::HEARTBEATS, nodes()),
        Watch::of(view::LEASES, leases).namespace(view::LEASE_NAMESPACE),
        Watch::of(view::PODS, ApiResource::new("", "v1", "pods"))
            .index(Index::new(view::BY_NODE, "spec.nodeName")),
        Watch::of(view::DAEMON_SETS, daemon_sets)
            .index(Index::new(view::BY_NAMESPACE, "metadata.namespace")),
    ]
}
