//! Constructors for decisions.

use std::time::Duration;

use serde::Serialize;

use crate::manifest::milliseconds;
use crate::msgpack::encode;
use crate::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Instant, Measure, ObjectRef,
    Patch, Plan, PlanMeasure, QueueKey, SetNote, SetRate, Step, Verdict,
};

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

    /// The item is requeued after that time, with the same creation time.
    #[must_use]
    pub fn requeue_after(pause: Duration) -> Self {
        Self::with(Verdict::RequeueAfter(milliseconds(pause)))
    }

    /// The item is requeued when the cache has observed the writes of the
    /// plans.
    #[must_use]
    pub fn requeue_when_observed() -> Self {
        Self::with(Verdict::RequeueWhenObserved)
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

impl Plan {
    /// A plan without a step. The target needs its uid. The reason is a short
    /// word for metrics and logs, the message a sentence for an operator.
    #[must_use]
    pub fn new(target: ObjectRef, reason: &str, message: impl Into<String>) -> Self {
        Self {
            target,
            reason: reason.to_owned(),
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

    /// Patches the target.
    #[must_use]
    pub fn patch(self, patch: Patch) -> Self {
        self.step(Step::Patch(patch))
    }

    /// Deletes the target.
    #[must_use]
    pub fn delete(self, options: DeleteOptions) -> Self {
        self.step(Step::Delete(options))
    }

    /// Evicts the target, so that disruption budgets hold.
    #[must_use]
    pub fn evict(self, options: DeleteOptions) -> Self {
        self.step(Step::Evict(options))
    }

    /// Creates an object: the whole object, with `apiVersion`, `kind` and
    /// `metadata`.
    #[must_use]
    pub fn create(self, object: &impl Serialize) -> Self {
        let body = encode(object);
        self.step(Step::Create(Create { body }))
    }

    /// Records an event on the target; best effort. The manifest needs the permission
    /// `create` on `events`.
    #[must_use]
    pub fn event(self, event_type: &str, reason: &str, message: &str, component: &str) -> Self {
        self.step(Step::Event(Event {
            event_type: event_type.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            component: component.to_owned(),
        }))
    }

    /// Records a number when the plan is executed: `attempted`, `succeeded`,
    /// `gone` or `failed`.
    #[must_use]
    pub fn measure(mut self, when: &str, measure: Measure) -> Self {
        self.measures.push(PlanMeasure {
            when: when.to_owned(),
            measure,
        });
        self
    }

    /// Executes the plan only if the command `cancel` for this item, in the
    /// same decision, removed a pending item.
    #[must_use]
    pub fn when_cancelled(mut self, queue: &str, key: &str) -> Self {
        self.when_cancelled = Some(queue_key(queue, key));
        self
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

    /// `Background`, `Foreground` or `Orphan`.
    #[must_use]
    pub fn propagation(mut self, policy: &str) -> Self {
        policy.clone_into(&mut self.propagation_policy);
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

    /// A JSON merge patch (RFC 7396).
    #[must_use]
    pub fn merge(body: &impl Serialize) -> Self {
        Self::new("merge", body)
    }

    fn new(kind: &str, body: &impl Serialize) -> Self {
        Self {
            kind: kind.to_owned(),
            subresource: String::new(),
            body: encode(body),
        }
    }

    /// Patches the subresource `status`.
    #[must_use]
    pub fn status(mut self) -> Self {
        "status".clone_into(&mut self.subresource);
        self
    }
}

impl Command {
    /// Enqueues an item after a pause. If the item is pending already, the
    /// earlier of the two times applies.
    #[must_use]
    pub fn enqueue(queue: &str, key: &str, after: Duration) -> Self {
        Self::Enqueue(Enqueue {
            queue: queue.to_owned(),
            key: key.to_owned(),
            after: milliseconds(after),
            created_at: None,
            group: String::new(),
        })
    }

    /// Removes a pending item.
    #[must_use]
    pub fn cancel(queue: &str, key: &str) -> Self {
        Self::Cancel(queue_key(queue, key))
    }

    /// Sets how fast the host dequeues the items of a group; 0 stops the group.
    #[must_use]
    pub fn set_rate(queue: &str, group: &str, per_second: f64, burst: u32) -> Self {
        Self::SetRate(SetRate {
            queue: queue.to_owned(),
            group: group.to_owned(),
            per_second,
            burst,
        })
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

impl Measure {
    /// Adds to a counter or a gauge. The values of the labels have the
    /// manifest's order.
    #[must_use]
    pub fn add(metric: &str, labels: &[&str], number: f64) -> Self {
        Self::new(metric, labels, Amount::Add(number))
    }

    /// Sets a gauge.
    #[must_use]
    pub fn set(metric: &str, labels: &[&str], number: f64) -> Self {
        Self::new(metric, labels, Amount::Set(number))
    }

    /// Adds an observation to a histogram.
    #[must_use]
    pub fn observe(metric: &str, labels: &[&str], number: f64) -> Self {
        Self::new(metric, labels, Amount::Observe(number))
    }

    /// Adds the seconds since that instant to a histogram.
    #[must_use]
    pub fn seconds_since(metric: &str, labels: &[&str], start: Instant) -> Self {
        Self::new(metric, labels, Amount::SecondsSince(start))
    }

    fn new(metric: &str, labels: &[&str], amount: Amount) -> Self {
        Self {
            metric: metric.to_owned(),
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            amount,
        }
    }
}

fn queue_key(queue: &str, key: &str) -> QueueKey {
    QueueKey {
        queue: queue.to_owned(),
        key: key.to_owned(),
    }
}
