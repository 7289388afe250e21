//! What the record of a controller allows the host to do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use davit_core::api::{ControllerSpec, ControllerStatus, TrippedStatus};
use davit_core::control::{Requests, requests};
use davit_core::object::ObjectRef;
use davit_core::plan::{Plan, Step};
use davit_core::rollout::Role;
use davit_core::rollout::cohort::Share;
use davit_core::rollout::cohort::Unit;
use davit_core::store::Store;
use davit_core::time::{Instant, Now, Wall};
use davit_sim::Time;

use crate::records::Records;

/// The record of one controller, as far as the host knows it.
#[derive(Debug, Default)]
pub(super) struct KnownRecord {
    /// The last decision that the host knows to be recorded, and the number of decisions
    /// written by then.
    known: Option<(Arc<ControllerStatus>, usize)>,
    /// The decision that follows at the next [`Self::settle`].
    next: Option<(Arc<ControllerStatus>, usize)>,
    /// The stable revision that runs until the next one starts.
    running: Option<String>,
    /// The rolled-back revisions.
    rejected: BTreeSet<String>,
    /// The guardrails that defer plans.
    trips: BTreeMap<TripName, Hold>,
    tripping: BTreeMap<TripName, Hold>,
    /// Every trip that the host has read or decided to record.
    named: BTreeSet<TripName>,
    /// The trips that hold nothing back, because the limits are others.
    released: BTreeSet<TripName>,
    /// Whether the limits changed and the host may still record what tripped before.
    is_releasing: bool,
    /// When the limits last changed: what tripped until then holds nothing back.
    released_at: Option<Instant>,
    /// The last trip that an operator has reset.
    reset: Option<String>,
    /// Whether the cohorts changed after the last known decision.
    new_cohorts: bool,
}

/// The field of a guardrail, and when it tripped.
type TripName = (String, String);

/// Until when a guardrail defers plans; none: until a reset.
type Hold = Option<Instant>;

impl KnownRecord {
    pub(super) fn restarted(&mut self) {
        (self.known, self.next, self.running) = (None, None, None);
        self.trips.clear();
        self.tripping.clear();
        self.named.clear();
        self.released.clear();
        self.released_at = None;
        self.reset = None;
    }

    /// The host knows so many of the written decisions. Returns whether the last of them is
    /// another one than before.
    pub(super) fn acknowledge(
        &mut self,
        controller: &str,
        written: usize,
        records: &Records,
    ) -> bool {
        let all = records.written(controller);
        let last = written.checked_sub(1).and_then(|last| all.get(last));
        let last = last.cloned().unwrap_or_default();
        let changed = self.known.as_ref().is_none_or(|(known, _)| *known != last);
        self.next = Some((last, written));
        changed
    }

    pub(super) fn settle(&mut self) {
        if let Some((status, written)) = self.next.take() {
            // The record may still name a rejected revision that may run again.
            let known = self
                .known
                .as_ref()
                .and_then(|(known, _)| known.rejected.as_ref());
            if let Some(rejected) = &status.rejected
                && known != Some(rejected)
            {
                self.rejected.insert(rejected.revision.clone());
            }
            self.known = Some((status, written));
            self.new_cohorts = false;
        }
        self.trips.append(&mut self.tripping);
        self.is_releasing = false;
    }

    /// The host decides to record this status.
    pub(super) fn decided(&mut self, status: &ControllerStatus) {
        let names: Vec<TripName> = status.tripped.iter().map(name).collect();
        if self.is_releasing {
            self.released.extend(names.iter().cloned());
        }
        self.named.extend(names);
    }

    /// The host has read this record. A trip of an earlier host holds only while its limit
    /// is unchanged.
    pub(super) fn read_trips(&mut self, now: Now, jumped: bool, spec: Option<&ControllerSpec>) {
        let latest = self.next.as_ref().or(self.known.as_ref());
        let Some((status, _)) = latest.cloned() else {
            return;
        };
        self.decided(&status);
        let is_void = |trip: &&TrippedStatus| spec.is_some_and(|spec| !holds(trip, spec));
        let void = status.tripped.iter().filter(is_void);
        self.released.extend(void.map(name));
        self.take_trips(now, jumped);
    }

