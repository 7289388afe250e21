//! The machine's reports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::account::Account;
use crate::bounds::{Bound, SeriesKey};
use crate::budget::GuardrailUse;
use crate::circuit::CallFailure;
use crate::controller::{CallId, DecisionId, Outcome};
use crate::failure::Failure;
use crate::gate::Ruling;
use crate::manifest::Manifest;
use crate::object::ApiResource;
use crate::plan::{Measure, Plan, QueueKey};
use crate::queue::QueueStats;
use crate::rollout::Role;
use crate::throttle::SuppressedCount;
use crate::watch::Condition;

/// An event for the log, the metrics and observers.
///
/// If many reports have one cause, a report says whether to log it: `Some` with the
/// number of lines that were suppressed before it, or `None` if it is suppressed
/// itself.
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
        /// The account that reads and writes for it; none for the host's own.
        account: Option<Account>,
        /// The manifest of its guest.
        manifest: Arc<Manifest>,
    },
    /// A candidate was promoted.
    Promoted {
        /// The controller.
        controller: String,
        /// The name of the revision.
        revision: Arc<str>,
        /// The manifest of its guest.
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
        /// The work item.
        item: QueueKey,
        /// The decision that the plan is a part of.
        decision: DecisionId,
        /// The plan.
        plan: Arc<Plan>,
        /// The ruling.
        ruling: Ruling,
        /// Whether to log it: the log has not had this ruling on this target for a
        /// while.
        is_news: bool,
    },
    /// A plan was executed, or failed.
    Executed {
        /// The controller.
        controller: String,
        /// The name of the revision that decided it.
        revision: Arc<str>,
        /// The decision that the plan is a part of.
        decision: DecisionId,
        /// The plan.
        plan: Arc<Plan>,
        /// The outcome.
        outcome: Outcome,
        /// The duration of the execution.
        took: Duration,
        /// Whether to log a failure as a warning.
        warning: Option<SuppressedCount>,
        /// Whether to log a success: the plan wrote to the cluster, or the log has room
        /// for more text of the guest.
        is_news: bool,
    },
    /// No revision of a controller names these series of metrics any more.
    SeriesDropped {
        /// The controller.
        controller: String,
        /// The series.
        series: Vec<SeriesKey>,
    },
    /// The text of a controller's guests exceeded its bound in the log: lines are
    /// dropped for up to 60 seconds.
    LogExceeded {
        /// The controller.
        controller: String,
        /// The bound, in bytes in 60 seconds.
        most: usize,
    },
    /// A call into a guest ended.
    Called {
        /// The controller.
        controller: String,
        /// The call.
        call: CallId,
        /// The role of the revision.
        role: Role,
        /// Why it failed, if it did.
        failure: Option<CallFailure>,
        /// Whether to log the failure.
        warning: Option<SuppressedCount>,
        /// The duration of the call.
        took: Duration,
    },
    /// A circuit opened: the host does not call the guest for a while.
    CircuitOpened {
        /// The controller.
        controller: String,
        /// The role of the revision.
        role: Role,
        /// For this long.
        pause: Duration,
        /// The failure that opened it.
        reason: CallFailure,
    },
    /// The API server refused a live read as forbidden.
    ReadForbidden {
        /// The controller.
        controller: String,
        /// The refusal.
        failure: Failure,
        /// The number of suppressed lines about other refusals.
        suppressed: SuppressedCount,
    },
    /// A guest retries an item.
    Retried {
        /// The controller.
        controller: String,
        /// The role of the revision.
        role: Role,
        /// The item.
        item: QueueKey,
        /// The decision about it.
        decision: DecisionId,
        /// The guest's reason.
        reason: String,
    },
    /// A guest recorded a measure.
    Measured {
        /// The controller.
        controller: String,
        /// The measure.
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
        /// The role of the revision.
        role: Role,
        /// The decision about the item.
        decision: DecisionId,
        /// What happens to the item now: `done`, `retry`, `requeue` or `put-back`.
        finish: &'static str,
        /// The item.
        item: QueueKey,
        /// The duration of the reconcile, including its writes.
        took: Duration,
    },
    /// The condition of a stream changed.
    Stream {
        /// Its resource.
        resource: String,
        /// The condition of the stream.
        condition: Condition,
        /// Whether the cache shows this stream. Otherwise the stream is only listing,
        /// to replace another one.
        is_current: bool,
        /// Whether to log an interruption as a warning.
        warning: Option<SuppressedCount>,
    },
    /// A stream listed fewer fields than its views read, which must not happen.
    ListRefused {
        /// The missing fields.
        reason: String,
    },
    /// Discovery failed.
    DiscoveryFailed {
        /// The failure.
        failure: Failure,
        /// Whether to log it as a warning.
        warning: Option<SuppressedCount>,
    },
    /// Discovery is incomplete: some group versions did not answer.
    DiscoveryIncomplete {
        /// The group versions.
        failed: Vec<String>,
        /// The number of suppressed lines about the same failure.
        suppressed: SuppressedCount,
    },
    /// A watch of a controller was not synced for a whole period of discovery.
    SyncError {
        /// The controller.
        controller: String,
    },
    /// The state of the machine, once a second.
    State(Box<State>),
}

/// The state of the machine, for gauges.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The controllers that run.
    pub controllers: Vec<ControllerState>,
    /// The number of cached objects of each resource.
    pub objects: BTreeMap<String, usize>,
    /// Whether the cache holds a complete list of each resource that is watched.
    pub synced: BTreeMap<String, bool>,
    /// The bytes of all objects.
    pub bytes: usize,
}

/// The state of one controller.
#[derive(Clone, Debug)]
pub struct ControllerState {
    /// Its name.
    pub name: String,
    /// Whether the stable revision's circuit is open, so that the host does not call
    /// its guest.
    pub circuit_open: bool,
    /// The stable revision's queues.
    pub queues: Vec<QueueStats>,
    /// The use of its guardrails.
    pub guardrails: Vec<GuardrailUse>,
    /// What the host keeps for its revisions.
    pub bound_uses: Vec<BoundUse>,
}

/// What the host keeps for a revision, of what a limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundUse {
    /// The role of the revision.
    pub role: Role,
    /// The limit.
    pub bound: Bound,
    /// What the host keeps, in units of the bound.
    pub used: usize,
    /// The most that a guest can make it keep.
    pub most: usize,
}
