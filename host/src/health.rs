//! The host's liveness and readiness, for the probes: other parts of the host report
//! here, and core's [`Readiness`] judges.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use davit_cluster::clock::Clock;
use davit_core::health::{Heartbeat, Readiness};
use davit_core::reach::Absence;
use davit_core::time::Instant;

/// The state of the probes.
#[derive(Debug)]
pub struct Health {
    clock: Clock,
    /// The last heartbeat, in nanoseconds of the clock. Liveness needs nothing else, so no
    /// lock can make the kubelet restart the host, or keep it from doing so.
    heartbeat: AtomicU64,
    readiness: Mutex<Readiness>,
    /// Whether the journal records nothing. The host is ready all the same.
    is_journal_stopped: AtomicBool,
}

impl Default for Health {
    fn default() -> Self {
        let clock = Clock::start();
        Self {
            heartbeat: AtomicU64::new(clock.instant().as_nanos()),
            clock,
            readiness: Mutex::default(),
            is_journal_stopped: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// The clock of the host.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The host's task runs, and its controllers wait for this.
    pub fn heartbeat(&self, waiting: Option<String>) {
        let now = self.clock.instant().as_nanos();
        self.heartbeat.store(now, Ordering::Relaxed);
        self.readiness().set_waiting(waiting);
    }

    /// Sets since when the API server has not answered any request; none if it answers.
    pub fn set_absence(&self, absence: Option<Absence>) {
        self.readiness().set_absence(absence);
    }

    /// The host knows its controllers.
    pub fn set_declared(&self) {
        self.readiness().set_declared();
    }

    /// Sets why the host does not know its controllers.
    pub fn set_undeclared(&self, reason: String) {
        self.readiness().set_undeclared(reason);
    }

    /// Sets why a controller is not ready; none if it is.
    pub fn set_controller(&self, controller: &str, reason: Option<String>) {
        self.readiness().set_controller(controller, reason);
    }

    /// Whether the host's task runs.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.last_heartbeat().is_live(self.clock.instant())
    }

    /// Whether there is no reason why the host is not ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.not_ready().is_empty()
    }

    /// The reasons why the host is not ready, a sentence each; empty if it is ready.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let heartbeat = self.last_heartbeat();
        self.readiness().reasons(heartbeat, self.clock.instant())
    }

    /// Sets whether a host with a journal records nothing.
    pub fn set_journal_stopped(&self, is_stopped: bool) {
        self.is_journal_stopped.store(is_stopped, Ordering::Relaxed);
    }

    /// Whether the host has a journal that records nothing.
    #[must_use]
    pub fn is_journal_stopped(&self) -> bool {
        self.is_journal_stopped.load(Ordering::Relaxed)
    }

    fn last_heartbeat(&self) -> Heartbeat {
        let nanos = self.heartbeat.load(Ordering::Relaxed);
        Heartbeat(Instant::from_nanos(nanos))
    }

    fn readiness(&self) -> MutexGuard<'_, Readiness> {
        self.readiness
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_of_liveness_waits_for_no_lock() {
        let health = Health::default();
        let held = health.readiness();
        assert!(health.is_live());
        drop(held);
    }
}
