//! The bytes of the plans that a comparison keeps.

use std::collections::{BTreeSet, VecDeque};

use super::{Comparison, Disagreement, MOST_TARGETS, Side, forget_waiting};
use crate::rollout::Role;

/// The bytes of the plans that a comparison keeps. A plan that several places share
/// counts in each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ComparedBytes {
    /// Of the stable revision.
    pub(super) stable: usize,
    /// Of the candidate.
    pub(super) candidate: usize,
    /// Of the disagreements.
    pub(super) disagreements: usize,
}

impl ComparedBytes {
    pub(super) const fn of(&mut self, role: Role) -> &mut usize {
        match role {
            Role::Stable => &mut self.stable,
            Role::Candidate => &mut self.candidate,
        }
    }
}

impl Comparison {
    /// Drops the oldest targets until the plans of each revision have room.
    pub(super) fn drop_excess(&mut self) {
        while self.bytes.stable.max(self.bytes.candidate) > self.most_bytes && self.drop_oldest() {}
    }

    /// Drops the oldest target. Without a result, it counts as unknown: the other
    /// revision may still decide on it. Returns whether there was one.
    pub(super) fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.order.pop_front() else {
            return false;
        };
        let Some(target) = self.targets.remove(&oldest) else {
            return true;
        };
        let bytes = |side: &Option<Side>| side.as_ref().map_or(0, |side| side.bytes);
        self.bytes.stable -= bytes(&target.stable);
        self.bytes.candidate -= bytes(&target.candidate);
        if target.waits {
            self.counts.unknown += u64::from(target.agreement.is_none());
            self.dropped += 1;
        }
        if self.dropped > MOST_TARGETS {
            self.forget_dropped();
        }
        true
    }

    /// Removes the targets that were dropped from those that wait, so that their number
    /// is bounded however long a window lasts.
    fn forget_dropped(&mut self) {
        self.dropped = 0;
        let (targets, by_item) = (&self.targets, &mut self.by_item);
        let mut seen = BTreeSet::new();
        // The latest entry of a target is its own.
        let mut waiting: VecDeque<_> = VecDeque::new();
        for (began, uid, item) in std::mem::take(&mut self.pending).into_iter().rev() {
            let waits = targets.get(&uid).is_some_and(|target| target.waits);
            if waits && seen.insert(uid.clone()) {
                waiting.push_front((began, uid, item));
            } else if !waits {
                forget_waiting(by_item, &uid, &item);
            }
        }
        self.pending = waiting;
    }
}

impl Disagreement {
    pub(super) fn bytes(&self) -> usize {
        let sides = self.stable.iter().chain(&self.candidate);
        sides.map(|side| side.bytes).sum()
    }
}
