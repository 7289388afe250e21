//! Kubernetes' pod garbage collector as a Davit guest.
//!
//! It deletes pods that nobody else deletes: terminated pods above a threshold
//! (module `terminated`), terminating pods on nodes that are out of service or
//! that were never scheduled (module `stuck`), and pods of nodes that no longer
//! exist (module `orphan`).
//!
//! The rules are kube-controller-manager's (pkg/controller/podgc, v1.36),
//! except: every deletion carries the pod's uid; a pod that is gone already is
//! not an error; a pass deletes a pod once; a node that was verified as missing
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
    ApiResource, ConfigError, Context, Controller, Decision, Index, Manifest, Permission,
    QueueSpec, Tick, Trigger, TriggerKey, Watch, WorkItem,
};

pub use config::Config;

/// The queue of the periodic pass.
pub const PASSES: &str = "podgc";
/// The key of the periodic pass.
pub const PASS: &str = "pass";
/// The queue of the nodes that pods name and that may be missing. Its name is
/// kube-controller-manager's.
pub const ORPHANED: &str = "orphaned_pods_nodes";

/// The first back-off after a node could not be read.
const FIRST_RETRY: Duration = Duration::from_secs(1);

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
        Manifest {
            watches: watches(),
            // A node that disappears starts its quarantine immediately; a node
            // that comes back ends it.
            triggers: vec![Trigger::new(view::NODE_NAMES, ORPHANED, TriggerKey::OwnKey)],
            queues: vec![
                // A failed pass is retried with the next one.
                QueueSpec::new(PASSES).retry(self.config.period, self.config.period),
                QueueSpec::new(ORPHANED)
                    .workers(4)
                    .retry(FIRST_RETRY, FIRST_RETRY.max(self.config.quarantine)),
            ],
            ticks: vec![Tick::new(PASSES, PASS, self.config.period)],
            permissions: vec![
                Permission::new("get", "", "nodes"),
                Permission::new("patch", "", "pods/status"),
                Permission::new("delete", "", "pods"),
            ],
            metrics: deletion::metrics(),
            config_schema: include_str!("../config.schema.json").to_owned(),
            ..Manifest::new("podgc", env!("CARGO_PKG_VERSION"), summary)
        }
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Decision {
        match item.queue.as_str() {
            ORPHANED => orphan::reconcile(&self.config, cx, item),
            _ => pass::reconcile(&self.config, cx, item),
        }
    }
}

fn watches() -> Vec<Watch> {
    let nodes = || ApiResource::new("", "v1", "nodes");
    vec![
        Watch::of(view::PODS, ApiResource::new("", "v1", "pods"))
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
            ),
        Watch::of(view::NODES, nodes()).index(Index::new(view::BY_TAINT, "spec.taints[*].key")),
        Watch::of(view::NODE_NAMES, nodes()),
    ]
}
