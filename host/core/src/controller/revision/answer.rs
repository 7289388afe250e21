//! Executes answers in slices, so that none keeps the host from other controllers.
//!
//! An answer is first counted against the bounds, because it counts as a whole or not at
//! all. Then its commands are executed, and its plans compared and taken to the gate. The
//! guest is not called again before that is done: a call never sees half of a decision.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use super::Revision;
use super::admission::{Count, Part};
use crate::bounds::text;
use crate::controller::exchange::{
    CallId, DEFAULT_PARALLEL, DecisionId, Effect, MOST_PARALLEL, World,
};
use crate::controller::execution::ItemExecution;
use crate::controller::items::{CallInFlight, decisions_of, key};
use crate::controller::shared::SharedState;
use crate::plan::{Command, Decision, Plan, QueueKey, Verdict, WorkItem};
use crate::queue::PendingSnapshot;
use crate::rollout::Role;
use crate::rollout::compare::Reconciliation;
use crate::store::Snapshot;
use crate::time::Instant;

/// How many commands and plans one slice has.
const PARTS: u32 = 256;
/// How many plans follow on the outcome of another.
const PARTS_OF_OUTCOME: u32 = 4;

/// What a revision may still do before others have their turn.
#[derive(Debug)]
pub(super) struct Slice(u32);

impl Slice {
    pub(super) const fn new() -> Self {
        Self(PARTS)
    }

    /// That of an outcome, of which a poll may follow many.
    pub(super) const fn of_outcome() -> Self {
        Self(PARTS_OF_OUTCOME)
    }

    /// Takes one part; false if none is left.
    pub(super) const fn take(&mut self) -> bool {
        match self.0.checked_sub(1) {
            Some(left) => {
                self.0 = left;
                true
            }
            None => false,
        }
    }

    const fn is_over(&self) -> bool {
        self.0 == 0
    }
}

/// An answer that is not executed yet, or only in part.
#[derive(Debug)]
pub(super) enum Answer {
    Counting(AnswerCount),
    Executing(Box<AnswerExecution>),
}

/// An answer that is counted. Its call is still in flight.
#[derive(Debug)]
pub(super) struct AnswerCount {
    id: CallId,
    took: Duration,
    decisions: Vec<Decision>,
    /// The decision and the part of it that are counted next.
    next: (usize, usize),
    count: Count,
}

/// An answer that is executed.
#[derive(Debug)]
pub(super) struct AnswerExecution {
    /// The snapshot that the guest read.
    snapshot: Snapshot,
    /// When the snapshot was taken.
    started: Instant,
    /// Until when the API server throttles reads of the call.
    throttled_until: Option<Instant>,
    /// The pending items of the other revision.
    other: PendingSnapshot,
    decisions: vec::IntoIter<(WorkItem, DecisionId, Decision)>,
    current: Option<DecisionExecution>,
}

/// A decision of which a part is executed.
#[derive(Debug)]
struct DecisionExecution {
    item: QueueKey,
    id: DecisionId,
    next_page: Option<WorkItem>,
    commands: vec::IntoIter<Command>,
    /// The pending items that the commands cancelled.
    cancelled: BTreeSet<QueueKey>,
    plans: vec::IntoIter<Plan>,
    /// The plans that stand.
    decided: Vec<Arc<Plan>>,
    parallel: u32,
    verdict: Verdict,
}

impl<G: Clone> Revision<G> {
    /// Takes an answer in. [`Self::continue_work`] executes it, unless it would exceed a
    /// bound: then nothing of it counts, and the call has failed.
    pub(in crate::controller) fn handle_decisions(
        &mut self,
        id: CallId,
        decisions: Vec<Decision>,
        took: Duration,
    ) {
        self.answers.push_back(Answer::Counting(AnswerCount {
            id,
            took,
            decisions,
            next: (0, 0),
            count: Count::default(),
        }));
    }

    /// Whether [`Self::continue_work`] has something to do.
    pub(in crate::controller) fn has_work(&self) -> bool {
        !self.answers.is_empty() || self.items.has_unruled()
    }

    /// Executes a slice of the answers, and of the plans that the gate has not ruled on.
    pub(in crate::controller) fn continue_work(
        &mut self,
        world: &World<'_>,
        shared: &mut SharedState,
    ) {
        let mut slice = Slice::new();
        while let Some((item, execution)) = self.items.next_unruled() {
            self.admit_plans(&item, execution, world, shared, &mut slice);
            if slice.is_over() {
                return;
            }
        }
        while let Some(answer) = self.answers.pop_front() {
            let rest = match answer {
                Answer::Counting(answer) => self.count(answer, world, shared, &mut slice),
                Answer::Executing(answer) => self.execute(answer, world, shared, &mut slice),
            };
            if let Some(rest) = rest {
                self.answers.push_front(rest);
            }
            if slice.is_over() {
                return;
            }
        }
    }

