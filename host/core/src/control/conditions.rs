//! The conditions and the summary of a controller: a projection of its state.
//!
//! `Ready`, `Reconciling` and `Stalled` follow kstatus: kubectl wait, Flux and
//! other tools read them without knowing Davit.

mod authorized;
mod granted;
mod listed;
mod load;
#[cfg(test)]
mod tests;

pub(super) use self::authorized::{Authorization, NotAuthorized, say_allowed};
pub(super) use self::granted::{Granted, NotGranted};
use self::load::{load_conditions, refused_spec};
use super::loading::LoadProblem;
use super::text::{one_line, shortened};
use super::trips::describe as describe_trip;
use crate::api::{
    CandidateStatus, ControllerStatus, HostStatus, LostStatus, ModeConfig, RejectedStatus,
    SpecError,
};
use crate::observation::PendingResource;
use crate::rollout::progress::StepWait;

pub(super) const INVALID_SPEC: &str = "InvalidSpec";

/// The longest summary: a column of `kubectl get`.
pub(super) const LONGEST_SUMMARY: usize = 40;

/// What the conditions are made from.
pub(super) struct ConditionInputs<'a> {
    pub(super) name: &'a str,
    /// The revisions and the tripped guardrails.
    pub(super) status: &'a ControllerStatus,
    /// The mode of the last valid spec; none if there was none.
    pub(super) mode: Option<ModeConfig>,
    /// The error of the present spec, if it is invalid.
    pub(super) spec_error: Option<&'a SpecError>,
    /// Why the revision that the spec describes cannot be loaded.
    pub(super) problem: Option<&'a LoadProblem>,
    /// The module of the revision that the spec describes, once it is loaded.
    pub(super) loaded: Option<LoadedModule<'a>>,
    /// What that revision may read and write, if it may run.
    pub(super) granted: Option<&'a Granted>,
    /// What revisions declare and the operator does not grant.
    pub(super) not_granted: Option<&'a NotGranted>,
    /// What is known about the controller's account.
    pub(super) authorization: Option<&'a Authorization<'a>>,
    pub(super) running: Readiness,
    /// Whether the stable revision's module is unsigned, and may not write.
    pub(super) stable_is_dry_run_only: bool,
    /// The resource that keeps the stable revision from running.
    pub(super) pending: Option<&'a PendingResource>,
    /// Why the circuit of the stable revision is open.
    pub(super) circuit: Option<&'a str>,
    /// Why the candidate stays in its step.
    pub(super) hold: Option<&'a StepWait>,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<&'a str>,
    /// A request of the stable revision that the API server refuses as forbidden.
    pub(super) refused: Option<&'a str>,
    /// Another host that writes the same status.
    pub(super) other_host: Option<&'a HostStatus>,
    /// Whether this replica holds the controller's lease; if not, there are no leases.
    pub(super) has_lease: bool,
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
}

/// Who has to act on the state of a controller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    None,
    /// Davit is at work.
    Reconciling,
    /// Nothing changes unless somebody acts.
    Stalled,
}

/// One fact about a controller as a whole.
struct Finding {
    ready: ConditionStatus,
    reason: &'static str,
    summary: String,
    message: String,
    is_degraded: bool,
    effort: Effort,
    notice: Option<(Topic, String)>,
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
    conditions.extend(effort(&findings));
    let summary = findings.first().map(|first| first.summary.as_str());
    Description {
        summary: shortened(summary.unwrap_or_default(), LONGEST_SUMMARY),
        conditions,
        notices,
    }
}

/// The facts about a controller, the most urgent first; never none.
fn findings(inputs: &ConditionInputs<'_>) -> Vec<Finding> {
    let spec_error = inputs.spec_error.map(|error| invalid_spec(inputs, error));
    let other_host = inputs.other_host.map(another_host);
    let lost = inputs.status.lost.as_ref();
    let lost = lost.map(|lost| stable_lost(inputs.name, lost));
    let unrecorded = inputs.unrecorded.map(not_recorded);
    let circuit = inputs.circuit.map(circuit_open);
    let forbidden = inputs.refused.map(forbidden);
    let not_served = (inputs.running == Readiness::NotServed).then(not_served);
    let permissions = [granted::finding(inputs), authorized::finding(inputs)];
    // What stops everything comes before what disturbs a revision that runs.
    let (stopped, waits) = if inputs.running == Readiness::No {
        (permissions, [None, None])
    } else {
        ([None, None], permissions)
    };
    let refused = inputs.problem.filter(|_| inputs.spec_error.is_none());
    let refused = refused.map(|problem| refused_spec(inputs, problem));
    let all = [spec_error, other_host, lost, unrecorded]
        .into_iter()
        .chain(stopped)
        .chain([
            guardrail(inputs),
            unsigned(inputs),
            circuit,
            forbidden,
            not_served,
        ])
        .chain(waits)
        .chain([refused, listed::finding(inputs)]);
    all.flatten().chain([undisturbed(inputs)]).collect()
}

fn invalid_spec(inputs: &ConditionInputs<'_>, error: &SpecError) -> Finding {
    let message = say_bad_spec(inputs, error);
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

pub(super) fn say_bad_spec(inputs: &ConditionInputs<'_>, error: &SpecError) -> String {
    // Mode, permissions, guardrails and account are only in the spec.
    let consequence = match inputs.mode {
        Some(_) => "the last valid spec still applies",
        None => "nothing runs until the spec is valid",
    };
    one_line(&format!("{error}; {consequence}"))
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
    if !inputs.stable_is_dry_run_only || inputs.mode != Some(ModeConfig::Enforce) {
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
    if inputs.mode == Some(ModeConfig::Disabled) {
        let message = "the mode is Disabled: the host does not call the guest";
        return fine("Disabled", "Disabled", message);
    }
    if matches!(inputs.running, Readiness::No | Readiness::Starting) {
        let message = listed::waits_for(inputs.pending);
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
        Some(ModeConfig::DryRun) => fine(
            "DryRun",
            "DryRun",
            "plans are logged and counted, not executed",
        ),
        _ => fine("Running", "Running", "plans are executed"),
    }
}

fn fine(reason: &'static str, summary: &str, message: &str) -> Finding {
    Finding {
        ready: ConditionStatus::True,
        reason,
        summary: summary.to_owned(),
        message: message.to_owned(),
        is_degraded: false,
        effort: Effort::None,
        notice: None,
    }
}

fn under_way(
    ready: ConditionStatus,
    reason: &'static str,
    summary: &str,
    message: &str,
) -> Finding {
    Finding {
        ready,
        effort: Effort::Reconciling,
        ..fine(reason, summary, message)
    }
}

/// The controller works, but the revision of the spec is not stable yet.
fn rolling_out(inputs: &ConditionInputs<'_>, candidate: &CandidateStatus) -> Finding {
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

fn rolled_back(rejected: &RejectedStatus) -> Finding {
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

fn progressing(inputs: &ConditionInputs<'_>) -> Condition {
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
