//! The effects of the machine, in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{Effect, Execute};
use super::journal::entry_of;
use super::log::LogPolicy;
use super::report::Report;
use crate::account::Account;
use crate::controller::{self, Controller, ControllerId, DecisionId, Outcome, PlanId};
use crate::gate::{Mode, Ruling};
use crate::journal::Recorder;
use crate::mapping::Mapping;
use crate::plan::{Plan, Step};
use crate::request::plan::Undo;
use crate::rollout::Role;
use crate::time::Instant;
use crate::undo::UndoRules;

/// The effects that the driver has not taken yet, and the plans in execution.
#[derive(Debug)]
pub(super) struct Outbox<G> {
    effects: VecDeque<Effect<G>>,
    /// The plans in execution, including those of removed controllers.
    executing: BTreeMap<PlanId, PlanInFlight>,
    pub(super) log: LogPolicy,
    /// None if nobody keeps a journal.
    pub(super) journal: Option<Box<Recorder>>,
    /// Nothing starts any more.
    pub(super) stopping: bool,
    /// The plans to delete something that the gate has ruled on, if a controller is compared
    /// with the cluster.
    pub(super) deletions: Option<Vec<RuledDeletion>>,
}

/// A plan to delete something, and the ruling on it.
#[derive(Debug)]
pub(super) struct RuledDeletion {
    pub(super) controller: String,
    pub(super) role: Role,
    /// The mode of the revision that decided it.
    pub(super) mode: Mode,
    pub(super) plan: Arc<Plan>,
    pub(super) ruling: Ruling,
}

/// A plan in execution.
#[derive(Debug)]
struct PlanInFlight {
    controller: String,
    revision: Arc<str>,
    decision: DecisionId,
    plan: Arc<Plan>,
}

impl<G: Clone> Outbox<G> {
    pub(super) fn new() -> Self {
        Self {
            effects: VecDeque::new(),
            executing: BTreeMap::new(),
            log: LogPolicy::default(),
            journal: None,
            stopping: false,
            deletions: None,
        }
    }

    pub(super) fn pop(&mut self) -> Option<Effect<G>> {
        self.effects.pop_front()
    }

    pub(super) fn push(&mut self, effect: Effect<G>) {
        self.effects.push_back(effect);
    }

    pub(super) fn report(&mut self, report: Report) {
        if let Some(journal) = &mut self.journal
            && let Some(entry) = entry_of(&report)
        {
            journal.note(entry);
        }
        self.push(Effect::Report(report));
    }

    pub(super) fn release(&mut self, guests: impl IntoIterator<Item = G>) {
        let guests = guests.into_iter().map(Effect::Release);
        self.effects.extend(guests);
    }

    /// Prevents plans of a controller from starting. Returns those that the driver has
    /// not taken yet: they have ended, because it never takes them.
    pub(super) fn withdraw(&mut self, controller: ControllerId) -> Vec<(PlanId, Arc<Plan>)> {
        let is_withdrawn = |effect: &Effect<G>| matches!(effect, Effect::Execute(one) if one.id.controller == controller);
        let effects = std::mem::take(&mut self.effects).into_iter();
        let (withdrawn, left): (Vec<_>, _) = effects.partition(is_withdrawn);
        self.effects = left.into();
        self.push(Effect::Withdraw(controller));
        let plans = withdrawn.into_iter().filter_map(|effect| match effect {
            Effect::Execute(one) => Some((one.id, one.plan)),
            _ => None,
        });
        plans.collect()
    }

    pub(super) fn is_executing(&self) -> bool {
        !self.executing.is_empty()
    }

    /// Whether a plan of a controller of that name is in execution, perhaps of one that
    /// was removed.
    pub(super) fn is_executing_for(&self, controller: &str) -> bool {
        let mut executing = self.executing.values();
        executing.any(|plan| plan.controller == controller)
    }

