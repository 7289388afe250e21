//! Kubernetes' garbage collector for owner references as a Davit guest.
//!
//! It deletes objects whose owners are gone (module `dependent`). It also does
//! what a deletion's propagation policy asks for: in the background, in the
//! foreground, or with the dependents orphaned (module `finalizer`).
//!
//! The rules are kube-controller-manager's (pkg/controller/garbagecollector,
//! v1.36); the means differ. There is no graph. The host's index over the uids
//! of owners finds an owner's dependents, and every decision uses the current
//! cache. An owner that the cache lacks is read live at the coordinates of the
//! reference. An object is deleted by one request, with its uid and the
//! resource version that was decided on as preconditions.

mod config;
mod cycle;
mod dependent;
mod finalizer;
mod memory;
mod namespace;
mod owner;
mod patch;
mod spread;
mod unlisted;
mod view;

use std::time::Duration;

use davit_guest::{
    ConfigError, Context, Controller, Decision, Index, Manifest, Metric, Permission, QueueSpec,
    Trigger, TriggerKey, Watch, WorkItem,
};

pub use config::{Config, GroupResource};

/// The queue of the objects to decide as dependents, by uid. Its name is
/// kube-controller-manager's.
pub const OBJECTS_QUEUE: &str = "garbage_collector_attempt_to_delete";
/// The queue of the owners that may wait for their dependents, by uid.
pub const OWNERS: &str = "garbage_collector_owners";
/// The queue of the owners whose dependents must all be enqueued.
pub const DEPENDENTS: &str = "garbage_collector_dependents";

/// The host increments it, under kube-controller-manager's name.
const SYNC_ERRORS: &str = "garbagecollector_controller_resources_sync_error_total";

/// How many objects one call decides about at most.
const BATCH: u32 = 250;
/// How many owners are reconciled at once at most.
const OWNER_WORKERS: u32 = 50;

/// The first and the longest back-off, also of an object that cannot be
/// decided.
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LONGEST_RETRY: Duration = Duration::from_mins(5);

/// The garbage collector.
#[derive(Debug)]
pub struct GarbageCollector {
    config: Config,
}

davit_guest::export!(GarbageCollector);

impl Controller for GarbageCollector {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self { config })
    }

    fn manifest(&self) -> Manifest {
        let summary = "Deletes objects whose owners are gone, and executes deletions in the \
                       foreground and with orphaned dependents.";
        let watch = Watch::every_deletable(view::OBJECTS, self.config.ignored())
            .index(Index::new(view::BY_OWNER, view::OWNER_UIDS));
        let queue = |name| QueueSpec::new(name).retry(FIRST_RETRY, LONGEST_RETRY);
        let by_owner = TriggerKey::Index(view::BY_OWNER.to_owned());
        Manifest {
            watches: vec![watch],
            triggers: vec![
                Trigger::new(view::OBJECTS, OBJECTS_QUEUE, TriggerKey::OwnUid),
                Trigger::new(view::OBJECTS, OWNERS, by_owner),
            ],
            queues: vec![
                queue(OBJECTS_QUEUE)
                    .workers(self.config.concurrent_syncs)
                    .batch(BATCH),
                queue(OWNERS).workers(OWNER_WORKERS),
                // Facts about an owner must be recorded before they are lost.
                queue(DEPENDENTS).workers(OWNER_WORKERS).priority(1),
            ],
            permissions: vec![
                Permission::new("get", "*", "*"),
                Permission::new("patch", "*", "*"),
                Permission::new("delete", "*", "*"),
                Permission::new("create", "", "events"),
            ],
            metrics: vec![Metric::sync_errors(
                SYNC_ERRORS,
                "Number of garbage collector resources sync errors",
            )],
            config_schema: include_str!("../config.schema.json").to_owned(),
            ..Manifest::new("garbage-collector", env!("CARGO_PKG_VERSION"), summary)
        }
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Decision {
        match item.queue.as_str() {
            OWNERS => finalizer::reconcile(&self.config, cx, item),
            DEPENDENTS => spread::reconcile(&self.config, cx, &item.key),
            _ => {
                let mut decisions =
                    dependent::reconcile(&self.config, cx, std::slice::from_ref(item));
                decisions.pop().unwrap_or_else(Decision::done)
            }
        }
    }

    /// All items of a call belong to one queue. Objects are decided about
    /// together, so that an owner that many of them name is read once.
    fn reconcile_batch(&self, cx: &Context<'_>, items: &[WorkItem]) -> Vec<Decision> {
        match items.first() {
            Some(first) if first.queue == OBJECTS_QUEUE => {
                dependent::reconcile(&self.config, cx, items)
            }
            _ => items.iter().map(|item| self.reconcile(cx, item)).collect(),
        }
    }
}
