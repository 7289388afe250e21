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
    ConfigError, Context, Controller, Decision, Index, Manifest, Object, QueueName, QueueSpec,
    Retry, Watch, WorkItem, resources,
};

pub use config::Config;
use view::Node;

/// The queue of the pass over all nodes.
pub const MONITOR: QueueName = QueueName::new("node_monitor");
/// The key of the pass over all nodes.
pub const PASS: &str = "pass";
/// The queue of the nodes that wait for their turn in their zone.
pub const QUEUED: QueueName = QueueName::new("node_evictions");
/// The queue of the nodes that had their turn and are still down.
pub const EVICTED: QueueName = QueueName::new("evicted_nodes");
/// The queue of recorded times: its items are never due.
pub const TIMERS: QueueName = QueueName::new("node_timers");

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
        let pods_by_node = Index::new(view::BY_NODE, "spec.nodeName");
        let by_namespace = Index::new(view::BY_NAMESPACE, "metadata.namespace");
        Manifest::new("node-eviction", env!("CARGO_PKG_VERSION"), summary)
            // No trigger: silence is not a change.
            .watch(Watch::of(view::NODES, resources::NODES))
            .watch(Watch::of(view::HEARTBEATS, resources::NODES))
            .watch(Watch::of(view::LEASES, resources::LEASES).namespace(view::LEASE_NAMESPACE))
            .watch(Watch::of(view::PODS, resources::PODS).index(pods_by_node))
            .watch(Watch::of(view::DAEMON_SETS, resources::DAEMON_SETS).index(by_namespace))
            .queue(QueueSpec::new(MONITOR).priority(1).retry(period, period))
            .queue(QueueSpec::new(QUEUED).workers(4))
            .queue(QueueSpec::new(EVICTED).workers(4))
            .queue(QueueSpec::new(TIMERS))
            .tick(MONITOR, PASS, period)
            .reads_live(resources::NODES)
            .reads_live(resources::LEASES)
            .reads_live(resources::PODS)
            .patches_status(resources::PODS)
            .deletes(resources::PODS)
            .records_events()
            .metric(zone::HEALTH)
            .metric(zone::SIZE)
            .metric(zone::UNHEALTHY)
            .metric(zone::EVICTIONS)
            .config_schema(include_str!("../config.schema.json"))
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        match item.queue {
            QUEUED => evict::queued(&self.config, cx, item),
            EVICTED => evict::evicted(&self.config, cx, item),
            TIMERS => Ok(Decision::requeue_after(timer::NEVER)),
            _ => Ok(pass::reconcile(&self.config, cx)),
        }
    }
}

/// Whether taint-based eviction handles this node.
fn is_left_to_taints(config: &Config, node: &Object<Node>) -> bool {
    let mut taints = node.view.taints.iter();
    config.skip_tainted_nodes
        && taints.any(|it| it.effect == "NoExecute" && [NOT_READY, UNREACHABLE].contains(&&*it.key))
}
