//! The conditions of a controller in each of its states.

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::api::{RevisionStatus, TrippedStatus};
use crate::control::loading::{COMPILED, CONFIGURED, LoadFailure, RESOLVED, VERIFIED};
use crate::grant::Permissions;

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
    mode: Option<ModeConfig>,
    spec_error: Option<SpecError>,
    problem: Option<LoadProblem>,
    loaded: Option<LoadedModule<'static>>,
    running: Readiness,
    pending: Option<PendingResource>,
    circuit: Option<&'static str>,
    refused: Option<&'static str>,
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
            waits_for: "the time of the step has not passed".into(),
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
        mode: Some(ModeConfig::Enforce),
        spec_error: None,
        problem: None,
        loaded: Some(LOADED),
        running: Readiness::Yes,
        pending: None,
        circuit: None,
        refused: None,
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

fn cases() -> Vec<Case> {
    let mut cases = undisturbed();
    cases.extend(rollouts());
    cases.extend(refusals());
    cases.extend(troubles());
    cases.extend(unsigned_modules());
    cases
}

fn undisturbed() -> Vec<Case> {
    let first = Case {
        status: ControllerStatus::default(),
        running: Readiness::No,
        ..running()
    };
    vec![
        running(),
        Case {
            name: "a dry run",
            mode: Some(ModeConfig::DryRun),
            ready: "True DryRun",
            summary: "DryRun",
            ..running()
        },
        Case {
            name: "disabled",
            mode: Some(ModeConfig::Disabled),
            ready: "True Disabled",
            summary: "Disabled",
            ..running()
        },
        Case {
            name: "the first revision is being loaded",
            loaded: None,
            ready: "Unknown Loading",
            loaded_conditions: "UUUU",
            rest: "False Waiting, True OnlyReplica, False NoRevision, Unknown Starting, \
                   Reconciling",
            summary: "Loading",
            ..first
        },
        Case {
            name: "another revision is being loaded",
            loaded: None,
            ready: "Unknown Loading",
            loaded_conditions: "UUUU",
            rest: "True Synced, True OnlyReplica, False Stable, False Healthy, Reconciling",
            summary: "Loading",
            ..running()
        },
        Case {
            name: "its lists are not complete",
            running: Readiness::Starting,
            ready: "False Starting",
            rest: "False Waiting, True OnlyReplica, False Stable, Unknown Starting, Reconciling",
            summary: "Starting: waiting for lists",
            ..running()
        },
        Case {
            name: "a list fails",
            running: Readiness::Starting,
            pending: Some(PendingResource {
                resource: "v1/nodes".into(),
                hindrance: Some("nodes is forbidden".into()),
                others: 0,
            }),
            ready: "False Starting",
            rest: "False Waiting, True OnlyReplica, False Stable, Unknown Starting, Reconciling",
            summary: "Starting: a list fails",
            ..running()
        },
        Case {
            name: "it runs without a resource that cannot be listed",
            pending: Some(PendingResource {
                resource: "v1/nodes".into(),
                hindrance: Some("nodes is forbidden".into()),
                others: 54,
            }),
            ready: "True NotListed",
            rest: "False NotListed, True OnlyReplica, False Stable, True NotListed",
            summary: "NotListed: v1/nodes",
            ..running()
        },
        Case {
            name: "its source is away, and the module is kept",
            loaded: Some(LoadedModule {
                away: Some("the module /a.wasm cannot be read"),
                is_pinned: true,
                ..LOADED
            }),
            ..running()
        },
    ]
}

fn rollouts() -> Vec<Case> {
    let trial = |name, hold, ready, summary| Case {
        name,
        status: trying(),
        hold: Some(hold),
        ready,
        rest: "True Synced, True OnlyReplica, True Rollout, False Healthy, Reconciling",
        summary,
        ..running()
    };
    let left = Duration::from_secs(40);
    let inconclusive = StepWait::Inconclusive {
        compared: 3,
        least: 10,
    };
    let running_step = StepWait::Running { left };
    vec![
        trial(
            "a step",
            running_step,
            "True RollingOut",
            "Rolling out: step 1 of 2",
        ),
        trial(
            "paused",
            StepWait::Paused,
            "True Paused",
            "Paused: step 1 of 2",
        ),
        trial(
            "inconclusive",
            inconclusive,
            "True Inconclusive",
            "Inconclusive: step 1 of 2",
        ),
        trial(
            "until promoted",
            StepWait::UntilPromoted,
            "True AwaitingPromotion",
            "Awaiting promotion: step 1 of 2",
        ),
        Case {
            name: "rolled back",
            status: rolled_back_for("refused writes"),
            ready: "False RolledBack",
            rest: "True Synced, True OnlyReplica, False RolledBack, False Healthy, Stalled",
            summary: "RolledBack: refused writes",
            ..running()
        },
        Case {
            name: "rolled back by an earlier version",
            status: rolled_back_for(""),
            ready: "False RolledBack",
            rest: "True Synced, True OnlyReplica, False RolledBack, False Healthy, Stalled",
            summary: "RolledBack",
            ..running()
        },
    ]
}

