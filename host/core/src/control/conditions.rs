//! The conditions and the summary of a controller: a projection of its state.
//!
//! `Ready`, `Reconciling` and `Stalled` follow kstatus: kubectl wait, Flux and
//! other tools read them without knowing Davit.

mod authorized;
mod finding;
mod findings;
mod granted;
mod listed;
mod load;
mod rollout;
#[cfg(test)]
mod tests;
mod undo;

pub(super) use self::authorized::{Authorization, MissingAuthorization, say_allowed};
use self::finding::{Effort, Finding};
use self::findings::findings;
pub(super) use self::granted::{GrantText, MissingGrant};
use self::load::load_conditions;
use self::rollout::progressing;
use super::journal::JournalState;
use super::loading::LoadProblem;
use super::text::shortened;
use crate::api::{ControllerStatus, HostStatus, SpecError};
use crate::gate::Mode;
use crate::observation::{InterruptedResource, PendingResource};
use crate::rollout::progress::StepWait;
use crate::undo::IdleKinds;

pub(super) const INVALID_SPEC: &str = "InvalidSpec";

/// The longest summary: a column of `kubectl get`.
pub(super) const LONGEST_SUMMARY: usize = 40;

/// What the conditions are made from.
pub(super) struct ConditionInputs<'a> {
    pub(super) name: &'a str,
    /// The revisions and the tripped guardrails.
    pub(super) status: &'a ControllerStatus,
    /// The mode of the last valid spec; none if there was none.
    pub(super) mode: Option<Mode>,
    /// The error of the present spec, if it is invalid.
    pub(super) spec_error: Option<&'a SpecError>,
    /// Why the revision that the spec describes cannot be loaded.
    pub(super) problem: Option<&'a LoadProblem>,
    /// The module of the revision that the spec describes, once it is loaded.
    pub(super) loaded: Option<LoadedModule<'a>>,
    /// What that revision may read and write, if it may run.
    pub(super) granted: Option<&'a GrantText>,
    /// What revisions declare and the operator does not grant.
    pub(super) not_granted: Option<&'a MissingGrant>,
    /// What is known about the controller's account.
    pub(super) authorization: Option<&'a Authorization<'a>>,
    pub(super) running: Readiness,
    /// The revision that runs until the stable one does; none if nothing runs until then.
    pub(super) former: Option<&'a str>,
    /// Whether the stable revision's module is unsigned, and may not write.
    pub(super) stable_is_dry_run_only: bool,
    /// The resource that keeps the stable revision from running.
    pub(super) pending: Option<&'a PendingResource>,
    /// A resource of the stable revision that does not follow the API server now.
    pub(super) interrupted: Option<&'a InterruptedResource>,
    /// Why the circuit of the stable revision is open.
    pub(super) circuit: Option<&'a str>,
    /// Why the candidate stays in its step.
    pub(super) hold: Option<&'a StepWait>,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<&'a str>,
    /// A request of the stable revision that the API server refuses as forbidden.
    pub(super) refused: Option<&'a str>,
    /// Why deletions are deferred: their targets cannot be kept for undo.
    pub(super) deferred_deletions: Option<&'a str>,
    /// The kinds of undo that keep nothing; none without undo, and until that is known.
    pub(super) idle_undo_kinds: Option<&'a IdleKinds>,
    /// Another host that writes the same status.
    pub(super) other_host: Option<&'a HostStatus>,
    /// Whether this replica holds the controller's lease; if not, there are no leases.
    pub(super) has_lease: bool,
    /// The state of the host's journal; none without one.
    pub(super) journal: Option<JournalState>,
}

/// A loaded module.
#[derive(Clone, Copy)]
pub(super) struct LoadedModule<'a> {
    /// The source.
    pub(super) origin: &'a str,
    /// `sha256:…`
    pub(super) digest: &'a str,
    /// Why it was loaded from the module cache.
    pub(super) away: Option<&'a str>,
    /// Whether the spec pins the digest.
    pub(super) is_pinned: bool,
    /// Whether the module is unsigned, and may not write.
    pub(super) is_dry_run_only: bool,
}

/// The readiness of the stable revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// There is no stable revision, or the host does not run it.
    No,
    /// Its first lists are not complete.
    Starting,
    /// A resource that it watches is not served.
    NotServed,
    /// Its watches are synced.
    Yes,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) type_: &'static str,
    pub(super) status: ConditionStatus,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The summary, the conditions and the notices of a controller.
pub(super) struct Description {
    /// What to act on first, in at most [`LONGEST_SUMMARY`] characters.
    pub(super) summary: String,
    pub(super) conditions: Vec<Condition>,
    /// The notices of problems, when they start and when they end.
    pub(super) notices: Vec<TopicNotice>,
}

