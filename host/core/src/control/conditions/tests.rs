//! The conditions of a controller in each of its states.

mod cases;

use std::collections::BTreeSet;

use super::authorized::MissingAuthorization;
use super::*;
use crate::account::Account;
use crate::api::{CandidateStatus, RejectedStatus, RevisionStatus, TrippedStatus};
use crate::control::loading::{COMPILED, CONFIGURED, LoadFailure, RESOLVED, VERIFIED};
use crate::grant::Permissions;
use crate::request::review::AccessReview;

use cases::{cases, refusals};

const LOADED: LoadedModule<'static> = LoadedModule {
    origin: "the built-in guest podgc",
    digest: "sha256:00",
    away: None,
    is_pinned: false,
    is_dry_run_only: false,
};

/// A module that is neither built in, nor pinned, nor signed.
const UNSIGNED: LoadedModule<'static> = LoadedModule {
    is_dry_run_only: true,
    ..LOADED
};

/// A state, and the expected conditions.
struct Case {
    name: &'static str,
    status: ControllerStatus,
    mode: Option<Mode>,
    spec_error: Option<SpecError>,
    problem: Option<LoadProblem>,
    loaded: Option<LoadedModule<'static>>,
    running: Readiness,
    pending: Option<PendingResource>,
    interrupted: Option<InterruptedResource>,
    circuit: Option<&'static str>,
    refused: Option<&'static str>,
    deferred_deletions: Option<&'static str>,
    hold: Option<StepWait>,
    unrecorded: Option<&'static str>,
    other_host: Option<HostStatus>,
    has_lease: bool,
    /// Status and reason of Ready.
    ready: &'static str,
    /// Resolved, Verified, Compiled, Configured: True, False or Unknown.
    loaded_conditions: &'static str,
    /// Status and reason of Synced, Leading, Progressing and Degraded, each
    /// with Reconciling or Stalled if that is true.
    rest: &'static str,
    summary: &'static str,
}

fn stable() -> ControllerStatus {
    ControllerStatus {
        stable: Some(RevisionStatus {
            revision: "aaaa".into(),
            ..RevisionStatus::default()
        }),
        ..ControllerStatus::default()
    }
}

fn unsigned() -> ControllerStatus {
    let mut status = stable();
    if let Some(stable) = &mut status.stable {
        stable.unsigned = true;
    }
    status
}

fn trying() -> ControllerStatus {
    ControllerStatus {
        candidate: Some(CandidateStatus {
            revision: "bbbb".into(),
            step: 1,
            steps: 2,
            step_text: "shadow for 10m".into(),
            waits_for: "the end of the step's time".into(),
            ..CandidateStatus::default()
        }),
        ..stable()
    }
}

fn rolled_back_for(cause: &str) -> ControllerStatus {
    ControllerStatus {
        rejected: Some(RejectedStatus {
            revision: "bbbb".into(),
            step: 1,
            cause: cause.into(),
            reason: "3 plans were refused (limit 0)".into(),
            ..RejectedStatus::default()
        }),
        ..stable()
    }
}

fn tripped(until: Option<&str>) -> ControllerStatus {
    ControllerStatus {
        tripped: vec![TrippedStatus {
            guardrail: "deletesPercentPerMinute".into(),
            limit: 3,
            since: "2026-11-20T10:00:00.000Z".into(),
            until: until.map(str::to_owned),
        }],
        ..stable()
    }
}

fn problem(failure: LoadFailure) -> LoadProblem {
    LoadProblem::new(failure, "module: it is not what it should be")
}

fn spec_error() -> SpecError {
    SpecError {
        field: "spec.rollout.analysis.maxDisagreementPercent".into(),
        reason: "101 is out of range: 0 to 100".into(),
    }
}

/// A controller that runs in the mode `Enforce`.
fn running() -> Case {
    Case {
        name: "running",
        status: stable(),
        mode: Some(Mode::Enforce),
        spec_error: None,
        problem: None,
        loaded: Some(LOADED),
        running: Readiness::Yes,
        pending: None,
        interrupted: None,
        circuit: None,
        refused: None,
        deferred_deletions: None,
        hold: None,
        unrecorded: None,
        other_host: None,
        has_lease: false,
        ready: "True Running",
        loaded_conditions: "TTTT",
        rest: "True Synced, True OnlyReplica, False Stable, False Healthy",
        summary: "Running",
    }
}

