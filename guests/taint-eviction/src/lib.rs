//! Kubernetes' taint eviction as a Davit guest.
//!
//! It evicts pods from nodes with `NoExecute` taints that they do not tolerate,
//! or that they have tolerated for long enough. Timers (module `timer`) start
//! and end when the taints of a node change, and when a pod is bound or changes
//! its tolerations. A pod whose time is over is evicted (module `eviction`).
//! The eviction is retried until it succeeds or is cancelled. No pod is evicted
//! for a taint that only the cache still shows (module `taints`).
//!
//! The rules are kube-controller-manager's (pkg/controller/tainteviction,
//! v1.36), except: a timer belongs to a pod's uid, not to its name; it is
//! cancelled when the node is deleted; a failed eviction is retried until it
//! succeeds or is cancelled; a toleration that becomes shorter counts, unless
//! the operator configures otherwise; each taint has its own start; a
//! terminating pod is not deleted again.

mod arrival;
mod config;
mod event;
mod eviction;
mod fate;
mod node;
mod record;
mod start;
mod taints;
mod timer;
mod view;

use std::collections::BTreeSet;
use std::time::Duration;

use davit_guest::toleration::NO_EXECUTE;
use davit_guest::{
    ConfigError, Context, Controller, Decision, Index, LiveFields, Manifest, QueueName, QueueSpec,
    Retry, Trigger, TriggerCondition, Watch, WorkItem, resources,
};

pub use config::{Config, CountFrom, Deletion, Reschedule};
use taints::{LiveNodes, UnprovenNode};

/// The queue of the nodes whose taints changed. Its name is
/// kube-controller-manager's.
pub const NODES: QueueName = QueueName::new("noexec_taint_node");
/// The queue of the nodes whose taints the cache shows wrongly.
pub const DOUBTFUL: QueueName = QueueName::new("noexec_taint_doubtful_node");
/// The queue of the nodes whose taints a live read has confirmed. Its items
/// have no effect of their own: a pending item means that the node is
/// confirmed.
pub const PROVEN: QueueName = QueueName::new("noexec_taint_proven_node");
/// The queue of the pods that changed, by uid. Its name is
/// kube-controller-manager's.
pub const PODS: QueueName = QueueName::new("noexec_taint_pod");
/// The queue of the running timers. As far as one taint is concerned, the pod
/// may stay until the item is due. The item's creation time is the start of the
/// tolerated time. The keys are a pod's uid and a taint's key, with a space in
/// between.
pub const TIMERS: QueueName = QueueName::new("noexec_taint_timer");
/// The queue of the pods to evict, by uid. The creation time of an item is when
/// the pod's time was over.
pub const EVICTIONS: QueueName = QueueName::new("noexec_taint_eviction");

/// The queue of the times that are over, by the keys of their timers and the arrivals of their taints.
/// Its items have no effect of their own: a pending item means that the time is over.
pub const ENDED: QueueName = QueueName::new("noexec_taint_ended");

/// The first back-off after an eviction, or the read of a node, failed.
const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest back-off.
const LAST_RETRY: Duration = Duration::from_secs(30);

/// The taint eviction controller.
#[derive(Debug)]
pub struct TaintEviction {
    config: Config,
}

davit_guest::export!(TaintEviction);

impl Controller for TaintEviction {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    fn manifest(&self) -> Manifest {
        let summary = "Evicts pods from nodes with NoExecute taints that they do not tolerate, \
                       or no longer.";
        let by_node = Index::new(view::BY_NODE, "spec.nodeName");
        let by_effect = Index::new(view::BY_EFFECT, "spec.taints[*].effect").only(&[NO_EXECUTE]);
        let manifest = Manifest::new("taint-eviction", env!("CARGO_PKG_VERSION"), summary)
            .watch(Watch::of(view::PODS, resources::PODS).index(by_node))
            .watch(Watch::of(view::PODS_WITH_STATUS, resources::PODS))
            .watch(Watch::of(view::NODES, resources::NODES).index(by_effect))
            .trigger(Trigger::own_key(view::NODES, NODES))
            // By uid, so that the timer of a pod that is gone can be cancelled.
            .trigger(Trigger::own_uid(view::PODS, PODS))
            .reads_live(resources::NODES)
            .records_events()
            .metric(eviction::DELETIONS)
            .metric(eviction::DURATION)
            .config_schema(include_str!("../config.schema.json"));
        let manifest = queues(&self.config)
            .into_iter()
            .fold(manifest, Manifest::queue);
        match self.config.deletion {
            Deletion::Delete => manifest
                .patches_status(resources::PODS)
                .deletes(resources::PODS),
            Deletion::Evict => manifest.evicts(resources::PODS),
        }
    }

