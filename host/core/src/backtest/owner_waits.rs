//! Deletions that the garbage collector may have made, and whose owners the journal has still.
//!
//! Owners and dependents are of different kinds, and so of different watches. Their order in a
//! journal is not the order in which the API server stored the changes.

use std::collections::{BTreeMap, BTreeSet};

use super::facts::Facts;
use crate::cluster_comparison::ObservedDeletion;
use crate::object::{ObjectRef, Uid};
use crate::time::{Instant, Now};

/// How many deletions wait at once, at most.
const MOST_WAITING: usize = 100_000;

/// A deletion that history shows.
#[derive(Debug)]
pub(super) struct SeenDeletion {
    pub(super) target: ObjectRef,
    pub(super) deletion: ObservedDeletion,
    /// When it happened at the earliest.
    pub(super) earliest: Instant,
}

/// What the policy has of an object that was deleted.
#[derive(Debug)]
pub(super) struct KeptDeletion {
    pub(super) facts: Facts,
    /// Whether the object stays for the policy.
    pub(super) is_kept: bool,
    /// When history showed the deletion.
    pub(super) at: Now,
}

#[derive(Debug)]
struct Wait {
    seen: SeenDeletion,
    kept: KeptDeletion,
    until: Instant,
}

/// The deletions that wait for the end of an owner.
#[derive(Debug, Default)]
pub(super) struct OwnerWaits {
    waits: BTreeMap<Uid, Wait>,
    /// The objects by their owners.
    by_owner: BTreeMap<Uid, BTreeSet<Uid>>,
    /// In the order in which they end.
    ends: BTreeSet<(Instant, Uid)>,
}

impl OwnerWaits {
    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.waits.contains_key(uid)
    }

    /// Whether no further deletion can wait.
    pub(super) fn is_full(&self) -> bool {
        self.waits.len() >= MOST_WAITING
    }

    /// A deletion waits until this time.
    pub(super) fn add(&mut self, seen: SeenDeletion, kept: KeptDeletion, until: Instant) {
        let uid = Uid::new(&seen.target.uid);
        for owner in &seen.deletion.traces.owners {
            let owned = self.by_owner.entry(owner.clone()).or_default();
            owned.insert(uid.clone());
        }
        self.ends.insert((until, uid.clone()));
        self.waits.insert(uid, Wait { seen, kept, until });
    }

    /// The deletion of an object that waits.
    pub(super) fn get_mut(&mut self, uid: &Uid) -> Option<&mut SeenDeletion> {
        self.waits.get_mut(uid).map(|wait| &mut wait.seen)
    }

    /// The objects with this owner that wait.
    pub(super) fn of_owner(&self, owner: &Uid) -> Vec<Uid> {
        let owned = self.by_owner.get(owner).into_iter().flatten();
        owned.cloned().collect()
    }

    /// When the next wait ends.
    pub(super) fn next_end(&self) -> Instant {
        let next = self.ends.first();
        next.map_or(Instant::FAR_FUTURE, |(until, _)| *until)
    }

    /// An object whose wait has ended by now.
    pub(super) fn due(&self, now: Instant) -> Option<Uid> {
        let (until, uid) = self.ends.first()?;
        (*until <= now).then(|| uid.clone())
    }

    /// Its deletion waits no longer.
    pub(super) fn remove(&mut self, uid: &Uid) -> Option<(SeenDeletion, KeptDeletion)> {
        let Wait { seen, kept, until } = self.waits.remove(uid)?;
        self.ends.remove(&(until, uid.clone()));
        for owner in &seen.deletion.traces.owners {
            if let Some(owned) = self.by_owner.get_mut(owner) {
                owned.remove(uid);
                if owned.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        Some((seen, kept))
    }
}
