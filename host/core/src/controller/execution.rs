//! The execution of a decided work item: until all of its plans have come to
//! their end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::failure::{Failure, FailureClass};
use crate::mutant::Mutant;
use crate::object::Uid;
use crate::plan::{Plan, PlanFailure, Verdict, WorkItem};
use crate::queue::Finish;
use crate::store::Snapshot;
use crate::time::Instant;

/// How long an item waits after a write was forbidden: permissions rarely
/// change from one second to the next.
pub(super) const FORBIDDEN_PAUSE: Duration = Duration::from_secs(30);

/// How long an item waits after a write was refused as invalid: as it is it can
/// succeed once an admission policy or a schema has changed.
pub(super) const INVALID_PAUSE: Duration = Duration::from_secs(300);

/// How long an item waits after a plan for a kind that is not served: discovery
/// asks that often. It comes sooner when what is served changes.
const NOT_SERVED_PAUSE: Duration = Duration::from_secs(30);

/// How long an item stays whose plans were left to another revision.
const LEFT_PAUSE: Duration = Duration::from_secs(600);

/// What makes an item due before the time that its queue is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequeueTrigger {
    /// Nothing.
    Never,
    /// The cache shows what was written.
    Observed,
    /// A resync.
    Resync,
}

/// The execution of a decided item.
#[derive(Debug)]
pub(super) struct ItemExecution {
    /// Plans that were not yet put before the gate.
    pub(super) plans: VecDeque<Arc<Plan>>,
    /// What the guest was shown.
    pub(super) decided_on: Snapshot,
    /// Plans that are executed at present.
    pub(super) in_flight: u32,
    /// How many may be at once.
    parallel: u32,
    /// What the guest said is to become of the item.
    verdict: Verdict,
    /// The item with the cursor of the decision's next page, if there is one.
    pub(super) next_page: Option<WorkItem>,
    /// Plans that failed in a way that another try can mend.
    failures: Vec<PlanFailure>,
    /// The longest pause that a failure asks for.
    pause: Duration,
    /// When a guardrail has something left again.
    not_before: Option<Instant>,
    /// Targets that were held, or written: what the cache must show before the
    /// item is reconciled again.
    pub(super) unseen: Vec<Uid>,
    /// Whether a plan was held back because of its target.
    held: bool,
    /// Whether a plan was executed.
    executed: bool,
    /// Whether a plan was put off for longer than the item takes.
    put_off: PutOff,
}

/// Whether a plan of an item was put off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PutOff {
    No,
    /// It was left to the revision that owns its target.
    Left,
    /// What held it back, or had it left, may be over by now.
    Over,
}

impl ItemExecution {
    pub(super) fn new(
        plans: Vec<Arc<Plan>>,
        decided_on: Snapshot,
        parallel: u32,
        verdict: Verdict,
    ) -> Self {
        Self {
            plans: plans.into(),
            decided_on,
            in_flight: 0,
            parallel,
            verdict,
            next_page: None,
            failures: Vec::new(),
            pause: Duration::ZERO,
            not_before: None,
            unseen: Vec::new(),
            held: false,
            executed: false,
            put_off: PutOff::No,
        }
    }

    /// Takes the next page of the decision. What became of the plans of the pages
    /// before still counts.
    pub(super) fn continue_with(&mut self, page: Self) {
        self.plans = page.plans;
        self.decided_on = page.decided_on;
        self.parallel = page.parallel;
        self.verdict = page.verdict;
        self.next_page = page.next_page;
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.parallel
    }

    pub(super) fn is_over(&self) -> bool {
        self.in_flight == 0 && self.plans.is_empty()
    }

    pub(super) fn admit(&mut self) {
        self.in_flight += 1;
        self.executed = true;
    }

    pub(super) fn hold(&mut self, target: Uid) {
        self.held = true;
        self.unseen.push(target);
    }

    /// Takes a plan whose target is gone: as good as executed.
    pub(super) fn is_done_already(&mut self) {
        self.executed = true;
    }

    /// Waits for a guardrail: until that time, or until an operator resets
    /// it, which starts a resync.
    pub(super) fn wait_until(&mut self, until: Option<Instant>) {
        let until = until.unwrap_or(Instant::FAR_FUTURE);
        let earliest = self.not_before.map_or(until, |already| already.min(until));
        self.not_before = Some(earliest);
    }

