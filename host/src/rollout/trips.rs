//! Guardrails that have tripped: since when, until when, and what is said of
//! each.

use davit_core::budget::{Guardrail, Trip};
use davit_core::desired::TrippedGuardrail;
use davit_core::observation::Observation;
use davit_core::rollout::Role;
use davit_core::time::{Now, Wall};
use jiff::Timestamp;

use super::managed::{Managed, Told, precise_time, time};
use davit_core::api::TrippedStatus;

/// Notes which guardrails hold plans back, and tells of those that are new.
pub(super) fn note_tripped(
    managed: &mut Managed,
    seen: Option<&Observation>,
    told: &mut Vec<Told>,
) {
    // Until it runs, what an earlier host wrote down holds.
    let Some(seen) = seen.filter(|seen| seen.stable.is_some()) else {
        return;
    };
    let mut tripped = Vec::new();
    let whole = seen.tripped.iter();
    for spent in whole.filter(|spent| spent.role == Role::Stable) {
        let said = said_before(managed, spent).unwrap_or_else(|| {
            let new = tripped_status(spent, &seen.now);
            told.push(Told {
                warning: true,
                reason: "GuardrailTripped",
                message: say_tripped(&new),
            });
            new
        });
        tripped.push((*spent, said));
    }
    if tripped.is_empty() && !managed.status.tripped.is_empty() {
        let message = "plans are let through again".to_owned();
        told.push(Told::normal("GuardrailReset", message));
    }
    let said = tripped.iter().map(|(_, said)| said.clone());
    managed.status.tripped = said.collect();
    managed.tripped = tripped;
}

/// What was said of a trip when it was first seen. It is told from another by
/// the monotonic clock: the wall clock may be set meanwhile, and what was said
/// of a trip stays what resets it.
fn said_before(managed: &Managed, spent: &Trip) -> Option<TrippedStatus> {
    let mut known = managed.tripped.iter();
    if let Some((_, said)) = known.find(|(known, _)| known == spent) {
        return Some(said.clone());
    }
    let mut said = managed.status.tripped.iter();
    let said = said.find(|said| said.guardrail == spent.guardrail.field());
    said.filter(|_| spent.since.is_none()).cloned()
}

/// What an earlier host said of a trip; none if it makes no sense.
pub(super) fn remembered_trip(said: &TrippedStatus) -> Option<TrippedGuardrail> {
    let mut all = Guardrail::ALL.into_iter();
    let until = match &said.until {
        None => None,
        Some(until) => Some(Wall(until.parse::<Timestamp>().ok()?.as_millisecond())),
    };
    Some(TrippedGuardrail {
        guardrail: all.find(|guardrail| guardrail.field() == said.guardrail)?,
        limit: said.limit,
        until,
    })
}

fn tripped_status(spent: &Trip, now: &Now) -> TrippedStatus {
    let at = |instant| {
        let millis = now.wall_at(instant).0;
        Timestamp::from_millisecond(millis).unwrap_or_default()
    };
    TrippedStatus {
        guardrail: spent.guardrail.field().to_owned(),
        limit: spent.limit,
        // To the millisecond: it names this trip, which may soon be followed by
        // another.
        since: precise_time(at(spent.since.unwrap_or(now.instant))),
        until: spent.until.map(|until| time(at(until))),
    }
}

