//! The condition `GrantText`: whether the operator grants what a revision declares.

use super::{Condition, ConditionInputs, ConditionStatus, Effort, Finding, Readiness, Topic};
use crate::control::text::one_line;
use crate::grant::Permissions;

const GRANTED: &str = "Granted";
const NOT_GRANTED: &str = "NotGranted";

/// What a revision may read and write, in words. They are long, and rarely change.
#[derive(Clone, Debug)]
pub(in crate::control) struct GrantText {
    reason: &'static str,
    message: String,
}

impl GrantText {
    /// The guest ships with Davit.
    pub(in crate::control) fn shipped(declared: &Permissions) -> Self {
        Self::new(
            "ShipsWithDavit",
            &format!("the guest ships with Davit and may do what it declares: {declared}"),
        )
    }

    /// The controller is of a configuration file without permissions.
    pub(in crate::control) fn file(declared: &Permissions) -> Self {
        Self::new(
            "ConfigurationFile",
            &format!("the configuration file grants what the guest declares: {declared}"),
        )
    }

    /// The rules of the spec cover what the guest declares.
    pub(in crate::control) fn rules(rules: &Permissions) -> Self {
        Self::new(GRANTED, &format!("spec.permissions grants: {rules}"))
    }

    fn new(reason: &'static str, message: &str) -> Self {
        Self {
            reason,
            message: one_line(message),
        }
    }
}

/// What revisions declare and the operator does not grant.
#[derive(Clone, Debug)]
pub(in crate::control) struct MissingGrant {
    /// A revision that may not run.
    pub(in crate::control) revision: String,
    /// What it declares and the spec does not grant.
    pub(in crate::control) missing: Permissions,
    /// The rules with which every revision may run.
    pub(in crate::control) to_add: Permissions,
    /// Whether the stable revision may not run either.
    pub(in crate::control) stops_stable: bool,
}

impl MissingGrant {
    /// What to do comes first: the list may be cut.
    pub(in crate::control) fn message(&self, controller: &str) -> String {
        one_line(&format!(
            "{} declares more than spec.permissions grants (davit grant {controller} --apply \
             adds the rules): {}",
            self.revision, self.missing
        ))
    }
}

pub(super) fn condition(inputs: &ConditionInputs<'_>) -> Condition {
    let (status, reason, message) = match (inputs.not_granted, inputs.granted) {
        (Some(not_granted), _) => (
            ConditionStatus::False,
            NOT_GRANTED,
            not_granted.message(inputs.name),
        ),
        (None, Some(GrantText { reason, message })) => {
            (ConditionStatus::True, *reason, message.clone())
        }
        (None, None) => (
            ConditionStatus::Unknown,
            "NotReached",
            "not known: the revision that the spec describes is not loaded".to_owned(),
        ),
    };
    Condition {
        type_: GRANTED,
        status,
        reason,
        message,
    }
}

/// Whether the stable revision may not run.
pub(super) fn stops_stable(inputs: &ConditionInputs<'_>) -> bool {
    inputs.not_granted.is_some_and(|one| one.stops_stable)
}

/// A revision that may not run.
pub(super) fn finding(inputs: &ConditionInputs<'_>) -> Option<Finding> {
    let not_granted = inputs.not_granted?;
    let consequence = match &inputs.status.stable {
        Some(stable) if !not_granted.stops_stable && inputs.running != Readiness::No => {
            format!("the revision {} continues", stable.revision)
        }
        _ => "nothing runs".to_owned(),
    };
    let message = not_granted.message(inputs.name);
    Some(Finding {
        ready: ConditionStatus::False,
        reason: NOT_GRANTED,
        summary: format!("{NOT_GRANTED}: run davit grant"),
        message: one_line(&format!("{consequence}: {message}")),
        is_degraded: true,
        effort: Effort::Stalled,
        notice: Some((Topic::Grant, message)),
    })
}
