//! How a controller is: a pure projection of what is known of it onto
//! Kubernetes' conditions and a few words.
//!
//! `Ready`, `Reconciling` and `Stalled` follow kstatus: kubectl wait, Flux and
//! other tools read them without knowing Davit.

use davit_core::rollout::progress::Hold;

use super::preparation::{CONFIGURED, RESOLVED, preparation};
use super::revision::Problem;
use super::text::{one_line, shortened};
use super::trips::say_tripped;
use davit_core::api::{CandidateStatus, ControllerStatus, HostStatus, LostStatus, RejectedStatus};
use davit_core::api::{ModeConfig, SpecError};
use davit_core::observation::PendingResource;

pub(super) const BAD_SPEC: &str = "BadSpec";

/// The longest summary: a column of `kubectl get`.
pub(super) const LONGEST_SUMMARY: usize = 40;

/// All that is known of a controller as a whole.
pub(super) struct Facts<'a> {
    pub(super) name: &'a str,
    /// Revisions, and what became of them.
    pub(super) status: &'a ControllerStatus,
    /// What the last spec says that could be read; none as long as there was
    /// none.
    pub(super) mode: Option<ModeConfig>,
    /// Why the present spec cannot be read.
    pub(super) spec_error: Option<&'a SpecError>,
    /// Why what the spec describes cannot run.
    pub(super) problem: Option<&'a Problem>,
    /// The module of what the spec describes, once that can run.
    pub(super) loaded: Option<Loaded<'a>>,
    pub(super) running: Running,
    /// The resource that keeps it from running.
    pub(super) awaited: Option<&'a PendingResource>,
    /// Why the stable revision's guest is not called for a while.
    pub(super) circuit: Option<&'a str>,
    /// Why the candidate stays in its step.
    pub(super) hold: Option<&'a Hold>,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<&'a str>,
    /// Another host that writes the same status.
    pub(super) other_host: Option<&'a HostStatus>,
}

/// A module that is ready to run.
#[derive(Clone, Copy)]
pub(super) struct Loaded<'a> {
    /// Where it comes from.
    pub(super) origin: &'a str,
    /// `sha256:…`
    pub(super) digest: &'a str,
    /// Why it was loaded from the module cache.
    pub(super) away: Option<&'a str>,
    /// Whether the spec pins the digest.
    pub(super) is_pinned: bool,
}

/// How far the stable revision is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    /// There is none, or the host does not run it.
    No,
    /// Its first lists are not complete.
    Starting,
    /// A resource that it watches is not served.
    NotServed,
    /// It sees everything that it watches.
    Yes,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    True,
    False,
    Unknown,
}

impl Known {
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
pub(super) struct Said {
    pub(super) type_: &'static str,
    pub(super) status: Known,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What is said of a controller.
pub(super) struct Description {
    /// What to act on first, in at most [`LONGEST_SUMMARY`] characters.
    pub(super) summary: String,
    pub(super) conditions: Vec<Said>,
    /// What people are told when it starts, and when it ends.
    pub(super) notices: Vec<Notice>,
}

/// Something that people are told once, as long as topic and key stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) topic: Topic,
    pub(super) key: String,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What a notice is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    Spec,
    Host,
    Stable,
    Circuit,
    Served,
    Step,
}

/// What is to be done about the state of a controller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effort {
    None,
    /// Davit is at it.
    Reconciling,
    /// Nothing changes unless somebody acts.
    Stalled,
}

/// One thing that is so with a controller as a whole.
struct Finding {
    ready: Known,
    reason: &'static str,
    summary: String,
    message: String,
    is_degraded: bool,
    effort: Effort,
    notice: Option<(Topic, String)>,
}

/// Says how a controller is.
pub(super) fn describe(facts: &Facts<'_>) -> Description {
    let findings = findings(facts);
    let notices = findings.iter().filter_map(|finding| {
        let (topic, key) = finding.notice.clone()?;
        Some(Notice {
            topic,
            key,
            reason: finding.reason,
            message: finding.message.clone(),
        })
    });
    let notices = notices.collect();
    let mut conditions = vec![ready(&findings)];
    conditions.extend(preparation(facts));
    conditions.push(synced(facts));
    conditions.push(leading(facts));
    conditions.push(progressing(facts));
    conditions.push(degraded(facts, &findings));
    conditions.extend(effort(&findings));
    let summary = findings.first().map(|first| first.summary.as_str());
    Description {
        summary: shortened(summary.unwrap_or_default(), LONGEST_SUMMARY),
        conditions,
        notices,
    }
}

