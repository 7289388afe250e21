//! Constructors for decisions.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::manifest::milliseconds;
use crate::msgpack::encode;
use crate::{
    Command, Create, Decision, DeleteOptions, Enqueue, Event, Instant, Measure, ObjectRef, Patch,
    Plan, PlanMeasure, QueueKey, QueueName, Reason, Retry, SetNote, SetRate, Step, Verdict,
};

/// # Long decisions
///
/// The host accepts 10,000 plans and 10,000 commands in one decision, and 16 MiB in one
/// answer. A decision may be longer: the SDK divides it into pages. The host executes the
/// first page, then calls the guest again with the same item, and the guest decides again
/// from the current state. The SDK skips everything that an earlier page contained, so
/// each plan is returned once, also in a dry run and if earlier plans fail. The item's
/// verdict, its retry and its `parallel` apply to all pages together. For the guest:
///
/// - The order of plans and commands must be deterministic: the SDK continues at the first
///   plan or command that no page contained.
/// - A change that triggers the item between two pages starts the decision from the
///   beginning afterwards.
/// - A plan with [`Plan::when_cancelled`] is on the same page as its cancellation, and so
///   are successive commands for one item.
/// - The whole decision is in the guest's memory before it is divided. A pod's plan takes
///   about 1 kB: above some 30,000 plans, return the first
///   [`MAX_PLANS`](crate::MAX_PLANS) and requeue the item when they are observed.
impl Decision {
    /// The item is done.
    #[must_use]
    pub fn done() -> Self {
        Self::with(Verdict::Done)
    }

    /// The item is requeued after the queue's back-off.
    #[must_use]
    pub fn retry(reason: impl Into<String>) -> Self {
        Self::with(Verdict::Retry(reason.into()))
    }

    /// The item is requeued after that time, with the same creation time; earlier if a plan was
    /// deferred for a write that has been observed by then.
    #[must_use]
    pub fn requeue_after(pause: Duration) -> Self {
        Self::with(Verdict::RequeueAfter(milliseconds(pause)))
    }

    /// The item is requeued when the cache has observed the writes of the plans to their
    /// targets; after a second if they wrote other objects only.
    #[must_use]
    pub fn requeue_when_observed() -> Self {
        Self::with(Verdict::RequeueWhenObserved)
    }

    /// This is one page of the decision. The host asks for the next one, with this text
    /// as the item's cursor.
    #[must_use]
    pub fn continue_from(cursor: impl Into<String>) -> Self {
        Self::with(Verdict::ContinueFrom(cursor.into()))
    }

    fn with(verdict: Verdict) -> Self {
        Self {
            plans: Vec::new(),
            commands: Vec::new(),
            verdict,
            parallel: 0,
        }
    }

    /// Adds plans.
    #[must_use]
    pub fn plans(mut self, plans: impl IntoIterator<Item = Plan>) -> Self {
        self.plans.extend(plans);
        self
    }

    /// Adds commands. The host executes them before the plans.
    #[must_use]
    pub fn commands(mut self, commands: impl IntoIterator<Item = Command>) -> Self {
        self.commands.extend(commands);
        self
    }

    /// Limits how many of the plans are executed at once.
    #[must_use]
    pub fn parallel(mut self, plans: u32) -> Self {
        self.parallel = plans;
        self
    }
}

impl From<Retry> for Decision {
    fn from(retry: Retry) -> Self {
        Self::retry(retry.into_reason())
    }
}

/// The steps of a plan are executed in order, and the first one that fails ends it. So a
/// pod that could not be marked is not deleted:
///
/// ```
/// # use davit_guest::{DeleteOptions, ObjectRef, Patch, Plan, Reason};
/// const ORPHANED: Reason = Reason::new("orphaned");
///
/// fn plan(pod: ObjectRef, mark: Patch) -> Plan {
///     Plan::new(pod, ORPHANED, "its node no longer exists")
///         .patch(mark.status())
///         .delete(DeleteOptions::force())
/// }
/// ```
///
/// A plan that creates or applies another object, or records an event, needs a target that the guest
/// watches.
///
/// # Permissions
///
/// Each step needs a permission that the manifest declares and the operator grants. Otherwise the
/// host refuses the plan, also in a dry run, and the test harness panics with the missing
/// permission. The methods of the manifest are named like the steps: from them come the rules
/// that `davit inspect --rbac` and `davit grant` write. A permission on a resource includes none on
/// its subresources.
///
/// | step | verb | resource | method of [`Manifest`](crate::Manifest) |
/// |---|---|---|---|
/// | [`delete`](Self::delete) | `delete` | the target's | [`deletes`](crate::Manifest::deletes) |
/// | [`evict`](Self::evict) | `create` | `pods/eviction` | [`evicts`](crate::Manifest::evicts) |
/// | [`patch`](Self::patch) | `patch` | the target's | [`patches`](crate::Manifest::patches) |
/// | [`patch`](Self::patch) of [`Patch::status`], [`Patch::apply_status`] | `patch` | the target's, `/status` | [`patches_status`](crate::Manifest::patches_status) |
/// | [`apply`](Self::apply), [`patch`](Self::patch) of [`Patch::apply_owned`] | `patch` and `create` | the applied object's | [`applies`](crate::Manifest::applies) |
/// | [`apply`](Self::apply) of an object that has to exist ([`Patch::only`]) | `patch` | the applied object's | [`patches`](crate::Manifest::patches) |
/// | [`create`](Self::create) | `create` | the created object's | [`creates`](crate::Manifest::creates) |
/// | [`event`](Self::event) | `create` | `events` | [`records_events`](crate::Manifest::records_events) |
impl Plan {
    /// A plan without a step. The target needs its uid. The message is a sentence for an
    /// operator.
    #[must_use]
    pub fn new(target: ObjectRef, reason: Reason, message: impl Into<String>) -> Self {
        Self {
            target,
            reason: reason.as_str().to_owned(),
            message: message.into(),
            steps: Vec::new(),
            measures: Vec::new(),
            when_cancelled: None,
        }
    }

