//! The host's liveness and readiness: other parts of the host report reasons here, and
//! the probes return them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long the host's task may not run before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_mins(1);

/// Why a host is not live.
pub const STUCK: &str = "stuck: the host's task has not run for a minute";

/// How long the API server may be unreachable before the host is not ready.
const UNREACHABLE_AFTER: Duration = Duration::from_secs(15);

/// The state of the probes.
#[derive(Debug)]
pub struct Health {
    started: Instant,
    /// When the host's task last reported, in milliseconds since the start.
    last_heartbeat: AtomicU64,
    /// Whether the host knows its controllers.
    declared: AtomicBool,
    reasons: Mutex<Reasons>,
}

/// Why the host is not ready.
#[derive(Debug)]
struct Reasons {
    /// What a controller waits for before it starts.
    waiting: Option<String>,
    /// How long the API server has not answered any request, and why.
    unreachable: Option<(Duration, String)>,
    /// Why the host does not know its controllers.
    undeclared: Option<String>,
    /// The reasons by controller.
    controllers: BTreeMap<String, String>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            last_heartbeat: AtomicU64::new(0),
            declared: AtomicBool::new(false),
            reasons: Mutex::new(Reasons {
                waiting: Some("the host is starting".to_owned()),
                unreachable: None,
                undeclared: None,
                controllers: BTreeMap::new(),
            }),
        }
    }
}

impl Health {
    /// The host's task reports that it runs, and what its controllers wait for.
    pub fn heartbeat(&self, waiting: Option<String>) {
        self.reasons().waiting = waiting;
        self.last_heartbeat.store(self.millis(), Ordering::Relaxed);
    }

    /// Sets how long the API server has not answered any request, and why; none if it
    /// answers.
    pub fn set_unreachable(&self, unreachable: Option<(Duration, String)>) {
        self.reasons().unreachable = unreachable;
    }

    /// The host knows its controllers. Before that, no controller has a reason.
    pub fn set_declared(&self) {
        self.declared.store(true, Ordering::Relaxed);
    }

    /// Sets why the host does not know its controllers.
    pub fn set_undeclared(&self, reason: String) {
        self.reasons().undeclared = Some(reason);
    }

    /// Sets why a controller is not ready; none if it is.
    pub fn set_controller(&self, controller: &str, reason: Option<String>) {
        let controllers = &mut self.reasons().controllers;
        match reason {
            Some(reason) => drop(controllers.insert(controller.to_owned(), reason)),
            None => drop(controllers.remove(controller)),
        }
    }

    /// Drops the controllers that are gone.
    pub fn retain_controllers(&self, exists: impl Fn(&str) -> bool) {
        let controllers = &mut self.reasons().controllers;
        controllers.retain(|controller, _| exists(controller));
    }

    /// Whether the host's task runs.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let now = self.millis();
        let silent = now - self.last_heartbeat.load(Ordering::Relaxed).min(now);
        u128::from(silent) < STUCK_AFTER.as_millis()
    }

    /// Whether the host's task runs and knows its controllers, the API server
    /// answers, and no controller waits.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.not_ready().is_empty()
    }

    /// The reasons why the host is not ready, a sentence each; empty if it is ready.
    #[must_use]
    pub fn not_ready(&self) -> Vec<String> {
        let is_live = self.is_live();
        let is_declared = self.declared.load(Ordering::Relaxed);
        let reasons = self.reasons();
        let of_host = if is_live {
            reasons.of_host(is_declared)
        } else {
            Some(STUCK.to_owned())
        };
        let of_controllers = reasons.controllers.iter();
        let of_controllers =
            of_controllers.map(|(controller, reason)| format!("{controller}: {reason}"));
        of_host.into_iter().chain(of_controllers).collect()
    }

    fn reasons(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Reasons {
    fn of_host(&self, is_declared: bool) -> Option<String> {
        if let Some((lasted, last)) = &self.unreachable
            && *lasted >= UNREACHABLE_AFTER
        {
            let seconds = lasted.as_secs();
            return Some(format!(
                "the API server has not answered for {seconds} s: {last}"
            ));
        }
        if !is_declared {
            let reason = self.undeclared.clone();
            return Some(reason.unwrap_or_else(|| "the controllers are not known yet".to_owned()));
        }
        self.waiting.clone()
    }
}
