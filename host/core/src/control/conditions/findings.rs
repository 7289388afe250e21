//! What is to say about a controller as a whole, the most urgent first.

use super::finding::{Effort, Finding, fine, under_way};
use super::rollout::{rolled_back, rolling_out};
use super::{ConditionInputs, ConditionStatus, INVALID_SPEC, Readiness, Topic};
use super::{authorized, granted, listed, load};
use crate::api::{HostStatus, LostStatus, SpecError};
use crate::control::text::one_line;
use crate::control::trips::describe as describe_trip;
use crate::gate::Mode;

/// The facts about a controller, the most urgent first; never none.
pub(super) fn findings(inputs: &ConditionInputs<'_>) -> Vec<Finding> {
    let spec_error = inputs.spec_error.map(|error| invalid_spec(inputs, error));
    let other_host = inputs.other_host.map(another_host);
    let lost = inputs.status.lost.as_ref();
    let lost = lost.map(|lost| stable_lost(inputs.name, lost));
    let unrecorded = inputs.unrecorded.map(not_recorded);
    let circuit = inputs.circuit.map(circuit_open);
    let forbidden = inputs.refused.map(forbidden);
    let deferred_deletions = inputs.deferred_deletions.map(deferred_deletions);
    let not_served = (inputs.running == Readiness::NotServed).then(not_served);
    // What stops everything comes before what disturbs a revision that runs, also while the
    // revision is still being stopped.
    let runs = inputs.running != Readiness::No;
    let (stopped, waits): (Vec<_>, Vec<_>) = [
        (granted::finding(inputs), granted::stops_stable(inputs)),
        (
            authorized::finding(inputs),
            authorized::stops_stable(inputs),
        ),
    ]
    .into_iter()
    .partition(|(_, stops_stable)| *stops_stable || !runs);
    let stopped = stopped.into_iter().map(|(finding, _)| finding);
    let waits = waits.into_iter().map(|(finding, _)| finding);
    let refused = inputs.problem.filter(|_| inputs.spec_error.is_none());
    let refused = refused.map(|problem| load::refused_spec(inputs, problem));
    let all = [spec_error, other_host, lost, unrecorded]
        .into_iter()
        .chain(stopped)
        .chain([
            guardrail(inputs),
            unsigned(inputs),
            circuit,
            forbidden,
            deferred_deletions,
            not_served,
        ])
        .chain(waits)
        .chain([refused, listed::finding(inputs)]);
    all.flatten().chain([undisturbed(inputs)]).collect()
}

fn invalid_spec(inputs: &ConditionInputs<'_>, error: &SpecError) -> Finding {
    let message = load::say_bad_spec(inputs, error);
    Finding {
        ready: ConditionStatus::False,
        reason: INVALID_SPEC,
        summary: format!("{INVALID_SPEC}: {}", error.field),
        notice: Some((Topic::Spec, message.clone())),
        message,
        is_degraded: true,
        effort: Effort::Stalled,
    }
}

fn another_host(host: &HostStatus) -> Finding {
    let HostStatus { id, name, .. } = host;
    Finding {
        ready: ConditionStatus::False,
        reason: "AnotherHost",
        summary: format!("AnotherHost: {name}"),
        message: format!(
            "the host {name} ({id}) runs this Controller too: both write its status, and each \
             has its own counts of the guardrails; stop one of them"
        ),
        is_degraded: true,
        effort: Effort::None,
        notice: Some((Topic::Host, id.clone())),
    }
}

fn stable_lost(name: &str, lost: &LostStatus) -> Finding {
    let way = match &lost.ready {
        Some(ready) => {
            format!("davit promote --full {name} abandons it for {ready}, which the spec describes")
        }
        None => "the revision that the spec describes cannot run yet either".to_owned(),
    };
    let reason = &lost.reason;
    Finding {
        ready: ConditionStatus::False,
        reason: "StableLost",
        summary: "StableLost: nothing runs".to_owned(),
        message: one_line(&format!(
            "the stable revision cannot be loaded, and nothing runs: {reason}; {way}"
        )),
        is_degraded: true,
        effort: Effort::Stalled,
        notice: Some((Topic::Stable, lost.since.clone())),
    }
}

/// The notice is throttled where the record fails.
fn not_recorded(cause: &str) -> Finding {
    Finding {
        ready: ConditionStatus::False,
        reason: "NotRecorded",
        summary: match cause {
            _ if cause.contains("forbidden") => "NotRecorded: forbidden".to_owned(),
            _ if cause.contains("not found") => "NotRecorded: not found".to_owned(),
            _ => format!("NotRecorded: {cause}"),
        },
        message: one_line(&format!(
            "the rollout cannot be recorded: no revision becomes stable, and the running \
             revisions continue: {cause}"
        )),
        is_degraded: true,
        effort: Effort::Reconciling,
        notice: None,
    }
}

