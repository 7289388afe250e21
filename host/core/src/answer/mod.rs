//! The check of a guest's answer: the only one.
//!
//! The engine translates what a component returns into the types of [`raw`], the SDK's
//! test harness what a guest returns that is compiled natively, both with
//! [`answer_translation`](crate::answer_translation). So a test of a guest, a simulation
//! and a host refuse the same answers for the same reasons. What passes fits what the
//! machine expects, except for what the gate decides (the target's uid, the declared
//! writes).
//!
//! An answer may have thousands of plans. The check takes it by value: bodies and texts
//! move, and nothing of them is copied.

mod error;
pub mod raw;
mod translation;

use std::collections::BTreeSet;
use std::fmt;

use crate::bounds::text::{self, Identity};
use crate::manifest::{Manifest, MetricKind, MetricSpec};
use crate::msgpack::{self, Value};
use crate::object::ObjectRef;
use crate::plan::{
    Amount, Apply, Command, Create, Decision, DeleteOptions, Event, Measure, MeasureWhen, Patch,
    PatchKind, Plan, PlanMeasure, PropagationPolicy, QueueKey, Step, Verdict,
};
use crate::untrusted;

pub use error::{AnswerError, Place};

/// How long a cursor may be, in bytes: the host keeps it until the next page.
const MAX_CURSOR_BYTES: usize = 1024;

/// How much one decision may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionLimits {
    /// Plans of one decision.
    pub plans: usize,
    /// Steps of one plan.
    pub steps: usize,
    /// Commands of one decision.
    pub commands: usize,
}

impl Default for DecisionLimits {
    fn default() -> Self {
        Self {
            plans: 10_000,
            steps: 32,
            commands: 10_000,
        }
    }
}

/// Checks the answer to `items` work items. The first fault refuses all of it.
pub fn check(
    answer: impl ExactSizeIterator<Item = raw::Decision>,
    items: usize,
    manifest: &Manifest,
    limits: &DecisionLimits,
) -> Result<Vec<Decision>, AnswerError> {
    let decisions = answer.len();
    if decisions != items {
        return Err(AnswerError::Count { items, decisions });
    }
    let mut reader = Reader {
        manifest,
        limits,
        place: Place::default(),
    };
    let each = answer.enumerate();
    each.map(|(index, decision)| {
        reader.place = Place {
            decision: index,
            ..Place::default()
        };
        reader.decision(decision)
    })
    .collect()
}

struct Reader<'a> {
    manifest: &'a Manifest,
    limits: &'a DecisionLimits,
    place: Place,
}

