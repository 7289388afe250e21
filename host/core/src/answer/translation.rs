//! The translation of an answer from the types that are generated from `wit/`.

/// Defines the module `translation` with `fn decision(wit::Decision, Now) ->
/// raw::Decision`.
///
/// The argument is the generated module `decisions` of `wit/`. The generator of the host
/// and that of guests make types of their own with the same names and fields, so one text
/// translates both. It checks nothing. The parts of an answer have the same size in both
/// forms, so that each list of plans or steps is translated in place.
#[macro_export]
macro_rules! answer_translation {
    ($wit:ident) => {
        mod translation {
            use std::time::Duration;

            use $crate::answer::raw;
            use $crate::manifest::Rate;
            use $crate::object::ObjectRef;
            use $crate::plan::{Amount, Command, Enqueue, Event, Measure, QueueKey, Verdict};
            use $crate::time::{Now, Wall};

            use super::$wit as wit;

            pub(super) fn decision(decision: wit::Decision, now: Now) -> raw::Decision {
                let plans = decision.plans.into_iter();
                let commands = decision.commands.into_iter();
                raw::Decision {
                    plans: plans.map(|one| plan(one, now)).collect(),
                    commands: commands.map(|one| command(one, now)).collect(),
                    verdict: match decision.verdict {
                        wit::Verdict::Done => Verdict::Done,
                        wit::Verdict::Retry(reason) => Verdict::Retry { reason },
                        wit::Verdict::RequeueAfter(millis) => {
                            Verdict::RequeueAfter(Duration::from_millis(millis))
                        }
                        wit::Verdict::RequeueWhenObserved => Verdict::RequeueWhenObserved,
                        wit::Verdict::ContinueFrom(cursor) => Verdict::ContinueFrom { cursor },
                    },
                    parallel: decision.parallel,
                }
            }

            fn plan(plan: wit::Plan, now: Now) -> raw::Plan {
                let measures = plan.measures.into_iter();
                let measures = measures.map(|one| raw::PlanMeasure {
                    when: one.when,
                    measure: measure(one.measure, now),
                });
                raw::Plan {
                    target: ObjectRef {
                        api_version: plan.target.api_version,
                        kind: plan.target.kind,
                        namespace: plan.target.namespace,
                        name: plan.target.name,
                        uid: plan.target.uid,
                    },
                    reason: plan.reason,
                    message: plan.message,
                    steps: plan.steps.into_iter().map(step).collect(),
                    measures: measures.collect(),
                    when_cancelled: plan.when_cancelled.map(queue_key),
                }
            }

            fn step(step: wit::Step) -> raw::Step {
                match step {
                    wit::Step::Patch(patch) => raw::Step::Patch(raw::Patch {
                        kind: patch.kind,
                        subresource: patch.subresource,
                        body: patch.body,
                    }),
                    wit::Step::Delete(options) => raw::Step::Delete(delete_options(options)),
                    wit::Step::Evict(options) => raw::Step::Evict(delete_options(options)),
                    wit::Step::Create(create) => raw::Step::Create(create.body),
                    wit::Step::Event(event) => raw::Step::Event(Event {
                        event_type: event.event_type,
                        reason: event.reason,
                        message: event.message,
                        component: event.component,
                    }),
                }
            }

            fn delete_options(options: wit::DeleteOptions) -> raw::DeleteOptions {
                raw::DeleteOptions {
                    resource_version: options.resource_version,
                    propagation_policy: options.propagation_policy,
                    grace_period_seconds: options.grace_period_seconds,
                }
            }

            fn command(command: wit::Command, now: Now) -> Command {
                match command {
                    wit::Command::Enqueue(enqueue) => Command::Enqueue(Enqueue {
                        item: QueueKey {
                            queue: enqueue.queue,
                            key: enqueue.key,
                        },
                        after: Duration::from_millis(enqueue.after),
                        created_at: enqueue.created_at.map(|at| now.instant_at(Wall(at))),
                        group: enqueue.group,
                    }),
                    wit::Command::Cancel(item) => Command::Cancel(queue_key(item)),
                    wit::Command::SetRate(set) => Command::SetRate {
                        queue: set.queue,
                        group: set.group,
                        rate: Rate {
                            per_second: set.per_second,
                            burst: set.burst,
                        },
                    },
                    wit::Command::SetNote(note) => Command::SetNote {
                        key: note.key,
                        value: note.value,
                    },
                    wit::Command::Measure(one) => Command::Measure(measure(one, now)),
                }
            }

            fn measure(measure: wit::Measure, now: Now) -> Measure {
                Measure {
                    metric: measure.metric,
                    labels: measure.labels,
                    amount: match measure.amount {
                        wit::Amount::Add(by) => Amount::Add(by),
                        wit::Amount::Set(to) => Amount::Set(to),
                        wit::Amount::Observe(value) => Amount::Observe(value),
                        wit::Amount::SecondsSince(start) => {
                            Amount::SecondsSince(now.instant_at(Wall(start)))
                        }
                    },
                }
            }

            fn queue_key(item: wit::QueueKey) -> QueueKey {
                QueueKey {
                    queue: item.queue,
                    key: item.key,
                }
            }
        }
    };
}
