//! A guest's decisions.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use davit_core::bounds::text::{self, Identity};
use davit_core::manifest::{Manifest, MetricKind, MetricSpec, Rate};
use davit_core::msgpack;
use davit_core::object::ObjectRef;
use davit_core::plan::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, MeasureWhen, Patch,
    PatchKind, Plan, PlanMeasure, PropagationPolicy, QueueKey, Step, Verdict,
};
use davit_core::time::{Now, Wall};
use davit_core::untrusted;

use super::answer_error::{AnswerError, Place};
use super::{body, object_ref};
use crate::limits::Limits;
use crate::wit::decisions as wit;

/// How long a cursor may be: the host keeps it until the next page.
const MAX_CURSOR_BYTES: usize = 1024;

/// Converts the answer to `items` work items.
pub(crate) fn decisions(
    answer: Vec<wit::Decision>,
    items: usize,
    manifest: &Manifest,
    limits: &Limits,
    now: Now,
) -> Result<Vec<Decision>, AnswerError> {
    let decisions = answer.len();
    if decisions != items {
        return Err(AnswerError::Count { items, decisions });
    }
    let mut reader = Reader {
        manifest,
        limits,
        now,
        place: Place::default(),
    };
    let each = answer.into_iter().enumerate();
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
    limits: &'a Limits,
    now: Now,
    place: Place,
}

