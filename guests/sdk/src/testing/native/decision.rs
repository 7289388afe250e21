//! Decisions of the SDK as the core's. What does not fit is malformed, as it is
//! at the engine's edge.

use std::time::Duration;

use crate as sdk;
use davit_core::bounds::text;
use davit_core::manifest::{Manifest, Rate};
use davit_core::object::ObjectRef;
use davit_core::plan::{
    Amount, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, MeasureWhen, Patch,
    PatchKind, Plan, PlanMeasure, PropagationPolicy, QueueKey, Step, Verdict,
};
use davit_core::time::{Now, Wall};
use serde_json::Value;

use super::host::object_ref;

type Read<T> = Result<T, String>;

pub(super) fn decisions(
    decisions: Vec<sdk::Decision>,
    items: usize,
    manifest: &Manifest,
    now: Now,
) -> Read<Vec<Decision>> {
    if decisions.len() != items {
        return Err(format!("{} decisions for {items} items", decisions.len()));
    }
    let read = decisions.into_iter().map(|one| {
        let decision = decision(one, now)?;
        declared(&decision, manifest)?;
        Ok(decision)
    });
    read.collect()
}

/// The names in a decision are in the manifest, and its identities are short.
fn declared(decision: &Decision, manifest: &Manifest) -> Read<()> {
    let undeclared = |what, name: &str| Err(format!("the {what} \"{name}\" is not declared"));
    let queue = |name: &str| match manifest.queues.iter().find(|queue| queue.name == name) {
        Some(_) => Ok(()),
        None => undeclared("queue", name),
    };
    let metric = |measure: &Measure| {
        let metrics = &mut manifest.metrics.iter();
        match metrics.find(|metric| metric.name == measure.metric) {
            Some(metric) if metric.labels.len() == measure.labels.len() => Ok(()),
            Some(metric) => Err(format!(
                "the measure of \"{}\" needs the labels {:?}",
                metric.name, metric.labels
            )),
            None => undeclared("metric", &measure.metric),
        }
    };
    let most = text::IDENTITY;
    let commands = decision.commands.iter();
    let named = commands.flat_map(text::identities_of_command);
    let plans = decision.plans.iter();
    let mut named = named.chain(plans.flat_map(text::identities_of_plan));
    if let Some((what, text)) = named.find(|(_, text)| text.len() > most) {
        return Err(format!("{} {what}; the limit is {most}", text.len()));
    }
    for command in &decision.commands {
        match command {
            Command::Enqueue(enqueue) => queue(&enqueue.item.queue)?,
            Command::Cancel(item) => queue(&item.queue)?,
            Command::SetRate { queue: name, .. } => queue(name)?,
            Command::Measure(measure) => metric(measure)?,
            Command::SetNote { .. } => {}
        }
    }
    for plan in &decision.plans {
        plan.measures
            .iter()
            .try_for_each(|it| metric(&it.measure))?;
        plan.when_cancelled
            .iter()
            .try_for_each(|it| queue(&it.queue))?;
    }
    Ok(())
}

fn decision(decision: sdk::Decision, now: Now) -> Read<Decision> {
    let plans = decision.plans.into_iter().map(|one| plan(one, now));
    let commands = decision.commands.into_iter().map(|one| command(one, now));
    Ok(Decision {
        plans: plans.collect::<Read<_>>()?,
        commands: commands.collect(),
        verdict: match decision.verdict {
            sdk::Verdict::Done => Verdict::Done,
            sdk::Verdict::Retry(reason) => Verdict::Retry { reason },
            sdk::Verdict::RequeueAfter(millis) => {
                Verdict::RequeueAfter(Duration::from_millis(millis))
            }
            sdk::Verdict::RequeueWhenObserved => Verdict::RequeueWhenObserved,
            sdk::Verdict::ContinueFrom(cursor) => Verdict::ContinueFrom { cursor },
        },
        parallel: decision.parallel,
    })
}

