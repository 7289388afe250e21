//! Writes down how a controller is, and tells people what is new in it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::conditions::{self, Facts, Loaded, Notice, Running, Said, Topic};
use super::managed::{Managed, Told, time};
use super::trips::note_tripped;
use davit_core::api::ConditionStatus;
use davit_core::observation::Observation;

/// What people were told, and that has not ended yet.
#[derive(Default)]
pub(super) struct Noticed(BTreeMap<Topic, String>);

/// Writes down how the controller is.
pub(super) fn describe(
    managed: &mut Managed,
    seen: Option<&Observation>,
    now: Timestamp,
    told: &mut Vec<Told>,
) {
    note_tripped(managed, seen, told);
    let digest = managed.digest();
    let facts = facts(managed, seen, digest.as_deref());
    let is_settled = facts.loaded.is_some() || facts.problem.is_some();
    let description = conditions::describe(&facts);
    managed.status.observed_generation = managed.generation;
    managed.status.summary = description.summary;
    let former = std::mem::take(&mut managed.status.conditions);
    let said = description.conditions.into_iter();
    let said = said.map(|said| condition(said, &former, managed.generation, now));
    managed.status.conditions = said.collect();
    managed.noticed.take(description.notices, is_settled, told);
}

/// What is known of the controller.
fn facts<'a>(
    managed: &'a Managed,
    seen: Option<&'a Observation>,
    digest: Option<&'a str>,
) -> Facts<'a> {
    let desired = managed.desired.as_ref().filter(|_| managed.is_current());
    let spec = managed.spec.as_ref();
    let loaded = desired.zip(digest).map(|(desired, digest)| Loaded {
        origin: &desired.origin,
        digest,
        away: desired.prepared.away.as_deref(),
        is_pinned: spec.is_some_and(|spec| spec.module.digest.is_some()),
    });
    Facts {
        name: &managed.name,
        status: &managed.status,
        mode: spec.map(|spec| spec.mode),
        spec_error: managed.spec_error.as_ref(),
        problem: managed.problem.as_ref(),
        loaded,
        running: running(managed, seen),
        awaited: seen.and_then(|seen| seen.pending.as_ref()),
        circuit: seen.and_then(|seen| seen.circuit_open.as_deref()),
        hold: managed.hold.as_ref(),
        unrecorded: managed.unrecorded.as_deref(),
        other_host: managed.other_host.as_ref(),
    }
}

fn running(managed: &Managed, seen: Option<&Observation>) -> Running {
    let Some(stable) = &managed.stable else {
        return Running::No;
    };
    let Some(seen) = seen else {
        return Running::No;
    };
    match &seen.stable {
        Some(running) if *running == stable.prepared.identity && seen.complete => Running::Yes,
        Some(running) if *running == stable.prepared.identity => Running::NotServed,
        _ => Running::Starting,
    }
}

/// A condition as it is written; its time changes with its status only.
fn condition(
    said: Said,
    former: &[ConditionStatus],
    generation: Option<i64>,
    now: Timestamp,
) -> ConditionStatus {
    let status = said.status.as_str();
    let mut former = former.iter();
    let former = former.find(|one| one.type_ == said.type_ && one.status == status);
    ConditionStatus {
        type_: said.type_.to_owned(),
        status: status.to_owned(),
        reason: said.reason.to_owned(),
        message: said.message,
        last_transition_time: match former {
            Some(former) => former.last_transition_time.clone(),
            None => time(now),
        },
        observed_generation: generation,
    }
}

impl Noticed {
    /// Tells what is new, and what has ended. As long as it is not settled
    /// whether the spec can run, nothing is said of its acceptance.
    fn take(&mut self, notices: Vec<Notice>, is_settled: bool, told: &mut Vec<Told>) {
        let topics: Vec<Topic> = notices.iter().map(|notice| notice.topic).collect();
        self.0.retain(|topic, _| {
            let stays = topics.contains(topic) || (*topic == Topic::Spec && !is_settled);
            if !stays {
                told.extend(ended(*topic));
            }
            stays
        });
        for notice in notices {
            if self.0.get(&notice.topic) != Some(&notice.key) {
                told.push(Told::warning(notice.reason, notice.message));
                self.0.insert(notice.topic, notice.key);
            }
        }
    }
}

fn ended(topic: Topic) -> Option<Told> {
    let (reason, message) = match topic {
        Topic::Spec => ("SpecAccepted", "the spec is accepted"),
        Topic::Host => ("OnlyHost", "no other host writes this status any more"),
        Topic::Circuit => ("CircuitClosed", "the guest is called again"),
        Topic::Served => ("Served", "every resource that it watches is served"),
        // Each ends with an event of its own.
        Topic::Stable | Topic::Step => return None,
    };
    Some(Told::normal(reason, message.to_owned()))
}