impl Reader<'_> {
    fn decision(&mut self, decision: wit::Decision) -> Result<Decision, AnswerError> {
        self.at_most("plans", decision.plans.len(), self.limits.plans)?;
        self.at_most("commands", decision.commands.len(), self.limits.commands)?;
        let commands = decision
            .commands
            .into_iter()
            .map(|command| self.command(command))
            .collect::<Result<Vec<_>, _>>()?;
        let cancels = commands.iter().filter_map(|command| match command {
            Command::Cancel(item) => Some(item),
            _ => None,
        });
        let cancels: BTreeSet<&QueueKey> = cancels.collect();
        let verdict = verdict(decision.verdict);
        if let Verdict::ContinueFrom { cursor } = &verdict {
            self.at_most("bytes in the cursor", cursor.len(), MAX_CURSOR_BYTES)?;
        }
        let mut plans = Vec::with_capacity(decision.plans.len());
        for (index, plan) in decision.plans.into_iter().enumerate() {
            self.place.plan = Some(index);
            plans.push(self.plan(plan, &cancels)?);
        }
        Ok(Decision {
            plans,
            commands,
            verdict,
            parallel: decision.parallel,
        })
    }

    fn plan(
        &mut self,
        plan: wit::Plan,
        cancels: &BTreeSet<&QueueKey>,
    ) -> Result<Plan, AnswerError> {
        self.at_most("steps", plan.steps.len(), self.limits.steps)?;
        let when_cancelled = plan
            .when_cancelled
            .map(|item| self.queue_key(item))
            .transpose()?;
        if let Some(item) = &when_cancelled
            && !cancels.contains(item)
        {
            return Err(AnswerError::NotCancelled {
                place: self.place,
                key: shown(&item.key),
            });
        }
        let measures = plan.measures.into_iter();
        let measures = measures
            .map(|measure| self.plan_measure(measure))
            .collect::<Result<_, _>>()?;
        let mut steps = Vec::with_capacity(plan.steps.len());
        for (index, step) in plan.steps.into_iter().enumerate() {
            self.place.step = Some(index);
            steps.push(self.step(step)?);
        }
        self.place.step = None;
        let plan = Plan {
            target: object_ref(plan.target),
            reason: plan.reason,
            message: plan.message,
            steps,
            measures,
            when_cancelled,
        };
        self.short(text::identities_of_plan(&plan))?;
        Ok(plan)
    }

    fn step(&self, step: wit::Step) -> Result<Step, AnswerError> {
        Ok(match step {
            wit::Step::Patch(patch) => Step::Patch(self.patch(patch)?),
            wit::Step::Delete(options) => Step::Delete(self.delete_options(options)?),
            wit::Step::Evict(options) => Step::Evict(self.delete_options(options)?),
            wit::Step::Create(create) => Step::Create(self.create(create)?),
            wit::Step::Event(event) => Step::Event(self.event(event)?),
        })
    }

    fn patch(&self, patch: wit::Patch) -> Result<Patch, AnswerError> {
        let kind = match patch.kind.as_str() {
            "strategic-merge" => PatchKind::StrategicMerge,
            "merge" => PatchKind::Merge,
            "json" => PatchKind::Json,
            _ => {
                let known = "strategic-merge, merge and json";
                return Err(self.unknown("the patch kind", &patch.kind, known));
            }
        };
        if !matches!(patch.subresource.as_str(), "" | "status") {
            let known = "status, or none";
            return Err(self.unknown("the subresource", &patch.subresource, known));
        }
        self.check_body("patch", &patch.body)?;
        match kind {
            PatchKind::Json if !body::is_list(&patch.body) => {
                Err(self.incomplete("patch", "is not a list of operations"))
            }
            PatchKind::StrategicMerge | PatchKind::Merge if !body::is_map(&patch.body) => {
                Err(self.incomplete("patch", "is not an object"))
            }
            _ => Ok(Patch {
                kind,
                subresource: patch.subresource,
                body: patch.body,
            }),
        }
    }

    fn delete_options(&self, options: wit::DeleteOptions) -> Result<DeleteOptions, AnswerError> {
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

    fn create(&self, create: wit::Create) -> Result<Create, AnswerError> {
        const WHAT: &str = "creation";
        let body = create.body;
        self.check_body(WHAT, &body)?;
        let text = |value: Option<&[u8]>| value.and_then(body::text).unwrap_or_default().to_owned();
        let Some(metadata) = body::field(&body, "metadata").filter(|value| body::is_map(value))
        else {
            return Err(self.incomplete(WHAT, "has no metadata"));
        };
        let object = ObjectRef {
            api_version: text(body::field(&body, "apiVersion")),
            kind: text(body::field(&body, "kind")),
            namespace: text(body::field(metadata, "namespace")),
            name: text(body::field(metadata, "name")),
            uid: String::new(),
        };
        if object.api_version.is_empty() || object.kind.is_empty() {
            return Err(self.incomplete(WHAT, "has no apiVersion and kind"));
        }
        if body::field(metadata, "generateName").is_some() {
            return Err(self.incomplete(
                WHAT,
                "has metadata.generateName: after a lost reply, it would be created twice; set \
                 metadata.name alone",
            ));
        }
        if object.name.is_empty() {
            return Err(self.incomplete(WHAT, "has no metadata.name"));
        }
        Ok(Create { object, body })
    }

    fn event(&self, event: wit::Event) -> Result<Event, AnswerError> {
        if !matches!(event.event_type.as_str(), "Normal" | "Warning") {
            let known = "Normal and Warning";
            return Err(self.unknown("the event type", &event.event_type, known));
        }
        Ok(Event {
            event_type: event.event_type,
            reason: event.reason,
            message: event.message,
            component: event.component,
        })
    }

    fn command(&self, command: wit::Command) -> Result<Command, AnswerError> {
        let command = match command {
            wit::Command::Enqueue(enqueue) => Command::Enqueue(self.enqueue(enqueue)?),
            wit::Command::Cancel(item) => Command::Cancel(self.queue_key(item)?),
            wit::Command::SetRate(set) => self.set_rate(set)?,
            wit::Command::SetNote(note) => {
                if let Some(value) = &note.value {
                    self.check_body("note", value)?;
                }
                Command::SetNote {
                    key: note.key,
                    value: note.value,
                }
            }
            wit::Command::Measure(measure) => Command::Measure(self.measure(measure)?),
        };
        self.short(text::identities_of_command(&command))?;
        Ok(command)
    }

    fn enqueue(&self, enqueue: wit::Enqueue) -> Result<Enqueue, AnswerError> {
        let item = self.queue_key(wit::QueueKey {
            queue: enqueue.queue,
            key: enqueue.key,
        })?;
        let created_at = enqueue.created_at;
        Ok(Enqueue {
            item,
            after: Duration::from_millis(enqueue.after),
            created_at: created_at.map(|wall| self.now.instant_at(Wall(wall))),
            group: enqueue.group,
        })
    }

    fn set_rate(&self, set: wit::SetRate) -> Result<Command, AnswerError> {
        self.declared_queue(&set.queue)?;
        let rate = Rate {
            per_second: set.per_second,
            burst: set.burst,
        };
        if !rate.is_valid() {
            let value = format!("{} a second with a burst of {}", set.per_second, set.burst);
            return Err(self.number("the rate", value));
        }
        Ok(Command::SetRate {
            queue: set.queue,
            group: set.group,
            rate,
        })
    }

    fn plan_measure(&self, measure: wit::PlanMeasure) -> Result<PlanMeasure, AnswerError> {
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
        let measure = self.measure(measure.measure)?;
        Ok(PlanMeasure { when, measure })
    }

    fn measure(&self, measure: wit::Measure) -> Result<Measure, AnswerError> {
        let declared = self.manifest.metrics.iter();
        let Some(metric) = declared
            .into_iter()
            .find(|metric| metric.name == measure.metric)
        else {
            return Err(self.undeclared("metric", &measure.metric));
        };
        let amount = match measure.amount {
            wit::Amount::Add(by) => Amount::Add(by),
            wit::Amount::Set(to) => Amount::Set(to),
            wit::Amount::Observe(value) => Amount::Observe(value),
            wit::Amount::SecondsSince(wall) => {
                Amount::SecondsSince(self.now.instant_at(Wall(wall)))
            }
        };
        if let Some(problem) = misfit(metric, &measure.labels, amount) {
            return Err(AnswerError::Measure {
                place: self.place,
                metric: shown(&measure.metric),
                problem,
            });
        }
        Ok(Measure {
            metric: measure.metric,
            labels: measure.labels,
            amount,
        })
    }

    fn queue_key(&self, item: wit::QueueKey) -> Result<QueueKey, AnswerError> {
        self.declared_queue(&item.queue)?;
        Ok(QueueKey {
            queue: item.queue,
            key: item.key,
        })
    }

    fn declared_queue(&self, name: &str) -> Result<(), AnswerError> {
        let mut declared = self.manifest.queues.iter();
        if declared.any(|queue| queue.name == name) {
            return Ok(());
        }
        Err(self.undeclared("queue", name))
    }

    fn check_body(&self, what: &'static str, body: &[u8]) -> Result<(), AnswerError> {
        msgpack::check_json(body).map_err(|source| AnswerError::Body {
            place: self.place,
            what,
            source,
        })
    }

    fn short<'a>(
        &self,
        mut identities: impl Iterator<Item = Identity<'a>>,
    ) -> Result<(), AnswerError> {
        identities.try_for_each(|(what, text)| self.at_most(what, text.len(), text::IDENTITY))
    }

    fn at_most(&self, what: &'static str, found: usize, limit: usize) -> Result<(), AnswerError> {
        if found <= limit {
            return Ok(());
        }
        Err(AnswerError::TooMany {
            place: self.place,
            what,
            found,
            limit,
        })
    }

    fn unknown(&self, what: &'static str, value: &str, known: &'static str) -> AnswerError {
        AnswerError::Unknown {
            place: self.place,
            what,
            value: shown(value),
            known,
        }
    }

    fn undeclared(&self, what: &'static str, name: &str) -> AnswerError {
        AnswerError::Undeclared {
            place: self.place,
            what,
            name: shown(name),
        }
    }

    fn incomplete(&self, what: &'static str, problem: &'static str) -> AnswerError {
        let place = self.place;
        AnswerError::Incomplete {
            place,
            what,
            problem,
        }
    }

    fn number(&self, what: &'static str, value: impl fmt::Display) -> AnswerError {
        AnswerError::Number {
            place: self.place,
            what,
            value: value.to_string(),
        }
    }
}

/// A text of a guest as an error quotes it: one line, cut.
fn shown(text: &str) -> String {
    const MOST: usize = 100;
    untrusted::line(text, MOST)
}

fn verdict(verdict: wit::Verdict) -> Verdict {
    match verdict {
        wit::Verdict::Done => Verdict::Done,
        wit::Verdict::Retry(reason) => Verdict::Retry { reason },
        wit::Verdict::RequeueAfter(millis) => Verdict::RequeueAfter(Duration::from_millis(millis)),
        wit::Verdict::RequeueWhenObserved => Verdict::RequeueWhenObserved,
        wit::Verdict::ContinueFrom(cursor) => Verdict::ContinueFrom { cursor },
    }
}

/// Why a measure does not fit its metric; none if it does.
fn misfit(metric: &MetricSpec, labels: &[String], amount: Amount) -> Option<String> {
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