    /// Takes over the recorded trips.
    pub(super) fn take_trips(&mut self, now: Now, jumped: bool) {
        let latest = self.next.as_ref().or(self.known.as_ref());
        let Some((status, _)) = latest.cloned() else {
            return;
        };
        for trip in &status.tripped {
            let name = name(trip);
            let is_void = trip.until.is_some() && jumped;
            let is_reset = self.reset.as_ref().is_some_and(|at| trip.since <= *at);
            // The host may notice a trip only after the change.
            let is_late = self
                .released_at
                .zip(read(&trip.since))
                .is_some_and(|(at, since)| since <= now.wall_at(at));
            let is_released = self.released.contains(&name) || is_late;
            if is_released || is_reset || is_void || self.trips.contains_key(&name) {
                continue;
            }
            let until = trip
                .until
                .as_deref()
                .map(|until| read(until).map_or(now.instant, |until| now.instant_at(until)));
            self.tripping.insert(name, until);
        }
    }

    /// The limits changed: guardrails that tripped by now hold nothing back.
    pub(super) fn release(&mut self, now: Instant) {
        self.released_at = Some(now);
        self.trips.clear();
        self.tripping.clear();
        self.released.extend(self.named.iter().cloned());
        self.is_releasing = true;
    }

    /// The wall clock jumped: the end of a recorded trip is unknown.
    pub(super) fn forget_times(&mut self) {
        self.trips.retain(|_, until| until.is_none());
        self.tripping.retain(|_, until| until.is_none());
    }

    /// A revision that was rolled back may be rolled out again.
    pub(super) fn forgive(&mut self) {
        self.rejected.clear();
    }

    pub(super) fn cohort_changed(&mut self) {
        self.new_cohorts = true;
    }

    /// The host receives requests. Returns whether they reset the guardrails.
    pub(super) fn request(&mut self, asked: &Requests) -> bool {
        for value in [&asked.retry, &asked.swap, &asked.abandon]
            .into_iter()
            .flatten()
        {
            let revision = value.split('@').next().unwrap_or_default();
            self.rejected.remove(revision);
            if asked.abandon.as_ref() == Some(value) {
                // The revision that the spec describes replaces the lost one.
                self.rejected.clear();
            }
        }
        let Some(reset) = asked.reset.as_deref().map(requests::subject) else {
            return false;
        };
        let all = self.trips.keys().chain(self.tripping.keys());
        // A reset names the last trip and covers the earlier ones.
        let last = all.map(|(_, since)| since.as_str()).max();
        let resets = last.is_none_or(|last| last == reset);
        if resets {
            self.reset = Some(reset.to_owned());
            self.trips.clear();
            self.tripping.clear();
        }
        resets
    }