impl Reader<'_> {
    fn decision(&mut self, decision: raw::Decision) -> Result<Decision, AnswerError> {
        let raw::Decision {
            plans,
            commands,
            verdict,
            parallel,
        } = decision;
        self.at_most("plans", plans.len(), self.limits.plans)?;
        self.at_most("commands", commands.len(), self.limits.commands)?;
        for command in &commands {
            self.command(command)?;
        }
        if let Verdict::ContinueFrom { cursor } = &verdict {
            self.at_most("bytes in the cursor", cursor.len(), MAX_CURSOR_BYTES)?;
        }
        let cancels = commands.iter().filter_map(|command| match command {
            Command::Cancel(item) => Some(item),
            _ => None,
        });
        let cancels: BTreeSet<&QueueKey> = cancels.collect();
        let plans = plans.into_iter().enumerate();
        let plans = plans.map(|(index, plan)| {
            self.place.plan = Some(index);
            self.plan(plan, &cancels)
        });
        Ok(Decision {
            plans: plans.collect::<Result<_, _>>()?,
            commands,
            verdict,
            parallel,
        })
    }

    fn plan(
        &mut self,
        plan: raw::Plan,
        cancels: &BTreeSet<&QueueKey>,
    ) -> Result<Plan, AnswerError> {
        self.at_most("steps", plan.steps.len(), self.limits.steps)?;
        if let Some(item) = &plan.when_cancelled {
            self.declared_queue(&item.queue)?;
            if !cancels.contains(item) {
                return Err(AnswerError::NotCancelled {
                    place: self.place,
                    key: excerpt(&item.key),
                });
            }
        }
        let measures = plan.measures.into_iter();
        let measures = measures.map(|measure| self.plan_measure(measure));
        let measures = measures.collect::<Result<_, _>>()?;
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.into_iter().enumerate() {
            self.place.step = Some(index);
            steps.push(self.step(step, &plan.target)?);
        }
        self.place.step = None;
        let plan = Plan {
            target: plan.target,
            reason: plan.reason,
            message: plan.message,
            steps,
            measures,
            when_cancelled: plan.when_cancelled,
        };
        self.short(text::identities_of_plan(&plan))?;
        Ok(plan)
    }

    fn step(&self, step: raw::Step, target: &ObjectRef) -> Result<Step, AnswerError> {
        Ok(match step {
            raw::Step::Patch(patch) if patch.kind == "apply" => {
                Step::Apply(self.apply(patch, target, false)?)
            }
            raw::Step::Patch(patch) if patch.kind == "apply-force" => {
                Step::Apply(self.apply(patch, target, true)?)
            }
            raw::Step::Patch(patch) => Step::Patch(self.patch(patch)?),
            raw::Step::Delete(options) => Step::Delete(self.delete_options(options)?),
            raw::Step::Evict(options) => Step::Evict(self.delete_options(options)?),
            raw::Step::Create(body) => Step::Create(self.create(body)?),
            raw::Step::Event(event) => Step::Event(self.event(event)?),
        })
    }

    fn patch(&self, patch: raw::Patch) -> Result<Patch, AnswerError> {
        let kind = match patch.kind.as_str() {
            "strategic-merge" => PatchKind::StrategicMerge,
            "merge" => PatchKind::Merge,
            "json" => PatchKind::Json,
            _ => {
                let known = "strategic-merge, merge, json, apply and apply-force";
                return Err(self.unknown("the patch kind", &patch.kind, known));
            }
        };
        self.check_subresource(&patch.subresource)?;
        self.check_body("patch", &patch.body)?;
        let problem = match (kind, Value::read(&patch.body)) {
            (PatchKind::Json, Ok(Value::List(_)))
            | (PatchKind::StrategicMerge | PatchKind::Merge, Ok(Value::Map(_))) => None,
            (PatchKind::Json, _) => Some("is not a list of operations"),
            _ => Some("is not an object"),
        };
        match problem {
            Some(problem) => Err(self.incomplete("patch", problem)),
            None => Ok(Patch {
                kind,
                subresource: patch.subresource,
                body: patch.body,
            }),
        }
    }

    fn apply(
        &self,
        patch: raw::Patch,
        target: &ObjectRef,
        force: bool,
    ) -> Result<Apply, AnswerError> {
        const WHAT: &str = "apply";
        self.check_subresource(&patch.subresource)?;
        let mut object = self.object(WHAT, &patch.body)?;
        let is_target = is_same_object(&object, target);
        if is_target && object.uid.is_empty() {
            object.uid.clone_from(&target.uid);
        }
        if is_target != (object.uid == target.uid) {
            return Err(self.incomplete(
                WHAT,
                "names another object with the target's uid, or the target with another uid",
            ));
        }
        if object.uid.is_empty() && !patch.subresource.is_empty() {
            return Err(self.incomplete(
                WHAT,
                "writes the status of another object than the target, and names no uid",
            ));
        }
        Ok(Apply {
            object,
            subresource: patch.subresource,
            force,
            body: patch.body,
        })
    }

    fn check_subresource(&self, subresource: &str) -> Result<(), AnswerError> {
        match subresource {
            "" | "status" => Ok(()),
            other => Err(self.unknown("the subresource", other, "status, or none")),
        }
    }

    fn delete_options(&self, options: raw::DeleteOptions) -> Result<DeleteOptions, AnswerError> {
        let propagation_policy = match options.propagation_policy.as_str() {
            "" => None,
            "Background" => Some(PropagationPolicy::Background),
            "Foreground" => Some(PropagationPolicy::Foreground),
            "Orphan" => Some(PropagationPolicy::Orphan),
            _ => {
                return Err(self.unknown(
                    "the propagation policy",
                    &options.propagation_policy,
                    "Background, Foreground and Orphan",
                ));
            }
        };
        if let Some(seconds) = options.grace_period_seconds
            && seconds < 0
        {
            return Err(self.number("the grace period", seconds));
        }
        Ok(DeleteOptions {
            resource_version: options.resource_version,
            propagation_policy,
            grace_period_seconds: options.grace_period_seconds,
        })
    }

    fn create(&self, body: Vec<u8>) -> Result<Create, AnswerError> {
        let mut object = self.object("creation", &body)?;
        object.uid.clear();
        Ok(Create { object, body })
    }

    /// The coordinates in a whole object, with its uid if it names one.
    fn object(&self, part: &'static str, body: &[u8]) -> Result<ObjectRef, AnswerError> {
        self.check_body(part, body)?;
        let is_map = |value: &&[u8]| matches!(Value::read(value), Ok(Value::Map(_)));
        let Some(metadata) = field(body, "metadata").filter(is_map) else {
            return Err(self.incomplete(part, "has no metadata"));
        };
        let object = ObjectRef {
            api_version: text_of(body, "apiVersion"),
            kind: text_of(body, "kind"),
            namespace: text_of(metadata, "namespace"),
            name: text_of(metadata, "name"),
            uid: text_of(metadata, "uid"),
        };
        if object.api_version.is_empty() || object.kind.is_empty() {
            return Err(self.incomplete(part, "has no apiVersion and kind"));
        }
        if field(metadata, "generateName").is_some() {
            return Err(self.incomplete(
                part,
                "has metadata.generateName: after a lost reply, it would be created twice; set \
                 metadata.name alone",
            ));
        }
        if object.name.is_empty() {
            return Err(self.incomplete(part, "has no metadata.name"));
        }
        Ok(object)
    }

    fn event(&self, event: Event) -> Result<Event, AnswerError> {
        if !matches!(event.event_type.as_str(), "Normal" | "Warning") {
            let known = "Normal and Warning";
            return Err(self.unknown("the event type", &event.event_type, known));
        }
        Ok(event)
    }

    fn command(&self, command: &Command) -> Result<(), AnswerError> {
        match command {
            Command::Enqueue(enqueue) => self.declared_queue(&enqueue.item.queue)?,
            Command::Cancel(item) => self.declared_queue(&item.queue)?,
            Command::SetRate { queue, rate, .. } => {
                self.declared_queue(queue)?;
                if !rate.is_valid() {
                    let value = format!(
                        "{} a second with a burst of {}",
                        rate.per_second, rate.burst
                    );
                    return Err(self.number("the rate", value));
                }
            }
            Command::SetNote { value, .. } => {
                if let Some(value) = value {
                    self.check_body("note", value)?;
                }
            }
            Command::Measure(measure) => self.measure(measure)?,
        }
        self.short(text::identities_of_command(command))
    }

    fn plan_measure(&self, measure: raw::PlanMeasure) -> Result<PlanMeasure, AnswerError> {
        let when = match measure.when.as_str() {
            "attempted" => MeasureWhen::Attempted,
            "succeeded" => MeasureWhen::Succeeded,
            "gone" => MeasureWhen::Gone,
            "failed" => MeasureWhen::Failed,
            _ => {
                let known = "attempted, succeeded, gone and failed";
                return Err(self.unknown("the time of a measure", &measure.when, known));
            }
        };
        let measure = measure.measure;
        self.measure(&measure)?;
        Ok(PlanMeasure { when, measure })
    }

    fn measure(&self, measure: &Measure) -> Result<(), AnswerError> {
        let mut declared = self.manifest.metrics.iter();
        let Some(metric) = declared.find(|metric| metric.name == measure.metric) else {
            return Err(self.undeclared("metric", &measure.metric));
        };
        match misfit(metric, measure) {
            None => Ok(()),
            Some(problem) => Err(AnswerError::Measure {
                place: self.place,
                metric: excerpt(&measure.metric),
                problem,
            }),
        }
    }

    fn declared_queue(&self, name: &str) -> Result<(), AnswerError> {
        let mut declared = self.manifest.queues.iter();
        if declared.any(|queue| queue.name == name) {
            return Ok(());
        }
        Err(self.undeclared("queue", name))
    }

    fn check_body(&self, part: &'static str, body: &[u8]) -> Result<(), AnswerError> {
        msgpack::check_json(body).map_err(|source| AnswerError::Body {
            place: self.place,
            part,
            source,
        })
    }

    fn short<'a>(
        &self,
        mut identities: impl Iterator<Item = Identity<'a>>,
    ) -> Result<(), AnswerError> {
        identities.try_for_each(|(part, text)| self.at_most(part, text.len(), text::IDENTITY))
    }

    fn at_most(&self, part: &'static str, found: usize, limit: usize) -> Result<(), AnswerError> {
        if found <= limit {
            return Ok(());
        }
        Err(AnswerError::TooMany {
            place: self.place,
            part,
            found,
            limit,
        })
    }

    fn unknown(&self, part: &'static str, value: &str, known: &'static str) -> AnswerError {
        AnswerError::Unknown {
            place: self.place,
            part,
            value: excerpt(value),
            known,
        }
    }

    fn undeclared(&self, part: &'static str, name: &str) -> AnswerError {
        AnswerError::Undeclared {
            place: self.place,
            part,
            name: excerpt(name),
        }
    }

    fn incomplete(&self, part: &'static str, problem: &'static str) -> AnswerError {
        AnswerError::Incomplete {
            place: self.place,
            part,
            problem,
        }
    }

    fn number(&self, part: &'static str, value: impl fmt::Display) -> AnswerError {
        AnswerError::Number {
            place: self.place,
            part,
            value: value.to_string(),
        }
    }
}

