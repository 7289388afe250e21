//! The execution of a decision: from the first plan to the requeue of the item.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::exchange::DecisionId;
use crate::bounds::text;
use crate::failure::{Failure, FailureClass};
use crate::gate::Mode;
use crate::mutant::Mutant;
use crate::object::Uid;
use crate::plan::{Plan, PlanFailure, Verdict, WorkItem};
use crate::queue::Finish;
use crate::store::Snapshot;
use crate::time::Instant;
use crate::untrusted::shorten;

/// The pause of an item after a forbidden write: permissions rarely change within
/// seconds.
pub(super) const FORBIDDEN_PAUSE: Duration = Duration::from_secs(30);

/// The pause of an item after an invalid write: the same write can succeed once an
/// admission policy or a schema has changed.
pub(super) const INVALID_PAUSE: Duration = Duration::from_secs(300);

/// The pause of an item after a plan for a kind that is not served: the period of
/// discovery. A change of the mapping ends it earlier.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(30);

/// The pause before an item is decided again that waits for the cache, and whose plans wrote
/// other objects than their targets. An apply would succeed again and again until then.
const OTHERS_PAUSE: Duration = Duration::from_secs(1);

/// How long an item whose plans belong to another revision or replica stays in its queue.
const LEFT_PAUSE: Duration = Duration::from_secs(600);

/// What was executed of an item's plans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExecutionState {
    /// None of them.
    Nothing,
    /// Some.
    Plans,
    /// Some, and one of them wrote another object than its target. Nobody notices when the cache
    /// has observed that.
    PlansOfOthers,
}

/// What makes an item due before the time that its queue has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequeueTrigger {
    /// Nothing.
    Never,
    /// The cache observes the writes.
    Observed,
    /// A resync.
    Resync,
}

/// The execution of a decision.
#[derive(Debug)]
pub(super) struct ItemExecution {
    /// The decision, whatever its page.
    pub(super) decision: DecisionId,
    /// Plans that the gate has not ruled on yet.
    pub(super) plans: VecDeque<Arc<Plan>>,
    /// The snapshot that the decision was made from.
    pub(super) decided_on: Snapshot,
    /// The most that its plans may do: no more than a dry run if a page of the decision was made
    /// from objects in a former state.
    most: Mode,
    /// The number of plans in flight.
    pub(super) in_flight: u32,
    /// Whether the item is in the list of those with plans that can go to the gate.
    pub(super) is_listed: bool,
    /// The most plans in flight.
    parallel: u32,
    /// The verdict of the decision.
    verdict: Verdict,
    /// The item with the cursor of the decision's next page, if there is one.
    pub(super) next_page: Option<WorkItem>,
    /// Failed plans for which a retry may help.
    failures: Vec<PlanFailure>,
    /// The longest pause that a failure requires.
    pause: Duration,
    /// For how long the server throttles reads that the decision depends on.
    read_pause: Duration,
    /// When a tripped guardrail admits plans again.
    not_before: Option<Instant>,
    /// Targets that were written, or that an expectation defers: the cache must
    /// observe their writes before the item is reconciled again.
    pub(super) unseen: BTreeSet<Uid>,
    /// Whether an expectation deferred a plan.
    has_deferred: bool,
    /// What was executed.
    executed: ExecutionState,
    /// Whether a plan was deferred.
    deferral: Deferral,
}

/// Whether a plan of an item was deferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Deferral {
    None,
    /// The plan was left to the revision that owns its target, or to the replica that leads.
    ToOwner,
    /// The reason of the deferral may be over.
    Over,
}

impl ItemExecution {
    pub(super) fn new(
        decision: DecisionId,
        plans: Vec<Arc<Plan>>,
        decided_on: Snapshot,
        parallel: u32,
        verdict: Verdict,
    ) -> Self {
        Self {
            decision,
            plans: plans.into(),
            most: if decided_on.has_former() {
                Mode::DryRun
            } else {
                Mode::Enforce
            },
            decided_on,
            in_flight: 0,
            is_listed: false,
            parallel,
            verdict,
            next_page: None,
            failures: Vec::new(),
            pause: Duration::ZERO,
            read_pause: Duration::ZERO,
            not_before: None,
            unseen: BTreeSet::new(),
            has_deferred: false,
            executed: ExecutionState::Nothing,
            deferral: Deferral::None,
        }
    }