    /// Counts an answer. Returns what is left of it.
    fn count(
        &mut self,
        mut answer: AnswerCount,
        world: &World<'_>,
        shared: &mut SharedState,
        slice: &mut Slice,
    ) -> Option<Answer> {
        // The call may be void by now.
        let of_reads = self.items.call(answer.id)?.exceeded.map_or(Ok(()), Err);
        while slice.take() {
            let bounds = &shared.settings.bounds;
            let is_refused = Self::is_refused(&answer.count, bounds);
            let part = next_part(&mut answer.decisions, &mut answer.next);
            let Some(part) = part.filter(|_| !is_refused) else {
                return match of_reads.and_then(|()| self.admit(answer.count, bounds)) {
                    Ok(None) => {
                        self.start_answer(answer.id, answer.decisions, answer.took, world, shared)
                    }
                    Ok(Some(count)) => Some(Answer::Counting(AnswerCount {
                        next: (0, 0),
                        count,
                        ..answer
                    })),
                    Err(exceeded) => {
                        let failure = exceeded.into();
                        self.handle_call_failure(
                            world.now,
                            answer.id,
                            failure,
                            answer.took,
                            shared,
                        );
                        None
                    }
                };
            };
            self.count_part(&mut answer.count, part);
        }
        Some(Answer::Counting(answer))
    }

    /// The bounds admit an answer: the call has succeeded.
    fn start_answer(
        &mut self,
        id: CallId,
        decisions: Vec<Decision>,
        took: Duration,
        world: &World<'_>,
        shared: &mut SharedState,
    ) -> Option<Answer> {
        let CallInFlight {
            items,
            continues,
            relisted,
            permit,
            started,
            snapshot,
            throttled_until,
            ..
        } = self.items.end_call(id)?;
        debug_assert_eq!(items.len(), decisions.len(), "the engine counts them");
        self.circuit.succeeded(world.now, permit);
        self.tally.call_took(took);
        if relisted > 0 {
            self.resync.call_took(world.now, took);
        }
        shared.called(id, self.role, None, took);
        let rollout = shared.rollout.as_ref();
        let other = rollout.map(|rollout| rollout.others(self.role));
        let each = items.into_iter().zip(decisions_of(id, continues));
        let each = each.zip(decisions);
        let each: Vec<_> = each.map(|((work, id), it)| (work, id, it)).collect();
        Some(Answer::Executing(Box::new(AnswerExecution {
            snapshot,
            started,
            throttled_until,
            other: other.unwrap_or_default(),
            decisions: each.into_iter(),
            current: None,
        })))
    }

    /// Executes an answer. Returns what is left of it.
    fn execute(
        &mut self,
        mut answer: Box<AnswerExecution>,
        world: &World<'_>,
        shared: &mut SharedState,
        slice: &mut Slice,
    ) -> Option<Answer> {
        loop {
            let Some(current) = &mut answer.current else {
                let (work, id, decision) = answer.decisions.next()?;
                answer.current = Some(DecisionExecution::new(work, id, decision));
                continue;
            };
            if !slice.take() {
                return Some(Answer::Executing(answer));
            }
            if let Some(command) = current.commands.next() {
                let snapshot = Some(world.snapshot);
                self.command(world.now, command, snapshot, &mut current.cancelled, shared);
                continue;
            }
            let reconcile = Reconciliation {
                role: self.role,
                item: &current.item,
                snapshot: &answer.snapshot,
                started: answer.started,
                other: &answer.other,
            };
            if let Some(plan) = current.plans.next() {
                if stands(&plan, &current.cancelled) {
                    let plan = Arc::new(plan);
                    plan.measures
                        .iter()
                        .for_each(|it| self.series.add(&it.measure));
                    self.plan_bytes += plan.bytes();
                    shared.compare(reconcile, &plan, world);
                    current.decided.push(plan);
                }
                continue;
            }
            shared.reconciled(reconcile);
            if let Some(current) = answer.current.take() {
                let (item, execution) = self.start_plans(&answer, current, world.now, shared);
                self.admit_plans(&item, execution, world, shared, slice);
            }
        }
    }

