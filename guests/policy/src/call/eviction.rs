//! Evictions that become deletions.

use std::time::Duration;

use davit_guest::{Command, Decision, FailureClass, WorkItem};
use serde::{Deserialize, Serialize};

use super::{Act, Call, LONGEST_PAUSE, MOMENT, may_end};
use crate::judge::Outcome;
use crate::sources::{EVICT_AGAIN, EVICTIONS};

/// How much of the time until the next attempt counts as refused: twice the longest pause between
/// two. Without attempts, a budget refuses nothing.
const COUNTED: Duration = Duration::from_secs(60);

/// What a budget has refused so far, when the pod is evicted again. Times are ages of the item: no
/// clock that somebody sets changes them. The item is older than its first attempt, for which it may
/// have waited.
#[derive(Debug, Deserialize, Serialize)]
struct Refused {
    /// For how long the budget had refused the pod when the last attempt was made, in milliseconds;
    /// 0 if that is long ago.
    before: u64,
    /// The age at the last attempt, in milliseconds.
    at: u64,
    /// For how long the budget has refused the pod by this attempt.
    by_now: u64,
}

impl Refused {
    /// The first attempt was refused.
    fn first(age: Duration) -> Self {
        Self {
            before: 0,
            at: millis(age),
            by_now: 0,
        }
    }

    /// The last attempt was refused as well.
    fn until(&self, age: Duration) -> Self {
        let at = millis(age);
        let passed = at.saturating_sub(self.at);
        let is_recent = passed <= millis(LONGEST_PAUSE);
        Self {
            before: if is_recent { self.by_now } else { 0 },
            at,
            by_now: self.by_now.saturating_add(passed.min(millis(COUNTED))),
        }
    }

    /// Whether the last attempt was refused after all of this time. The pod is not deleted for a
    /// refusal of long ago, after which the budget may allow it.
    fn is_overdue(&self, deadline: Duration) -> bool {
        self.before >= millis(deadline)
    }

    /// What is left of this time, and a moment after it until the pod is deleted.
    fn left(&self, deadline: Duration) -> Duration {
        let left = millis(deadline).saturating_sub(self.by_now);
        Duration::from_millis(left).max(MOMENT)
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
        let age = self.cx.now() - item.created_at;
        let refused = self.was_refused(item).then(|| match &noted {
            Some(refused) => refused.until(age),
            None => Refused::first(age),
        });
        let (decision, is_attempt) = self.next_eviction(item, refused.as_ref());
        let refused = refused.filter(|_| is_attempt);
        if refused.is_none() && noted.is_none() {
            return decision;
        }
        decision.commands([Command::set_note(&note, refused.as_ref())])
    }

    /// Whether a budget refused the pod of an item in the last attempt.
    fn was_refused(&self, item: &WorkItem) -> bool {
        let uid = self.parse(&item.key).and_then(|it| it.2.split_once('|'));
        uid.is_some_and(|(uid, _)| {
            let mut failures = item.failures.iter();
            failures.any(|it| it.uid == uid && it.failure.class == FailureClass::DisruptionBudget)
        })
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
        let Some(deadline) = rule.actions.eviction_deadline() else {
            return done;
        };
        if !may_end(rule, &object) {
            return done;
        }
        let evaluation = self.judge(rule, &object, |_, evaluation| evaluation);
        if evaluation.outcome != Outcome::Selected {
            // Nothing else may announce that what is related to the pod is known again.
            return match evaluation.next {
                Some(next) => (Decision::requeue_after(self.until(next)), false),
                None => done,
            };
        }
        if self.claim(rule, source, &object).is_some() {
            // What claims it may let it go, and nothing else may announce it.
            return (evict_later(item, self.every()), false);
        }
        if refused.is_none() && !item.failures.is_empty() {
            // The attempt failed in another way: the next one is no faster than after a refusal.
            return (evict_later(item, EVICT_AGAIN.min(self.every())), false);
        }
        let is_overdue = refused.is_some_and(|it| it.is_overdue(deadline));
        match self.act(rule, &object, is_overdue) {
            Act::Plan(plan) => {
                let again = EVICT_AGAIN.min(self.every());
                let decision = Decision::requeue_after(again).plans([*plan]);
                // The host's pause after a refusal may be longer than what is left.
                let next = refused.filter(|_| !is_overdue);
                let next = next.map(|it| Command::enqueue(EVICTIONS, &item.key, it.left(deadline)));
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