    /// Adds a step. The host executes it only if the steps before it succeeded.
    #[must_use]
    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// Patches the target, or applies an object. A patch of the target needs the verb `patch` on
    /// its resource: the manifest [patches](crate::Manifest::patches) it. The constructors of
    /// [`Patch`] name what others need.
    #[must_use]
    pub fn patch(self, patch: Patch) -> Self {
        self.step(Step::Patch(patch))
    }

    /// Patches the target with each of these in order: see [`patch`](Self::patch).
    #[must_use]
    pub fn patches(mut self, patches: impl IntoIterator<Item = Patch>) -> Self {
        self.steps.extend(patches.into_iter().map(Step::Patch));
        self
    }

    /// Deletes the target. It needs the verb `delete` on the target's resource: the manifest
    /// [deletes](crate::Manifest::deletes) it.
    #[must_use]
    pub fn delete(self, options: DeleteOptions) -> Self {
        self.step(Step::Delete(options))
    }

    /// Evicts the target, a pod, so that disruption budgets hold. It needs the verb `create` on
    /// `pods/eviction`, and not `delete`: the manifest [evicts](crate::Manifest::evicts) pods.
    #[must_use]
    pub fn evict(self, options: DeleteOptions) -> Self {
        self.step(Step::Evict(options))
    }

    /// Creates an object: the whole object, with `apiVersion`, `kind` and
    /// `metadata.name`. It has no `generateName`: after a lost reply, the object would be
    /// created twice. An event needs [`Plan::event`].
    ///
    /// It needs the verb `create` on the object's resource, whatever the target's: the manifest
    /// [creates](crate::Manifest::creates) it.
    #[must_use]
    pub fn create(self, object: &impl Serialize) -> Self {
        let body = encode(object);
        self.step(Step::Create(Create { body }))
    }

    /// Records an event on the target; best effort. It needs the verb `create` on `events`: the
    /// manifest [records events](crate::Manifest::records_events).
    #[must_use]
    pub fn event(self, event: Event) -> Self {
        self.step(Step::Event(event))
    }

    /// Records a number when the plan is executed, not in a shadow or a dry run.
    #[must_use]
    pub fn measure(mut self, when: When, measure: Measure) -> Self {
        self.measures.push(PlanMeasure {
            when: when.as_str().to_owned(),
            measure,
        });
        self
    }

    /// Executes the plan only if the command `cancel` for this item, in the
    /// same decision, removed a pending item.
    #[must_use]
    pub fn when_cancelled(mut self, queue: QueueName, key: &str) -> Self {
        self.when_cancelled = Some(queue_key(queue, key));
        self
    }
}

/// The outcome of a plan that records a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Whatever the outcome.
    Attempted,
    /// Every step succeeded.
    Succeeded,
    /// The target was gone before the last step.
    Gone,
    /// A step failed.
    Failed,
}

impl When {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Attempted => "attempted",
            Self::Succeeded => "succeeded",
            Self::Gone => "gone",
            Self::Failed => "failed",
        }
    }
}

impl Event {
    /// An event that informs. The component is the source that it names:
    /// `taint-eviction-controller`.
    #[must_use]
    pub fn normal(reason: &str, message: impl Into<String>, component: &str) -> Self {
        Self::new("Normal", reason, message, component)
    }

    /// An event about something that should not be so.
    #[must_use]
    pub fn warning(reason: &str, message: impl Into<String>, component: &str) -> Self {
        Self::new("Warning", reason, message, component)
    }

    fn new(event_type: &str, reason: &str, message: impl Into<String>, component: &str) -> Self {
        Self {
            event_type: event_type.to_owned(),
            reason: reason.to_owned(),
            message: message.into(),
            component: component.to_owned(),
        }
    }
}

/// What happens to the dependents of an object that is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

impl DeleteOptions {
    /// The server's defaults.
    #[must_use]
    pub fn new() -> Self {
        Self {
            resource_version: String::new(),
            propagation_policy: String::new(),
            grace_period_seconds: None,
        }
    }

