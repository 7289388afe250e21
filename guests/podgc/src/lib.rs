//! Kubernetes' pod garbage collector as a Davit guest.
//!
//! It deletes pods that nobody else deletes: terminated pods above a threshold
//! (module `terminated`), terminating pods on nodes that are out of service or
//! that were never scheduled (module `stuck`), and pods of nodes that no longer
//! exist (module `orphan`).
//!
//! The rules are kube-controller-manager's (pkg/controller/podgc, v1.36),
//! except: every deletion carries the pod's uid; a pod that is gone already is
//! not an error; a pass deletes a pod once; a node is out of service only if a
//! live read says so; a node that was verified as missing
//! stays in its queue until it is back or has no pods; pods that the collector
//! has just marked because their node is missing do not count against the
//! threshold; namespace and uid break ties.

mod config;
mod deletion;
mod orphan;
mod pass;
mod plans;
mod stuck;
mod terminated;
mod view;

use std::time::Duration;

use davit_guest::{
    ConfigError, Context, Controller, Decision, Identity, Index, LiveFields, Manifest, QueueName,
    QueueSpec, Retry, Trigger, Watch, WorkItem, resources,
};

pub use config::Config;

/// The queue of the periodic pass.
pub const PASSES: QueueName = QueueName::new("podgc");
/// The key of the periodic pass.
pub const PASS: &str = "pass";
/// The queue of the nodes that pods name and that may be missing. Its name is
/// kube-controller-manager's.
pub const ORPHANED: QueueName = QueueName::new("orphaned_pods_nodes");

/// The first back-off after a node could not be read.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest: kube-controller-manager's quarantine.
const LAST_RETRY: Duration = Duration::from_secs(40);

/// The pod garbage collector.
#[derive(Debug)]
pub struct PodGc {
    config: Config,
}

davit_guest::export!(PodGc);

impl Controller for PodGc {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    fn manifest(&self) -> Manifest {
        let summary = "Deletes terminated pods above a threshold, and pods that are stuck \
                       because their node is missing, out of service or was never chosen.";
        Manifest::new("podgc", env!("CARGO_PKG_VERSION"), summary)
            .watch(pods())
            .watch(nodes())
            .watch(node_names())
            // A node that disappears starts its quarantine immediately; a node
            // that comes back ends it.
            .trigger(Trigger::own_key(view::NODE_NAMES, ORPHANED))
            // A failed pass is retried with the next one.
            .queue(QueueSpec::new(PASSES).retry(self.config.period, self.config.period))
            .queue(
                QueueSpec::new(ORPHANED)
                    .workers(4)
                    .retry(FIRST_RETRY, LAST_RETRY),
            )
            .tick(PASSES, PASS, self.config.period)
            .reads_live(resources::NODES)
            .patches_status(resources::PODS)
            .deletes(resources::PODS)
            .metric(deletion::DELETIONS)
            .metric(deletion::ERRORS)
            .config_schema(include_str!("../config.schema.json"))
    }

    fn live_reads(&self) -> Vec<LiveFields> {
        vec![LiveFields::of::<view::LiveNode>(resources::NODES)]
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        match item.queue {
            ORPHANED => orphan::reconcile(&self.config, cx, item),
            _ => Ok(pass::reconcile(&self.config, cx, item)),
        }
    }
}

fn pods() -> Watch<view::Pod> {
    Watch::of(view::PODS, resources::PODS)
        .index(Index::new(view::BY_NODE, "spec.nodeName").unset())
        .index(
            Index::new(view::ENDED, "status.phase")
                .except(&terminated::ALIVE)
                .presence()
                .unset()
                .order_by("metadata.creationTimestamp"),
        )
        .index(
            Index::new(view::EVICTED, "status.reason")
                .only(&[terminated::EVICTED_REASON])
                .order_by("metadata.creationTimestamp"),
        )
        .index(
            Index::new(view::MARKED, "status.conditions[*].reason")
                .only(&[deletion::DELETION_BY_POD_GC])
                .order_by("metadata.deletionTimestamp"),
        )
        .index(
            Index::new(view::TERMINATING, "metadata.deletionTimestamp")
                .presence()
                .order_by("spec.nodeName"),
        )
}

fn node_names() -> Watch<Identity> {
    let by_name = Index::new(view::BY_NAME, "metadata.name");
    Watch::of(view::NODE_NAMES, resources::NODES).index(by_name)
}

fn nodes() -> Watch<view::Node> {
    let by_taint = Index::new(view::BY_TAINT, "spec.taints[*].key");
    Watch::of(view::NODES, resources::NODES).index(by_taint)
}
