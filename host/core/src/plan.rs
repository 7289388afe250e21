//! A guest's decisions: the core's form of `decisions` in `wit/`.

use std::time::Duration;

use crate::failure::Failure;
use crate::manifest::Rate;
use crate::object::ObjectRef;
use crate::time::Instant;
use crate::untrusted;

/// A key that a guest reconciles.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem {
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: String,
    /// The number of failures since the item was last done; 0 the first time.
    pub attempt: u32,
    /// When it was first enqueued.
    pub created_at: Instant,
    /// When it became due.
    pub due_at: Instant,
    /// The failed plans of the last attempt, [`Self::MAX_FAILURES`] at most.
    pub failures: Vec<PlanFailure>,
    /// Where the next page of its decision starts; empty for the first page.
    pub cursor: String,
}

impl WorkItem {
    /// How many failed plans an item keeps for its next attempt.
    pub const MAX_FAILURES: usize = 100;

    /// An item that became due when it was enqueued, and never failed.
    #[must_use]
    pub fn new(queue: impl Into<String>, key: impl Into<String>, at: Instant) -> Self {
        Self {
            queue: queue.into(),
            key: key.into(),
            attempt: 0,
            created_at: at,
            due_at: at,
            failures: Vec::new(),
            cursor: String::new(),
        }
    }
}

/// A failed plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFailure {
    /// The uid of the plan's target.
    pub uid: String,
    /// The index of the failed step.
    pub step: u32,
    /// The reason.
    pub failure: Failure,
}

impl PlanFailure {
    /// The bytes that the host keeps until the item's next attempt.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.uid.len() + self.failure.message.len()
    }
}

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

/// What happens to an item after its plans were executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves its queue.
    Done,
    /// It is requeued after the queue's back-off.
    Retry {
        /// The reason, for a log.
        reason: String,
    },
    /// It is requeued after that time, with the same creation time; earlier if a plan was deferred
    /// for a write that has been observed by then.
    RequeueAfter(Duration),
    /// It is requeued when the cache has observed the writes of the plans.
    RequeueWhenObserved,
    /// The decision has another page. The host asks for it when the plans of
    /// this page have ended.
    ContinueFrom {
        /// Where the next page starts, in the guest's own words.
        cursor: String,
    },
}

/// The steps to execute on one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The object, with its uid.
    pub target: ObjectRef,
    /// A short word for metrics and logs: `orphaned`.
    pub reason: String,
    /// A sentence for an operator.
    pub message: String,
    /// What to do, in order; the first step that fails ends the plan.
    pub steps: Vec<Step>,
    /// Recorded when the plan is executed.
    pub measures: Vec<PlanMeasure>,
    /// Execute it only if this decision's `Cancel` of that item removed a
    /// pending item.
    pub when_cancelled: Option<QueueKey>,
}

impl Plan {
    /// Whether it deletes or evicts its target.
    #[must_use]
    pub fn deletes(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)))
    }

    /// Whether it writes another object than its target.
    #[must_use]
    pub fn writes_others(&self) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| step.writes_other(&self.target).is_some())
    }

    /// The bytes that the host keeps for it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let measures = self.measures.iter().map(|it| &it.measure);
        let labels = measures.flat_map(|it| it.labels.iter().chain([&it.metric]));
        let cancelled = self.when_cancelled.iter();
        let cancelled = cancelled.flat_map(|it| [&it.queue, &it.key]);
        let texts = labels.chain(cancelled).map(String::len).sum::<usize>();
        self.text_bytes() + texts + self.steps.iter().map(Step::bytes).sum::<usize>()
    }

    /// The bytes of the text that a log has about it.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let ObjectRef {
            api_version,
            kind,
            namespace,
            name,
            uid,
        } = &self.target;
        let texts = [api_version, kind, namespace, name, uid];
        let texts = texts.into_iter().chain([&self.reason, &self.message]);
        texts.map(String::len).sum()
    }
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
    /// Applies a configuration to the target or to another object.
    Apply(Apply),
    /// Records an event on the target. Never fails a plan.
    Event(Event),
}

impl Step {
    /// What it does, in a word.
    #[must_use]
    pub const fn verb(&self) -> &'static str {
        match self {
            Self::Patch(_) => "patch",
            Self::Delete(_) => "delete",
            Self::Evict(_) => "evict",
            Self::Create(_) => "create",
            Self::Apply(_) => "apply",
            Self::Event(_) => "event",
        }
    }

    fn bytes(&self) -> usize {
        let bytes = match self {
            Self::Patch(patch) => patch.body.len(),
            Self::Delete(options) | Self::Evict(options) => options.resource_version.len(),
            Self::Create(create) => create.body.len(),
            Self::Apply(apply) => apply.body.len(),
            Self::Event(event) => event.reason.len() + event.message.len() + event.component.len(),
        };
        size_of::<Self>() + bytes
    }

    /// The object other than the target that the step writes, if it writes one.
    #[must_use]
    pub fn writes_other(&self, target: &ObjectRef) -> Option<&ObjectRef> {
        match self {
            Self::Create(create) => Some(&create.object),
            Self::Apply(apply) if !apply.writes(target) => Some(&apply.object),
            _ => None,
        }
    }
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
    /// The format of the body.
    pub kind: PatchKind,
    /// `status`, or empty.
    pub subresource: String,
    /// MessagePack of the patch. The host adds the target's uid as a precondition when
    /// it sends the patch.
    pub body: Vec<u8>,
}

