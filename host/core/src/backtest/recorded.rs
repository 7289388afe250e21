//! The deletions that the recorded controller executed.
//!
//! The entry of an execution has no steps. The steps are in the answer of the guest, so the
//! deletions of each answer are kept until they are executed or refused.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::recent::RecentUids;
use crate::bounds::text::REASON;
use crate::controller::{CallId, DecisionId};
use crate::failure::FailureClass;
use crate::gate::Ruling;
use crate::journal::{AnswerEntry, CallEntry, Entry, ExecutionEntry, RulingEntry};
use crate::object::{ObjectRef, Uid};
use crate::plan::{Plan, Step};
use crate::untrusted::shorten;

/// How many deletions wait for their execution at once, at most. Nobody says when a plan is
/// dropped.
const MOST_WAITING: usize = 200_000;

/// What the entries of one controller say.
#[derive(Debug)]
pub(super) struct RecordedRun {
    controller: String,
    /// The calls without an answer, and the decision that each continues.
    calls: BTreeMap<CallId, Option<DecisionId>>,
    /// The plans that are not executed yet, by their decision and the target's uid, for each
    /// target that the decision deletes. A decision may have several plans about one target.
    waiting: BTreeMap<(DecisionId, String), Vec<WaitingPlan>>,
    /// The deletions that are being executed, by the uids of their targets.
    started: BTreeMap<String, StartedDeletion>,
    /// The objects whose deletion was a dry run. It is ruled on again and again.
    dry: RecentUids,
    dry_runs: u64,
}

/// A deletion that is being executed: its object may be gone when the execution is entered.
#[derive(Debug)]
pub(super) struct StartedDeletion {
    pub(super) target: ObjectRef,
    pub(super) facts: Facts,
    /// Whether the object was terminating before.
    pub(super) was_terminating: bool,
}

/// A plan that is not executed yet.
#[derive(Debug)]
struct WaitingPlan {
    target: ObjectRef,
    reason: String,
    /// The position of the step that deletes its target; none if no step does.
    deletes_at: Option<usize>,
    /// Whether the gate has admitted it.
    is_admitted: bool,
}

/// What becomes known about a recorded deletion.
#[derive(Debug)]
pub(super) enum RecordedStep {
    /// It is being executed.
    Started(ObjectRef),
    /// It was executed.
    Done(ObjectRef, String),
    /// It was not executed, or the API server has refused it.
    Failed(ObjectRef),
    /// Nobody has answered: it was executed, or not.
    Unanswered(ObjectRef),
    /// The gate has deferred it.
    Deferred(ObjectRef),
}

