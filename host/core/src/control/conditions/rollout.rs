//! What is to say about a rollout: a candidate, or one that was rolled back.

use super::finding::{Effort, Finding, fine, under_way};
use super::{Condition, ConditionInputs, ConditionStatus, Topic};
use crate::api::{CandidateStatus, RejectedStatus};
use crate::control::text::one_line;
use crate::rollout::progress::StepWait;

pub(super) fn progressing(inputs: &ConditionInputs<'_>) -> Condition {
    let status = inputs.status;
    let (is, reason, message) = match (&status.candidate, &status.rejected, &status.stable) {
        (Some(candidate), ..) => (ConditionStatus::True, "Rollout", say_candidate(candidate)),
        (None, Some(rejected), _) => (ConditionStatus::False, "RolledBack", say_rejected(rejected)),
        (None, None, Some(stable)) => {
            let message = format!("{} is the stable revision", stable.revision);
            (ConditionStatus::False, "Stable", message)
        }
        (None, None, None) => {
            let message = "there is no stable revision yet".to_owned();
            (ConditionStatus::False, "NoRevision", message)
        }
    };
    Condition {
        type_: "Progressing",
        status: is,
        reason,
        message,
    }
}

/// The controller works, but the revision of the spec is not stable yet.
pub(super) fn rolling_out(inputs: &ConditionInputs<'_>, candidate: &CandidateStatus) -> Finding {
    let CandidateStatus {
        revision,
        step,
        steps,
        ..
    } = candidate;
    let (reason, words) = match inputs.hold {
        Some(StepWait::Paused) => ("Paused", "Paused"),
        Some(StepWait::Inconclusive { .. }) => ("Inconclusive", "Inconclusive"),
        Some(StepWait::UntilPromoted) => ("AwaitingPromotion", "Awaiting promotion"),
        None if inputs.loaded.is_some_and(|loaded| loaded.is_dry_run_only) => {
            ("Unsigned", "Unsigned, shadow only")
        }
        Some(StepWait::Running { .. }) | None => ("RollingOut", "Rolling out"),
    };
    let is_inconclusive = matches!(inputs.hold, Some(StepWait::Inconclusive { .. }));
    Finding {
        notice: is_inconclusive.then(|| (Topic::Step, format!("{revision} {step}"))),
        ..under_way(
            ConditionStatus::True,
            reason,
            &format!("{words}: step {step} of {steps}"),
            &say_candidate(candidate),
        )
    }
}

pub(super) fn rolled_back(rejected: &RejectedStatus) -> Finding {
    let summary = match rejected.cause.as_str() {
        "" => "RolledBack".to_owned(),
        cause => format!("RolledBack: {cause}"),
    };
    Finding {
        ready: ConditionStatus::False,
        effort: Effort::Stalled,
        ..fine("RolledBack", &summary, &say_rejected(rejected))
    }
}

fn say_candidate(candidate: &CandidateStatus) -> String {
    one_line(&format!(
        "{}: step {} of {}, {}: {}",
        candidate.revision,
        candidate.step,
        candidate.steps,
        candidate.step_text,
        candidate.waits_for
    ))
}

fn say_rejected(rejected: &RejectedStatus) -> String {
    one_line(&format!(
        "{} was rolled back in step {}: {}",
        rejected.revision, rejected.step, rejected.reason
    ))
}