    /// Deletes immediately, without the kubelet: a grace period of 0 s.
    #[must_use]
    pub fn force() -> Self {
        Self {
            grace_period_seconds: Some(0),
            ..Self::new()
        }
    }

    /// What happens to the dependents; the kind's own default without it.
    #[must_use]
    pub fn propagation(mut self, policy: Propagation) -> Self {
        policy.as_str().clone_into(&mut self.propagation_policy);
        self
    }

    /// Deletes only this version of the object.
    #[must_use]
    pub fn only_version(mut self, resource_version: &str) -> Self {
        resource_version.clone_into(&mut self.resource_version);
        self
    }
}

impl Default for DeleteOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl Patch {
    /// A strategic merge patch, for types that are compiled into the API
    /// server.
    #[must_use]
    pub fn strategic_merge(body: &impl Serialize) -> Self {
        Self::new("strategic-merge", body)
    }

    /// A JSON merge patch (RFC 7396). In a patch of a status, set
    /// `metadata.resourceVersion`: the API server ignores the uid there for custom
    /// resources, so without a version the host reads the target first, and needs the
    /// permission `get`.
    #[must_use]
    pub fn merge(body: &impl Serialize) -> Self {
        Self::new("merge", body)
    }

    /// A JSON patch (RFC 6902): a list of operations. [`JsonPatch`](crate::JsonPatch) makes
    /// one.
    #[must_use]
    pub fn json(operations: &impl Serialize) -> Self {
        Self::new("json", operations)
    }

    fn new(kind: &str, body: &impl Serialize) -> Self {
        Self {
            kind: kind.to_owned(),
            subresource: String::new(),
            body: encode(body),
        }
    }

    /// Patches the subresource `status`. It needs the verb `patch` on `RESOURCE/status`, and not
    /// on the resource: the manifest [patches the status](crate::Manifest::patches_status).
    #[must_use]
    pub fn status(mut self) -> Self {
        "status".clone_into(&mut self.subresource);
        self
    }
}

impl Enqueue {
    /// An item that is due now. If the item is pending already, the earlier of the two
    /// times applies, and the item keeps its creation time.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use davit_guest::{Command, Enqueue, QueueName};
    /// const NODES: QueueName = QueueName::new("nodes");
    ///
    /// let command: Command = Enqueue::new(NODES, "node-1")
    ///     .after(Duration::from_secs(40))
    ///     .group("zone-a")
    ///     .into();
    /// ```
    #[must_use]
    pub fn new(queue: QueueName, key: &str) -> Self {
        Self {
            queue: queue.as_str().to_owned(),
            key: key.to_owned(),
            after: 0,
            created_at: None,
            group: String::new(),
        }
    }

    /// The item is due after a pause.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        self.after = milliseconds(pause);
        self
    }

    /// The creation time of a new item, instead of now.
    #[must_use]
    pub fn created_at(mut self, time: Instant) -> Self {
        self.created_at = Some(time.as_millis());
        self
    }

    /// The group whose rate applies to the item.
    #[must_use]
    pub fn group(mut self, group: &str) -> Self {
        group.clone_into(&mut self.group);
        self
    }
}

impl From<Enqueue> for Command {
    fn from(enqueue: Enqueue) -> Self {
        Self::Enqueue(enqueue)
    }
}

impl Command {
    /// Enqueues an item after a pause: see [`Enqueue::new`].
    #[must_use]
    pub fn enqueue(queue: QueueName, key: &str, after: Duration) -> Self {
        Enqueue::new(queue, key).after(after).into()
    }

    /// Removes a pending item.
    #[must_use]
    pub fn cancel(queue: QueueName, key: &str) -> Self {
        Self::Cancel(queue_key(queue, key))
    }

    /// Sets how fast the host dequeues the items of a group; 0 stops the group.
    #[must_use]
    pub fn set_rate(queue: QueueName, group: &str, per_second: f64, burst: u32) -> Self {
        Self::SetRate(SetRate {
            queue: queue.as_str().to_owned(),
            group: group.to_owned(),
            per_second,
            burst,
        })
    }

    /// Shows operators something in the status of the controller: what it is about, how often
    /// it happened, and an example. None removes it. It is the note `status/NAME`
    /// ([`Context::report`](crate::Context::report)); the status has the first 16, with names
    /// up to 128 bytes and messages up to 512.
    #[must_use]
    pub fn report(name: &str, report: Option<&Report>) -> Self {
        Self::set_note(&report_key(name), report)
    }

    /// Keeps a small value between calls; none deletes it.
    #[must_use]
    pub fn set_note(key: &str, value: Option<&impl Serialize>) -> Self {
        Self::SetNote(SetNote {
            key: key.to_owned(),
            value: value.map(encode),
        })
    }
}

/// What operators see in the status of a controller ([`Command::report`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// How often it happened.
    pub count: u64,
    /// What happened last.
    pub message: String,
}

pub(crate) fn report_key(name: &str) -> String {
    format!("status/{name}")
}

fn queue_key(queue: QueueName, key: &str) -> QueueKey {
    QueueKey {
        queue: queue.as_str().to_owned(),
        key: key.to_owned(),
    }
}
