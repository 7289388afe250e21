//! The deletions that controllers of Davit ask for, on this host or on another replica.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::gate::{Mode, Ruling, WaitReason};
use crate::object::Uid;
use crate::time::Instant;

/// How long a deletion may take from its plan until the watch shows it.
const KEPT_FOR: Duration = Duration::from_mins(10);
/// The most deletions that are kept.
const MOST_KEPT: usize = 20_000;

/// What controllers of Davit have planned to delete, and execute here or on the replica that
/// leads them: every replica makes the same plans.
#[derive(Debug, Default)]
pub struct OwnDeletions {
    last: BTreeMap<Uid, Instant>,
    order: VecDeque<(Instant, Uid)>,
}

impl OwnDeletions {
    /// The gate has ruled on a plan to delete an object, of a revision in this mode. It is
    /// executed here, was just executed, or the replica executes it that leads the controller;
    /// otherwise it is no deletion.
    pub fn note(&mut self, uid: Uid, mode: Mode, ruling: &Ruling, now: Instant) {
        let is_executed = matches!(
            ruling,
            Ruling::Admit | Ruling::Wait(WaitReason::Expectation(_) | WaitReason::NotLeading)
        );
        if mode == Mode::Enforce && is_executed {
            self.add(uid, now);
        }
    }

    /// A controller that executes its plans has planned to delete an object.
    pub fn add(&mut self, uid: Uid, now: Instant) {
        let is_over = |(at, _): &mut (Instant, Uid)| at.after(KEPT_FOR) <= now;
        while let Some((at, uid)) = self.order.pop_front_if(is_over) {
            self.drop(at, &uid);
        }
        if self.order.len() >= MOST_KEPT
            && let Some((at, oldest)) = self.order.pop_front()
        {
            self.drop(at, &oldest);
        }
        self.last.insert(uid.clone(), now);
        self.order.push_back((now, uid));
    }

    /// Whether a controller of Davit has planned to delete it.
    #[must_use]
    pub fn contains(&self, uid: &Uid, now: Instant) -> bool {
        let last = self.last.get(uid);
        last.is_some_and(|at| now.since(*at) < KEPT_FOR)
    }

    /// Forgets a plan, unless the object was planned on again.
    fn drop(&mut self, at: Instant, uid: &Uid) {
        if self.last.get(uid) == Some(&at) {
            self.last.remove(uid);
        }
    }
}
