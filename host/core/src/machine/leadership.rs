//! Which controllers this replica leads: only then the gate admits their plans.
//!
//! A replica leads a controller while it holds the controller's lease, and once the control
//! half has read the record that the former leader wrote. Every other controller runs in
//! the dark: its plans are decided, and wait.

use std::collections::BTreeMap;

use super::Machine;
use crate::controller::ControllerId;
use crate::mutant::Mutant;
use crate::time::{Instant, Now};

/// The leases of this replica.
#[derive(Debug)]
pub(super) struct Leadership {
    /// Until when this replica holds the lease of each controller; none if there are no
    /// leases, because it is the only replica.
    terms: Option<BTreeMap<String, Instant>>,
    /// When the next term ends.
    pub(super) ends: Instant,
}

impl Default for Leadership {
    fn default() -> Self {
        Self {
            terms: None,
            ends: Instant::FAR_FUTURE,
        }
    }
}

impl Leadership {
    /// Whether the lease of a controller is held, if there are leases.
    pub(super) fn holds(&self, controller: &str, now: Instant) -> bool {
        let terms = self.terms.as_ref();
        let holds = |terms: &BTreeMap<String, Instant>| {
            let until = terms.get(controller);
            until.is_some_and(|until| now < *until)
        };
        terms.is_none_or(holds)
    }

    fn next_end(&self, now: Instant) -> Instant {
        let terms = self.terms.iter().flat_map(BTreeMap::values);
        let ahead = terms.copied().filter(|until| now < *until);
        ahead.fold(Instant::FAR_FUTURE, Instant::min)
    }
}

impl<G: Clone> Machine<G> {
    /// Sets until when this replica holds the lease of each controller. It holds no others.
    pub(crate) fn set_terms(&mut self, now: Now, terms: BTreeMap<String, Instant>) {
        self.set_journal_time(now);
        self.leadership.terms = Some(terms);
        self.judge_leadership(now);
    }

    /// Applies what has changed. Plans that were decided without leadership are decided again
    /// with it; plans that have not started when it is lost never do.
    pub(super) fn judge_leadership(&mut self, now: Now) {
        self.leadership.ends = self.leadership.next_end(now.instant);
        let mut lost: Vec<ControllerId> = Vec::new();
        let mut is_changed = false;
        for (name, hosted) in &mut self.controllers {
            let holds = hosted.decides && self.leadership.holds(name, now.instant);
            // A revision that the record replaces gains nothing: the next one waits for its
            // watches.
            let leads = holds && (hosted.leads || hosted.stable.is_none());
            let has_led = std::mem::replace(&mut hosted.leads, leads);
            is_changed |= leads != has_led;
            let Some(controller) = hosted.controller.as_mut().filter(|_| leads != has_led) else {
                continue;
            };
            if !leads {
                lost.push(controller.id());
            } else if !Mutant::ForgetResync.is_active() {
                controller.resync(now.instant);
            }
        }
        if is_changed {
            self.note_controllers();
        }
        if !lost.is_empty() {
            self.settle(now.instant);
        }
        for controller in lost {
            self.withdraw(now.instant, controller);
        }
    }
}
