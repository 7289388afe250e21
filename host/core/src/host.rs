//! The host as one machine without I/O: every decision between a declared controller
//! and a request to the API server.
//!
//! The host has two halves. [`Control`] decides which revision of each controller is
//! stable and which is the candidate, and records the decision. [`Machine`] runs those
//! revisions: streams, cache, queues, calls, plans. If there are other replicas, leader
//! election says for which controllers both may do so here. Drivers pass inputs to a
//! [`Host`] and execute its effects; they decide nothing.
//!
//! ```text
//!       leases ◀─▶ Leases ──────────────┬─────────────────┐
//!                    held leases        ▼                 ▼ terms
//!                      desired controllers, resets
//! declarations ─▶ Control ───────────────────────▶ Machine ◀─ streams, answers, outcomes
//!      records ◀─▶   ▲                                │     ─▶ calls, plans, reads
//!                    └────────── observation ─────────┘
//! ```

mod leases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::api::{ControllerSpec, ControllerStatus};
use crate::control::{
    ChangeError, Control, ControlEffect, ControlInput, ControlSettings, HostIdentity, Output,
    StepProgress,
};
use crate::election::{LeaseAnswer, LeaseRequest, LeaseRequestId};
use crate::journal::{JournalItem, Profile};
use crate::machine::{self, Machine};
use crate::observation::{ClusterFindings, Disagreements};
use crate::time::{Instant, Now};
use crate::trust::TrustPolicy;
pub use leases::LeaseSettings;
use leases::Leases;
use serde_json::Value;

/// The settings of a host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The namespace of the service accounts of controllers.
    pub namespace: String,
    /// The identity of this host in records, if other hosts may write them as well.
    pub identity: Option<HostIdentity>,
    /// Which modules may write.
    pub trust: TrustPolicy,
    /// The leases, if there are other replicas.
    pub leases: Option<LeaseSettings>,
}

/// The state of a host. `G` is a guest, which only drivers can call.
pub struct Host<G> {
    control: Control<G>,
    machine: Machine<G>,
    /// None if there are no other replicas.
    leases: Option<Leases>,
}

/// An input of the host.
#[derive(Debug)]
pub enum Input<G> {
    /// About declarations, revisions or records.
    Control(ControlInput<G>),
    /// About the controllers that run.
    Machine(machine::Input),
    /// The answer to an [`Effect::Lease`].
    Lease(LeaseRequestId, LeaseAnswer),
}

/// An effect that a driver has to execute.
#[derive(Debug)]
pub enum Effect<G> {
    /// On revisions, records or events.
    Control(ControlEffect),
    /// On the API server or a guest.
    Machine(machine::Effect<G>),
    /// Reads or writes leases.
    Lease(LeaseRequest),
    /// Until when requests of a controller may be sent, its writes and those of its record;
    /// none if they may not. Without leases there is no such limit.
    Term {
        /// The controller.
        controller: String,
        /// The end of the term.
        until: Option<Instant>,
    },
}

impl<G: Clone> Host<G> {
    /// A host without controllers.
    #[must_use]
    pub fn new(now: Now, settings: HostSettings) -> Self {
        let HostSettings {
            namespace,
            identity,
            trust,
            leases,
        } = settings;
        let control = ControlSettings {
            namespace,
            host: identity,
            trust,
            has_leases: leases.is_some(),
        };
        Self {
            leases: leases.map(|settings| Leases::new(&settings, now.instant)),
            control: Control::new(now, control),
            machine: Machine::new(now),
        }
    }

    /// Handles an input. [`Self::poll`] returns its effects.
    pub fn handle(&mut self, now: Now, input: Input<G>) {
        match input {
            Input::Control(input) => {
                self.control.handle(now, input);
                if let Some(leases) = &mut self.leases {
                    leases.end_rest(now.instant);
                }
            }
            Input::Machine(input) => {
                match (&input, &mut self.leases) {
                    (machine::Input::Stop, Some(leases)) => leases.stop(now.instant),
                    (machine::Input::Executed { .. }, Some(leases)) => {
                        leases.end_rest(now.instant);
                    }
                    _ => {}
                }
                self.machine.handle(now, input);
            }
            Input::Lease(id, answer) => {
                if let Some(leases) = &mut self.leases {
                    leases.handle(now, id, answer);
                }
            }
        }
    }