/// What is so with a controller, the most urgent first; never nothing.
fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let spec_error = facts.spec_error.map(|error| bad_spec(facts, error));
    let other_host = facts.other_host.map(another_host);
    let lost = facts.status.lost.as_ref();
    let lost = lost.map(|lost| stable_lost(facts.name, lost));
    let unrecorded = facts.unrecorded.map(not_recorded);
    let circuit = facts.circuit.map(circuit_open);
    let not_served = (facts.running == Running::NotServed).then(not_served);
    let refused = facts.problem.filter(|_| facts.spec_error.is_none());
    let refused = refused.map(|problem| refused_spec(facts, problem));
    let troubles = [
        spec_error,
        other_host,
        lost,
        unrecorded,
        guardrail(facts),
        circuit,
        not_served,
        refused,
    ];
    let all = troubles.into_iter().flatten();
    all.chain([undisturbed(facts)]).collect()
}

fn bad_spec(facts: &Facts<'_>, error: &SpecError) -> Finding {
    let message = say_bad_spec(facts, error);
    Finding {
        ready: Known::False,
        reason: BAD_SPEC,
        summary: format!("{BAD_SPEC}: {}", error.field),
        notice: Some((Topic::Spec, message.clone())),
        message,
        is_degraded: true,
        effort: Effort::Stalled,
    }
}

pub(super) fn say_bad_spec(facts: &Facts<'_>, error: &SpecError) -> String {
    // Mode, permissions, guardrails and account stand in the spec alone.
    let consequence = match facts.mode {
        Some(_) => "the last spec that could be read still applies",
        None => "nothing runs until the spec says again how it may",
    };
    one_line(&format!("{error}; {consequence}"))
}

fn another_host(host: &HostStatus) -> Finding {
    let HostStatus { id, name, .. } = host;
    Finding {
        ready: Known::False,
        reason: "AnotherHost",
        summary: format!("AnotherHost: {name}"),
        message: format!(
            "the host {name} ({id}) runs this Controller too: both write its status, and each \
             counts its guardrails by itself; stop one of them"
        ),
        is_degraded: true,
        effort: Effort::None,
        notice: Some((Topic::Host, id.clone())),
    }
}

fn stable_lost(name: &str, lost: &LostStatus) -> Finding {
    let way = match &lost.ready {
        Some(ready) => {
            format!("davit promote --full {name} gives it up for {ready}, which the spec describes")
        }
        None => "what the spec describes cannot be loaded yet either".to_owned(),
    };
    let reason = &lost.reason;
    Finding {
        ready: Known::False,
        reason: "StableLost",
        summary: "StableLost: nothing runs".to_owned(),
        message: one_line(&format!(
            "the stable revision cannot be loaded again, and nothing runs: {reason}; {way}"
        )),
        is_degraded: true,
        effort: Effort::Stalled,
        notice: Some((Topic::Stable, lost.since.clone())),
    }
}

/// It is told by whoever fails to record, as often as is good for a log.
fn not_recorded(cause: &str) -> Finding {
    Finding {
        ready: Known::False,
        reason: "NotRecorded",
        summary: match cause {
            _ if cause.contains("forbidden") => "NotRecorded: forbidden".to_owned(),
            _ if cause.contains("not found") => "NotRecorded: not found".to_owned(),
            _ => format!("NotRecorded: {cause}"),
        },
        message: one_line(&format!(
            "the rollout cannot be recorded, so nothing new takes over, and what runs goes on: \
             {cause}"
        )),
        is_degraded: true,
        effort: Effort::Reconciling,
        notice: None,
    }
}

