//! Tripped guardrails: since when, until when, and their status.

use super::notice::Notice;
use crate::api::TrippedStatus;
use crate::budget::{Guardrail, Trip};
use crate::desired::TrippedGuardrail;
use crate::mutant::Mutant;
use crate::observation::Observation;
use crate::rollout::Role;
use crate::time::Now;
use crate::times;

/// The tripped guardrails of a controller.
#[derive(Clone, Debug, Default)]
pub(super) struct Trips {
    /// The trips that this host has observed, each with its status.
    observed: Vec<(Trip, TrippedStatus)>,
    /// The status.
    statuses: Vec<TrippedStatus>,
    /// The trips that hold when the controller starts: those of the status.
    resumed: Vec<TrippedGuardrail>,
    /// Whether the controller runs, so that its trips are known.
    are_observed: bool,
}

impl Trips {
    /// The trips of a record.
    pub(super) fn restore(statuses: &[TrippedStatus]) -> Self {
        Self {
            observed: Vec::new(),
            statuses: statuses.to_vec(),
            resumed: all_resumed(statuses),
            are_observed: false,
        }
    }

    /// Continues from a record. A trip that this host has observed and that the record names
    /// keeps its status.
    pub(super) fn continue_from(&mut self, statuses: &[TrippedStatus]) {
        let mut observed = std::mem::take(&mut self.observed);
        observed.retain(|(_, status)| statuses.contains(status));
        *self = Self {
            observed,
            ..Self::restore(statuses)
        };
    }

    /// The operator has changed the guardrails. A controller that runs ends its trips itself.
    pub(super) fn end_unless_observed(&mut self) {
        if !self.are_observed {
            *self = Self::default();
        }
    }

    /// Their status.
    pub(super) fn statuses(&self) -> &[TrippedStatus] {
        &self.statuses
    }

    /// The trips that defer plans from the start of the controller: of a host, or once it may run
    /// again.
    pub(super) fn resumed(&self) -> &[TrippedGuardrail] {
        &self.resumed
    }

    /// Handles an observation, and adds a notice for each new trip.
    pub(super) fn observe(&mut self, seen: Option<&Observation>, notices: &mut Vec<Notice>) {
        // Until the controller runs, the record of the earlier host applies.
        let seen = seen.filter(|seen| seen.stable.is_some());
        self.are_observed = seen.is_some();
        let Some(seen) = seen else { return };
        let mut observed = Vec::new();
        let whole = seen.tripped.iter();
        for trip in whole.filter(|trip| trip.role == Role::Stable) {
            let status = self.known(trip).unwrap_or_else(|| {
                let status = status_of(trip, &seen.now);
                notices.push(Notice::warning("GuardrailTripped", describe(&status)));
                status
            });
            observed.push((*trip, status));
        }
        if observed.is_empty() && !self.statuses.is_empty() {
            let message = "plans are admitted again".to_owned();
            notices.push(Notice::normal("GuardrailReset", message));
        }
        let statuses = observed.iter().map(|(_, status)| status.clone());
        self.statuses = statuses.collect();
        self.resumed = all_resumed(&self.statuses);
        self.observed = observed;
    }

    /// The status of a known trip. The monotonic clock identifies it: the wall clock
    /// may be set, and the recorded time of a trip must not change, because a reset
    /// names it.
    fn known(&self, trip: &Trip) -> Option<TrippedStatus> {
        let mut observed = self.observed.iter();
        if let Some((_, status)) = observed.find(|(known, _)| known == trip) {
            return Some(status.clone());
        }
        let mut recorded = self.statuses.iter();
        let recorded = recorded.find(|one| one.guardrail == trip.guardrail.field());
        recorded.filter(|_| trip.since.is_none()).cloned()
    }
}

/// The trips of a status.
fn all_resumed(statuses: &[TrippedStatus]) -> Vec<TrippedGuardrail> {
    if Mutant::ForgetTrips.is_active() {
        return Vec::new();
    }
    statuses.iter().filter_map(resumed).collect()
}

