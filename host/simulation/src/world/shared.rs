//! What all hosts share: time, the server, the records and the network.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use davit_core::events::EventStats;
use davit_core::time::Instant;
use davit_sim::Time;

use super::{Conditions, WorldEvent, Write};
use crate::dice::Dice;
use crate::fault::FaultKind;
use crate::records::Records;
use crate::schedule::Schedule;
use crate::server::Server;
use crate::trace::Trace;

/// The kinds that each controller deletes only after a copy, by its name. Whoever declares the
/// controllers says it: the hosts may be wrong about it.
pub type UndoneKinds = BTreeMap<String, BTreeSet<String>>;

/// What all hosts share.
#[derive(Debug)]
pub(super) struct SharedWorld {
    pub(super) instant: Instant,
    /// The server's time when the world's clock is at zero.
    pub(super) base: Time,
    pub(super) dice: Dice,
    pub(super) server: Server,
    pub(super) conditions: Conditions,
    pub(super) trace: Trace,
    pub(super) schedule: Schedule<WorldEvent>,
    pub(super) records: Records,
    /// The owner's reminders that a host should receive a changed status.
    pub(super) status_reminders: Vec<u64>,
    pub(super) writes: Vec<Write>,
    pub(super) violations: Vec<String>,
    /// How often each fault occurred.
    pub(super) faults: BTreeMap<FaultKind, usize>,
    /// The counts of events of the hosts that crashed.
    pub(super) lost_events: EventStats,
    /// The uids of the objects that hosts have kept.
    pub(super) kept: BTreeSet<String>,
    /// What must be kept before it is deleted, whatever the hosts think.
    pub(super) undo: UndoneKinds,
    pub(super) last_id: u64,
}

impl SharedWorld {
    /// The time of the server's clock. It never jumps.
    pub(super) fn time(&self) -> Time {
        let since = i64::try_from(self.instant.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
        self.base.after(since)
    }

    /// Adds a line to the trace.
    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        self.trace.note(self.instant, what);
    }

    /// A host broke a rule.
    pub(super) fn violated(&mut self, what: String) {
        self.note(format_args!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// A fault occurs.
    pub(super) fn count(&mut self, fault: FaultKind) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(super) fn latency(&mut self) -> Duration {
        self.dice.duration(&self.conditions.latency)
    }

    pub(super) fn schedule(&mut self, at: Instant, due: WorldEvent) {
        self.schedule.add(at, due, &mut self.dice);
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
