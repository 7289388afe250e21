//! Liveness and readiness of the host, as the probes report them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::reach::Absence;
use crate::time::Instant;

/// How long the host's task may not run before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_mins(1);

/// How long the API server may be unreachable before the host is not ready.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(15);

/// Why a host is not live.
pub const STUCK: &str = "stuck: the host's task has not run for a minute";

/// When the host's task last ran. It is apart from [`Readiness`], so that a driver can
/// answer the question about liveness without a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat(pub Instant);

impl Heartbeat {
    /// Whether the host's task runs.
    #[must_use]
    pub fn is_live(self, now: Instant) -> bool {
        now.since(self.0) < STUCK_AFTER
    }
}

/// Whether the host is ready: its task runs, the API server answers, the host knows its
/// controllers, and no controller waits.
#[derive(Debug)]
pub struct Readiness {
    /// Whether the host knows its controllers.
    is_declared: bool,
    /// Why the host does not know its controllers.
    undeclared: Option<String>,
    /// What a controller waits for before it starts.
    waiting: Option<String>,
    /// The time without an answer from the API server.
    absence: Option<Absence>,
    /// Why controllers are not ready, by name.
    controllers: BTreeMap<String, String>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self {
            is_declared: false,
            undeclared: None,
            waiting: Some("the host is starting".to_owned()),
            absence: None,
            controllers: BTreeMap::new(),
        }
    }
}

impl Readiness {
    /// Sets what the controllers of the host wait for; none if all of them run.
    pub fn set_waiting(&mut self, waiting: Option<String>) {
        self.waiting = waiting;
    }

    /// Sets since when the API server has not answered any request; none if it answers.
    pub fn set_absence(&mut self, absence: Option<Absence>) {
        self.absence = absence;
    }

    /// The host knows its controllers.
    pub fn set_declared(&mut self) {
        self.is_declared = true;
    }

    /// Sets why the host does not know its controllers. A host that has known them
    /// continues with the last ones, so it stays ready.
    pub fn set_undeclared(&mut self, reason: String) {
        self.undeclared = Some(reason);
    }

    /// Sets why a controller is not ready; none if it is.
    pub fn set_controller(&mut self, controller: &str, reason: Option<String>) {
        match reason {
            Some(reason) => drop(self.controllers.insert(controller.to_owned(), reason)),
            None => drop(self.controllers.remove(controller)),
        }
    }

    /// The reasons why the host is not ready, a sentence each; empty if it is ready. Of the
    /// reasons of the host itself, only the one that explains the others is named.
    #[must_use]
    pub fn reasons(&self, heartbeat: Heartbeat, now: Instant) -> Vec<String> {
        let of_controllers = self.controllers.iter();
        let of_controllers =
            of_controllers.map(|(controller, reason)| format!("{controller}: {reason}"));
        let of_host = self.reason_of_host(heartbeat, now);
        of_host.into_iter().chain(of_controllers).collect()
    }

    fn reason_of_host(&self, heartbeat: Heartbeat, now: Instant) -> Option<String> {
        if !heartbeat.is_live(now) {
            return Some(STUCK.to_owned());
        }
        if let Some(Absence { since, last }) = &self.absence {
            let lasted = now.since(*since);
            if lasted >= UNREACHABLE_AFTER {
                let seconds = lasted.as_secs();
                return Some(format!(
                    "the API server has not answered for {seconds} s: {last}"
                ));
            }
        }
        if !self.is_declared {
            let reason = self.undeclared.clone();
            return Some(reason.unwrap_or_else(|| "the controllers are not known yet".to_owned()));
        }
        self.waiting.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Heartbeat = Heartbeat(Instant::ZERO);

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn ready() -> Readiness {
        let mut readiness = Readiness::default();
        readiness.set_declared();
        readiness.set_waiting(None);
        readiness
    }

    #[test]
    fn a_host_is_live_for_less_than_a_minute_after_its_task_ran() {
        assert!(START.is_live(at(0)));
        assert!(START.is_live(at(59)));
        assert!(!START.is_live(at(60)));
        assert!(Heartbeat(at(60)).is_live(at(60)));
        // A heartbeat that is written while the probe reads the clock.
        assert!(Heartbeat(at(61)).is_live(at(60)));
    }

    #[test]
    fn a_host_that_starts_is_not_ready_until_it_knows_its_controllers_and_none_waits() {
        let mut readiness = Readiness::default();
        let reasons = |readiness: &Readiness| readiness.reasons(START, at(1));
        assert_eq!(reasons(&readiness), ["the controllers are not known yet"]);
        readiness.set_undeclared("forbidden".to_owned());
        assert_eq!(reasons(&readiness), ["forbidden"]);
        readiness.set_declared();
        assert_eq!(reasons(&readiness), ["the host is starting"]);
        readiness.set_waiting(Some("podgc: its modules are being loaded".to_owned()));
        assert_eq!(reasons(&readiness), ["podgc: its modules are being loaded"]);
        readiness.set_waiting(None);
        assert_eq!(reasons(&readiness), [""; 0]);
        // The last declarations hold.
        readiness.set_undeclared("forbidden".to_owned());
        assert_eq!(reasons(&readiness), [""; 0]);
    }

    #[test]
    fn a_short_absence_of_the_api_server_does_not_make_the_host_unready() {
        let mut readiness = ready();
        let absence = Absence {
            since: at(10),
            last: "GET /api/v1/pods: timed out".to_owned(),
        };
        readiness.set_absence(Some(absence));
        assert_eq!(readiness.reasons(START, at(24)), [""; 0]);
        assert_eq!(
            readiness.reasons(START, at(25)),
            ["the API server has not answered for 15 s: GET /api/v1/pods: timed out"]
        );
        readiness.set_absence(None);
        assert_eq!(readiness.reasons(START, at(26)), [""; 0]);
    }

    #[test]
    fn the_host_has_one_reason_and_each_controller_has_its_own() {
        let mut readiness = Readiness::default();
        readiness.set_controller("b", Some("its record cannot be written".to_owned()));
        readiness.set_controller("a", Some("its record cannot be read".to_owned()));
        readiness.set_absence(Some(Absence {
            since: at(0),
            last: "GET /: timed out".to_owned(),
        }));
        let of_controllers = [
            "a: its record cannot be read",
            "b: its record cannot be written",
        ];
        for (heartbeat, of_host) in [
            (START, STUCK),
            (
                Heartbeat(at(60)),
                "the API server has not answered for 60 s: GET /: timed out",
            ),
        ] {
            let reasons = readiness.reasons(heartbeat, at(60));
            assert_eq!(reasons[0], of_host);
            assert_eq!(reasons[1..], of_controllers);
        }
        readiness.set_controller("a", None);
        readiness.set_controller("b", None);
        assert_eq!(readiness.reasons(START, at(60)), [STUCK]);
    }
}