    /// Takes all effects of a controller so far.
    pub(super) fn take_all(
        &mut self,
        name: &str,
        account: Option<&Account>,
        controller: &mut Controller<G>,
        mapping: &Arc<Mapping>,
        now: Instant,
    ) {
        while let Some(effect) = controller.poll_effect() {
            let controller_name = name.to_owned();
            match effect {
                // The next host decides again about plans that did not start.
                controller::Effect::Execute { .. } if self.stopping => {}
                controller::Effect::Execute {
                    id,
                    revision,
                    decision,
                    plan,
                    records_events,
                } => {
                    let execute = Execute {
                        id,
                        controller: controller_name,
                        account: account.cloned(),
                        revision,
                        decision,
                        plan,
                        records_events,
                        mapping: Arc::clone(mapping),
                        undo: self.undo(&controller.settings().undo),
                    };
                    self.execute(execute);
                }
                controller::Effect::Ruled {
                    role,
                    revision,
                    item,
                    decision,
                    plan,
                    ruling,
                } => {
                    let mode = controller.settings().mode_of(&revision);
                    if let Some(deletions) = self.deletions.as_mut().filter(|_| plan.deletes()) {
                        deletions.push(RuledDeletion {
                            controller: name.to_owned(),
                            role,
                            mode,
                            plan: Arc::clone(&plan),
                            ruling: ruling.clone(),
                        });
                    }
                    let is_news = self.log.is_news(name, &plan, &ruling, now);
                    self.report(Report::Ruled {
                        controller: controller_name,
                        role,
                        dry_run: mode == Mode::DryRun,
                        revision,
                        item,
                        decision,
                        plan,
                        ruling,
                        is_news,
                    });
                }
                controller::Effect::Called {
                    call,
                    role,
                    failure,
                    took,
                } => {
                    let failed = failure.as_ref();
                    let warning =
                        failed.and_then(|failed| self.log.call_failure(name, failed, now));
                    self.report(Report::Called {
                        controller: controller_name,
                        call,
                        role,
                        failure,
                        warning,
                        took,
                    });
                }
                effect => {
                    if let Some(report) = passed_on(controller_name, effect) {
                        self.report(report);
                    }
                }
            }
        }
    }

    fn undo(&self, rules: &Arc<UndoRules>) -> Option<Undo> {
        (!rules.is_empty()).then(|| Undo {
            rules: Arc::clone(rules),
            has_journal: self.journal.is_some(),
        })
    }

    fn execute(&mut self, execute: Execute) {
        let executing = PlanInFlight {
            controller: execute.controller.clone(),
            revision: Arc::clone(&execute.revision),
            decision: execute.decision,
            plan: Arc::clone(&execute.plan),
        };
        self.executing.insert(execute.id, executing);
        self.push(Effect::Execute(execute));
    }

    /// A plan in execution.
    pub(super) fn plan(&self, plan: PlanId) -> Option<&Arc<Plan>> {
        Some(&self.executing.get(&plan)?.plan)
    }

    /// The revision that decided a plan in execution.
    pub(super) fn revision_of(&self, plan: PlanId) -> Option<Arc<str>> {
        let executing = self.executing.get(&plan)?;
        Some(Arc::clone(&executing.revision))
    }

    /// The execution of a plan has ended.
    pub(super) fn executed(
        &mut self,
        plan: PlanId,
        outcome: Outcome,
        took: Duration,
        now: Instant,
    ) {
        let Some(executing) = self.executing.remove(&plan) else {
            return;
        };
        let PlanInFlight {
            controller,
            revision,
            decision,
            plan,
        } = executing;
        let warning = self.log.outcome(&controller, &plan, &outcome, now);
        let is_news = writes(&plan) || self.log.has_room(&controller, plan.text_bytes(), now);
        self.report(Report::Executed {
            controller,
            revision,
            decision,
            plan,
            outcome,
            took,
            warning,
            is_news,
        });
    }
}

/// The report of an effect that needs nothing else; none for every other effect.
fn passed_on(controller: String, effect: controller::Effect) -> Option<Report> {
    Some(match effect {
        controller::Effect::Measure(measure) => Report::Measured {
            controller,
            measure,
        },
        controller::Effect::SeriesDropped(series) => Report::SeriesDropped { controller, series },
        controller::Effect::CircuitOpened {
            role,
            pause,
            reason,
        } => Report::CircuitOpened {
            controller,
            role,
            pause,
            reason,
        },
        controller::Effect::Retried {
            role,
            item,
            decision,
            reason,
        } => Report::Retried {
            controller,
            role,
            item,
            decision,
            reason,
        },
        controller::Effect::Reconciled {
            role,
            decision,
            finish,
            item,
            duration,
        } => Report::Reconciled {
            controller,
            role,
            decision,
            finish,
            item,
            took: duration,
        },
        controller::Effect::Dequeued { queue, waited } => Report::Dequeued {
            controller,
            queue,
            waited,
        },
        controller::Effect::Execute { .. }
        | controller::Effect::Ruled { .. }
        | controller::Effect::Called { .. } => return None,
    })
}

/// Whether a plan writes to the cluster, besides events. The log has every such plan.
fn writes(plan: &Plan) -> bool {
    let mut steps = plan.steps.iter();
    steps.any(|step| !matches!(step, Step::Event(_)))
}