    pub(super) fn leave(&mut self) {
        self.put_off = self.put_off.max(PutOff::Left);
    }

    /// A resync starts: what was held back or left before is decided
    /// again as soon as the item has ended, which is not parked yet.
    pub(super) fn resync(&mut self) {
        if self.not_before.take().is_some() || self.put_off == PutOff::Left {
            self.put_off = PutOff::Over;
        }
    }

    /// Another revision decides from now on: what was not begun never is, and
    /// the item comes again when what was has ended.
    pub(super) fn supersede(&mut self) {
        self.plans.clear();
        self.next_page = None;
        self.verdict = Verdict::RequeueAfter(Duration::ZERO);
        self.not_before = None;
        self.put_off = PutOff::No;
    }

    /// Takes a plan for an object whose kind is not served: nothing was asked of
    /// the API server.
    pub(super) fn wait_for_kind(&mut self, uid: &str, why: &impl ToString) {
        self.pause = self.pause.max(NOT_SERVED_PAUSE);
        let failure = Failure::new(FailureClass::Unmappable, why.to_string());
        self.fail(uid, 0, failure);
    }

    /// Takes a plan that failed, as far as another try can mend it.
    pub(super) fn fail(&mut self, uid: &str, step: u32, failure: Failure) {
        if Mutant::ForgetFailures.is_active() {
            return;
        }
        let pause = match failure.class {
            FailureClass::Forbidden => FORBIDDEN_PAUSE,
            // As it is, it can never succeed: it has been reported, and comes
            // again when the item does.
            FailureClass::RefusedByGate => return,
            _ => Duration::ZERO,
        };
        self.pause = self.pause.max(pause);
        if let Some(asked) = failure.retry_after {
            self.pause = self.pause.max(asked);
        }
        if self.failures.len() < WorkItem::MAX_FAILURES {
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

    /// What the queue is given once everything was executed, and what else
    /// makes the item come. A tick keeps its period: what is invalid or not
    /// served, waits for a guardrail, or was left to the other revision, it
    /// decides again.
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
        if !self.failures.is_empty() {
            let retry_after = (!self.pause.is_zero()).then_some(self.pause);
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
        if self.put_off == PutOff::Over && !is_tick {
            return (Finish::RequeueAfter(Duration::ZERO), RequeueTrigger::Never);
        }
        match &self.verdict {
            Verdict::Retry { .. } => (
                Finish::Retry {
                    failures: Vec::new(),
                    retry_after: None,
                },
                RequeueTrigger::Never,
            ),
            Verdict::RequeueAfter(delay) => (Finish::RequeueAfter(*delay), RequeueTrigger::Never),
            // It ends with its last page only.
            Verdict::ContinueFrom { .. } => {
                (Finish::RequeueAfter(Duration::ZERO), RequeueTrigger::Never)
            }
            Verdict::RequeueWhenObserved if self.executed || self.held => self.when_seen(lapse),
            // What was held back has to be reconciled again: the write it was
            // held for may not have done all of it.
            Verdict::Done if self.held => self.when_seen(lapse),
            // Should the target come to this revision, the item is reconciled
            // again with all its times.
            Verdict::Done | Verdict::RequeueWhenObserved
                if self.put_off == PutOff::Left && !is_tick =>
            {
                (Finish::RequeueAfter(LEFT_PAUSE), RequeueTrigger::Resync)
            }
            // What was only shown, or refused, would be decided again for ever.
            Verdict::Done | Verdict::RequeueWhenObserved => (Finish::Done, RequeueTrigger::Never),
        }
    }

    fn when_seen(&self, lapse: Duration) -> (Finish, RequeueTrigger) {
        if self.unseen.is_empty() {
            (Finish::RequeueAfter(Duration::ZERO), RequeueTrigger::Never)
        } else {
            (Finish::RequeueAfter(lapse), RequeueTrigger::Observed)
        }
    }
}

fn is_unserved(plan: &PlanFailure) -> bool {
    plan.failure.class == FailureClass::Unmappable
}