fn refusals() -> Vec<Case> {
    vec![
        Case {
            ready: "False NotFound",
            loaded_conditions: "FUUU",
            rest: "True Synced, True OnlyReplica, False Stable, True NotFound, Reconciling",
            summary: "NotFound: module",
            ..refused(LoadFailure::NotFound)
        },
        Case {
            name: "the first module is not found",
            status: ControllerStatus::default(),
            running: Readiness::No,
            ready: "False NotFound",
            loaded_conditions: "FUUU",
            rest: "False Waiting, True OnlyReplica, False NoRevision, True NotFound, Reconciling",
            summary: "NotFound: module",
            ..refused(LoadFailure::NotFound)
        },
        Case {
            ready: "False DigestMismatch",
            loaded_conditions: "TFUU",
            rest: "True Synced, True OnlyReplica, False Stable, True DigestMismatch, Stalled",
            summary: "DigestMismatch: module",
            ..refused(LoadFailure::DigestMismatch)
        },
        Case {
            ready: "False NotSigned",
            loaded_conditions: "TFUU",
            rest: "True Synced, True OnlyReplica, False Stable, True NotSigned, Stalled",
            summary: "NotSigned: module",
            ..refused(LoadFailure::NotSigned)
        },
        Case {
            name: "a text file",
            status: ControllerStatus::default(),
            running: Readiness::No,
            ready: "False NotWasm",
            loaded_conditions: "TFFU",
            rest: "False Waiting, True OnlyReplica, False NoRevision, True NotWasm, Stalled",
            summary: "NotWasm: module",
            ..refused(LoadFailure::NotWasm)
        },
        Case {
            ready: "False NotAGuest",
            loaded_conditions: "TFTU",
            rest: "True Synced, True OnlyReplica, False Stable, True NotAGuest, Stalled",
            summary: "NotAGuest: module",
            ..refused(LoadFailure::NotAGuest)
        },
        Case {
            ready: "False TooLarge",
            loaded_conditions: "TFUU",
            rest: "True Synced, True OnlyReplica, False Stable, True TooLarge, Stalled",
            summary: "TooLarge: module",
            ..refused(LoadFailure::TooLarge)
        },
        Case {
            ready: "False Refused",
            loaded_conditions: "TTTF",
            rest: "True Synced, True OnlyReplica, False Stable, True Refused, Stalled",
            summary: "Refused: configuration",
            ..refused(LoadFailure::Refused)
        },
        Case {
            ready: "False LoadFailed",
            loaded_conditions: "UUUU",
            rest: "True Synced, True OnlyReplica, False Stable, True LoadFailed, Reconciling",
            summary: "LoadFailed: module",
            ..refused(LoadFailure::Unanswered)
        },
        Case {
            name: "two sources",
            spec_error: Some(spec_error()),
            loaded: None,
            ready: "False InvalidSpec",
            loaded_conditions: "UUUF",
            rest: "True Synced, True OnlyReplica, False Stable, True InvalidSpec, Stalled",
            summary: "InvalidSpec: spec.rollout.analysis.maxD…",
            ..running()
        },
        Case {
            name: "a bad spec after a start",
            spec_error: Some(spec_error()),
            mode: None,
            loaded: None,
            running: Readiness::No,
            ready: "False InvalidSpec",
            loaded_conditions: "UUUF",
            rest: "False Waiting, True OnlyReplica, False Stable, True InvalidSpec, Stalled",
            summary: "InvalidSpec: spec.rollout.analysis.maxD…",
            ..running()
        },
    ]
}