/// Whether two references name the same object, whatever its uid. An object is served in
/// several versions.
fn is_same_object(one: &ObjectRef, other: &ObjectRef) -> bool {
    one.group() == other.group()
        && one.kind == other.kind
        && one.namespace == other.namespace
        && one.name == other.name
}

/// The value of a map's field; none if it is absent.
fn field<'a>(map: &'a [u8], name: &str) -> Option<&'a [u8]> {
    msgpack::field(map, name).ok()?
}

/// The text of a map's field; empty if it is absent, or not text.
fn text_of(map: &[u8], name: &str) -> String {
    match field(map, name).map(Value::read) {
        Some(Ok(Value::Text(text))) => text.to_owned(),
        _ => String::new(),
    }
}

/// A text of a guest as an error quotes it: one line, cut.
fn excerpt(text: &str) -> String {
    const MOST: usize = 100;
    untrusted::line(text, MOST)
}

/// Why a measure does not fit its metric; none if it does.
fn misfit(metric: &MetricSpec, measure: &Measure) -> Option<String> {
    let (labels, amount) = (&measure.labels, measure.amount);
    if labels.len() != metric.labels.len() {
        let (found, declared) = (labels.len(), metric.labels.len());
        return Some(format!("has {found} labels, {declared} are declared"));
    }
    let number = match amount {
        Amount::Add(number) | Amount::Set(number) | Amount::Observe(number) => number,
        Amount::SecondsSince(_) => 0.0,
    };
    if !number.is_finite() {
        return Some(format!("is {number}"));
    }
    let fits = match metric.kind {
        MetricKind::Counter => matches!(amount, Amount::Add(by) if by >= 0.0),
        MetricKind::Gauge => matches!(amount, Amount::Add(_) | Amount::Set(_)),
        MetricKind::Histogram => matches!(amount, Amount::Observe(_) | Amount::SecondsSince(_)),
        MetricKind::SyncErrors => false,
    };
    (!fits).then(|| format!("is {amount:?}, which a {:?} does not accept", metric.kind))
}

#[cfg(test)]
mod tests;
