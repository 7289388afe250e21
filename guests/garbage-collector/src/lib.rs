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
    ConfigError, Context, Controller, Decision, Index, LiveFields, Manifest, QueueName, QueueSpec,
    Retry, SyncErrors, Trigger, Watch, WorkItem, resources,
};

pub use config::{Config, GroupResource};

/// The queue of the objects to decide as dependents, by uid. Its name is
/// kube-controller-manager's.
pub const OBJECTS_QUEUE: QueueName = QueueName::new("garbage_collector_attempt_to_delete");
/// The queue of the owners that may wait for their dependents, by uid.
pub const OWNERS: QueueName = QueueName::new("garbage_collector_owners");
/// The queue of the owners whose dependents must all be enqueued.
pub const DEPENDENTS: QueueName = QueueName::new("garbage_collector_dependents");

/// The host increments it, under kube-controller-manager's name.
const SYNC_ERRORS: SyncErrors = SyncErrors::new(
    "garbagecollector_controller_resources_sync_error_total",
    "Number of garbage collector resources sync errors",
);

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
        Manifest::new("garbage-collector", env!("CARGO_PKG_VERSION"), summary)
            .watch(watch)
            .trigger(Trigger::own_uid(view::OBJECTS, OBJECTS_QUEUE))
            .trigger(Trigger::by_index(view::OBJECTS, view::BY_OWNER, OWNERS))
            .queue(
                queue(OBJECTS_QUEUE)
                    .workers(self.config.concurrent_syncs)
                    .batch(BATCH),
            )
            .queue(queue(OWNERS).workers(OWNER_WORKERS))
            // Facts about an owner must be recorded before they are lost.
            .queue(queue(DEPENDENTS).workers(OWNER_WORKERS).priority(1))
            .reads_live(resources::ALL)
            .patches(resources::ALL)
            .deletes(resources::ALL)
            .records_events()
            .metric(SYNC_ERRORS)
            .config_schema(include_str!("../config.schema.json"))
    }

    fn live_reads(&self) -> Vec<LiveFields> {
        vec![LiveFields::of::<view::Meta>(resources::ALL)]
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        match item.queue {
            OWNERS => finalizer::reconcile(&self.config, cx, item),
            DEPENDENTS => Ok(spread::reconcile(&self.config, cx, &item.key)),
            _ => dependent::reconcile(&self.config, cx, std::slice::from_ref(item))
                .pop()
                .unwrap_or_else(|| Ok(Decision::done())),
        }
    }

    /// All items of a call belong to one queue. Objects are decided about
    /// together, so that an owner that many of them name is read once.
    fn reconcile_batch(
        &self,
        cx: &Context<'_>,
        items: &[WorkItem],
    ) -> Vec<Result<Decision, Retry>> {
        match items.first() {
            Some(first) if first.queue == OBJECTS_QUEUE => {
                dependent::reconcile(&self.config, cx, items)
            }
            _ => items.iter().map(|item| self.reconcile(cx, item)).collect(),
        }
    }
}
