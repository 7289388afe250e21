//! How long what the recorded policy deleted stays for the policy under test.

use std::collections::{BTreeMap, VecDeque};

use crate::object::Uid;
use crate::time::Instant;

/// The objects that the recorded policy has deleted and that stay for a while. All stay
/// equally long: those that came first end first.
#[derive(Debug, Default)]
pub(super) struct Stays {
    ends: BTreeMap<Uid, Instant>,
    /// Also those that were removed or that came again since.
    order: VecDeque<(Instant, Uid)>,
}

impl Stays {
    /// An object stays until this time; until it is removed if that is never.
    pub(super) fn add(&mut self, uid: &Uid, until: Instant) {
        if until == Instant::FAR_FUTURE {
            return;
        }
        self.ends.insert(uid.clone(), until);
        self.order.push_back((until, uid.clone()));
    }

    pub(super) fn remove(&mut self, uid: &Uid) {
        self.ends.remove(uid);
    }

    /// When the next one ends.
    pub(super) fn next(&mut self) -> Option<Instant> {
        while let Some((at, uid)) = self.order.front() {
            if self.ends.get(uid) == Some(at) {
                return Some(*at);
            }
            self.order.pop_front();
        }
        None
    }

    /// Removes one that has ended by now.
    pub(super) fn end(&mut self, now: Instant) -> Option<Uid> {
        self.next().filter(|at| *at <= now)?;
        let (_, uid) = self.order.pop_front()?;
        self.ends.remove(&uid);
        Some(uid)
    }
}