    /// Pods of other nodes have neither a timer nor a reason for one.
    fn trigger_conditions(&self) -> Vec<TriggerCondition> {
        let tainted = (view::NODES, view::BY_EFFECT);
        let of_tainted_node =
            TriggerCondition::new((view::PODS, PODS), view::BY_NODE, tainted, NO_EXECUTE);
        vec![of_tainted_node.or_noted(record::NOTE_PREFIX)]
    }

    fn live_reads(&self) -> Vec<LiveFields> {
        vec![LiveFields::of::<view::Node>(resources::NODES)]
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        let mut decisions = self.reconcile_batch(cx, std::slice::from_ref(item));
        decisions.pop().unwrap_or_else(|| Ok(Decision::done()))
    }

    /// Decides from the cache first. Then it reads the nodes of the items that
    /// would evict, each node once, and decides about these items again.
    fn reconcile_batch(
        &self,
        cx: &Context<'_>,
        items: &[WorkItem],
    ) -> Vec<Result<Decision, Retry>> {
        let nodes = LiveNodes::default();
        let decide = |item| self.decide(cx, item, &nodes);
        let drafts: Vec<Result<Decision, UnprovenNode>> = items.iter().map(decide).collect();
        let unproven = drafts.iter().filter_map(|draft| draft.as_ref().err());
        let names: BTreeSet<String> = unproven.map(|it| it.node.clone()).collect();
        if names.is_empty() {
            return drafts.into_iter().flatten().map(Ok).collect();
        }
        let nodes = LiveNodes::read(cx, names);
        let mut learnt = nodes.record_reads(cx);
        let settle = |(item, draft): (&WorkItem, Result<Decision, UnprovenNode>)| match draft {
            Ok(decision) => Ok(decision),
            Err(_) => match self.decide(cx, item, &nodes) {
                Ok(decision) => Ok(decision.commands(std::mem::take(&mut learnt))),
                Err(UnprovenNode { node }) => {
                    Err(Retry::new(format!("the node {node} was not read")))
                }
            },
        };
        items.iter().zip(drafts).map(settle).collect()
    }
}

impl TaintEviction {
    fn decide(
        &self,
        cx: &Context<'_>,
        item: &WorkItem,
        nodes: &LiveNodes,
    ) -> Result<Decision, UnprovenNode> {
        match item.queue {
            NODES => timer::reconcile_node(&self.config, cx, &item.key, nodes),
            PROVEN => Ok(Decision::done()),
            ENDED => Ok(record::reconcile_ended(cx, &item.key)),
            DOUBTFUL => timer::reconcile_doubtful(&self.config, cx, &item.key, nodes),
            PODS => timer::reconcile_pod(&self.config, cx, &item.key, nodes),
            TIMERS => timer::reconcile_timer(&self.config, cx, item, nodes),
            _ => eviction::reconcile(&self.config, cx, item, nodes),
        }
    }
}

/// Evictions go first, so that a pod of the first node does not wait until the
/// last node is read. Nodes go before timers, which they may cancel, and before
/// pods, because one node decides about many pods.
fn queues(config: &Config) -> Vec<QueueSpec> {
    let queue = |name| QueueSpec::new(name).retry(FIRST_RETRY, LAST_RETRY);
    vec![
        queue(EVICTIONS)
            .priority(3)
            .workers(config.max_parallel_evictions)
            .batch(16),
        queue(NODES).priority(2).workers(16).batch(4),
        queue(PROVEN).priority(2).workers(64).batch(64),
        queue(DOUBTFUL).priority(2).workers(16).batch(16),
        queue(TIMERS).priority(1).workers(256).batch(64),
        queue(PODS).workers(256).batch(64),
        queue(ENDED).workers(64).batch(64),
    ]
}