/// A notice that is sent once while topic and key stay the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicNotice {
    pub(super) topic: Topic,
    pub(super) key: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The topic of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Spec,
    Grant,
    Account,
    Host,
    Stable,
    Circuit,
    Served,
    Step,
    Trust,
    Requests,
    Undo,
}

/// The conditions and the summary.
pub(super) fn describe(inputs: &ConditionInputs<'_>) -> Description {
    let findings = findings(inputs);
    let notices = findings.iter().filter_map(|finding| {
        let (topic, key) = finding.notice.clone()?;
        Some(TopicNotice {
            topic,
            key,
            reason: finding.reason,
            message: finding.message.clone(),
        })
    });
    let notices = notices.collect();
    let mut conditions = vec![ready(&findings)];
    conditions.extend(load_conditions(inputs));
    conditions.push(granted::condition(inputs));
    conditions.push(authorized::condition(inputs));
    conditions.push(listed::condition(inputs));
    conditions.push(leading(inputs));
    conditions.push(progressing(inputs));
    conditions.push(degraded(inputs, &findings));
    conditions.extend(inputs.journal.map(recording));
    conditions.extend(inputs.idle_undo_kinds.map(undo::condition));
    conditions.extend(effort(&findings));
    let summary = findings.first().map(|first| first.summary.as_str());
    Description {
        summary: shortened(summary.unwrap_or_default(), LONGEST_SUMMARY),
        conditions,
        notices,
    }
}

fn ready(findings: &[Finding]) -> Condition {
    let first = findings.first();
    Condition {
        type_: "Ready",
        status: first.map_or(ConditionStatus::Unknown, |first| first.ready),
        reason: first.map_or("Unknown", |first| first.reason),
        message: first.map(|first| first.message.clone()).unwrap_or_default(),
    }
}

fn degraded(inputs: &ConditionInputs<'_>, findings: &[Finding]) -> Condition {
    let degraded: Vec<&Finding> = findings.iter().filter(|one| one.is_degraded).collect();
    let messages = degraded.iter().map(|finding| finding.message.as_str());
    let messages: Vec<&str> = messages.collect();
    let (status, reason, message) = match degraded.first() {
        Some(first) => (ConditionStatus::True, first.reason, messages.join("; ")),
        None if inputs.running == Readiness::Yes => {
            let message = "the stable revision runs";
            (ConditionStatus::False, "Healthy", message.to_owned())
        }
        None => {
            let message = "the stable revision does not run yet";
            (ConditionStatus::Unknown, "Starting", message.to_owned())
        }
    };
    Condition {
        type_: "Degraded",
        status,
        reason,
        message,
    }
}

/// These two are absent unless they are True, as kstatus requires.
fn effort(findings: &[Finding]) -> Option<Condition> {
    let with = |effort: Effort| findings.iter().find(|finding| finding.effort == effort);
    let said = |type_: &'static str, finding: &Finding| Condition {
        type_,
        status: ConditionStatus::True,
        reason: finding.reason,
        message: finding.message.clone(),
    };
    let stalled = with(Effort::Stalled).map(|finding| said("Stalled", finding));
    stalled.or_else(|| with(Effort::Reconciling).map(|finding| said("Reconciling", finding)))
}

fn leading(inputs: &ConditionInputs<'_>) -> Condition {
    let (status, reason, message) = match inputs.other_host {
        _ if inputs.has_lease => {
            let message = format!("a replica holds the Lease controller-{}", inputs.name);
            (ConditionStatus::True, "LeaseHolder", message)
        }
        None => {
            let message = "no other host has written this status";
            (ConditionStatus::True, "OnlyReplica", message.to_owned())
        }
        Some(host) => {
            let message = format!("the host {} runs this Controller too", host.name);
            (ConditionStatus::Unknown, "AnotherHost", message)
        }
    };
    Condition {
        type_: "Leading",
        status,
        reason,
        message,
    }
}

/// The condition exists only where there is a journal. Nothing waits for it.
fn recording(journal: JournalState) -> Condition {
    let (status, reason, message) = match journal {
        JournalState::Recording => (
            ConditionStatus::True,
            "JournalRecords",
            "the journal of the host has the decisions",
        ),
        JournalState::Stopped => (
            ConditionStatus::False,
            "JournalStopped",
            "the journal of the host records nothing: plans are executed all the same, but for \
             deletions that spec.undo has to keep, and davit replay, why and backtest lack them",
        ),
    };
    Condition {
        type_: "Recording",
        status,
        reason,
        message: message.to_owned(),
    }
}