pub(super) fn say_tripped(tripped: &TrippedStatus) -> String {
    let TrippedStatus {
        guardrail, limit, ..
    } = tripped;
    let until = match &tripped.until {
        Some(until) => format!("until {until}, or until it is reset"),
        None => "until it is reset".to_owned(),
    };
    format!(
        "the guardrail {guardrail} of {limit} plans in 60 seconds is used up: further plans wait \
         {until} (davit reset)"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use davit_core::digest::ModuleDigest;
    use davit_core::revision::RevisionIdentity;
    use davit_core::time::Instant;

    use super::*;
    use davit_core::api::ControllerStatus;
    use davit_core::api::LimitConfig;

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

    /// What a controller runs.
    fn identity() -> RevisionIdentity {
        RevisionIdentity::new(
            ModuleDigest([7; 32]),
            Arc::default(),
            LimitConfig::default(),
        )
    }

    fn observation(tripped: &[Trip], seconds: u64, ahead: i64) -> Observation {
        Observation {
            stable: Some(identity()),
            pending: None,
            complete: true,
            circuit_open: None,
            candidate: None,
            tripped: tripped.to_vec(),
            now: Now {
                instant: at(seconds),
                wall: Wall(NOON + 1000 * ahead),
            },
        }
    }

    /// Looks at a controller so many seconds after its start, with a wall clock
    /// that is so many ahead of noon; returns the reasons of what is told.
    fn look(
        managed: &mut Managed,
        tripped: &[Trip],
        seconds: u64,
        ahead: i64,
    ) -> Vec<&'static str> {
        let seen = observation(tripped, seconds, ahead);
        let mut told = Vec::new();
        note_tripped(managed, Some(&seen), &mut told);
        told.iter().map(|told| told.reason).collect()
    }

    fn since(managed: &Managed) -> &str {
        managed.status.last_trip().unwrap_or_default()
    }

    /// The time that was told is what resets it: it may not move.
    #[test]
    fn a_trip_is_told_once_whatever_the_wall_clock_does() {
        let mut managed = Managed::new("podgc", ControllerStatus::default());
        let first = [tripped_since(at(10))];
        assert_eq!(look(&mut managed, &first, 11, 0), ["GuardrailTripped"]);
        assert_eq!(since(&managed), "2026-11-20T11:59:59.000Z");
        assert!(look(&mut managed, &first, 12, 3600).is_empty());
        assert_eq!(since(&managed), "2026-11-20T11:59:59.000Z");
        // Reset, it trips again at once: that is another one.
        let second = [tripped_since(at(12))];
        assert_eq!(look(&mut managed, &second, 12, 1), ["GuardrailTripped"]);
        assert_eq!(since(&managed), "2026-11-20T12:00:01.000Z");
        assert_eq!(look(&mut managed, &[], 13, 2), ["GuardrailReset"]);
        assert!(look(&mut managed, &[], 14, 3).is_empty());
    }

    fn remembered() -> Managed {
        let tripped = TrippedStatus {
            guardrail: "deletesPerMinute".into(),
            limit: 3,
            since: "2026-11-20T08:00:00.000Z".into(),
            until: Some("2026-11-20T12:05:00Z".into()),
        };
        let status = ControllerStatus {
            tripped: vec![tripped],
            ..ControllerStatus::default()
        };
        Managed::new("podgc", status)
    }

    #[test]
    fn a_trip_outlives_the_host() {
        let mut managed = remembered();
        let trips: Vec<TrippedGuardrail> = managed
            .status
            .tripped
            .iter()
            .filter_map(remembered_trip)
            .collect();
        let until = Some(Wall(NOON + 300_000));
        let (guardrail, limit) = (Guardrail::Deletes, 3);
        assert_eq!(
            trips,
            [TrippedGuardrail {
                guardrail,
                limit,
                until
            }]
        );
        // As the host has it that resumed it.
        let resumed = Trip {
            since: None,
            until: Some(at(300)),
            ..tripped_since(at(0))
        };
        assert!(look(&mut managed, &[resumed], 1, 0).is_empty());
        assert_eq!(since(&managed), "2026-11-20T08:00:00.000Z");
        assert_eq!(look(&mut managed, &[], 301, 0), ["GuardrailReset"]);
        assert_eq!(managed.status.tripped, []);
    }

    /// Until it runs nobody can say whether its guardrails hold.
    #[test]
    fn a_trip_is_not_forgotten_before_the_controller_runs() {
        let mut managed = remembered();
        let mut told = Vec::new();
        let seen = Observation {
            stable: None,
            ..observation(&[], 1, 0)
        };
        note_tripped(&mut managed, Some(&seen), &mut told);
        note_tripped(&mut managed, None, &mut told);
        assert!(told.is_empty());
        assert_eq!(since(&managed), "2026-11-20T08:00:00.000Z");
    }

    #[test]
    fn each_guardrail_that_trips_is_told() {
        let mut managed = Managed::new("podgc", ControllerStatus::default());
        let deletes = tripped_since(at(10));
        let writes = Trip {
            guardrail: Guardrail::Writes,
            limit: 9,
            ..tripped_since(at(11))
        };
        assert_eq!(look(&mut managed, &[deletes], 10, 0), ["GuardrailTripped"]);
        let both = [deletes, writes];
        assert_eq!(look(&mut managed, &both, 11, 0), ["GuardrailTripped"]);
        let said = managed.status.tripped.iter();
        let said: Vec<&str> = said.map(|one| one.guardrail.as_str()).collect();
        assert_eq!(said, ["deletesPerMinute", "writesPerMinute"]);
        assert!(look(&mut managed, &[writes], 12, 0).is_empty());
        assert_eq!(look(&mut managed, &[], 13, 0), ["GuardrailReset"]);
    }
}