fn plan(plan: sdk::Plan, now: Now) -> Read<Plan> {
    let measures = plan.measures.into_iter().map(|one| {
        Ok(PlanMeasure {
            when: match one.when.as_str() {
                "attempted" => MeasureWhen::Attempted,
                "succeeded" => MeasureWhen::Succeeded,
                "gone" => MeasureWhen::Gone,
                "failed" => MeasureWhen::Failed,
                other => return Err(format!("no time of a measure: {other}")),
            },
            measure: measure(one.measure, now),
        })
    });
    Ok(Plan {
        target: object_ref(&plan.target),
        reason: plan.reason,
        message: plan.message,
        measures: measures.collect::<Read<_>>()?,
        steps: plan.steps.into_iter().map(step).collect::<Read<_>>()?,
        when_cancelled: plan.when_cancelled.map(queue_key),
    })
}

fn step(step: sdk::Step) -> Read<Step> {
    Ok(match step {
        sdk::Step::Patch(patch) => Step::Patch(Patch {
            kind: match patch.kind.as_str() {
                "strategic-merge" => PatchKind::StrategicMerge,
                "merge" => PatchKind::Merge,
                "json" => PatchKind::Json,
                other => return Err(format!("no kind of patch: {other}")),
            },
            subresource: patch.subresource,
            body: patch.body,
        }),
        sdk::Step::Delete(options) => Step::Delete(delete_options(options)?),
        sdk::Step::Evict(options) => Step::Evict(delete_options(options)?),
        sdk::Step::Create(create) => {
            let body: Value =
                rmp_serde::from_slice(&create.body).map_err(|error| error.to_string())?;
            let text = |at: &str| {
                let found = body.pointer(at).and_then(Value::as_str);
                found.unwrap_or_default().to_owned()
            };
            Step::Create(Create {
                object: ObjectRef {
                    api_version: text("/apiVersion"),
                    kind: text("/kind"),
                    namespace: text("/metadata/namespace"),
                    name: text("/metadata/name"),
                    uid: String::new(),
                },
                body: create.body,
            })
        }
        sdk::Step::Event(event) => {
            let event = Event {
                event_type: event.event_type,
                reason: event.reason,
                message: event.message,
                component: event.component,
            };
            Step::Event(event)
        }
    })
}

fn delete_options(options: sdk::DeleteOptions) -> Read<DeleteOptions> {
    Ok(DeleteOptions {
        resource_version: options.resource_version,
        propagation_policy: match options.propagation_policy.as_str() {
            "" => None,
            "Background" => Some(PropagationPolicy::Background),
            "Foreground" => Some(PropagationPolicy::Foreground),
            "Orphan" => Some(PropagationPolicy::Orphan),
            other => return Err(format!("no propagation policy: {other}")),
        },
        grace_period_seconds: options.grace_period_seconds,
    })
}

fn command(command: sdk::Command, now: Now) -> Command {
    match command {
        sdk::Command::Enqueue(enqueue) => Command::Enqueue(Enqueue {
            item: QueueKey {
                queue: enqueue.queue,
                key: enqueue.key,
            },
            after: Duration::from_millis(enqueue.after),
            created_at: enqueue.created_at.map(|at| now.instant_at(Wall(at))),
            group: enqueue.group,
        }),
        sdk::Command::Cancel(item) => Command::Cancel(queue_key(item)),
        sdk::Command::SetRate(set) => Command::SetRate {
            queue: set.queue,
            group: set.group,
            rate: Rate {
                per_second: set.per_second,
                burst: set.burst,
            },
        },
        sdk::Command::SetNote(note) => Command::SetNote {
            key: note.key,
            value: note.value,
        },
        sdk::Command::Measure(one) => Command::Measure(measure(one, now)),
    }
}

fn measure(measure: sdk::Measure, now: Now) -> Measure {
    Measure {
        metric: measure.metric,
        labels: measure.labels,
        amount: match measure.amount {
            sdk::Amount::Add(by) => Amount::Add(by),
            sdk::Amount::Set(to) => Amount::Set(to),
            sdk::Amount::Observe(value) => Amount::Observe(value),
            sdk::Amount::SecondsSince(wall) => Amount::SecondsSince(now.instant_at(Wall(wall))),
        },
    }
}

fn queue_key(item: sdk::QueueKey) -> QueueKey {
    QueueKey {
        queue: item.queue,
        key: item.key,
    }
}
