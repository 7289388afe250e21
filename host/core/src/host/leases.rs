//! The leases of a host: what its two halves learn from the elections, and what the
//! elections learn from them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Effect, Host};
use crate::control::Control;
use crate::election::{ControllerActivity, Elections, LeaseAnswer, LeaseRequestId, LeaseTiming};
use crate::machine::Machine;
use crate::time::{Instant, Now};

/// How long after its start a host is not ready while a controller does not run that no other
/// replica runs.
const STARTS_FOR: Duration = Duration::from_mins(1);

/// The settings of leader election.
#[derive(Clone, Debug)]
pub struct LeaseSettings {
    /// The identity of this run of this replica.
    pub identity: String,
    /// The timing.
    pub timing: LeaseTiming,
}

/// The elections, and what the halves of the host know of them.
#[derive(Debug)]
pub(super) struct Leases {
    elections: Elections,
    started: Instant,
    /// Until when this replica leads each controller, as the halves of the host know.
    terms: BTreeMap<String, Instant>,
    /// Until when requests of each controller may be sent, as the driver knows, or will.
    sent: BTreeMap<String, Instant>,
    /// The terms that the driver does not know yet.
    news: VecDeque<(String, Option<Instant>)>,
    /// When the elections are polled next.
    due: Instant,
}

impl Leases {
    pub(super) fn new(settings: &LeaseSettings, now: Instant) -> Self {
        Self {
            elections: Elections::new(&settings.identity, settings.timing, now),
            started: now,
            terms: BTreeMap::new(),
            sent: BTreeMap::new(),
            news: VecDeque::new(),
            due: now,
        }
    }

    /// What the elections depend on may have changed.
    pub(super) fn end_rest(&mut self, now: Instant) {
        self.due = now;
    }

    /// Gives all leases to other replicas, as soon as nothing is under way and every decision is
    /// recorded.
    pub(super) fn stop(&mut self, now: Instant) {
        self.elections.stop(now);
        self.due = now;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.elections.is_stopped()
    }

    /// Why this replica takes part in no election.
    pub(super) fn failure(&self) -> Option<String> {
        let failure = self.elections.failure()?;
        Some(format!("leader election: {failure}"))
    }

    /// Whether this host is not ready while a controller does not run here.
    pub(super) fn counts(&self, controller: &str, now: Instant) -> bool {
        now.since(self.started) < STARTS_FOR || self.is_lacking(controller)
    }

    /// Whether another replica can run a controller, and this one cannot.
    pub(super) fn is_lacking(&self, controller: &str) -> bool {
        self.elections.is_lacking(controller)
    }

    pub(super) fn handle(&mut self, now: Now, id: LeaseRequestId, answer: LeaseAnswer) {
        self.elections.handle(now, id, answer);
        self.due = now.instant;
    }

    /// Follows the elections. Returns whether a term has started, ended or become longer.
    fn follow(&mut self, now: Instant) -> bool {
        let elections = &self.elections;
        let changes = update(&mut self.sent, elections.request_terms(now));
        self.news.extend(changes);
        !update(&mut self.terms, elections.terms(now)).is_empty()
    }
}

/// Updates the terms; returns those that have changed. Both are ordered by controller.
fn update<'a>(
    known: &mut BTreeMap<String, Instant>,
    present: impl Iterator<Item = (&'a str, Instant)> + Clone,
) -> Vec<(String, Option<Instant>)> {
    let is_same = present
        .clone()
        .zip(&*known)
        .all(|((name, until), (known, at))| known == name && *at == until);
    if is_same && present.clone().count() == known.len() {
        return Vec::new();
    }
    let present: BTreeMap<&str, Instant> = present.collect();
    let ended = known.extract_if(.., |name, _| !present.contains_key(name.as_str()));
    let mut changes: Vec<_> = ended.map(|(name, _)| (name, None)).collect();
    for (name, until) in present {
        if known.get(name) != Some(&until) {
            known.insert(name.to_owned(), until);
            changes.push((name.to_owned(), Some(until)));
        }
    }
    changes
}

impl<G: Clone> Host<G> {
    /// Passes to both halves of the host for which controllers they may work.
    pub(super) fn note_terms(&mut self, now: Now) {
        let Some(leases) = self.leases.as_mut().filter(|one| one.due <= now.instant) else {
            return;
        };
        if !leases.elections.are_of(self.control.names()) {
            let names: BTreeSet<String> = self.control.names().cloned().collect();
            leases.elections.set_controllers(&names, now.instant);
        }
        if leases.follow(now.instant) {
            let held = leases.terms.keys().cloned().collect();
            let mut passing: BTreeSet<&str> = leases.sent.keys().map(String::as_str).collect();
            passing.retain(|name| !leases.terms.contains_key(*name));
            self.control.lead(now, held, &passing);
            self.machine.set_terms(now, leases.terms.clone());
        }
    }

    /// Decides which leases are given away. Returns whether there are any of which the halves
    /// of the host do not know yet: they pass on after what they have to write before.
    pub(super) fn give_leases_away(&mut self, now: Instant) -> bool {
        let Some(leases) = self.leases.as_mut().filter(|one| one.due <= now) else {
            return false;
        };
        let (control, machine) = (&self.control, &self.machine);
        let activity = |controller: &str| activity(control, machine, controller);
        leases.elections.advance(now, activity);
        let held = leases.elections.terms(now).map(|(name, _)| name);
        !held.eq(leases.terms.keys().map(String::as_str))
    }

    /// The next effect of the elections.
    pub(super) fn poll_leases(&mut self, now: Now) -> Option<Effect<G>> {
        let leases = self.leases.as_mut()?;
        if let Some((controller, until)) = leases.news.pop_front() {
            return Some(Effect::Term { controller, until });
        }
        if leases.due > now.instant {
            return None;
        }
        let request = leases.elections.poll(now);
        if request.is_none() {
            leases.due = leases.elections.next_wake(now.instant);
        }
        request.map(Effect::Lease)
    }

    /// When the elections are due.
    pub(super) fn leases_wake(&self) -> Instant {
        let leases = self.leases.as_ref();
        leases.map_or(Instant::FAR_FUTURE, |leases| leases.due)
    }
}

fn activity<G: Clone>(
    control: &Control<G>,
    machine: &Machine<G>,
    controller: &str,
) -> ControllerActivity {
    let is_recording = control.is_recording(controller);
    ControllerActivity {
        history: control.history(controller),
        is_executing: is_recording || machine.is_executing(controller),
        is_recording,
        is_ready: control.has_applied_stable(controller) && machine.is_ready(controller),
    }
}