    /// The commands of a decision are executed: its plans can go to the gate.
    fn start_plans(
        &mut self,
        answer: &AnswerExecution,
        decision: DecisionExecution,
        now: Instant,
        shared: &mut SharedState,
    ) -> (QueueKey, Box<ItemExecution>) {
        let DecisionExecution { item, verdict, .. } = decision;
        if let Verdict::Retry { reason } = &verdict {
            shared.effects.push_back(Effect::Retried {
                role: self.role,
                item: item.clone(),
                decision: decision.id,
                reason: reason.clone(),
            });
        }
        let parallel = match decision.parallel {
            0 => DEFAULT_PARALLEL,
            asked => asked.min(MOST_PARALLEL),
        };
        let decided_on = answer.snapshot.clone();
        let mut page =
            ItemExecution::new(decision.id, decision.decided, decided_on, parallel, verdict);
        page.next_page = decision.next_page;
        if let Some(until) = answer.throttled_until {
            page.throttle(until.since(now));
        }
        let execution = self.items.decided(&item, page);
        (item, execution)
    }

    /// Executes a command. The snapshot is the present one, if it is known.
    fn command(
        &mut self,
        now: Instant,
        command: Command,
        snapshot: Option<&Snapshot>,
        cancelled: &mut BTreeSet<QueueKey>,
        shared: &mut SharedState,
    ) {
        let done = match command {
            Command::Enqueue(enqueue) => self.items.enqueue(now, &enqueue),
            Command::SetRate { queue, group, rate } => {
                self.items.set_rate(now, &queue, &group, rate)
            }
            Command::Cancel(item) => {
                if self.items.cancel(now, &item) {
                    cancelled.insert(item);
                }
                Ok(())
            }
            Command::SetNote { key, value } => {
                if value.is_some() {
                    self.follow_note(now, &key, snapshot);
                }
                self.set_note(key, value);
                Ok(())
            }
            Command::Measure(measure) => {
                self.series.add(&measure);
                // The stable revision measures the same.
                if self.role == Role::Stable {
                    shared.effects.push_back(Effect::Measure(measure));
                }
                Ok(())
            }
        };
        // The engine refuses an answer with a queue that is not declared or a rate that
        // is none.
        debug_assert!(done.is_ok(), "{done:?}");
    }

    /// Executes the rest of the commands of the decision that has started, so that queues
    /// and notes have all of it.
    pub(in crate::controller) fn complete_commands(
        &mut self,
        now: Instant,
        shared: &mut SharedState,
    ) {
        let Some(mut answer) = self.answers.pop_front() else {
            return;
        };
        if let Answer::Executing(answer) = &mut answer
            && let Some(current) = &mut answer.current
        {
            for command in current.commands.by_ref() {
                self.command(now, command, None, &mut current.cancelled, shared);
            }
        }
        self.answers.push_front(answer);
    }

    /// Drops the answers that are not executed yet.
    pub(super) fn drop_answers(&mut self) {
        for answer in mem::take(&mut self.answers) {
            if let Answer::Executing(answer) = answer
                && let Some(current) = answer.current
            {
                let decided = current.decided.iter();
                self.plan_bytes -= decided.map(|plan| plan.bytes()).sum::<usize>();
            }
        }
    }
}

impl DecisionExecution {
    fn new(mut work: WorkItem, id: DecisionId, mut decision: Decision) -> Self {
        text::cut_verdict(&mut decision.verdict);
        let item = key(&work);
        let next_page = match &decision.verdict {
            Verdict::ContinueFrom { cursor } => {
                work.cursor.clone_from(cursor);
                Some(work)
            }
            _ => None,
        };
        Self {
            item,
            id,
            next_page,
            commands: decision.commands.into_iter(),
            cancelled: BTreeSet::new(),
            plans: decision.plans.into_iter(),
            decided: Vec::new(),
            parallel: decision.parallel,
            verdict: decision.verdict,
        }
    }
}

/// Whether a plan stands after the commands of its decision.
fn stands(plan: &Plan, cancelled: &BTreeSet<QueueKey>) -> bool {
    let condition = plan.when_cancelled.as_ref();
    condition.is_none_or(|item| cancelled.contains(item))
}

/// The next part of an answer.
fn next_part<'a>(decisions: &'a mut [Decision], next: &mut (usize, usize)) -> Option<Part<'a>> {
    let is_over = |decision: &Decision, part: usize| {
        let parts = decision.commands.len() + decision.plans.len();
        part >= parts
    };
    while decisions.get(next.0).is_some_and(|it| is_over(it, next.1)) {
        *next = (next.0 + 1, 0);
    }
    let decision = decisions.get_mut(next.0)?;
    let part = next.1;
    next.1 += 1;
    match part.checked_sub(decision.commands.len()) {
        None => decision.commands.get_mut(part).map(Part::Command),
        Some(plan) => decision.plans.get_mut(plan).map(Part::Plan),
    }
}
