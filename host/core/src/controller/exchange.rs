//! The inputs and effects of a controller.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::bounds::{Bounds, SeriesKey};
use crate::budget::Guardrails;
use crate::circuit::CallFailure;
use crate::expectation::WriteResult;
use crate::failure::Failure;
use crate::gate::{Mode, Ruling};
use crate::grant::Grant;
use crate::mapping::Mapping;
use crate::notes::Notes;
use crate::plan::{Measure, Plan, QueueKey, WorkItem};
use crate::queue::{EnqueueReason, PendingSnapshot};
use crate::rollout::Role;
use crate::store::{Snapshot, ViewId};
use crate::time::Instant;
use crate::undo::UndoRules;

/// The number of plans of one item that are executed at the same time, unless the
/// decision sets it.
pub const DEFAULT_PARALLEL: u32 = 64;
/// The most plans of one item that are executed at the same time, whatever the decision
/// sets.
pub const MOST_PARALLEL: u32 = 128;

/// Identifies a controller that runs. It is never used twice: a controller that
/// is removed and declared again under the same name is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControllerId(pub u64);

/// Identifies one call into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId {
    /// The controller that calls.
    pub controller: ControllerId,
    /// Counts the controller's plans and calls.
    pub number: u64,
}

/// Identifies one decision: the answer to one item of a call. The pages of a decision
/// share the id of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId {
    /// The call of the first page.
    pub call: CallId,
    /// The position of the item in that call.
    pub position: u32,
}

/// `CONTROLLER-CALL-POSITION`
impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CallId { controller, number } = self.call;
        write!(f, "{}-{number}-{}", controller.0, self.position)
    }
}

/// Identifies one plan that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanId {
    /// The controller that executes it.
    pub controller: ControllerId,
    /// Counts the controller's plans and calls.
    pub number: u64,
}

/// `CONTROLLER-NUMBER`
impl fmt::Display for PlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.controller.0, self.number)
    }
}

/// What an operator decides about a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The mode.
    pub mode: Mode,
    /// What the operator grants.
    pub grant: Grant,
    /// The guardrails.
    pub guardrails: Guardrails,
    /// The names of the revisions that run in a dry run, whatever the mode.
    pub dry_run_only: BTreeSet<String>,
    /// The most that the host keeps for each revision.
    pub bounds: Bounds,
    /// What is kept before it is deleted.
    pub undo: Arc<UndoRules>,
    /// Whether its dry run is compared with the cluster.
    pub compares_with_cluster: bool,
}

impl Settings {
    /// The mode of a revision.
    #[must_use]
    pub fn mode_of(&self, revision: &str) -> Mode {
        if self.mode == Mode::Enforce && self.dry_run_only.contains(revision) {
            Mode::DryRun
        } else {
            self.mode
        }
    }

    /// Whether its dry run is compared with the cluster, so that its guests may read objects
    /// that are gone.
    #[must_use]
    pub fn is_compared(&self) -> bool {
        self.compares_with_cluster && self.mode == Mode::DryRun
    }
}

/// The present state that plans are ruled on.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The time.
    pub now: Instant,
    /// The cache.
    pub snapshot: &'a Snapshot,
    /// The resources that the API server serves.
    pub mapping: &'a Mapping,
    /// Whether this replica may write.
    pub leading: bool,
}

/// Identifies one revision of a controller's guest. It is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RevisionId(pub(super) u64);

/// A call to make.
#[derive(Clone, Debug)]
pub struct CallRequest<G> {
    /// Identifies the answer.
    pub id: CallId,
    /// The name of the revision that calls.
    pub revision: Arc<str>,
    /// Its role.
    pub role: Role,
    /// The guest that is called.
    pub guest: G,
    /// The view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
    /// The cache.
    pub snapshot: Snapshot,
    /// The resources that the API server serves.
    pub mapping: Arc<Mapping>,
    /// The work items.
    pub items: Vec<WorkItem>,
    /// What made each item due; none for a page.
    pub reasons: Vec<EnqueueReason>,
    /// The decision whose next page the call asks for; none for new decisions.
    pub continues: Option<DecisionId>,
    /// The pending items.
    pub pending: PendingSnapshot,
    /// The controller's notes.
    pub notes: Notes,
    /// What the guest may read live.
    pub grant: Grant,
}

/// Something to execute or to report.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Execute a plan.
    /// [`Controller::handle_outcome`](super::Controller::handle_outcome) takes its
    /// outcome.
    Execute {
        /// Identifies the outcome.
        id: PlanId,
        /// The name of the revision that decided it.
        revision: Arc<str>,
        /// The decision that it is a part of.
        decision: DecisionId,
        /// The plan.
        plan: Arc<Plan>,
        /// Whether its events are recorded: they may concern objects of the snapshot only.
        records_events: bool,
    },
    /// The gate ruled on a plan.
    Ruled {
        /// The role of the revision that decided it.
        role: Role,
        /// The name of that revision.
        revision: Arc<str>,
        /// The item that was reconciled.
        item: QueueKey,
        /// The decision that the plan is a part of.
        decision: DecisionId,
        /// The plan.
        plan: Arc<Plan>,
        /// The ruling.
        ruling: Ruling,
    },
    /// Add a measure to a metric of the guest.
    Measure(Measure),
    /// No revision names these series of metrics any more.
    SeriesDropped(Vec<SeriesKey>),
    /// An item was reconciled.
    Reconciled {
        /// The role of the revision that reconciled it.
        role: Role,
        /// The decision about it.
        decision: DecisionId,
        /// What happens to it now, in a word.
        finish: &'static str,
        /// The item.
        item: QueueKey,
        /// How long the reconcile took, including its writes.
        duration: Duration,
    },
    /// A call ended. If it failed, every item is retried.
    Called {
        /// The call.
        call: CallId,
        /// The role of the revision that called.
        role: Role,
        /// Why it failed; none if it succeeded.
        failure: Option<CallFailure>,
        /// The duration of the call.
        took: Duration,
    },
    /// The host does not call the guest for a while.
    CircuitOpened {
        /// The role of the revision.
        role: Role,
        /// For how long.
        pause: Duration,
        /// The last failure.
        reason: CallFailure,
    },
    /// The guest retries an item.
    Retried {
        /// The role of the revision that it belongs to.
        role: Role,
        /// The item.
        item: QueueKey,
        /// The decision about it.
        decision: DecisionId,
        /// The guest's reason.
        reason: String,
    },
    /// An item of the stable revision was dequeued.
    Dequeued {
        /// Its queue.
        queue: String,
        /// How long it had been due.
        waited: Duration,
    },
}

/// The outcome of an executed plan.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the last successful write left behind, if there was one.
    pub written: Option<WriteResult>,
    /// The step that failed, and why.
    pub failed: Option<(u32, Failure)>,
}

impl Outcome {
    /// Whether the plan succeeded, or its target was gone.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.failed
            .as_ref()
            .is_none_or(|(_, failure)| failure.class.means_gone())
    }
}
