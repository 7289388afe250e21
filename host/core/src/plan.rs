//! What a guest answers: the core's form of `decisions` in `wit/`.

use std::time::Duration;

use crate::failure::Failure;
use crate::manifest::Rate;
use crate::object::ObjectRef;
use crate::time::Instant;

/// A key that a guest is asked to look at.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem {
    /// The queue it comes from.
    pub queue: String,
    /// Which one.
    pub key: String,
    /// 0 the first time; counts the failures since the item was last done.
    pub attempt: u32,
    /// When it was first added.
    pub created_at: Instant,
    /// When it became due.
    pub due_at: Instant,
    /// The plans of the last attempt that failed, [`Self::MAX_FAILURES`] at
    /// most.
    pub failures: Vec<PlanFailure>,
    /// Where its decision continues; empty for a first part.
    pub cursor: String,
}

impl WorkItem {
    /// How many failed plans an item carries into its next attempt.
    pub const MAX_FAILURES: usize = 100;
}

/// A plan that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFailure {
    /// The uid of the plan's target.
    pub uid: String,
    /// The index of the step.
    pub step: u32,
    /// Why.
    pub failure: Failure,
}

/// The answer to one work item.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What is to be done in the cluster.
    pub plans: Vec<Plan>,
    /// What is to be done in the host.
    pub commands: Vec<Command>,
    /// What becomes of the item.
    pub verdict: Verdict,
    /// How many of the plans are carried out at once; 0 for the host's limit.
    pub parallel: u32,
}

/// What becomes of an item once its plans were carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing, until it is added again.
    Done,
    /// It comes again after the queue's back-off.
    Retry {
        /// Why, for a log.
        reason: String,
    },
    /// It comes again after that time, with the same creation time.
    RequeueAfter(Duration),
    /// It comes again when the cache shows what the plans wrote.
    RequeueWhenObserved,
    /// The decision has another part, which is asked for when the plans of this
    /// one have ended.
    ContinueFrom {
        /// Where that part starts, in the guest's words.
        cursor: String,
    },
}

/// Something to be done to one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The object, with its uid.
    pub target: ObjectRef,
    /// A short word for metrics and logs: `orphaned`.
    pub reason: String,
    /// A sentence for an operator.
    pub message: String,
    /// What to do, in order; the first step that fails is the last.
    pub steps: Vec<Step>,
    /// Counted when the plan is carried out.
    pub measures: Vec<PlanMeasure>,
    /// Only if this decision's `Cancel` of that item found it waiting.
    pub when_cancelled: Option<QueueKey>,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Changes fields of the target.
    Patch(Patch),
    /// Deletes the target.
    Delete(DeleteOptions),
    /// Deletes the target, a pod, as far as its disruption budgets allow.
    Evict(DeleteOptions),
    /// Creates another object.
    Create(Create),
    /// Tells people about the target. Never fails a plan.
    Event(Event),
}

/// The media type of a patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// `application/strategic-merge-patch+json`
    StrategicMerge,
    /// `application/merge-patch+json`
    Merge,
    /// `application/json-patch+json`
    Json,
}

/// A change of the target's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// How the body is to be read.
    pub kind: PatchKind,
    /// `status`, or empty.
    pub subresource: String,
    /// MessagePack of the patch. The target's uid is added as a precondition
    /// when it is sent.
    pub body: Vec<u8>,
}

/// How dependents are treated when their owner is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// They are collected afterwards.
    Background,
    /// They are collected first.
    Foreground,
    /// They are kept.
    Orphan,
}

impl PropagationPolicy {
    /// Kubernetes' word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// How the target is deleted; its uid is always a precondition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// A further precondition, if not empty.
    pub resource_version: String,
    /// What becomes of dependents; the resource's default if none.
    pub propagation_policy: Option<PropagationPolicy>,
    /// Seconds until it is killed; the object's own if none.
    pub grace_period_seconds: Option<i64>,
}

/// An object to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Where it goes, from the body's `apiVersion`, `kind` and `metadata`.
    pub object: ObjectRef,
    /// MessagePack of the whole object.
    pub body: Vec<u8>,
}

/// Something that people are told about a plan's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub event_type: String,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Who tells it: `taint-eviction-controller`.
    pub component: String,
}

/// A number for one of the manifest's metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The metric's name.
    pub metric: String,
    /// The labels' values, in the manifest's order.
    pub labels: Vec<String>,
    /// How much.
    pub amount: Amount,
}

/// How a metric changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// Adds to a counter or gauge.
    Add(f64),
    /// Sets a gauge.
    Set(f64),
    /// Adds an observation to a histogram.
    Observe(f64),
    /// Observes the seconds passed since then.
    SecondsSince(Instant),
}

/// When a plan's measure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureWhen {
    /// When the plan was carried out, whatever came of it.
    Attempted,
    /// When every step succeeded.
    Succeeded,
    /// When the target was gone before the end.
    Gone,
    /// When a step failed.
    Failed,
}

/// A number that depends on what becomes of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanMeasure {
    /// When it counts.
    pub when: MeasureWhen,
    /// What it counts.
    pub measure: Measure,
}

/// An item of a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    /// The queue.
    pub queue: String,
    /// The key.
    pub key: String,
}

/// Something to be done in the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Adds an item.
    Enqueue(Enqueue),
    /// Takes a waiting item out.
    Cancel(QueueKey),
    /// Sets the rate of a queue's group.
    SetRate {
        /// The queue.
        queue: String,
        /// The group.
        group: String,
        /// How fast.
        rate: Rate,
    },
    /// Keeps a small value for the controller; none removes it.
    SetNote {
        /// Its name.
        key: String,
        /// MessagePack.
        value: Option<Vec<u8>>,
    },
    /// Counts something right now.
    Measure(Measure),
}

/// An item to be added to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue {
    /// Where it goes.
    pub item: QueueKey,
    /// If it waits already, the earlier time of the two holds.
    pub after: Duration,
    /// Its creation time, if it is new; now if none.
    pub created_at: Option<Instant>,
    /// The group whose rate it takes part in.
    pub group: String,
}

/// A live read of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetRequest {
    /// Which object. With a uid, another object of that name is a failure.
    pub target: ObjectRef,
    /// The fields wanted; none for metadata's identity alone.
    pub fields: Vec<crate::path::FieldPath>,
}

/// A live list of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// Which resource.
    pub resource: crate::object::ApiResource,
    /// Empty for all namespaces.
    pub namespace: String,
    /// Kubernetes' label selector; empty for all.
    pub label_selector: String,
    /// Kubernetes' field selector; empty for all.
    pub field_selector: String,
    /// The fields wanted.
    pub fields: Vec<crate::path::FieldPath>,
}