fn troubles() -> Vec<Case> {
    let lost = ControllerStatus {
        lost: Some(LostStatus {
            since: "2026-11-20T10:00:00.000Z".into(),
            reason: "it is not kept".into(),
            ready: Some("cccc".into()),
        }),
        ..stable()
    };
    vec![
        Case {
            name: "lost",
            status: lost,
            running: Readiness::No,
            ready: "False StableLost",
            rest: "False Waiting, True OnlyReplica, False Stable, True StableLost, Stalled",
            summary: "StableLost: nothing runs",
            ..running()
        },
        Case {
            name: "not recorded",
            unrecorded: Some(
                "cannot create the ControllerRevision podgc-aaaa: controllerrevisions.apps is \
                 forbidden",
            ),
            ready: "False NotRecorded",
            rest: "True Synced, True OnlyReplica, False Stable, True NotRecorded, Reconciling",
            summary: "NotRecorded: forbidden",
            ..running()
        },
        Case {
            name: "tripped for a while",
            status: tripped(Some("2026-11-20T10:05:00Z")),
            ready: "False GuardrailTripped",
            rest: "True Synced, True OnlyReplica, False Stable, True GuardrailTripped",
            summary: "Guardrail: deletesPercentPerMinute",
            ..running()
        },
        Case {
            name: "tripped until reset",
            status: tripped(None),
            ready: "False GuardrailTripped",
            rest: "True Synced, True OnlyReplica, False Stable, True GuardrailTripped, Stalled",
            summary: "Guardrail: deletesPercentPerMinute",
            ..running()
        },
        Case {
            name: "circuit open",
            circuit: Some("trap: unreachable\n  at frame 3"),
            ready: "False CircuitOpen",
            rest: "True Synced, True OnlyReplica, False Stable, True CircuitOpen",
            summary: "CircuitOpen: trap",
            ..running()
        },
        Case {
            name: "not served",
            running: Readiness::NotServed,
            ready: "False NotServed",
            rest: "False NotServed, True OnlyReplica, False Stable, True NotServed",
            summary: "NotServed: a watched resource",
            ..running()
        },
        Case {
            name: "another host",
            other_host: Some(HostStatus {
                id: "0123".into(),
                name: "davit-7d9c8b6f5-x2x7q".into(),
                renewed_at: "2026-11-20T10:00:00Z".into(),
            }),
            ready: "False AnotherHost",
            rest: "True Synced, Unknown AnotherHost, False Stable, True AnotherHost",
            summary: "AnotherHost: davit-7d9c8b6f5-x2x7q",
            ..running()
        },
        Case {
            name: "its account may not delete",
            refused: Some("delete v1 Pod a/b: cannot delete resource \"pods\""),
            ready: "False Forbidden",
            rest: "True Synced, True OnlyReplica, False Stable, True Forbidden, Stalled",
            summary: "Forbidden: requests are refused",
            ..running()
        },
        Case {
            name: "beside other replicas",
            has_lease: true,
            rest: "True Synced, True LeaseHolder, False Stable, False Healthy",
            ..running()
        },
        Case {
            name: "a bad spec, a guardrail and an open circuit",
            status: tripped(None),
            spec_error: Some(spec_error()),
            loaded: None,
            circuit: Some("trap: unreachable"),
            ready: "False InvalidSpec",
            loaded_conditions: "UUUF",
            rest: "True Synced, True OnlyReplica, False Stable, True InvalidSpec, Stalled",
            summary: "InvalidSpec: spec.rollout.analysis.maxD…",
            ..running()
        },
    ]
}
/// Modules that are neither built in, nor pinned, nor signed.
fn unsigned_modules() -> Vec<Case> {
    vec![
        Case {
            name: "unsigned",
            status: unsigned(),
            loaded: Some(UNSIGNED),
            ready: "False Unsigned",
            loaded_conditions: "TFTT",
            rest: "True Synced, True OnlyReplica, False Stable, True Unsigned, Stalled",
            summary: "Unsigned: dry run only",
            ..running()
        },
        Case {
            name: "unsigned in a dry run",
            status: unsigned(),
            mode: Some(ModeConfig::DryRun),
            loaded: Some(UNSIGNED),
            ready: "True DryRun",
            loaded_conditions: "TFTT",
            summary: "DryRun",
            ..running()
        },
    ]
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
        circuit: case.circuit,
        refused: case.refused,
        hold: case.hold.as_ref(),
        unrecorded: case.unrecorded,
        other_host: case.other_host.as_ref(),
        has_lease: case.has_lease,
    }
}

/// Whoever fixes the lesser fault first still has nothing that runs.
#[test]
fn what_stops_everything_comes_before_what_disturbs_a_revision_that_runs() {
    let not_granted = NotGranted {
        revision: "aaaa".to_owned(),
        missing: Permissions::default(),
        to_add: Permissions::default(),
        stops_stable: true,
    };
    for (is, summary) in [
        (Readiness::No, "NotGranted: run davit grant"),
        (Readiness::Yes, "Unsigned: dry run only"),
    ] {
        let case = Case {
            status: unsigned(),
            loaded: Some(UNSIGNED),
            running: is,
            ..running()
        };
        let described = describe(&ConditionInputs {
            not_granted: Some(&not_granted),
            ..inputs(&case)
        });
        assert_eq!(described.summary, summary);
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
