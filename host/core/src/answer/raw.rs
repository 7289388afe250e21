//! An answer before the check: what a guest returned, in core's types as far as they
//! can hold it.

use crate::object::ObjectRef;
use crate::plan::{Command, Event, Measure, QueueKey, Verdict};

/// The answer to one work item.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to do in the cluster.
    pub plans: Vec<Plan>,
    /// What to do in the host.
    pub commands: Vec<Command>,
    /// What happens to the item.
    pub verdict: Verdict,
    /// How many of the plans are executed at once at most; 0 for the host's
    /// limit.
    pub parallel: u32,
}

/// The steps to execute on one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The object.
    pub target: ObjectRef,
    /// A short word for metrics and logs.
    pub reason: String,
    /// A sentence for an operator.
    pub message: String,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// Recorded when the plan is executed.
    pub measures: Vec<PlanMeasure>,
    /// The item whose cancellation the plan depends on.
    pub when_cancelled: Option<QueueKey>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Changes fields of the target.
    Patch(Patch),
    /// Deletes the target.
    Delete(DeleteOptions),
    /// Evicts the target.
    Evict(DeleteOptions),
    /// Creates the object with this body.
    Create(Vec<u8>),
    /// Records an event on the target.
    Event(Event),
}

/// A change of the target's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// `strategic-merge`, `merge`, `json`, `apply` or `apply-force`.
    pub kind: String,
    /// `status`, or empty.
    pub subresource: String,
    /// MessagePack of the patch.
    pub body: Vec<u8>,
}

/// How the target is deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteOptions {
    /// A precondition, if not empty.
    pub resource_version: String,
    /// `Background`, `Foreground`, `Orphan`, or empty.
    pub propagation_policy: String,
    /// The grace period; the object's own if none.
    pub grace_period_seconds: Option<i64>,
}

/// A number that depends on the outcome of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanMeasure {
    /// `attempted`, `succeeded`, `gone` or `failed`.
    pub when: String,
    /// What is recorded.
    pub measure: Measure,
}