/// Each trip has a notice when it is first observed.
fn guardrail(inputs: &ConditionInputs<'_>) -> Option<Finding> {
    let tripped = &inputs.status.tripped;
    let first = tripped.first()?;
    let messages: Vec<String> = tripped.iter().map(describe_trip).collect();
    Some(Finding {
        ready: ConditionStatus::False,
        reason: "GuardrailTripped",
        summary: format!("Guardrail: {}", first.guardrail),
        message: messages.join("; "),
        is_degraded: true,
        effort: if tripped.iter().any(|one| one.until.is_none()) {
            Effort::Stalled
        } else {
            Effort::None
        },
        notice: None,
    })
}

/// An unsigned stable revision does not do what the mode says. A candidate is a shadow
/// beside a stable revision that does.
fn unsigned(inputs: &ConditionInputs<'_>) -> Option<Finding> {
    let stable = inputs.status.stable.as_ref()?;
    if !inputs.stable_is_dry_run_only || inputs.mode != Some(Mode::Enforce) {
        return None;
    }
    Some(Finding {
        ready: ConditionStatus::False,
        reason: "Unsigned",
        summary: "Unsigned: dry run only".to_owned(),
        message: one_line(&load::say_unsigned(&stable.digest)),
        is_degraded: true,
        effort: Effort::Stalled,
        notice: Some((Topic::Trust, stable.digest.clone())),
    })
}

fn circuit_open(reason: &str) -> Finding {
    let kind = reason.split(':').next().unwrap_or_default();
    Finding {
        ready: ConditionStatus::False,
        reason: "CircuitOpen",
        summary: format!("CircuitOpen: {kind}"),
        message: one_line(&format!(
            "circuit open: five calls in a row failed, and the host does not call the guest for \
             a while; the last failure: {reason}"
        )),
        is_degraded: true,
        effort: Effort::None,
        notice: Some((Topic::Circuit, String::new())),
    }
}

/// Each refusal is in the log; the notice is of the first.
fn forbidden(refusal: &str) -> Finding {
    Finding {
        ready: ConditionStatus::False,
        reason: "Forbidden",
        summary: "Forbidden: requests are refused".to_owned(),
        message: one_line(&format!(
            "the API server refuses requests of the controller: {refusal}"
        )),
        is_degraded: true,
        effort: Effort::Stalled,
        notice: Some((Topic::Requests, String::new())),
    }
}

/// Each deletion that is deferred is in the log; the notice is of the first.
fn deferred_deletions(cause: &str) -> Finding {
    Finding {
        ready: ConditionStatus::False,
        reason: "DeletesDeferred",
        summary: "DeletesDeferred: undo cannot keep".to_owned(),
        message: one_line(&format!(
            "the host deletes nothing that spec.undo could not keep before: {cause}"
        )),
        is_degraded: true,
        effort: Effort::Stalled,
        notice: Some((Topic::Undo, String::new())),
    }
}

fn not_served() -> Finding {
    Finding {
        ready: ConditionStatus::False,
        reason: "NotServed",
        summary: "NotServed: a watched resource".to_owned(),
        message: "a watched resource is not served".to_owned(),
        is_degraded: true,
        effort: Effort::None,
        notice: Some((Topic::Served, String::new())),
    }
}

/// The state of a controller without errors.
fn undisturbed(inputs: &ConditionInputs<'_>) -> Finding {
    let status = inputs.status;
    let is_refused = inputs.spec_error.is_some() || inputs.problem.is_some();
    if inputs.loaded.is_none() && !is_refused {
        let message = "the host is loading the revision that the spec describes";
        return under_way(ConditionStatus::Unknown, "Loading", "Loading", message);
    }
    if inputs.mode == Some(Mode::Disabled) {
        let message = "the mode is Disabled: the host does not call the guest";
        return fine("Disabled", "Disabled", message);
    }
    if matches!(inputs.running, Readiness::No | Readiness::Starting) {
        let message = listed::waits_for(inputs);
        let cannot = inputs.pending.is_some_and(|one| one.hindrance.is_some());
        let summary = if cannot {
            "Starting: a list fails"
        } else {
            "Starting: waiting for lists"
        };
        return under_way(ConditionStatus::False, "Starting", summary, &message);
    }
    if let Some(candidate) = &status.candidate {
        return rolling_out(inputs, candidate);
    }
    if let Some(rejected) = &status.rejected {
        return rolled_back(rejected);
    }
    match inputs.mode {
        Some(Mode::DryRun) => fine(
            "DryRun",
            "DryRun",
            "plans are logged and counted, not executed",
        ),
        _ => fine("Running", "Running", "plans are executed"),
    }
}