    /// The decisions that the record may hold: the last known one and every later one.
    fn window<'a>(
        &'a self,
        controller: &str,
        records: &'a Records,
    ) -> impl Iterator<Item = &'a ControllerStatus> {
        let known = self.known.as_ref().or(self.next.as_ref());
        let from = known.map_or(usize::MAX, |(_, written)| *written);
        let later = records.written(controller).get(from..).unwrap_or_default();
        let known = known.map(|(known, _)| &**known);
        known.into_iter().chain(later.iter().map(|one| &**one))
    }

    /// Whether the record allows calls of a revision.
    pub(super) fn may_run(
        &mut self,
        controller: &str,
        revision: &str,
        records: &Records,
    ) -> Result<(), String> {
        if self.rejected.contains(revision) {
            return Err(format!(
                "{controller}: {revision} runs, which was rolled back"
            ));
        }
        let is_candidate = self.window(controller, records).any(|status| {
            let candidate = status.candidate.as_ref();
            candidate.is_some_and(|one| one.revision == revision)
        });
        if is_candidate || self.is_stable(controller, revision, records) {
            return Ok(());
        }
        Err(format!(
            "{controller}: {revision} runs, which no record names"
        ))
    }

    /// Whether the record names a revision as stable.
    fn is_stable(&mut self, controller: &str, revision: &str, records: &Records) -> bool {
        if self.running.as_deref() == Some(revision) {
            return true;
        }
        let (mut is_stable, mut is_candidate) = (false, false);
        for status in self.window(controller, records) {
            let stable = status.stable.as_ref();
            is_stable |= stable.is_some_and(|one| one.revision == revision);
            let candidate = status.candidate.as_ref();
            is_candidate |= candidate.is_some_and(|one| one.revision == revision);
        }
        if is_stable && !is_candidate {
            // The former revision ran until now.
            self.running = Some(revision.to_owned());
        }
        is_stable
    }

    /// Whether the record assigns a target to a revision.
    pub(super) fn may_execute(
        &mut self,
        controller: &str,
        revision: &str,
        target: &ObjectRef,
        spec: Option<&ControllerSpec>,
        records: &Records,
    ) -> Result<(), String> {
        self.may_run(controller, revision, records)?;
        if self.is_stable(controller, revision, records) {
            return Ok(());
        }
        let mut window = self.window(controller, records);
        let owns = window.any(|status| {
            let candidate = status.candidate.as_ref();
            candidate
                .filter(|one| one.revision == revision)
                .is_some_and(|one| self.new_cohorts || owns(target, one.weight, spec))
        });
        if owns {
            return Ok(());
        }
        Err(format!(
            "{controller}: the candidate {revision} writes to {target}, which no record assigns \
             to it"
        ))
    }

    /// The tripped guardrail that should defer a plan that writes.
    pub(super) fn deferred_by(
        &self,
        controller: &str,
        plan: &Plan,
        now: Instant,
    ) -> Option<String> {
        let deletes = plan
            .steps
            .iter()
            .any(|step| matches!(step, Step::Delete(_) | Step::Evict(_)));
        let mut trips = self.trips.iter();
        let (name, _) = trips.find(|((guardrail, _), until)| {
            let concerned = deletes || guardrail == "writesPerMinute";
            concerned && until.is_none_or(|until| now < until)
        })?;
        let (guardrail, since) = name;
        Some(format!(
            "{controller} executes a plan for {}, and {guardrail} has tripped at {since}",
            plan.target
        ))
    }
}

/// Reads a point in time, to the second before it.
fn read(text: &str) -> Option<Wall> {
    Time::parse(text).map(|at| Wall(at.unix().saturating_mul(1000)))
}

fn name(trip: &TrippedStatus) -> TripName {
    (trip.guardrail.clone(), trip.since.clone())
}

/// Whether a trip of an earlier host holds by this spec.
fn holds(trip: &TrippedStatus, spec: &ControllerSpec) -> bool {
    let limits = &spec.guardrails;
    match trip.guardrail.as_str() {
        "writesPerMinute" => limits.writes_per_minute == Some(trip.limit),
        "deletesPerMinute" => limits.deletes_per_minute == Some(trip.limit),
        _ => limits.deletes_percent_per_minute.is_some(),
    }
}

/// Whether a candidate of this weight owns a target. Where that depends on the cache, the
/// candidate may own every target.
fn owns(target: &ObjectRef, weight: u8, spec: Option<&ControllerSpec>) -> bool {
    let Some(cohort) = spec.map(|spec| &spec.rollout.cohort) else {
        return weight > 0;
    };
    if !matches!(cohort.unit, Unit::Uid | Unit::Namespace) {
        return weight > 0;
    }
    let share = Share {
        cohort: cohort.clone(),
        weight,
    };
    share.owner(target, &Store::default().snapshot()) == Role::Candidate
}
