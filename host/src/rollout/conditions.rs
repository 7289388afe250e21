//! How a controller is, in Kubernetes' conditions and in a few words.

use davit_core::budget::{Spent, What};
use davit_core::rollout::Role;
use davit_core::time::{Now, Wall};
use davit_engine::LoadError;
use jiff::Timestamp;

use super::managed::{Managed, Told, precise_time, time};
use super::revision::Problem;
use crate::host::{Observation, Reason, Tripped};
use crate::modules::ModuleError;
use crate::spec::ModeConfig;
use crate::status::{ConditionStatus, ControllerStatus, LostStatus, TrippedStatus};

const RESOLVED: &str = "Resolved";
const VERIFIED: &str = "Verified";
const COMPILED: &str = "Compiled";
const CONFIGURED: &str = "Configured";
/// What a revision goes through before it can run, in this order.
const PREPARATION: [&str; 4] = [RESOLVED, VERIFIED, COMPILED, CONFIGURED];

/// The condition that an error belongs to, and its reason in one word.
pub(super) fn of(reason: &Reason) -> (&'static str, &'static str) {
    match reason {
        Reason::Module(ModuleError::OtherDigest { .. }) => (VERIFIED, "OtherDigest"),
        Reason::Module(_) => (RESOLVED, "NotFound"),
        Reason::Load(LoadError::Compile(_)) => (COMPILED, "NotWasm"),
        Reason::Load(_) => (VERIFIED, "NoGuest"),
        Reason::Describe(_) | Reason::Encode(_) => (CONFIGURED, "Refused"),
    }
}

/// A spec that makes no sense.
pub(super) fn bad_spec(message: String) -> Problem {
    Problem {
        condition: CONFIGURED,
        reason: "BadSpec",
        message,
    }
}

