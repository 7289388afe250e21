//! The deletions that the recorded controller executed.
//!
//! The entry of an execution has no steps. The steps are in the answer of the guest, so the
//! deletions of each answer are kept until they are executed or refused.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use super::recent::RecentUids;
use crate::bounds::text::REASON;
use crate::controller::{CallId, DecisionId};
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
    /// What is known about the objects that are being deleted: they may be gone when the
    /// execution is entered.
    facts: BTreeMap<String, Facts>,
    /// The objects whose deletion was a dry run. It is ruled on again and again.
    dry: RecentUids,
    dry_runs: u64,
}

/// A plan that is not executed yet.
#[derive(Debug)]
struct WaitingPlan {
    target: ObjectRef,
    reason: String,
    /// Whether it deletes its target.
    deletes: bool,
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
    /// It failed, or nobody knows its outcome.
    Failed(ObjectRef),
    /// The gate has deferred it.
    Deferred(ObjectRef),
}

impl RecordedRun {
    pub(super) fn new(controller: &str) -> Self {
        Self {
            controller: controller.to_owned(),
            calls: BTreeMap::new(),
            waiting: BTreeMap::new(),
            facts: BTreeMap::new(),
            dry: RecentUids::default(),
            dry_runs: 0,
        }
    }

    /// Another host starts: the identifiers mean nothing any more.
    pub(super) fn restart(&mut self) {
        self.calls.clear();
        self.waiting.clear();
        self.facts.clear();
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
                        deletes: deletes(plan),
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
            let target = plan.deletes.then(|| plan.target.clone())?;
            return Some(RecordedStep::Started(target));
        }
        let removed = self.take(&key, is_it).filter(|plan| plan.deletes)?;
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
    pub(super) fn note_facts(&mut self, target: &ObjectRef, facts: Facts) {
        self.facts.insert(target.uid.clone(), facts);
    }

    /// The same when it has ended.
    pub(super) fn take_facts(&mut self, target: &ObjectRef) -> Option<Facts> {
        self.facts.remove(&target.uid)
    }

    pub(super) fn execution(&mut self, execution: &ExecutionEntry) -> Option<RecordedStep> {
        if execution.controller != self.controller {
            return None;
        }
        let key = (execution.decision, execution.target.uid.clone());
        let plan = self.take(&key, |plan| plan.reason == execution.reason)?;
        let target = plan.deletes.then_some(plan.target)?;
        // A target that was gone already was not deleted by this controller.
        Some(if execution.outcome.failed.is_none() {
            RecordedStep::Done(target, execution.reason.clone())
        } else {
            RecordedStep::Failed(target)
        })
    }
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
    let mut steps = plan.steps.iter();
    steps.any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)))
}