#[cfg(test)]
mod tests {
    use davit_core::rollout::progress::Hold;
    use jiff::SignedDuration;

    use super::*;
    use crate::rollout::revision::Problem;
    use davit_core::api::ModuleSource;
    use davit_core::api::{CandidateStatus, ControllerStatus, HostStatus};
    use davit_core::api::{ControllerSpec, SpecError};

    fn managed() -> Managed {
        let mut managed = Managed::new("podgc", ControllerStatus::default());
        let module = ModuleSource::Builtin("podgc".into());
        managed.spec = Some(ControllerSpec::of(module.into()));
        managed
    }

    /// The reasons of what is told by a look.
    fn told(managed: &mut Managed) -> Vec<&'static str> {
        let mut told = Vec::new();
        describe(managed, None, Timestamp::now(), &mut told);
        told.iter().map(|told| told.reason).collect()
    }

    fn problem(reason: &'static str) -> Problem {
        Problem {
            condition: "Verified",
            reason,
            message: "module".into(),
        }
    }

    #[test]
    fn a_refusal_is_told_once_and_its_end_when_it_is_sure() {
        let mut managed = managed();
        assert!(told(&mut managed).is_empty());
        managed.spec_error = Some(SpecError {
            field: "spec.module".into(),
            reason: "it names two sources".into(),
        });
        assert_eq!(told(&mut managed), ["BadSpec"]);
        assert!(told(&mut managed).is_empty());
        // It can be read now; whether it can run is not known yet.
        managed.spec_error = None;
        assert!(told(&mut managed).is_empty());
        managed.problem = Some(problem("NoGuest"));
        assert_eq!(told(&mut managed), ["NoGuest"]);
        assert!(told(&mut managed).is_empty());
    }

    #[test]
    fn another_host_is_told_once() {
        let mut managed = managed();
        managed.other_host = Some(HostStatus {
            id: "1".into(),
            ..HostStatus::default()
        });
        assert_eq!(told(&mut managed), ["AnotherHost"]);
        assert!(told(&mut managed).is_empty());
        managed.other_host = None;
        assert_eq!(told(&mut managed), ["OnlyHost"]);
    }

    #[test]
    fn an_inconclusive_step_is_told_once() {
        let facts_of = |hold: Hold| {
            let status = ControllerStatus {
                candidate: Some(CandidateStatus::default()),
                ..ControllerStatus::default()
            };
            let loaded = Loaded {
                origin: "",
                digest: "",
                away: None,
                is_pinned: false,
            };
            let facts = Facts {
                name: "podgc",
                status: &status,
                mode: None,
                spec_error: None,
                problem: None,
                loaded: Some(loaded),
                running: Running::Yes,
                awaited: None,
                circuit: None,
                hold: Some(&hold),
                unrecorded: None,
                other_host: None,
            };
            conditions::describe(&facts).notices
        };
        let inconclusive = |compared| Hold::Inconclusive {
            compared,
            least: 10,
        };
        let mut noticed = Noticed::default();
        let mut look = |hold| {
            let mut told = Vec::new();
            noticed.take(facts_of(hold), true, &mut told);
            told.iter().map(|told| told.reason).collect::<Vec<_>>()
        };
        assert!(look(Hold::Paused).is_empty());
        assert_eq!(look(inconclusive(3)), ["Inconclusive"]);
        assert!(look(inconclusive(4)).is_empty());
        assert!(look(Hold::Paused).is_empty());
    }

    #[test]
    fn the_time_of_a_condition_changes_with_its_status() {
        let mut managed = managed();
        let noon: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let mut look = |problem: Option<Problem>, minutes: i64| {
            managed.problem = problem;
            managed.generation = Some(minutes);
            let now = noon + SignedDuration::from_mins(minutes);
            describe(&mut managed, None, now, &mut Vec::new());
            let mut conditions = managed.status.conditions.iter();
            let ready = conditions.find(|one| one.type_ == "Ready").unwrap();
            assert_eq!(ready.observed_generation, Some(minutes));
            (ready.reason.clone(), ready.last_transition_time.clone())
        };
        let at = |reason: &str, time: &str| (reason.to_owned(), format!("2026-11-20T{time}:00Z"));
        assert_eq!(look(None, 1), at("Preparing", "12:01"));
        assert_eq!(look(Some(problem("NoGuest")), 2), at("NoGuest", "12:02"));
        assert_eq!(
            look(Some(problem("OtherDigest")), 3),
            at("OtherDigest", "12:02")
        );
        assert_eq!(look(None, 4), at("Preparing", "12:04"));
    }
}
