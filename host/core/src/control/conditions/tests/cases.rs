//! The states, and the conditions of each.

use std::time::Duration;

use super::*;
use crate::api::LostStatus;
use crate::time::Instant;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = undisturbed();
    cases.extend(rollouts());
    cases.extend(refusals());
    cases.extend(errors());
    cases.extend(deferred_deletions());
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
            mode: Some(Mode::DryRun),
            ready: "True DryRun",
            summary: "DryRun",
            ..running()
        },
        Case {
            name: "disabled",
            mode: Some(Mode::Disabled),
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
            name: "a watch is interrupted",
            interrupted: Some(InterruptedResource {
                resource: "v1/nodes".into(),
                reason: "connection refused".into(),
                since: Instant::ZERO,
            }),
            rest: "False Interrupted, True OnlyReplica, False Stable, False Healthy",
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

pub(super) fn refusals() -> Vec<Case> {
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

fn errors() -> Vec<Case> {
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

/// Deletions that are deferred.
fn deferred_deletions() -> Vec<Case> {
    vec![Case {
        name: "undo without room on the disk",
        deferred_deletions: Some("delete v1 Pod a/b: not sent: the disk is full"),
        ready: "False DeletesDeferred",
        rest: "True Synced, True OnlyReplica, False Stable, True DeletesDeferred, Stalled",
        summary: "DeletesDeferred: undo cannot keep",
        ..running()
    }]
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
            mode: Some(Mode::DryRun),
            loaded: Some(UNSIGNED),
            ready: "True DryRun",
            loaded_conditions: "TFTT",
            summary: "DryRun",
            ..running()
        },
    ]
}
