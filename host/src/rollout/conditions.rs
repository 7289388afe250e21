//! How a controller is, in Kubernetes' conditions and in a few words.

use davit_core::budget::Spent;
use davit_core::rollout::Role;
use davit_core::time::Now;
use davit_engine::LoadError;
use jiff::Timestamp;

use super::managed::{Managed, Problem, Told, time};
use crate::host::{Observation, Reason};
use crate::modules::ModuleError;
use crate::spec::ModeConfig;
use crate::status::{ConditionStatus, ControllerStatus, TrippedStatus};

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
    let problem = problem.map(|error| bad_spec(error.to_string()));
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
    if let Some(lost) = &managed.lost {
        return ("Degraded", Some(true), "StableLost", lost.clone());
    }
    if let Some(tripped) = &managed.status.tripped {
        return ("Degraded", Some(true), "Guardrail", say_tripped(tripped));
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
        Some(ModeConfig::Off) => "off".to_owned(),
        _ if synced(managed, seen).1 != Some(true) => "starting".to_owned(),
        Some(ModeConfig::DryRun) => "showing".to_owned(),
        _ => "running".to_owned(),
    }
}

fn note_tripped(managed: &mut Managed, seen: Option<&Observation>, told: &mut Vec<Told>) {
    let Some(seen) = seen else { return };
    let mut tripped = seen.tripped.iter();
    let tripped = tripped.find(|spent| spent.role == Role::Stable).copied();
    // Told apart by the monotonic clock: the wall clock may be set meanwhile,
    // and what was said of a trip stays what releases it.
    if tripped == managed.tripped && tripped.is_some() == managed.status.tripped.is_some() {
        return;
    }
    managed.tripped = tripped;
    managed.status.tripped = tripped.map(|spent| tripped_status(&spent, &seen.now));
    told.push(if let Some(new) = &managed.status.tripped {
        Told {
            warning: true,
            reason: "GuardrailTripped",
            message: say_tripped(new),
        }
    } else {
        let message = "plans are let through again".to_owned();
        Told::normal("GuardrailReleased", message)
    });
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
        since: at(spent.since)
            .strftime("%Y-%m-%dT%H:%M:%S.%3fZ")
            .to_string(),
        until: spent.until.map(|until| time(at(until))),
    }
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
    use std::time::Duration;

    use davit_core::budget::What;
    use davit_core::time::{Instant, Wall};

    use super::*;

    const NOON: i64 = 1_795_176_000_000;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn tripped_since(since: Instant) -> Spent {
        Spent {
            what: What::Deletes,
            limit: 3,
            role: Role::Stable,
            since,
            until: None,
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
        let seen = Observation {
            stable: None,
            complete: true,
            quarantined: None,
            candidate: None,
            tripped: tripped.to_vec(),
            now: Now {
                instant: at(seconds),
                wall: Wall(NOON + 1000 * ahead),
            },
        };
        let mut told = Vec::new();
        describe(managed, Some(&seen), Timestamp::now(), &mut told);
        told.iter().map(|told| told.reason).collect()
    }

    fn since(managed: &Managed) -> &str {
        let tripped = managed.status.tripped.as_ref();
        tripped.map_or("", |tripped| &tripped.since)
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

    /// The budget does not outlive the host.
    #[test]
    fn a_trip_that_is_only_remembered_is_over() {
        let tripped = TrippedStatus::default();
        let status = ControllerStatus {
            tripped: Some(tripped),
            ..ControllerStatus::default()
        };
        let mut managed = Managed::new("podgc", status);
        assert_eq!(look(&mut managed, &[], 1, 0), ["GuardrailReleased"]);
        assert_eq!(managed.status.tripped, None);
    }
}
