//! The condition `Authorized`: whether the account of a controller may open the watches of
//! its revisions, and whether the host may impersonate the account.

use std::borrow::Cow;

use super::{Condition, ConditionInputs, ConditionStatus, Effort, Finding, Readiness, Topic};
use crate::account::Account;
use crate::control::text::one_line;
use crate::request::review::AccessReview;

const AUTHORIZED: &str = "Authorized";
const NOT_AUTHORIZED: &str = "NotAuthorized";
const NOT_REVIEWED: &str = "NotReviewed";

/// What is known about the account of a controller.
#[derive(Clone, Debug)]
pub(in crate::control) enum Authorization<'a> {
    /// The spec names no account.
    OwnAccount,
    /// The account may open the watches, and the host may impersonate it.
    Allowed {
        /// What is allowed ([`say_allowed`]).
        allowed: Cow<'a, str>,
        /// Why the API server did not answer when it was asked again.
        failure: Option<&'a str>,
    },
    /// The API server has not answered yet.
    Unknown {
        account: Account,
        /// Why, if it was asked.
        failure: Option<&'a str>,
    },
    Denied(MissingAuthorization),
}

/// What a revision needs and what is not allowed.
#[derive(Clone, Debug)]
pub(in crate::control) struct MissingAuthorization {
    pub(in crate::control) account: Account,
    /// A revision that may not run.
    pub(in crate::control) revision: String,
    /// What is denied, with the API server's reasons. Not empty.
    pub(in crate::control) missing: Vec<(AccessReview, String)>,
    /// Whether the stable revision may not run either.
    pub(in crate::control) stops_stable: bool,
}

impl MissingAuthorization {
    pub(in crate::control) fn message(&self) -> String {
        let Self {
            account,
            revision,
            missing,
            ..
        } = self;
        let (impersonates, denied) = split(missing.iter().map(|(review, _)| review));
        let impersonation = impersonates.then(|| {
            format!(
                "Davit may not impersonate the ServiceAccount {account}, as which {revision} \
                 reads live and writes (bind a role with the verb impersonate on the account to \
                 Davit's own ServiceAccount)"
            )
        });
        let access = (!denied.is_empty()).then(|| {
            format!(
                "the ServiceAccount {account} may not do what {revision} needs (bind a role with \
                 it to the account): {}",
                denied.join(", ")
            )
        });
        let reasons = missing.iter().map(|(_, reason)| reason.clone());
        let reason = reasons.into_iter().find(|reason| !reason.is_empty());
        let parts: Vec<String> = [impersonation, access, reason]
            .into_iter()
            .flatten()
            .collect();
        one_line(&parts.join("; "))
    }
}

/// What the reviews ask for, in words.
pub(in crate::control) fn say_allowed<'a>(
    account: &Account,
    reviews: impl Iterator<Item = &'a AccessReview>,
) -> String {
    let (impersonates, access) = split(reviews);
    let impersonates = impersonates.then(|| format!("Davit may impersonate {account}"));
    let access = (!access.is_empty())
        .then(|| format!("the ServiceAccount {account} may {}", access.join(", ")));
    let parts: Vec<String> = [impersonates, access].into_iter().flatten().collect();
    match &*parts {
        [] => format!("the revisions need nothing of the ServiceAccount {account}"),
        parts => parts.join("; "),
    }
}

pub(super) fn condition(inputs: &ConditionInputs<'_>) -> Condition {
    let (status, reason, message) = match inputs.authorization {
        None => (
            ConditionStatus::Unknown,
            "NotReached",
            "not known: the revision that the spec describes is not loaded".into(),
        ),
        Some(authorization) => describe(authorization),
    };
    Condition {
        type_: AUTHORIZED,
        status,
        reason,
        message: one_line(&message),
    }
}

fn describe<'a>(
    authorization: &'a Authorization<'_>,
) -> (ConditionStatus, &'static str, Cow<'a, str>) {
    match authorization {
        Authorization::OwnAccount => (
            ConditionStatus::True,
            "OwnAccount",
            "spec.serviceAccountName is not set: the controller reads and writes with Davit's own \
             permissions"
                .into(),
        ),
        Authorization::Allowed { allowed, failure } => match failure {
            None => (ConditionStatus::True, "Reviewed", (&**allowed).into()),
            Some(failure) => (
                ConditionStatus::True,
                NOT_REVIEWED,
                format!("{allowed}, as the API server last said; {failure}").into(),
            ),
        },
        Authorization::Unknown { account, failure } => (
            ConditionStatus::Unknown,
            NOT_REVIEWED,
            unknown(account, *failure).into(),
        ),
        Authorization::Denied(denied) => (
            ConditionStatus::False,
            NOT_AUTHORIZED,
            denied.message().into(),
        ),
    }
}

fn unknown(account: &Account, failure: Option<&str>) -> String {
    let unknown =
        format!("the API server has not said yet what the ServiceAccount {account} may read");
    match failure {
        None => unknown,
        Some(failure) => format!("{unknown}: {failure}"),
    }
}

/// Whether the stable revision may not run.
pub(super) fn stops_stable(inputs: &ConditionInputs<'_>) -> bool {
    matches!(
        inputs.authorization,
        Some(Authorization::Denied(denied)) if denied.stops_stable
    )
}

/// A revision that may not run.
pub(super) fn finding(inputs: &ConditionInputs<'_>) -> Option<Finding> {
    let (reason, cause, message, stops_stable) = match inputs.authorization? {
        Authorization::Denied(denied) => {
            let (first, _) = denied.missing.first()?;
            let cause = format!(": {first}");
            (NOT_AUTHORIZED, cause, denied.message(), denied.stops_stable)
        }
        Authorization::Unknown {
            account,
            failure: Some(failure),
        } => {
            let message = unknown(account, Some(failure));
            (NOT_REVIEWED, String::new(), message, false)
        }
        _ => return None,
    };
    let consequence = match &inputs.status.stable {
        Some(stable) if !stops_stable && inputs.running != Readiness::No => {
            format!("the revision {} continues", stable.revision)
        }
        _ => "nothing runs".to_owned(),
    };
    Some(Finding {
        ready: ConditionStatus::False,
        reason,
        summary: format!("{reason}{cause}"),
        message: one_line(&format!("{consequence}: {message}")),
        is_degraded: true,
        effort: if reason == NOT_AUTHORIZED {
            Effort::Stalled
        } else {
            Effort::Reconciling
        },
        // Permissions may be withdrawn and granted again one after the other.
        notice: Some((Topic::Account, reason.to_owned())),
    })
}

/// Whether the impersonation is among the reviews, and the permissions of the account.
fn split<'a>(reviews: impl Iterator<Item = &'a AccessReview>) -> (bool, Vec<String>) {
    let (mut impersonates, mut permissions) = (false, Vec::new());
    for review in reviews {
        match review {
            AccessReview::Impersonation(_) => impersonates = true,
            AccessReview::Access(access) => permissions.push(access.to_string()),
        }
    }
    (impersonates, permissions)
}
