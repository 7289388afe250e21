//! How long what the other side deleted stays for the policy under test.

use std::collections::{BTreeMap, BTreeSet};

use crate::object::Uid;
use crate::time::Instant;

/// The objects that the other side has deleted and that stay for a while.
#[derive(Debug, Default)]
pub(super) struct Stays {
    ends: BTreeMap<Uid, Instant>,
    /// The same in the order of their ends.
    order: BTreeSet<(Instant, Uid)>,
}

impl Stays {
    /// An object stays until this time; until it is removed if that is never.
    pub(super) fn add(&mut self, uid: &Uid, until: Instant) {
        self.remove(uid);
        if until != Instant::FAR_FUTURE {
            self.ends.insert(uid.clone(), until);
            self.order.insert((until, uid.clone()));
        }
    }

    pub(super) fn remove(&mut self, uid: &Uid) {
        if let Some(until) = self.ends.remove(uid) {
            self.order.remove(&(until, uid.clone()));
        }
    }

    /// When the next one ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }

    /// Removes one that has ended by now.
    pub(super) fn end(&mut self, now: Instant) -> Option<Uid> {
        self.next().filter(|until| *until <= now)?;
        let (_, uid) = self.order.pop_first()?;
        self.ends.remove(&uid);
        Some(uid)
    }
}