    /// The next effect. Call it until it returns none, after inputs and at
    /// [`Self::next_wake`]. Decisions of the control half take effect first: a
    /// candidate that is rolled back loses its share before anything else happens.
    pub fn poll(&mut self, now: Now) -> Option<Effect<G>> {
        loop {
            self.note_terms(now);
            match self.control.poll() {
                Some(Output::Run(desired)) => {
                    if self.machine.has_journal() {
                        self.machine.note_specs(now, self.control.specs());
                    }
                    self.machine.apply(now, desired);
                }
                Some(Output::Reset { controller }) => {
                    self.machine.reset(now.instant, &controller);
                }
                Some(Output::Effect(effect)) => return Some(Effect::Control(effect)),
                None if self.control.next_wake() <= now.instant => {
                    self.control.start_round();
                    let observes = |name: &str| self.control.observes(name);
                    let observed = self.machine.observe(now, observes);
                    self.control.advance(now, &observed);
                }
                None if self.give_leases_away(now.instant) => {}
                None => {
                    let effect = self.poll_leases(now);
                    return effect.or_else(|| self.machine.poll(now).map(Effect::Machine));
                }
            }
        }
    }

    /// Starts the journal. It has everything that a guest's decision depends on, from a
    /// keyframe on; [`Self::take_journal`] takes it.
    pub fn start_journal(&mut self, now: Now) {
        self.machine.start_journal(now);
    }

    /// Watches the resources of a profile for the journal, beside those of the guests.
    pub fn watch_profile(&mut self, now: Now, profile: &Profile) {
        self.machine.watch_profile(now, profile);
    }

    /// Adds a keyframe to the journal: reading may start there.
    pub fn add_keyframe(&mut self, now: Now) {
        self.machine.add_keyframe(now);
    }

    /// Takes the journal's entries since they were last taken, in order; none without a
    /// journal. Call it after [`Self::poll`] has returned none.
    pub fn take_journal(&mut self) -> Vec<JournalItem> {
        self.machine.take_journal()
    }

    /// When to poll again if nothing else happens.
    #[must_use]
    pub fn next_wake(&self, now: Now) -> Instant {
        let halves = self.control.next_wake().min(self.machine.next_wake(now));
        halves.min(self.leases_wake())
    }

    /// Whether the host was stopped, the last plan has ended, and every lease is given away.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.machine.is_stopped() && self.leases.as_ref().is_none_or(Leases::is_stopped)
    }

    /// Whether everything that was declared is decided, and recorded or known not to be
    /// recordable.
    #[must_use]
    pub fn is_settled(&self, now: Now) -> bool {
        self.control.is_settled() && self.control.next_wake() > now.instant
    }

    /// What this host waits for, so that a controller does not run here or has no leader;
    /// none if all of them run. With leases, a controller that no replica can run counts only
    /// for a minute after the start: it must not keep replicas of a new version from replacing
    /// those of the former one. One that only another replica can run counts for as long.
    #[must_use]
    pub fn waiting(&self, now: Now) -> Option<String> {
        let leases = self.leases.as_ref();
        let counts = |name: &str| leases.is_none_or(|one| one.counts(name, now.instant));
        let failure = leases.and_then(Leases::failure);
        let unprepared = || {
            let name = self.control.unprepared(counts)?;
            Some(format!("{name}: its modules are being loaded"))
        };
        let lacking = || {
            let mut names = self.control.names();
            let name = names.find(|name| leases.is_some_and(|one| one.is_lacking(name)))?;
            Some(format!(
                "{name}: another replica can run it, and this one cannot"
            ))
        };
        failure
            .or_else(unprepared)
            .or_else(|| self.machine.waiting(counts))
            .or_else(lacking)
    }

    /// The targets on which the revisions of a controller disagree; none without a
    /// candidate.
    #[must_use]
    pub fn disagreements(&self, now: Now, controller: &str) -> Option<Disagreements> {
        self.machine.disagreements(now, controller)
    }

    /// The targets that only a controller or only the cluster deletes; none if the controller is
    /// not compared with the cluster.
    #[must_use]
    pub fn cluster_findings(&self, now: Now, controller: &str) -> Option<ClusterFindings> {
        self.machine.cluster_findings(now, controller)
    }

    /// The progress of the step of a controller's candidate; none without a candidate.
    #[must_use]
    pub fn progress(&self, controller: &str) -> Option<StepProgress> {
        self.control.progress(controller)
    }

    /// The spec of each controller: the last valid one.
    #[must_use]
    pub fn specs(&self) -> BTreeMap<String, ControllerSpec> {
        self.control.specs()
    }

    /// The status of each controller whose record was read.
    pub fn statuses(&self) -> impl Iterator<Item = (&str, &ControllerStatus)> {
        self.control.statuses()
    }

    /// A controller of the configuration file in the form of the custom resource. Fails
    /// if the file does not have it, or the host is still reading its record.
    pub fn file_controller(&self, name: &str) -> Result<Value, ChangeError> {
        self.control.file_controller(name)
    }

    /// All controllers of the configuration file. Fails while the host is still reading
    /// the record of one: the list is complete or not returned.
    pub fn file_controllers(&self) -> Result<Vec<Value>, ChangeError> {
        self.control.file_controllers()
    }
}