    /// The API server throttled reads that the decision depends on. It is not asked again
    /// before this time has passed.
    pub(super) fn throttle(&mut self, pause: Duration) {
        self.read_pause = self.read_pause.max(pause);
    }

    /// Adds the next page of the decision. The outcomes of the former pages still
    /// count.
    pub(super) fn continue_with(&mut self, page: Self) {
        self.plans = page.plans;
        self.decided_on = page.decided_on;
        // A cursor may carry what the guest has counted.
        self.most = self.mode(page.most);
        self.parallel = page.parallel;
        self.verdict = page.verdict;
        self.next_page = page.next_page;
        self.read_pause = self.read_pause.max(page.read_pause);
    }

    /// The most that its plans may do in this mode: those that were decided on objects that
    /// may be gone are never executed.
    pub(super) fn mode(&self, mode: Mode) -> Mode {
        match mode {
            Mode::Enforce => self.most,
            mode => mode,
        }
    }

    /// Whether a plan can go to the gate now.
    pub(super) fn has_unruled(&self) -> bool {
        self.in_flight < self.parallel && !self.plans.is_empty()
    }

    pub(super) fn is_over(&self) -> bool {
        self.in_flight == 0 && self.plans.is_empty()
    }

    pub(super) fn admit(&mut self) {
        self.in_flight += 1;
        self.executed = self.executed.max(ExecutionState::Plans);
    }

    pub(super) fn hold(&mut self, target: Uid) {
        self.has_deferred = true;
        self.unseen.insert(target);
    }

    pub(super) fn wrote_another(&mut self) {
        self.executed = ExecutionState::PlansOfOthers;
    }

    /// The target of a plan is gone: the plan counts as executed.
    pub(super) fn is_done_already(&mut self) {
        self.executed = self.executed.max(ExecutionState::Plans);
    }

