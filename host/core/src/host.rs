//! The host as one machine without I/O: every decision between a declared
//! controller and a request to the API server.
//!
//! Two halves make it up. [`Control`] decides which revision of each controller is
//! stable, which is the candidate, and what is recorded of that. [`Machine`] runs
//! those revisions: streams, cache, queues, calls, plans. Drivers feed a [`Host`]
//! with inputs, execute its effects, and decide nothing.
//!
//! ```text
//!                      desired controllers, resets
//! declarations ─▶ Control ───────────────────────▶ Machine ◀─ streams, answers, outcomes
//!      records ◀─▶   ▲                                │     ─▶ calls, plans, reads
//!                    └────────── observation ─────────┘
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::api::{ControllerSpec, ControllerStatus};
use crate::control::{
    ChangeError, Control, ControlEffect, ControlInput, ControlSettings, HostIdentity, Output,
    StepProgress,
};
use crate::machine::{self, Machine, MachineSettings};
use crate::observation::Disagreements;
use crate::time::{Instant, Now};
use serde_json::Value;

/// What a host is started with.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Distinguishes the decisions of this run from those of others.
    pub run: String,
    /// The namespace of the service accounts of controllers.
    pub namespace: String,
    /// How records name this host, if other hosts may write there as well.
    pub identity: Option<HostIdentity>,
}

/// The state of a host. `G` is a guest, which only drivers can call.
pub struct Host<G> {
    control: Control<G>,
    machine: Machine<G>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Input<G> {
    /// To declarations, revisions or records.
    Control(ControlInput<G>),
    /// To the controllers that run.
    Machine(machine::Input),
}

/// Something to do.
#[derive(Debug)]
pub enum Effect<G> {
    /// With revisions, records or events.
    Control(ControlEffect),
    /// With the API server or a guest.
    Machine(machine::Effect<G>),
}

impl<G: Clone> Host<G> {
    /// A host without controllers.
    #[must_use]
    pub fn new(now: Now, settings: HostSettings) -> Self {
        let HostSettings {
            run,
            namespace,
            identity,
        } = settings;
        let control = ControlSettings {
            namespace,
            host: identity,
        };
        Self {
            control: Control::new(now, control),
            machine: Machine::new(now, MachineSettings { run }),
        }
    }

    /// Takes what happened. Its effects come from [`Self::poll`].
    pub fn handle(&mut self, now: Now, input: Input<G>) {
        match input {
            Input::Control(input) => self.control.handle(now, input),
            Input::Machine(input) => self.machine.handle(now, input),
        }
    }

    /// The next thing to do, if there is one. To be asked until there is none, after
    /// inputs and at [`Self::next_wake`]. What the control half decides comes first: a
    /// candidate that is rolled back loses its share before anything else.
    pub fn poll(&mut self, now: Now) -> Option<Effect<G>> {
        loop {
            match self.control.poll() {
                Some(Output::Run(desired)) => self.machine.apply(now, desired),
                Some(Output::Reset { controller }) => {
                    self.machine.reset(now.instant, &controller);
                }
                Some(Output::Effect(effect)) => return Some(Effect::Control(effect)),
                None if self.control.next_wake() <= now.instant => {
                    let observed = self.machine.observe(now);
                    self.control.advance(now, &observed);
                }
                None => return self.machine.poll(now).map(Effect::Machine),
            }
        }
    }

    /// When to poll again if nothing else happens.
    #[must_use]
    pub fn next_wake(&self, now: Now) -> Instant {
        self.control.next_wake().min(self.machine.next_wake(now))
    }

    /// Whether it was stopped, and the last plan has come to its end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.machine.is_stopped()
    }

    /// Whether everything that was declared is decided on, and recorded or known not to
    /// be.
    #[must_use]
    pub fn is_settled(&self, now: Now) -> bool {
        self.control.is_settled() && self.control.next_wake() > now.instant
    }

    /// On what the revisions of a controller disagree; none without a candidate.
    #[must_use]
    pub fn disagreements(&self, now: Now, controller: &str) -> Option<Disagreements> {
        self.machine.disagreements(now, controller)
    }

    /// How far the step of a controller's candidate is; none without a candidate.
    #[must_use]
    pub fn progress(&self, controller: &str) -> Option<StepProgress> {
        self.control.progress(controller)
    }

    /// The spec of each controller: the last that could be read.
    #[must_use]
    pub fn specs(&self) -> BTreeMap<String, ControllerSpec> {
        self.control.specs()
    }

    /// The status of each controller whose record was read.
    pub fn statuses(&self) -> impl Iterator<Item = (&str, &ControllerStatus)> {
        self.control.statuses()
    }

    /// A controller of the configuration file in the form of the custom resource. Fails
    /// if the file does not have it, or its record is still being read.
    pub fn file_controller(&self, name: &str) -> Result<Value, ChangeError> {
        self.control.file_controller(name)
    }

    /// All controllers of the configuration file. Fails while the record of one is still
    /// being read: a list never lacks a controller that there is.
    pub fn file_controllers(&self) -> Result<Vec<Value>, ChangeError> {
        self.control.file_controllers()
    }
}