/// Writes down how the controller is.
pub(super) fn describe(
    managed: &mut Managed,
    seen: Option<&Observation>,
    now: Timestamp,
    told: &mut Vec<Told>,
) {
    note_tripped(managed, seen, told);
    managed.status.observed_generation = managed.generation;
    let mut conditions = preparation(managed);
    conditions.push(synced(managed, seen));
    conditions.push(("Leading", Some(true), "OnlyReplica", String::new()));
    conditions.push(progressing(managed));
    conditions.push(degraded(managed, seen));
    managed.status.summary = summary(managed, seen);
    let generation = managed.generation;
    for (type_, is, reason, message) in conditions {
        let status = match is {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let condition = ConditionStatus {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: time(now),
            observed_generation: generation,
        };
        set(&mut managed.status, condition);
    }
}

/// Type, status, reason and message of a condition.
type Said = (&'static str, Option<bool>, &'static str, String);

/// Sets a condition; its time changes with its status only.
fn set(status: &mut ControllerStatus, mut condition: ConditionStatus) {
    let same_type = |other: &&mut ConditionStatus| other.type_ == condition.type_;
    match status.conditions.iter_mut().find(same_type) {
        None => status.conditions.push(condition),
        Some(former) => {
            if former.status == condition.status {
                condition
                    .last_transition_time
                    .clone_from(&former.last_transition_time);
            }
            *former = condition;
        }
    }
}

fn preparation(managed: &Managed) -> Vec<Said> {
    let problem = managed.spec_error.as_ref();
    let problem = problem.map(|error| match &managed.spec {
        Some(_) => bad_spec(error.to_string()),
        // Mode, permissions, guardrails and account stand there alone.
        None => bad_spec(format!(
            "{error}; nothing runs until the spec says again how it may"
        )),
    });
    let problem = problem.as_ref().or(managed.problem.as_ref());
    let is_over = managed.desired.is_some();
    let failed_at = problem.and_then(|problem| {
        let mut all = PREPARATION.iter();
        all.position(|type_| *type_ == problem.condition)
    });
    let said = |(position, type_): (usize, &'static str)| match (problem, failed_at) {
        (Some(problem), Some(failed_at)) if position == failed_at => {
            (type_, Some(false), problem.reason, problem.message.clone())
        }
        (_, Some(failed_at)) if position > failed_at => (type_, None, "NotReached", String::new()),
        (_, None) if !is_over => (type_, None, "UnderWay", String::new()),
        _ => (type_, Some(true), type_, String::new()),
    };
    PREPARATION.into_iter().enumerate().map(said).collect()
}

fn synced(managed: &Managed, seen: Option<&Observation>) -> Said {
    let running = seen.and_then(|seen| seen.stable.as_ref());
    let stable = managed.stable.as_ref();
    match (running, stable) {
        (Some(running), Some(stable)) if *running == stable.prepared.recipe => {
            if seen.is_some_and(|seen| seen.complete) {
                ("Synced", Some(true), "Synced", String::new())
            } else {
                let message = "a resource that it watches is not served".to_owned();
                ("Synced", Some(false), "NotServed", message)
            }
        }
        _ => {
            let message = "its watches are not complete yet".to_owned();
            ("Synced", Some(false), "Waiting", message)
        }
    }
}

fn progressing(managed: &Managed) -> Said {
    let status = &managed.status;
    match (&status.candidate, &status.rejected) {
        (Some(candidate), _) => {
            let message = format!(
                "{}: step {} of {}, {}: {}",
                candidate.revision,
                candidate.step,
                candidate.steps,
                candidate.step_text,
                candidate.waits_for
            );
            ("Progressing", Some(true), "Rollout", message)
        }
        (None, Some(rejected)) => {
            let message = format!(
                "{} was taken back in step {}: {}",
                rejected.revision, rejected.step, rejected.reason
            );
            ("Progressing", Some(false), "RolledBack", message)
        }
        (None, None) => ("Progressing", Some(false), "Stable", String::new()),
    }
}

fn degraded(managed: &Managed, seen: Option<&Observation>) -> Said {
    if let Some(lost) = &managed.status.lost {
        return (
            "Degraded",
            Some(true),
            "StableLost",
            say_lost(managed, lost),
        );
    }
    let tripped = managed.status.tripped.iter().map(say_tripped);
    let tripped: Vec<String> = tripped.collect();
    if !tripped.is_empty() {
        return ("Degraded", Some(true), "Guardrail", tripped.join("; "));
    }
    if let Some(reason) = seen.and_then(|seen| seen.quarantined.as_ref()) {
        let message = format!("its guest is not called for a while: {reason}");
        return ("Degraded", Some(true), "Quarantined", message);
    }
    ("Degraded", Some(false), "Healthy", String::new())
}

/// How things are, in a few words: what an operator has to act on comes first.
fn summary(managed: &Managed, seen: Option<&Observation>) -> String {
    let status = &managed.status;
    if let Some(error) = &managed.spec_error {
        return format!("spec.{error}");
    }
    if let (_, Some(true), _, message) = degraded(managed, seen) {
        return message;
    }
    if let Some(problem) = &managed.problem {
        return problem.message.clone();
    }
    if let Some(candidate) = &status.candidate {
        return format!("trying: {}", candidate.waits_for);
    }
    if let Some(rejected) = &status.rejected {
        return format!("{} taken back: {}", rejected.revision, rejected.reason);
    }
    match managed.spec.as_ref().map(|spec| spec.mode) {
        Some(ModeConfig::Disabled) => "Disabled".to_owned(),
        _ if synced(managed, seen).1 != Some(true) => "starting".to_owned(),
        Some(ModeConfig::DryRun) => "showing".to_owned(),
        _ => "running".to_owned(),
    }
}

fn note_tripped(managed: &mut Managed, seen: Option<&Observation>, told: &mut Vec<Told>) {
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
        told.push(Told::normal("GuardrailReleased", message));
    }
    let said = tripped.iter().map(|(_, said)| said.clone());
    managed.status.tripped = said.collect();
    managed.tripped = tripped;
}

/// What was said of a trip when it was first seen. It is told from another by
/// the monotonic clock: the wall clock may be set meanwhile, and what was said
/// of a trip stays what releases it.
fn said_before(managed: &Managed, spent: &Spent) -> Option<TrippedStatus> {
    let mut known = managed.tripped.iter();
    if let Some((_, said)) = known.find(|(known, _)| known == spent) {
        return Some(said.clone());
    }
    let mut said = managed.status.tripped.iter();
    let said = said.find(|said| said.guardrail == spent.what.field());
    said.filter(|_| spent.since.is_none()).cloned()
}

/// What an earlier host said of a trip; none if it makes no sense.
pub(super) fn remembered_trip(said: &TrippedStatus) -> Option<Tripped> {
    let mut all = What::ALL.into_iter();
    let until = match &said.until {
        None => None,
        Some(until) => Some(Wall(until.parse::<Timestamp>().ok()?.as_millisecond())),
    };
    Some(Tripped {
        what: all.find(|what| what.field() == said.guardrail)?,
        limit: said.limit,
        until,
    })
}

fn tripped_status(spent: &Spent, now: &Now) -> TrippedStatus {
    let at = |instant| {
        let millis = now.wall_at(instant).0;
        Timestamp::from_millisecond(millis).unwrap_or_default()
    };
    TrippedStatus {
        guardrail: spent.what.field().to_owned(),
        limit: spent.limit,
        // To the millisecond: it names this trip, which may soon be followed by
        // another.
        since: precise_time(at(spent.since.unwrap_or(now.instant))),

        until: spent.until.map(|until| time(at(until))),
    }
}

