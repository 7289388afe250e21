//! Evictions that become deletions.

use std::time::Duration;

use davit_guest::{Command, Decision, FailureClass, WorkItem};
use serde::{Deserialize, Serialize};

use super::{Act, Call, MOMENT, may_end};
use crate::judge::Outcome;
use crate::sources::{EVICT_AGAIN, EVICTIONS};

/// How much of the time until the next attempt counts as refused, in milliseconds: twice the longest
/// pause between two. Without attempts, a budget refuses nothing.
const COUNTED: u64 = 60_000;
/// How long ago an attempt may be for a deletion because it was refused, in milliseconds.
const RECENT: u64 = 10_000;
/// After so many attempts at the end of the time, a pod is deleted however long they take.
const CERTAIN: u32 = 3;

/// What a budget has refused so far, when the pod is evicted again. Times are ages of the item, in
/// milliseconds: no clock that somebody sets changes them. The item is older than its first attempt,
/// for which it may have waited.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Refused {
    /// After this time, the pod is deleted.
    deadline: u64,
    /// The age at this attempt.
    at: u64,
    /// How much of the time has passed by this attempt.
    passed: u64,
    /// How many attempts were refused after all of the time.
    late: u32,
    /// Whether this is no attempt: the pod is deleted.
    #[serde(skip)]
    is_overdue: bool,
}

impl Refused {
    /// After the first attempt.
    fn first(age: u64, deadline: u64) -> Self {
        Self {
            deadline,
            at: age,
            passed: 0,
            late: 0,
            is_overdue: false,
        }
    }

    /// After this attempt was refused as well.
    fn again(&self, age: u64, deadline: u64) -> Self {
        let paused = age.saturating_sub(self.at);
        let was_late = self.deadline == deadline && self.passed >= deadline;
        let late = if was_late { self.late + 1 } else { 0 };
        Self {
            deadline,
            at: age,
            passed: self.passed.saturating_add(paused.min(COUNTED)),
            late,
            // The budget may allow it by now if the attempt is long ago.
            is_overdue: late > 0 && paused <= RECENT || late >= CERTAIN,
        }
    }

    /// After this attempt, or this deletion, met another version of the pod: nobody was asked.
    fn in_vain(&self, age: u64) -> Self {
        Self {
            at: age,
            late: 0,
            ..self.clone()
        }
    }

    /// What is left until the last attempt, or from that one until the pod is deleted.
    fn left(&self) -> Duration {
        Duration::from_millis(self.deadline.saturating_sub(self.passed)).max(MOMENT)
    }
}

/// The end of an eviction's item, and a new one after a pause.
fn evict_later(item: &WorkItem, pause: Duration) -> Decision {
    Decision::done().commands([Command::enqueue(EVICTIONS, &item.key, pause)])
}

impl Call<'_> {
    /// A pod whose eviction becomes a deletion if its budget refuses it for too long. The time
    /// counts from the first refusal on, and starts again whenever the last attempt had another
    /// end.
    pub(crate) fn eviction(&self, item: &WorkItem) -> Decision {
        let note = refusal_note(item);
        let noted: Option<Refused> = self.cx.note(&note);
        let refused = self.refused(item, noted.as_ref());
        let (decision, is_attempt) = self.next_eviction(item, refused.as_ref());
        let refused = refused.filter(|_| is_attempt);
        if refused.is_none() && noted.is_none() {
            return decision;
        }
        decision.commands([Command::set_note(&note, refused.as_ref())])
    }

    /// What a budget has refused of the pod of an item; none if the last attempt had another end.
    fn refused(&self, item: &WorkItem, noted: Option<&Refused>) -> Option<Refused> {
        let (rule, _, rest) = self.parse(&item.key)?;
        let (uid, _) = rest.split_once('|')?;
        let deadline = millis(rule.actions.eviction_deadline()?);
        let age = millis(self.cx.now() - item.created_at);
        let mut failures = item.failures.iter().filter(|it| it.uid == uid);
        match (&failures.next()?.failure.class, noted) {
            (FailureClass::DisruptionBudget, Some(noted)) => Some(noted.again(age, deadline)),
            (FailureClass::DisruptionBudget, None) => Some(Refused::first(age, deadline)),
            (FailureClass::Conflict, Some(noted)) => Some(noted.in_vain(age)),
            _ => None,
        }
    }

    /// What is done about a pod that a budget has refused, and whether it is another attempt: the
    /// time does not count on without one.
    fn next_eviction(&self, item: &WorkItem, refused: Option<&Refused>) -> (Decision, bool) {
        let done = (Decision::done(), false);
        let Some((rule, source, rest)) = self.parse(&item.key) else {
            return done;
        };
        let Some((uid, key)) = rest.split_once('|') else {
            return done;
        };
        let object = self.cx.watch(source.name).get(key);
        let Some(object) = object.filter(|it| it.reference.uid == uid) else {
            return done;
        };
        if !rule.has_deadline() || !may_end(rule, &object) {
            return done;
        }
        let evaluation = self.judge(rule, &object, |_, evaluation| evaluation);
        if evaluation.outcome != Outcome::Selected {
            // Nothing else may announce that what is related to the pod is known again, or that
            // later rules are to be asked.
            let decision = match evaluation.next {
                Some(next) => Decision::requeue_after(self.until(next)),
                None => Decision::done(),
            };
            let others = Command::enqueue(source.queue, key, Duration::ZERO);
            return (decision.commands([others]), false);
        }
        if self.claim(rule, source, &object).is_some() {
            // What claims it may let it go, and nothing else may announce it.
            return (evict_later(item, self.every()), false);
        }
        if refused.is_none() && !item.failures.is_empty() {
            // The attempt failed in another way: the next one is no faster than after a refusal.
            return (evict_later(item, EVICT_AGAIN.min(self.every())), false);
        }
        let is_overdue = refused.is_some_and(|it| it.is_overdue);
        match self.act(rule, &object, is_overdue) {
            Act::Plan(plan) => {
                let again = EVICT_AGAIN.min(self.every());
                let decision = Decision::requeue_after(again).plans([*plan]);
                // The host's pause after a refusal may be longer than what is left.
                let next = refused.filter(|_| !is_overdue);
                let next = next.map(|it| Command::enqueue(EVICTIONS, &item.key, it.left()));
                (decision.commands(next), true)
            }
            Act::Nothing => done,
            Act::Later(_) => (evict_later(item, self.every()), false),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The note of what a budget has refused of the pod of an item.
fn refusal_note(item: &WorkItem) -> String {
    format!("refused/{}", item.key)
}
