//! What the machine reports of its work.

use std::sync::Arc;
use std::time::Duration;

use crate::circuit::CallFailure;
use crate::controller::Outcome;
use crate::failure::Failure;
use crate::gate::Ruling;
use crate::manifest::Manifest;
use crate::object::ApiResource;
use crate::plan::{Measure, Plan, QueueKey};
use crate::queue::QueueStats;
use crate::rollout::Role;
use crate::throttle::SuppressedCount;
use crate::watch::Condition;

/// Something that happened, for the log, the metrics, and whoever listens.
///
/// Where many reports have one cause, a report says whether the log is to have
/// it: `Some` with the number of lines that were suppressed before it, or `None`
/// if it is suppressed itself.
#[derive(Clone, Debug)]
pub enum Report {
    /// A controller was removed.
    Removed {
        /// The controller.
        controller: String,
    },
    /// The watches of a stable revision are synced, and it runs.
    Started {
        /// The controller.
        controller: String,
        /// What its guest declares.
        manifest: Arc<Manifest>,
    },
    /// A candidate was promoted.
    Promoted {
        /// The controller.
        controller: String,
        /// The name of the revision.
        revision: Arc<str>,
        /// What its guest declares.
        manifest: Arc<Manifest>,
    },
    /// The watches of a candidate are synced, and it runs.
    CandidateStarted {
        /// The controller.
        controller: String,
        /// The name of the revision.
        revision: Arc<str>,
        /// Its share, in percent.
        weight: u8,
    },
    /// A revision pauses: a resource that it watches is no longer served.
    Paused {
        /// The controller.
        controller: String,
        /// The role of the revision.
        role: Role,
    },
    /// A revision waits for a resource that is not served.
    NotServed {
        /// The name of the guest.
        guest: String,
        /// The resource.
        resource: ApiResource,
    },
    /// The gate ruled on a plan.
    Ruled {
        /// The controller.
        controller: String,
        /// The role of the revision that decided it.
        role: Role,
        /// The name of that revision.
        revision: Arc<str>,
        /// Whether the controller's mode is `DryRun`.
        dry_run: bool,
        /// The item it was decided for.
        item: QueueKey,
        /// The plan.
        plan: Arc<Plan>,
        /// The ruling.
        ruling: Ruling,
        /// Whether the log has not had this ruling on this target for a while.
        is_news: bool,
    },
    /// A plan was executed, or failed.
    Executed {
        /// The controller.
        controller: String,
        /// The name of the revision that decided it.
        revision: Arc<str>,
        /// Identifies the decision.
        decision: String,
        /// The plan.
        plan: Arc<Plan>,
        /// What became of it.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
        /// Whether a failure is worth a warning.
        warning: Option<SuppressedCount>,
    },
    /// A call into a guest ended.
    Called {
        /// The controller.
        controller: String,
        /// The role of the revision.
        role: Role,
        /// Why it failed, if it did.
        failure: Option<CallFailure>,
        /// How long it took.
        took: Duration,
    },
    /// A guest is not called for a while.
    CircuitOpened {
        /// The controller.
        controller: String,
        /// The role of the revision.
        role: Role,
        /// For how long.
        pause: Duration,
        /// The failure that opened it.
        reason: CallFailure,
    },
    /// A guest retries an item.
    Retried {
        /// The controller.
        controller: String,
        /// The role of the revision.
        role: Role,
        /// The item.
        item: QueueKey,
        /// Why, in the guest's words.
        reason: String,
    },
    /// A guest measured something.
    Measured {
        /// The controller.
        controller: String,
        /// What.
        measure: Measure,
    },
    /// An item was dequeued.
    Dequeued {
        /// The controller.
        controller: String,
        /// Its queue.
        queue: String,
        /// How long it had been due.
        waited: Duration,
    },
    /// An item was reconciled.
    Reconciled {
        /// The controller.
        controller: String,
        /// Its queue.
        queue: String,
        /// How long that took, its writes included.
        took: Duration,
    },
    /// The condition of a stream changed.
    Stream {
        /// Its resource.
        resource: String,
        /// How well it follows the server.
        condition: Condition,
        /// Whether the cache shows this stream. Otherwise it only lists yet, in
        /// place of another.
        is_current: bool,
        /// Whether an interruption is worth a warning.
        warning: Option<SuppressedCount>,
    },
    /// A stream listed fewer fields than its views read, which cannot happen.
    ListRefused {
        /// In which way.
        reason: String,
    },
    /// The API server does not say what it serves.
    DiscoveryFailed {
        /// Why.
        failure: Failure,
        /// Whether that is worth a warning.
        warning: Option<SuppressedCount>,
    },
    /// Some group versions do not say what they serve.
    DiscoveryIncomplete {
        /// The group versions.
        failed: Vec<String>,
        /// How many lines about the same were suppressed.
        suppressed: SuppressedCount,
    },
    /// A controller's watches could not be brought up to what is served.
    SyncError {
        /// The controller.
        controller: String,
    },
    /// The machine runs, and this is its state. It comes every second.
    State(Box<State>),
}

/// The state of the machine, for gauges and probes.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// What keeps a controller from running; none if all of them do.
    pub waiting: Option<String>,
    /// The controllers that run.
    pub controllers: Vec<ControllerState>,
    /// The number of objects held of each resource.
    pub objects: Vec<(String, usize)>,
    /// The bytes of all objects.
    pub bytes: usize,
}

/// The state of one controller.
#[derive(Clone, Debug)]
pub struct ControllerState {
    /// Its name.
    pub name: String,
    /// Whether the stable revision's guest is not called because its circuit is
    /// open.
    pub circuit_open: bool,
    /// The stable revision's queues.
    pub queues: Vec<QueueStats>,
}