    /// A guardrail holds a plan back until this time, or until an operator resets it,
    /// which starts a resync.
    pub(super) fn wait_until(&mut self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::FAR_FUTURE);
        let earliest = self.not_before.map_or(until, |already| already.min(until));
        self.not_before = Some(earliest);
    }

    pub(super) fn leave(&mut self) {
        self.deferral = self.deferral.max(Deferral::ToOwner);
    }

    /// A resync starts: deferred plans are decided again as soon as the item's
    /// execution ends.
    pub(super) fn resync(&mut self) {
        if self.not_before.take().is_some() || self.deferral == Deferral::ToOwner {
            self.deferral = Deferral::Over;
        }
    }

    /// A swap replaces the revision: plans that have not started are dropped, and the
    /// item is requeued when the others have ended. Returns the bytes of the dropped
    /// plans.
    pub(super) fn supersede(&mut self) -> usize {
        let dropped = std::mem::take(&mut self.plans);
        self.next_page = None;
        self.verdict = Verdict::RequeueAfter(Duration::ZERO);
        self.not_before = None;
        self.deferral = Deferral::None;
        dropped.iter().map(|plan| plan.bytes()).sum()
    }

    /// The kind of a plan's object is not served. No request was sent.
    pub(super) fn wait_for_kind(&mut self, uid: &str, why: &impl ToString) {
        self.pause = self.pause.max(NOT_SERVED_PAUSE);
        let failure = Failure::new(FailureClass::Unmappable, why.to_string());
        self.fail(uid, 0, failure);
    }

    /// A plan failed. It is retried if that may help.
    pub(super) fn fail(&mut self, uid: &str, step: u32, mut failure: Failure) {
        if Mutant::ForgetFailures.is_active() {
            return;
        }
        let pause = match failure.class {
            FailureClass::Forbidden => FORBIDDEN_PAUSE,
            // A retry cannot succeed. The failure is reported, and the plan is decided
            // again with the item.
            FailureClass::RefusedByGate => return,
            _ => Duration::ZERO,
        };
        self.pause = self.pause.max(pause);
        if let Some(asked) = failure.retry_after {
            self.pause = self.pause.max(asked);
        }
        if self.failures.len() < WorkItem::MAX_FAILURES {
            shorten(&mut failure.message, text::MESSAGE);
            self.failures.push(PlanFailure {
                uid: uid.to_owned(),
                step,
                failure,
            });
        }
    }

    /// Whether the kind of a plan's object is not served.
    pub(super) fn waits_for_kind(&self) -> bool {
        self.failures.iter().any(is_unserved)
    }

    /// How the queue requeues the item after the last plan, and what else makes it due.
    /// A tick keeps its period: its next run decides again what was invalid, not
    /// served, deferred by a guardrail or left to the other revision.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        lapse: Duration,
        is_tick: bool,
    ) -> (Finish, RequeueTrigger) {
        let is_invalid = |plan: &PlanFailure| plan.failure.class == FailureClass::Invalid;
        if is_tick {
            self.failures
                .retain(|plan| !is_invalid(plan) && !is_unserved(plan));
        } else if self.failures.iter().any(is_invalid) {
            self.pause = self.pause.max(INVALID_PAUSE);
        }
        let some = |pause: Duration| (!pause.is_zero()).then_some(pause);
        if !self.failures.is_empty() {
            let retry_after = some(self.pause);
            let failures = std::mem::take(&mut self.failures);
            return (
                Finish::Retry {
                    failures,
                    retry_after,
                },
                RequeueTrigger::Never,
            );
        }
        if let Some(until) = self.not_before
            && !is_tick
        {
            return (
                Finish::RequeueAfter(until.since(now)),
                RequeueTrigger::Resync,
            );
        }
        let is_left = self.deferral == Deferral::ToOwner && !is_tick;
        if self.deferral == Deferral::Over && !is_tick {
            return (Finish::RequeueAfter(Duration::ZERO), RequeueTrigger::Never);
        }
        match &self.verdict {
            Verdict::Retry { .. } => (
                Finish::Retry {
                    failures: Vec::new(),
                    retry_after: some(self.read_pause),
                },
                RequeueTrigger::Never,
            ),
            Verdict::RequeueAfter(delay) if is_left => {
                (Finish::RequeueAfter(*delay), RequeueTrigger::Resync)
            }
            // A deferred plan is decided again no later than the guest asks for.
            Verdict::RequeueAfter(delay) if self.has_deferred => self.when_seen(lapse.min(*delay)),
            Verdict::RequeueAfter(delay) => (Finish::RequeueAfter(*delay), RequeueTrigger::Never),
            // The item ends with its last page.
            Verdict::ContinueFrom { .. } => {
                (Finish::RequeueAfter(Duration::ZERO), RequeueTrigger::Never)
            }
            Verdict::RequeueWhenObserved
                if self.executed != ExecutionState::Nothing || self.has_deferred =>
            {
                self.when_seen(lapse)
            }
            // A plan that an expectation deferred has to be decided again: the earlier
            // write may not have done all of it.
            Verdict::Done if self.has_deferred => self.when_seen(lapse),
            // If this revision comes to own the target, or this replica to lead, the item is
            // reconciled again with its creation time.
            Verdict::Done | Verdict::RequeueWhenObserved if is_left => {
                (Finish::Left(LEFT_PAUSE), RequeueTrigger::Resync)
            }
            // Plans of a dry run and refused plans would be decided again forever.
            Verdict::Done | Verdict::RequeueWhenObserved => (Finish::Done, RequeueTrigger::Never),
        }
    }

    /// When the cache has observed the writes, and after `longest` at the latest.
    fn when_seen(&self, longest: Duration) -> (Finish, RequeueTrigger) {
        if self.unseen.is_empty() && self.executed == ExecutionState::PlansOfOthers {
            let pause = OTHERS_PAUSE.min(longest);
            (Finish::RequeueAfter(pause), RequeueTrigger::Never)
        } else if self.unseen.is_empty() {
            (Finish::RequeueAfter(Duration::ZERO), RequeueTrigger::Never)
        } else {
            (Finish::RequeueAfter(longest), RequeueTrigger::Observed)
        }
    }
}

fn is_unserved(plan: &PlanFailure) -> bool {
    plan.failure.class == FailureClass::Unmappable
}