/// What happens to dependents when their owner is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropagationPolicy {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They are kept.
    Orphan,
}

impl PropagationPolicy {
    /// Kubernetes' name for it.
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
    /// What happens to dependents; the resource's default if none.
    pub propagation_policy: Option<PropagationPolicy>,
    /// The grace period; the object's own if none.
    pub grace_period_seconds: Option<i64>,
}

/// An object to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// Its coordinates, from the body's `apiVersion`, `kind` and `metadata`.
    pub object: ObjectRef,
    /// MessagePack of the whole object.
    pub body: Vec<u8>,
}

/// A server-side apply: the fields that the controller wants an object to have. The API
/// server removes the fields that the controller applied before and does not apply now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apply {
    /// Its coordinates, from the body. The uid is that of the body, or the target's if the
    /// body names the target: no other object of the name is written. Without a uid,
    /// whatever object has the name is written, and a missing one is created.
    pub object: ObjectRef,
    /// `status`, or empty. A status needs a uid.
    pub subresource: String,
    /// Whether fields are taken from other field managers. Otherwise a field that another
    /// manager has with another value fails the step with a conflict.
    pub force: bool,
    /// MessagePack of the configuration, with `apiVersion`, `kind` and `metadata.name`. A
    /// `metadata.resourceVersion` is a precondition.
    pub body: Vec<u8>,
}

impl Apply {
    /// Whether it creates the object if there is none.
    #[must_use]
    pub fn may_create(&self) -> bool {
        self.object.uid.is_empty()
    }

    /// Whether it writes this target.
    #[must_use]
    pub fn writes(&self, target: &ObjectRef) -> bool {
        self.object.uid == target.uid
    }
}

/// An event on a plan's target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Normal` or `Warning`.
    pub event_type: String,
    /// One word in camel case.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The reporting component: `taint-eviction-controller`.
    pub component: String,
}

impl Event {
    /// Cuts the texts to what the API server takes, each on one line.
    pub fn cut(&mut self) {
        untrusted::shorten(&mut self.reason, 128);
        // Of 1024 bytes; an aggregate has a prefix.
        untrusted::shorten(&mut self.message, 960);
        untrusted::shorten(&mut self.component, 63);
    }

    /// The namespace of an event about an object.
    #[must_use]
    pub fn namespace(involved: &ObjectRef) -> &str {
        match involved.namespace.as_str() {
            "" => "default",
            namespace => namespace,
        }
    }
}

/// A number for one of the manifest's metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Measure {
    /// The metric's name.
    pub metric: String,
    /// The values of the labels, in the manifest's order.
    pub labels: Vec<String>,
    /// The number.
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
    /// Observes the seconds since that instant.
    SecondsSince(Instant),
}

/// When a plan's measure is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureWhen {
    /// When the plan was executed, whatever the outcome.
    Attempted,
    /// When every step succeeded.
    Succeeded,
    /// When the target was gone before the last step.
    Gone,
    /// When a step failed.
    Failed,
}

/// A number that depends on the outcome of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanMeasure {
    /// When it is recorded.
    pub when: MeasureWhen,
    /// What is recorded.
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

/// A command of a decision to the host itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Enqueues an item.
    Enqueue(Enqueue),
    /// Removes a pending item.
    Cancel(QueueKey),
    /// Sets the rate of a queue's group.
    SetRate {
        /// The queue.
        queue: String,
        /// The group.
        group: String,
        /// The rate.
        rate: Rate,
    },
    /// Stores a small value for the controller; none deletes it.
    SetNote {
        /// Its name.
        key: String,
        /// MessagePack.
        value: Option<Vec<u8>>,
    },
    /// Records a number immediately.
    Measure(Measure),
}

impl Command {
    /// The bytes of memory that it keeps.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = match self {
            Self::Enqueue(it) => it.item.queue.len() + it.item.key.len() + it.group.len(),
            Self::Cancel(item) => item.queue.len() + item.key.len(),
            Self::SetRate { queue, group, .. } => queue.len() + group.len(),
            Self::SetNote { key, value } => key.len() + value.as_ref().map_or(0, Vec::len),
            Self::Measure(it) => it.metric.len() + it.labels.iter().map(String::len).sum::<usize>(),
        };
        size_of::<Self>() + texts
    }
}

/// An item to enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue {
    /// Its queue and key.
    pub item: QueueKey,
    /// If it is pending already, the earlier of the two times applies.
    pub after: Duration,
    /// The creation time of a new item; now if none.
    pub created_at: Option<Instant>,
    /// The group whose rate applies to it.
    pub group: String,
}

/// A live read of one object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GetRequest {
    /// The object. With a uid, another object with that name is a failure.
    pub target: ObjectRef,
    /// The wanted fields; empty for the identity in `metadata` alone.
    pub fields: Vec<crate::path::FieldPath>,
}

/// A live list of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListRequest {
    /// The resource.
    pub resource: crate::object::ApiResource,
    /// Empty for all namespaces.
    pub namespace: String,
    /// Kubernetes' label selector; empty for all.
    pub label_selector: String,
    /// Kubernetes' field selector; empty for all.
    pub field_selector: String,
    /// The wanted fields.
    pub fields: Vec<crate::path::FieldPath>,
}