/// A controller whose spec is refused, and whose former revision runs.
fn refused(failure: LoadFailure) -> Case {
    Case {
        name: failure.reason(),
        problem: Some(problem(failure)),
        loaded: None,
        ..running()
    }
}

fn described(case: &Case) -> Description {
    describe(&inputs(case))
}

fn inputs(case: &Case) -> ConditionInputs<'_> {
    ConditionInputs {
        name: "podgc",
        status: &case.status,
        mode: case.mode,
        spec_error: case.spec_error.as_ref(),
        problem: case.problem.as_ref(),
        loaded: case.loaded,
        granted: None,
        not_granted: None,
        authorization: None,
        running: case.running,
        stable_is_dry_run_only: case.status.stable.as_ref().is_some_and(|one| one.unsigned),
        pending: case.pending.as_ref(),
        interrupted: case.interrupted.as_ref(),
        circuit: case.circuit,
        refused: case.refused,
        deferred_deletions: case.deferred_deletions,
        idle_undo_kinds: None,
        hold: case.hold.as_ref(),
        unrecorded: case.unrecorded,
        other_host: case.other_host.as_ref(),
        has_lease: case.has_lease,
        journal: None,
        former: None,
    }
}

/// Whoever fixes the lesser fault first still has nothing that runs. A revision that may not
/// run any more runs on for a moment.
#[test]
fn what_stops_everything_comes_before_what_disturbs_a_revision_that_runs() {
    for (is, stops_stable, not_granted_is_first) in [
        (Readiness::No, true, true),
        (Readiness::Yes, true, true),
        (Readiness::Yes, false, false),
    ] {
        let case = Case {
            status: unsigned(),
            loaded: Some(UNSIGNED),
            running: is,
            ..running()
        };
        let not_granted = MissingGrant {
            revision: "aaaa".to_owned(),
            missing: Permissions::default(),
            to_add: Permissions::default(),
            stops_stable,
        };
        let account = Account {
            namespace: "davit".to_owned(),
            name: "gc".to_owned(),
        };
        let denied = Authorization::Denied(MissingAuthorization {
            account: account.clone(),
            revision: "aaaa".to_owned(),
            missing: vec![(AccessReview::Impersonation(account), String::new())],
            stops_stable,
        });
        let of_grant = describe(&ConditionInputs {
            not_granted: Some(&not_granted),
            ..inputs(&case)
        });
        let of_account = describe(&ConditionInputs {
            authorization: Some(&denied),
            ..inputs(&case)
        });
        let summaries = [of_grant.summary, of_account.summary];
        if not_granted_is_first {
            let expected = [
                "NotGranted: run davit grant",
                "NotAuthorized: impersonate davit/gc",
            ];
            assert_eq!(summaries, expected);
        } else {
            assert_eq!(summaries, ["Unsigned: dry run only"; 2]);
        }
    }
}

#[test]
fn every_state_has_its_conditions() {
    for case in cases() {
        let name = case.name;
        let Description {
            summary,
            conditions,
            ..
        } = described(&case);
        let said = |type_: &str| conditions.iter().find(|one| one.type_ == type_);
        let short = |type_: &str| {
            let one = said(type_).unwrap();
            format!("{} {}", one.status.as_str(), one.reason)
        };
        assert_eq!(short("Ready"), case.ready, "{name}");
        let loaded_conditions = [RESOLVED, VERIFIED, COMPILED, CONFIGURED];
        let loaded_conditions =
            loaded_conditions.map(|type_| &said(type_).unwrap().status.as_str()[..1]);
        assert_eq!(loaded_conditions.concat(), case.loaded_conditions, "{name}");
        let rest = ["Synced", "Leading", "Progressing", "Degraded"];
        let mut rest: Vec<String> = rest.into_iter().map(short).collect();
        for type_ in ["Reconciling", "Stalled"] {
            if let Some(one) = said(type_) {
                assert_eq!(one.status, ConditionStatus::True, "{name}: {type_}");
                rest.push(type_.to_owned());
            }
        }
        assert_eq!(rest.join(", "), case.rest, "{name}");
        assert_eq!(summary, case.summary, "{name}");
    }
}

