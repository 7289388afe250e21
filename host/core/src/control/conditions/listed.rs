//! The condition `Synced`: whether the cache has all that a guest watches.

use super::{Condition, ConditionInputs, ConditionStatus, Effort, Finding, Readiness};
use crate::control::text::one_line;
use crate::observation::PendingResource;

const NOT_LISTED: &str = "NotListed";

pub(super) fn condition(inputs: &ConditionInputs<'_>) -> Condition {
    let (status, reason, message) = match (inputs.running, does_without(inputs)) {
        (Readiness::Yes, Some(pending)) => (
            ConditionStatus::False,
            NOT_LISTED,
            one_line(&pending.to_string()),
        ),
        (Readiness::Yes, None) if let Some(interrupted) = inputs.interrupted => (
            ConditionStatus::False,
            "Interrupted",
            one_line(&interrupted.to_string()),
        ),
        (Readiness::Yes, None) => (
            ConditionStatus::True,
            "Synced",
            "every watch is synced".to_owned(),
        ),
        (Readiness::NotServed, _) => (
            ConditionStatus::False,
            "NotServed",
            "a watched resource is not served".to_owned(),
        ),
        (Readiness::Starting, _) => {
            let message = waits_for(inputs);
            (ConditionStatus::False, "Waiting", message)
        }
        (Readiness::No, _) => {
            let message = "no revision runs".to_owned();
            (ConditionStatus::False, "Waiting", message)
        }
    };
    Condition {
        type_: "Synced",
        status,
        reason,
        message,
    }
}

/// A revision that runs without some of the resources that it watches, as
/// kube-controller-manager's garbage collector does.
pub(super) fn finding(inputs: &ConditionInputs<'_>) -> Option<Finding> {
    let pending = does_without(inputs)?;
    Some(Finding {
        ready: ConditionStatus::True,
        reason: NOT_LISTED,
        summary: format!("{NOT_LISTED}: {}", pending.resource),
        message: one_line(&format!(
            "the guest decides without some objects: {pending}"
        )),
        is_degraded: true,
        effort: Effort::None,
        notice: None,
    })
}

/// Why a revision does not run yet, and what runs until then.
pub(super) fn waits_for(inputs: &ConditionInputs<'_>) -> String {
    let what = "the first lists of the watched resources are not complete";
    let until_then = match inputs.former {
        Some(former) => format!("; until then {former} runs"),
        None => String::new(),
    };
    match inputs.pending {
        Some(pending) => format!("{what}{until_then}: {pending}"),
        None => format!("{what}{until_then}"),
    }
}

/// A resource that cannot be listed, while the stable revision runs.
fn does_without<'a>(inputs: &ConditionInputs<'a>) -> Option<&'a PendingResource> {
    let pending = inputs.pending.filter(|_| inputs.running == Readiness::Yes);
    pending.filter(|one| one.hindrance.is_some())
}