impl RecordedRun {
    pub(super) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            calls: BTreeMap::new(),
            waiting: BTreeMap::new(),
            started: BTreeMap::new(),
            dry: RecentUids::default(),
            dry_runs: 0,
        }
    }

    /// Another host starts: the identifiers mean nothing any more.
    pub(super) fn restart(&mut self) {
        self.calls.clear();
        self.waiting.clear();
        self.started.clear();
    }

    pub(super) fn call(&mut self, call: &CallEntry) {
        if *call.controller == *self.controller {
            self.calls.insert(call.id, call.continues);
        }
    }

    pub(super) fn answer(&mut self, answer: &AnswerEntry) {
        let Some(continues) = self.calls.remove(&answer.call) else {
            return;
        };
        if answer.is_void {
            return;
        }
        let decisions = answer.result.iter().flatten();
        for (position, decision) in (0..).zip(decisions) {
            let id = continues.unwrap_or(DecisionId {
                call: answer.call,
                position,
            });
            let deleting = decision.plans.iter().filter(|plan| deletes(plan));
            let deleted: BTreeSet<&str> = deleting.map(|plan| &*plan.target.uid).collect();
            for plan in &decision.plans {
                if deleted.contains(&*plan.target.uid) {
                    let key = (id, plan.target.uid.clone());
                    let plans = self.waiting.entry(key).or_default();
                    // Rulings and executions have what the host kept of the reason.
                    let mut reason = plan.reason.clone();
                    shorten(&mut reason, REASON);
                    plans.push(WaitingPlan {
                        target: plan.target.clone(),
                        reason,
                        deletes_at: deletes_at(plan),
                        is_admitted: false,
                    });
                }
            }
        }
        while self.waiting.len() > MOST_WAITING {
            self.waiting.pop_first();
        }
    }

    pub(super) fn ruling(&mut self, ruling: &RulingEntry) -> Option<RecordedStep> {
        if ruling.controller != self.controller {
            return None;
        }
        let key = (ruling.decision, ruling.target.uid.clone());
        let is_it = |plan: &WaitingPlan| !plan.is_admitted && plan.reason == ruling.reason;
        if ruling.ruling == Ruling::Admit {
            let mut plans = self.waiting.get_mut(&key)?.iter_mut();
            let plan = plans.find(|plan| is_it(plan))?;
            plan.is_admitted = true;
            plan.deletes_at?;
            return Some(RecordedStep::Started(plan.target.clone()));
        }
        let removed = self.take(&key, is_it);
        let removed = removed.filter(|plan| plan.deletes_at.is_some())?;
        match ruling.ruling {
            Ruling::Wait(_) => Some(RecordedStep::Deferred(removed.target)),
            Ruling::DryRun => {
                let uid = Uid::new(&removed.target.uid);
                self.dry_runs += u64::from(!self.dry.contains(&uid));
                self.dry.insert(&uid);
                None
            }
            Ruling::Admit | Ruling::Refuse(_) => None,
        }
    }

    /// Removes the first of these plans of a decision about a target.
    fn take(
        &mut self,
        key: &(DecisionId, String),
        is_it: impl Fn(&WaitingPlan) -> bool,
    ) -> Option<WaitingPlan> {
        let plans = self.waiting.get_mut(key)?;
        let place = plans.iter().position(is_it)?;
        let plan = plans.remove(place);
        if plans.is_empty() {
            self.waiting.remove(key);
        }
        Some(plan)
    }

    /// How many objects it would have deleted if it had been enforced.
    pub(super) const fn dry_runs(&self) -> u64 {
        self.dry_runs
    }

    /// What is known about an object whose deletion has started.
    pub(super) fn note_started(&mut self, deletion: StartedDeletion) {
        self.started.insert(deletion.target.uid.clone(), deletion);
    }

    /// The deletions whose execution has started, and was not entered: the host has ended.
    pub(super) fn take_unentered(&mut self) -> Vec<StartedDeletion> {
        std::mem::take(&mut self.started).into_values().collect()
    }

    /// What is known about an object whose deletion has ended.
    pub(super) fn take_started(&mut self, target: &ObjectRef) -> Option<StartedDeletion> {
        self.started.remove(&target.uid)
    }

    pub(super) fn execution(&mut self, execution: &ExecutionEntry) -> Option<RecordedStep> {
        if execution.controller != self.controller {
            return None;
        }
        let key = (execution.decision, execution.target.uid.clone());
        let plan = self.take(&key, |plan| plan.reason == execution.reason)?;
        let deletes_at = plan.deletes_at?;
        let target = plan.target;
        let done = |target| RecordedStep::Done(target, execution.reason.clone());
        let Some((position, failure)) = &execution.outcome.failed else {
            return Some(done(target));
        };
        Some(match (*position as usize).cmp(&deletes_at) {
            Ordering::Greater => done(target),
            Ordering::Equal if is_unanswered(failure.class) => RecordedStep::Unanswered(target),
            // A target that was gone already was not deleted by this controller.
            Ordering::Equal | Ordering::Less => RecordedStep::Failed(target),
        })
    }
}

/// Whether a failed request may have had its effect. A gateway answers 502 or 504 in the place of
/// the API server, and the journal has no more of it than of another answer of that class.
const fn is_unanswered(class: FailureClass) -> bool {
    matches!(class, FailureClass::Timeout | FailureClass::Server)
}

/// Drops what no backtest reads of a recorded call or answer, so that it is freed by the thread
/// that has decoded it: to free it on another one makes both wait for each other.
pub fn drop_unread(entry: &mut Entry) {
    match entry {
        Entry::Call(call) => {
            call.items = Vec::new();
            call.reasons = Vec::new();
        }
        Entry::Answer(answer) => {
            answer.reads = None;
            answer.live = Vec::new();
            answer.versions = Vec::new();
            for decision in answer.result.iter_mut().flatten() {
                decision.commands = Vec::new();
                if !decision.plans.iter().any(deletes) {
                    decision.plans = Vec::new();
                }
            }
        }
        _ => {}
    }
}

/// Whether a plan deletes or evicts its target.
pub(super) fn deletes(plan: &Plan) -> bool {
    deletes_at(plan).is_some()
}

/// The position of the step that deletes or evicts the target of a plan.
fn deletes_at(plan: &Plan) -> Option<usize> {
    let mut steps = plan.steps.iter();
    steps.position(|step| matches!(step, Step::Delete(_) | Step::Evict(_)))
}