fn say_lost(managed: &Managed, lost: &LostStatus) -> String {
    let (name, reason) = (&managed.name, &lost.reason);
    let way = match &lost.ready {
        Some(ready) => {
            format!("davit promote --full {name} gives it up for {ready}, which the spec describes")
        }
        None => "what the spec describes cannot be had yet either".to_owned(),
    };
    format!("the stable revision cannot be had again, and nothing runs: {reason}; {way}")
}

fn say_tripped(tripped: &TrippedStatus) -> String {
    let TrippedStatus {
        guardrail, limit, ..
    } = tripped;
    let until = match &tripped.until {
        Some(until) => format!("until {until}, or until it is released"),
        None => "until it is released".to_owned(),
    };
    format!(
        "the guardrail {guardrail} of {limit} plans in 60 seconds is used up: further plans wait \
         {until} (davit release)"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use davit_core::time::Instant;
    use davit_engine::ModuleDigest;

    use super::*;
    use crate::host::Recipe;
    use crate::spec::LimitConfig;

    const NOON: i64 = 1_795_176_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn tripped_since(since: Instant) -> Spent {
        Spent {
            what: What::Deletes,
            limit: 3,
            role: Role::Stable,
            since: Some(since),
            until: None,
        }
    }

    /// What a controller runs.
    fn recipe() -> Recipe {
        Recipe::new(
            ModuleDigest([7; 32]),
            Arc::default(),
            LimitConfig::default(),
        )
    }

    fn observation(tripped: &[Spent], seconds: u64, ahead: i64) -> Observation {
        Observation {
            stable: Some(recipe()),
            complete: true,
            quarantined: None,
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
        tripped: &[Spent],
        seconds: u64,
        ahead: i64,
    ) -> Vec<&'static str> {
        let seen = observation(tripped, seconds, ahead);
        let mut told = Vec::new();
        describe(managed, Some(&seen), Timestamp::now(), &mut told);
        told.iter().map(|told| told.reason).collect()
    }

    fn since(managed: &Managed) -> &str {
        managed.status.last_trip().unwrap_or_default()
    }

    /// The time that was told is what releases it: it may not move.
    #[test]
    fn a_trip_is_told_once_whatever_the_wall_clock_does() {
        let mut managed = Managed::new("podgc", ControllerStatus::default());
        let first = [tripped_since(at(10))];
        assert_eq!(look(&mut managed, &first, 11, 0), ["GuardrailTripped"]);
        assert_eq!(since(&managed), "2026-11-20T11:59:59.000Z");
        assert!(look(&mut managed, &first, 12, 3600).is_empty());
        assert_eq!(since(&managed), "2026-11-20T11:59:59.000Z");
        // Released, it trips again at once: that is another one.
        let second = [tripped_since(at(12))];
        assert_eq!(look(&mut managed, &second, 12, 1), ["GuardrailTripped"]);
        assert_eq!(since(&managed), "2026-11-20T12:00:01.000Z");
        assert_eq!(look(&mut managed, &[], 13, 2), ["GuardrailReleased"]);
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
        let trips: Vec<Tripped> = managed
            .status
            .tripped
            .iter()
            .filter_map(remembered_trip)
            .collect();
        let until = Some(Wall(NOON + 300_000));
        let (what, limit) = (What::Deletes, 3);
        assert_eq!(trips, [Tripped { what, limit, until }]);
        // As the host has it that resumed it.
        let resumed = Spent {
            since: None,
            until: Some(at(300)),
            ..tripped_since(at(0))
        };
        assert!(look(&mut managed, &[resumed], 1, 0).is_empty());
        assert_eq!(since(&managed), "2026-11-20T08:00:00.000Z");
        assert_eq!(look(&mut managed, &[], 301, 0), ["GuardrailReleased"]);
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
        describe(&mut managed, Some(&seen), Timestamp::now(), &mut told);
        describe(&mut managed, None, Timestamp::now(), &mut told);
        assert!(told.is_empty());
        assert_eq!(since(&managed), "2026-11-20T08:00:00.000Z");
    }

    #[test]
    fn each_guardrail_that_trips_is_told() {
        let mut managed = Managed::new("podgc", ControllerStatus::default());
        let deletes = tripped_since(at(10));
        let writes = Spent {
            what: What::Writes,
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
        assert_eq!(look(&mut managed, &[], 13, 0), ["GuardrailReleased"]);
    }
}