/// Each trip is told when it is first seen.
fn guardrail(facts: &Facts<'_>) -> Option<Finding> {
    let tripped = &facts.status.tripped;
    let first = tripped.first()?;
    let messages: Vec<String> = tripped.iter().map(say_tripped).collect();
    Some(Finding {
        ready: Known::False,
        reason: "Guardrail",
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

fn circuit_open(reason: &str) -> Finding {
    let kind = reason.split(':').next().unwrap_or_default();
    Finding {
        ready: Known::False,
        reason: "CircuitOpen",
        summary: format!("CircuitOpen: {kind}"),
        message: one_line(&format!(
            "circuit open: five calls in a row failed, and the guest is not called for a while; \
             the last failure: {reason}"
        )),
        is_degraded: true,
        effort: Effort::None,
        notice: Some((Topic::Circuit, String::new())),
    }
}

fn not_served() -> Finding {
    Finding {
        ready: Known::False,
        reason: "NotServed",
        summary: "NotServed: a watched resource".to_owned(),
        message: "a resource that it watches is not served".to_owned(),
        is_degraded: true,
        effort: Effort::None,
        notice: Some((Topic::Served, String::new())),
    }
}

fn refused_spec(facts: &Facts<'_>, problem: &Problem) -> Finding {
    let consequence = match &facts.status.stable {
        Some(stable) if facts.running != Running::No => {
            format!("the revision {} goes on", stable.revision)
        }
        _ => "nothing runs".to_owned(),
    };
    let part = if problem.condition == CONFIGURED {
        "configuration"
    } else {
        "module"
    };
    let message = format!("the spec is refused: {}; {consequence}", problem.message);
    Finding {
        ready: Known::False,
        reason: problem.reason,
        summary: format!("{}: {part}", problem.reason),
        message: one_line(&message),
        is_degraded: true,
        // A source that is away may come back by itself.
        effort: if problem.condition == RESOLVED {
            Effort::Reconciling
        } else {
            Effort::Stalled
        },
        notice: Some((Topic::Spec, problem.message.clone())),
    }
}

/// How a controller is without what was found wrong.
fn undisturbed(facts: &Facts<'_>) -> Finding {
    let status = facts.status;
    let is_trouble = facts.spec_error.is_some() || facts.problem.is_some();
    if facts.loaded.is_none() && !is_trouble {
        let message = "the revision that the spec describes is being prepared";
        return under_way(Known::Unknown, "Preparing", "Preparing", message);
    }
    if facts.mode == Some(ModeConfig::Disabled) {
        let message = "the guest is not called, as the spec asks";
        return fine("Disabled", "Disabled", message);
    }
    if matches!(facts.running, Running::No | Running::Starting) {
        let message = unlisted(facts.awaited);
        let cannot = facts.awaited.is_some_and(|one| one.hindrance.is_some());
        let summary = if cannot {
            "Starting: a list fails"
        } else {
            "Starting: waiting for lists"
        };
        return under_way(Known::False, "Starting", summary, &message);
    }
    if let Some(candidate) = &status.candidate {
        return rolling_out(facts, candidate);
    }
    if let Some(rejected) = &status.rejected {
        return rolled_back(rejected);
    }
    match facts.mode {
        Some(ModeConfig::DryRun) => fine("DryRun", "DryRun", "plans are shown, not carried out"),
        _ => fine("Running", "Running", "plans are carried out"),
    }
}

/// Why a revision does not run yet.
fn unlisted(awaited: Option<&PendingResource>) -> String {
    let what = "the first lists of what it watches are not complete";
    awaited.map_or_else(|| what.to_owned(), |awaited| format!("{what}: {awaited}"))
}

fn fine(reason: &'static str, summary: &str, message: &str) -> Finding {
    Finding {
        ready: Known::True,
        reason,
        summary: summary.to_owned(),
        message: message.to_owned(),
        is_degraded: false,
        effort: Effort::None,
        notice: None,
    }
}

fn under_way(ready: Known, reason: &'static str, summary: &str, message: &str) -> Finding {
    Finding {
        ready,
        effort: Effort::Reconciling,
        ..fine(reason, summary, message)
    }
}

/// The controller works meanwhile: what the spec describes is still to come.
fn rolling_out(facts: &Facts<'_>, candidate: &CandidateStatus) -> Finding {
    let CandidateStatus {
        revision,
        step,
        steps,
        ..
    } = candidate;
    let (reason, words) = match facts.hold {
        Some(Hold::Paused) => ("Paused", "Paused"),
        Some(Hold::Inconclusive { .. }) => ("Inconclusive", "Inconclusive"),
        Some(Hold::UntilPromoted) => ("AwaitingPromotion", "Awaiting promotion"),
        Some(Hold::Running { .. }) | None => ("RollingOut", "Rolling out"),
    };
    let is_inconclusive = matches!(facts.hold, Some(Hold::Inconclusive { .. }));
    Finding {
        notice: is_inconclusive.then(|| (Topic::Step, format!("{revision} {step}"))),
        ..under_way(
            Known::True,
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
        ready: Known::False,
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

fn ready(findings: &[Finding]) -> Said {
    let first = findings.first();
    Said {
        type_: "Ready",
        status: first.map_or(Known::Unknown, |first| first.ready),
        reason: first.map_or("Unknown", |first| first.reason),
        message: first.map(|first| first.message.clone()).unwrap_or_default(),
    }
}

fn degraded(facts: &Facts<'_>, findings: &[Finding]) -> Said {
    let degraded: Vec<&Finding> = findings.iter().filter(|one| one.is_degraded).collect();
    let messages = degraded.iter().map(|finding| finding.message.as_str());
    let messages: Vec<&str> = messages.collect();
    let (status, reason, message) = match degraded.first() {
        Some(first) => (Known::True, first.reason, messages.join("; ")),
        None if facts.running == Running::Yes => {
            let message = "the stable revision runs";
            (Known::False, "Healthy", message.to_owned())
        }
        None => {
            let message = "the stable revision does not run yet";
            (Known::Unknown, "Starting", message.to_owned())
        }
    };
    Said {
        type_: "Degraded",
        status,
        reason,
        message,
    }
}

/// These two are absent unless they are true, as kstatus has it.
fn effort(findings: &[Finding]) -> Option<Said> {
    let with = |effort: Effort| findings.iter().find(|finding| finding.effort == effort);
    let said = |type_: &'static str, finding: &Finding| Said {
        type_,
        status: Known::True,
        reason: finding.reason,
        message: finding.message.clone(),
    };
    let stalled = with(Effort::Stalled).map(|finding| said("Stalled", finding));
    stalled.or_else(|| with(Effort::Reconciling).map(|finding| said("Reconciling", finding)))
}

fn synced(facts: &Facts<'_>) -> Said {
    let text = str::to_owned;
    let (status, reason, message) = match facts.running {
        Running::Yes => (
            Known::True,
            "Synced",
            text("it sees everything that it watches"),
        ),
        Running::NotServed => (
            Known::False,
            "NotServed",
            text("a resource that it watches is not served"),
        ),
        Running::Starting => (Known::False, "Waiting", unlisted(facts.awaited)),
        Running::No => (Known::False, "Waiting", text("no revision runs")),
    };
    Said {
        type_: "Synced",
        status,
        reason,
        message,
    }
}

fn leading(facts: &Facts<'_>) -> Said {
    let (status, reason, message) = match facts.other_host {
        None => {
            let message = "no other host has written this status";
            (Known::True, "OnlyReplica", message.to_owned())
        }
        Some(host) => {
            let message = format!("the host {} runs this Controller too", host.name);
            (Known::Unknown, "AnotherHost", message)
        }
    };
    Said {
        type_: "Leading",
        status,
        reason,
        message,
    }
}

fn progressing(facts: &Facts<'_>) -> Said {
    let status = facts.status;
    let (is, reason, message) = match (&status.candidate, &status.rejected, &status.stable) {
        (Some(candidate), ..) => (Known::True, "Rollout", say_candidate(candidate)),
        (None, Some(rejected), _) => (Known::False, "RolledBack", say_rejected(rejected)),
        (None, None, Some(stable)) => {
            let message = format!("{} is the stable revision", stable.revision);
            (Known::False, "Stable", message)
        }
        (None, None, None) => {
            let message = "there is no stable revision yet".to_owned();
            (Known::False, "NoRevision", message)
        }
    };
    Said {
        type_: "Progressing",
        status: is,
        reason,
        message,
    }
}

#[cfg(test)]
#[path = "conditions_tests.rs"]
mod tests;