/// A recorded trip; none if it is invalid.
fn resumed(status: &TrippedStatus) -> Option<TrippedGuardrail> {
    let mut all = Guardrail::ALL.into_iter();
    let until = match &status.until {
        None => None,
        Some(until) => Some(times::read(until)?),
    };
    Some(TrippedGuardrail {
        guardrail: all.find(|guardrail| guardrail.field() == status.guardrail)?,
        limit: status.limit,
        until,
    })
}

fn status_of(trip: &Trip, now: &Now) -> TrippedStatus {
    TrippedStatus {
        guardrail: trip.guardrail.field().to_owned(),
        limit: trip.limit,
        // To the millisecond: the time identifies this trip, and another may follow
        // soon.
        since: times::precise_time(now.wall_at(trip.since.unwrap_or(now.instant))),
        until: trip.until.map(|until| times::time(now.wall_at(until))),
    }
}

/// The message about a tripped guardrail.
pub(super) fn describe(tripped: &TrippedStatus) -> String {
    let TrippedStatus {
        guardrail, limit, ..
    } = tripped;
    let until = match &tripped.until {
        Some(until) => format!("until {until}, or until it is reset"),
        None => "until it is reset".to_owned(),
    };
    let unit = Guardrail::ALL
        .into_iter()
        .find(|one| one.field() == guardrail);
    let unit = unit.map_or("plans", Guardrail::unit);
    format!(
        "the guardrail {guardrail} of {limit} {unit} in 60 seconds tripped: further plans wait \
         {until} (davit reset)"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::api::LimitConfig;
    use crate::digest::ModuleDigest;
    use crate::revision::RevisionIdentity;
    use crate::time::{Instant, Wall};

    const NOON: i64 = 1_795_176_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn tripped_since(since: Instant) -> Trip {
        Trip {
            guardrail: Guardrail::Deletes,
            limit: 3,
            role: Role::Stable,
            since: Some(since),
            until: None,
        }
    }

    fn observation(tripped: &[Trip], seconds: u64, ahead: i64) -> Observation {
        Observation {
            stable: Some(RevisionIdentity::new(
                ModuleDigest([7; 32]),
                Arc::default(),
                LimitConfig::default(),
            )),
            executes: true,
            pending: None,
            complete: true,
            interrupted: None,
            circuit_open: None,
            recent: None,
            refused: None,
            deferred_deletions: None,
            reports: Vec::new(),
            idle_undo_kinds: None,
            candidate: None,
            tripped: tripped.to_vec(),
            forbidden: 0,
            cluster: None,
            now: Now {
                instant: at(seconds),
                wall: Wall(NOON + 1000 * ahead),
            },
        }
    }

    /// Observes a controller this many seconds after its start, with a wall clock this
    /// far ahead of noon; returns the reasons of the notices.
    fn observe(trips: &mut Trips, tripped: &[Trip], seconds: u64, ahead: i64) -> Vec<&'static str> {
        let seen = observation(tripped, seconds, ahead);
        let mut notices = Vec::new();
        trips.observe(Some(&seen), &mut notices);
        notices.iter().map(|notice| notice.reason).collect()
    }

    fn since(trips: &Trips) -> &str {
        trips.statuses().last().map_or("", |last| &last.since)
    }

    /// A request names the time in the status to reset the trip, so the time must not
    /// change.
    #[test]
    fn a_trip_has_one_notice_whatever_the_wall_clock_does() {
        let mut trips = Trips::default();
        let first = [tripped_since(at(10))];
        assert_eq!(observe(&mut trips, &first, 11, 0), ["GuardrailTripped"]);
        assert_eq!(since(&trips), "2026-11-20T11:59:59.000Z");
        assert!(observe(&mut trips, &first, 12, 3600).is_empty());
        assert_eq!(since(&trips), "2026-11-20T11:59:59.000Z");
        // After the reset it trips again: that is another trip.
        let second = [tripped_since(at(12))];
        assert_eq!(observe(&mut trips, &second, 12, 1), ["GuardrailTripped"]);
        assert_eq!(since(&trips), "2026-11-20T12:00:01.000Z");
        assert_eq!(observe(&mut trips, &[], 13, 2), ["GuardrailReset"]);
        assert!(observe(&mut trips, &[], 14, 3).is_empty());
    }

    /// The wall clock and the monotonic clock do not run at the same speed.
    #[test]
    fn a_trip_is_the_same_one_after_the_lease_was_away() {
        let mut trips = Trips::default();
        let trip = [tripped_since(at(10))];
        assert_eq!(observe(&mut trips, &trip, 11, 0), ["GuardrailTripped"]);
        let recorded = trips.statuses().to_vec();
        trips.continue_from(&recorded);
        assert!(observe(&mut trips, &trip, 12, 3).is_empty());
        assert_eq!(trips.statuses(), recorded);
        // Another host has recorded that there is no trip any more: this is another one.
        trips.continue_from(&[]);
        assert_eq!(observe(&mut trips, &trip, 13, 3), ["GuardrailTripped"]);
        assert_ne!(trips.statuses(), recorded);
    }

    fn recorded() -> Trips {
        Trips::restore(&[TrippedStatus {
            guardrail: "deletesPerMinute".into(),
            limit: 3,
            since: "2026-11-20T08:00:00.000Z".into(),
            until: Some("2026-11-20T12:05:00Z".into()),
        }])
    }

    #[test]
    fn a_trip_outlives_the_host() {
        let mut trips = recorded();
        let expected = TrippedGuardrail {
            guardrail: Guardrail::Deletes,
            limit: 3,
            until: Some(Wall(NOON + 300_000)),
        };
        assert_eq!(trips.resumed(), [expected]);
        // The trip as the host that resumed it observes it.
        let resumed = Trip {
            since: None,
            until: Some(at(300)),
            ..tripped_since(at(0))
        };
        assert!(observe(&mut trips, &[resumed], 1, 0).is_empty());
        assert_eq!(since(&trips), "2026-11-20T08:00:00.000Z");
        assert_eq!(observe(&mut trips, &[], 301, 0), ["GuardrailReset"]);
        assert_eq!(trips.statuses(), []);
    }

    /// Until the controller runs, it is unknown whether its guardrails hold.
    #[test]
    fn a_trip_is_not_forgotten_before_the_controller_runs() {
        let mut trips = recorded();
        let mut notices = Vec::new();
        let seen = Observation {
            stable: None,
            ..observation(&[], 1, 0)
        };
        trips.observe(Some(&seen), &mut notices);
        trips.observe(None, &mut notices);
        assert!(notices.is_empty());
        assert_eq!(since(&trips), "2026-11-20T08:00:00.000Z");
    }

    #[test]
    fn each_guardrail_that_trips_has_a_notice() {
        let mut trips = Trips::default();
        let deletes = tripped_since(at(10));
        let writes = Trip {
            guardrail: Guardrail::Writes,
            limit: 9,
            ..tripped_since(at(11))
        };
        assert_eq!(observe(&mut trips, &[deletes], 10, 0), ["GuardrailTripped"]);
        let both = [deletes, writes];
        assert_eq!(observe(&mut trips, &both, 11, 0), ["GuardrailTripped"]);
        let said = trips.statuses().iter();
        let said: Vec<&str> = said.map(|one| one.guardrail.as_str()).collect();
        assert_eq!(said, ["deletesPerMinute", "writesPerMinute"]);
        assert!(observe(&mut trips, &[writes], 12, 0).is_empty());
        assert_eq!(observe(&mut trips, &[], 13, 0), ["GuardrailReset"]);
    }
}