/// The rules of the API conventions, and the width of a column.
#[test]
fn every_condition_has_a_message_of_one_line() {
    for case in cases() {
        let name = case.name;
        let Description {
            summary,
            conditions,
            ..
        } = described(&case);
        assert!(
            summary.chars().count() <= LONGEST_SUMMARY,
            "{name}: {summary}"
        );
        let types: BTreeSet<&str> = conditions.iter().map(|one| one.type_).collect();
        assert_eq!(types.len(), conditions.len(), "{name}: a type stands twice");
        for Condition {
            type_,
            reason,
            message,
            ..
        } in &conditions
        {
            assert!(
                reason.chars().all(char::is_alphanumeric),
                "{name}: {reason}"
            );
            assert!(!message.is_empty(), "{name}: {type_} has no message");
            assert!(!message.contains('\n'), "{name}: {message}");
        }
    }
}

/// A controller that cannot run as its spec says is neither ready nor healthy.
#[test]
fn a_refused_spec_is_never_healthy() {
    for case in refusals() {
        let conditions = described(&case).conditions;
        let is = |type_: &str| {
            conditions
                .iter()
                .find(|one| one.type_ == type_)
                .unwrap()
                .status
        };
        assert_eq!(is("Ready"), ConditionStatus::False, "{}", case.name);
        assert_eq!(is("Degraded"), ConditionStatus::True, "{}", case.name);
        assert_eq!(described(&case).notices.len(), 1, "{}", case.name);
    }
}

/// A kind that is not served may be served later, so it holds no controller up.
#[test]
fn the_kinds_of_undo_that_keep_nothing_have_a_condition_that_changes_no_other() {
    let case = running();
    let without = describe(&inputs(&case));
    let idle = |not_served: &[&str], not_deleted: &[&str]| IdleKinds {
        not_served: not_served.iter().map(ToString::to_string).collect(),
        not_deleted: not_deleted.iter().map(ToString::to_string).collect(),
    };
    for (idle, expected, named) in [
        (idle(&[], &[]), "True KindsKept", vec![]),
        (idle(&["pod"], &[]), "False KindNotServed", vec!["pod"]),
        (idle(&[], &["nodes"]), "False KindNotDeleted", vec!["nodes"]),
        (
            idle(&["pod"], &["nodes"]),
            "False KindNotServed",
            vec!["pod", "nodes"],
        ),
    ] {
        let described = describe(&ConditionInputs {
            idle_undo_kinds: Some(&idle),
            ..inputs(&case)
        });
        let mut others = described.conditions;
        let found = others.extract_if(.., |one| one.type_ == "Undo");
        let [found] = &*found.collect::<Vec<_>>() else {
            panic!("one condition");
        };
        let said = format!("{} {}", found.status.as_str(), found.reason);
        assert_eq!(said, expected);
        let names = |name: &&str| found.message.contains(&format!("names {name},"));
        assert!(named.iter().all(names), "{}", found.message);
        assert_eq!(others, without.conditions);
        assert_eq!(described.summary, without.summary);
    }
}

/// A journal that has stopped holds no controller up.
#[test]
fn a_journal_has_a_condition_of_its_own_that_changes_no_other() {
    let case = running();
    let without = describe(&inputs(&case));
    for (journal, expected) in [
        (None, None),
        (Some(JournalState::Recording), Some("True JournalRecords")),
        (Some(JournalState::Stopped), Some("False JournalStopped")),
    ] {
        let described = describe(&ConditionInputs {
            journal,
            ..inputs(&case)
        });
        let mut others = described.conditions;
        let found: Vec<Condition> = others
            .extract_if(.., |one| one.type_ == "Recording")
            .collect();
        let found: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.status.as_str(), one.reason))
            .collect();
        assert_eq!(found.first().map(String::as_str), expected);
        assert_eq!(others, without.conditions);
        assert_eq!(described.summary, without.summary);
    }
}
