//! What a controller takes and gives.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Guardrails;
use crate::expectation::Written;
use crate::failure::Failure;
use crate::gate::{Mode, Ruling};
use crate::manifest::Permission;
use crate::mapping::Mapping;
use crate::plan::{Measure, Plan, QueueKey, WorkItem};
use crate::queue::PendingSnapshot;
use crate::rollout::Role;
use crate::store::{Snapshot, ViewId};
use crate::time::Instant;

/// How many plans of one item are executed at once if its decision leaves it
/// open.
pub const DEFAULT_PARALLEL: u32 = 64;
/// How many are, whatever its decision asks for.
pub const MOST_PARALLEL: u32 = 128;

/// The small values that a controller keeps between calls.
pub type Notes = imbl::OrdMap<String, Arc<[u8]>>;

/// Identifies a controller that runs. It is never used twice: a controller that
/// is removed and declared again under the same name is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerId(pub u64);

/// Identifies one call into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId {
    /// The controller that calls.
    pub controller: ControllerId,
    pub(super) number: u64,
}

/// Identifies one plan that is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanId {
    /// The controller that executes it.
    pub controller: ControllerId,
    pub(super) number: u64,
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
    /// What it may do to the cluster.
    pub mode: Mode,
    /// What it is granted of what its guest declares; none for all.
    pub granted: Option<Vec<Permission>>,
    /// Limits that hold whatever the guest decides.
    pub guardrails: Guardrails,
}

/// The state of the world that a decision is judged in.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    /// The time.
    pub now: Instant,
    /// The cache.
    pub snapshot: &'a Snapshot,
    /// What the API server serves.
    pub mapping: &'a Mapping,
    /// Whether this replica may write.
    pub leading: bool,
}

/// Identifies one revision of a controller's guest. It is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RevisionId(pub(super) u64);

/// A call that is to be made into the guest.
#[derive(Clone, Debug)]
pub struct CallRequest<G> {
    /// Identifies the answer.
    pub id: CallId,
    /// The guest that is called.
    pub guest: G,
    /// The view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
    /// The cache.
    pub snapshot: Snapshot,
    /// What it is about.
    pub items: Vec<WorkItem>,
    /// What waits in the queues.
    pub pending: PendingSnapshot,
    /// The controller's notes.
    pub notes: Notes,
}

/// Something to do or to report.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A plan is to be executed;
    /// [`Controller::handle_outcome`](super::Controller::handle_outcome) takes
    /// its outcome.
    Execute {
        /// Identifies the outcome.
        id: PlanId,
        /// The name of the revision that decided it.
        revision: Arc<str>,
        /// The plan.
        plan: Arc<Plan>,
    },
    /// The gate ruled on a plan.
    Ruled {
        /// The role of the revision that decided it.
        role: Role,
        /// The name of that revision.
        revision: Arc<str>,
        /// The item it was decided for.
        item: QueueKey,
        /// The plan.
        plan: Arc<Plan>,
        /// The ruling.
        ruling: Ruling,
    },
    /// Something is to be counted.
    Measure(Measure),
    /// An item of the stable revision was reconciled.
    Reconciled {
        /// Its queue.
        queue: String,
        /// How long that took, its writes included.
        duration: Duration,
    },
    /// The guest wants an item tried again.
    Retried {
        /// The role of the revision that it belongs to.
        role: Role,
        /// The item.
        item: QueueKey,
        /// Why, in the guest's words.
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

/// The outcome of a plan that was executed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the last successful write left behind, if there was one.
    pub written: Option<Written>,
    /// The step that failed, and why.
    pub failed: Option<(u32, Failure)>,
}

impl Outcome {
    /// Whether the plan reached its end, or its target was gone.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.failed
            .as_ref()
            .is_none_or(|(_, failure)| failure.class.means_gone())
    }
}
