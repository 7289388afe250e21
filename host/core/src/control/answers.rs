//! The host's answers to the requests of operators.
//!
//! Every request gets one answer in the status, which is recorded together with its
//! effect. A request that does not fit the state is refused and has no effect later; an
//! answered request is not in force any more. A request that fits and cannot be
//! fulfilled yet is `Pending`, and stays in force.

use super::notice::Notice;
use super::requests::{RequestKind, Requests, reset, rollout_name, subject};
use crate::api::{CandidateStatus, ControllerStatus, RequestResult, RequestStatus};
use crate::mutant::Mutant;
use crate::time::Wall;
use crate::times::time;

/// A request without a final answer.
pub(super) struct OpenRequest {
    kind: RequestKind,
    value: String,
    /// Why the request does not fit the state; none if it does.
    misfit: Option<String>,
}

/// The results of the requests.
pub(super) struct Outcome<'a> {
    /// The status after the reconcile with these requests.
    pub(super) status: &'a ControllerStatus,
    /// The requests that were in force.
    pub(super) in_force: &'a Requests,
    /// Whether the controller's stable revision runs on this host.
    pub(super) is_running: bool,
    /// The revision that the spec describes, if it is loaded.
    pub(super) described: Option<&'a str>,
    /// Why the revision that the spec describes cannot run. Few answers say it.
    pub(super) problem: &'a dyn Fn() -> Option<String>,
}

type Answer = (RequestResult, String);

/// Finds the requests that are in force, and those that need an answer.
pub(super) fn review(
    requests: &Requests,
    status: &ControllerStatus,
    generation: Option<i64>,
) -> (Requests, Vec<OpenRequest>) {
    let mut in_force = requests.clone();
    let mut open = Vec::new();
    for kind in RequestKind::ALL {
        let Some(value) = requests.get(kind) else {
            continue;
        };
        match final_answer(status, kind, value) {
            // The status still has the trip: after a crash in between, the next host
            // resets it again. A reset that names no trip, or another, is done.
            Some(RequestResult::Done)
                if kind == RequestKind::Reset && status.last_trip() == Some(subject(value)) => {}
            Some(_) if !Mutant::AnswerTwice.is_active() => in_force.clear(kind),
            _ => {
                let misfit = misfit(status, generation, kind, subject(value));
                if misfit.is_some() {
                    in_force.clear(kind);
                }
                let value = value.to_owned();
                open.push(OpenRequest {
                    kind,
                    value,
                    misfit,
                });
            }
        }
    }
    (in_force, open)
}

/// The answers after a reconcile: the former answers to present requests, and new ones
/// to open requests. Adds a notice for each refused request.
pub(super) fn answer(
    former: &[RequestStatus],
    requests: &Requests,
    open: Vec<OpenRequest>,
    outcome: &Outcome<'_>,
    now: Wall,
    notices: &mut Vec<Notice>,
) -> Vec<RequestStatus> {
    let mut answers = former.to_vec();
    answers.retain(|answer| {
        let mut all = RequestKind::ALL.into_iter();
        all.any(|kind| kind.name() == answer.request && requests.get(kind).is_some())
    });
    for OpenRequest {
        kind,
        value,
        misfit,
    } in open
    {
        let (result, message) = match misfit {
            Some(misfit) => (RequestResult::Refused, misfit),
            None => outcome.of(kind, subject(&value)),
        };
        let request = kind.name();
        if result == RequestResult::Refused {
            let message = format!("the request {request}: {value} was refused: {message}");
            notices.push(Notice::warning("RequestRefused", message));
        }
        let former = answers.iter().position(|answer| answer.request == request);
        let answer = RequestStatus {
            request: request.to_owned(),
            value,
            result,
            message,
            at: time(now),
        };
        match former.and_then(|position| answers.get_mut(position)) {
            // The time of an answer is when it was first given.
            Some(former) if former.is_same(&answer) => {}
            Some(former) => *former = answer,
            None => answers.push(answer),
        }
    }
    answers
}

fn final_answer(
    status: &ControllerStatus,
    kind: RequestKind,
    value: &str,
) -> Option<RequestResult> {
    let answer = status.answer(kind.name(), value)?;
    (answer.result != RequestResult::Pending).then_some(answer.result)
}

impl Outcome<'_> {
    /// The result of a request that was in force.
    fn of(&self, kind: RequestKind, subject: &str) -> Answer {
        let (status, revision) = (self.status, revision(subject));
        match kind {
            RequestKind::Promote => {
                let was_in = subject.rsplit_once('/').map_or("", |(_, step)| step);
                match &status.candidate {
                    Some(candidate) if is_of_rollout(candidate, subject) => {
                        let step = candidate.step.to_string();
                        if was_in != "all" && step != was_in {
                            done(format!("{revision} is in {}", candidate.step_in_words()))
                        } else {
                            self.not_yet()
                        }
                    }
                    _ => self.ended(revision),
                }
            }
            RequestKind::Abort => match &status.candidate {
                Some(candidate) if is_of_rollout(candidate, subject) => self.not_yet(),
                _ => match &status.rejected {
                    Some(rejected) if rejected.revision == revision => {
                        done(format!("the candidate {revision} was rolled back"))
                    }
                    _ if status
                        .stable
                        .as_ref()
                        .is_some_and(|one| one.revision == revision) =>
                    {
                        refused(format!("{revision} is the stable revision"))
                    }
                    _ => done(format!(
                        "the rollout of {revision} has ended: the spec does not describe it any more"
                    )),
                },
            },
            RequestKind::Retry => match (&status.rejected, &status.candidate) {
                (Some(_), _) => self.not_yet(),
                (None, Some(candidate)) if candidate.revision == revision => done(format!(
                    "{revision} is rolled out again: {}",
                    candidate.step_in_words()
                )),
                (None, _) => self.ended(revision),
            },
            RequestKind::Abandon => match (&status.lost, &status.stable) {
                (Some(_), _) => self.not_yet(),
                (None, Some(stable)) if stable.revision != revision => done(format!(
                    "{} is the stable revision; {revision} was abandoned",
                    stable.revision
                )),
                _ => refused(format!("the stable revision {revision} is loaded again")),
            },
            RequestKind::Swap => match &status.stable {
                Some(stable) if stable.revision == revision => {
                    done(format!("{revision} is the stable revision"))
                }
                _ => match self.described {
                    Some(described) => {
                        refused(format!("the spec describes {described}, not {revision}"))
                    }
                    None => self.not_yet(),
                },
            },
            RequestKind::Reset => {
                if self.in_force.resets(status) && self.is_running {
                    let tripped = status.tripped.iter().map(|one| one.guardrail.as_str());
                    let tripped = tripped.collect::<Vec<_>>().join(", ");
                    let cleared = "queues and notes were cleared";
                    done(if tripped.is_empty() {
                        cleared.to_owned()
                    } else {
                        format!("the tripped guardrails were reset: {tripped}; {cleared}")
                    })
                } else if self.in_force.resets(status) {
                    pending("the controller does not run yet".to_owned())
                } else {
                    match status.last_trip() {
                        Some(last) => refused(tripped_later(last)),
                        None => done("no guardrail is tripped".to_owned()),
                    }
                }
            }
        }
    }

    /// The rollout of a revision ended in this reconcile, and not by an abort.
    fn ended(&self, revision: &str) -> Answer {
        let status = self.status;
        let stable = status.stable.as_ref();
        if stable.is_some_and(|stable| stable.revision == revision) {
            return done(format!("{revision} is the stable revision"));
        }
        match &status.rejected {
            Some(rejected) if rejected.revision == revision => refused(format!(
                "{revision} was rolled back before: {}",
                rejected.reason
            )),
            _ => refused(format!("the spec does not describe {revision} any more")),
        }
    }

    /// Why a request that fits is not fulfilled yet.
    fn not_yet(&self) -> Answer {
        let loading = || "the host is loading the revision that the spec describes".to_owned();
        pending((self.problem)().unwrap_or_else(loading))
    }
}

/// Why a request does not fit the state.
fn misfit(
    status: &ControllerStatus,
    generation: Option<i64>,
    kind: RequestKind,
    subject: &str,
) -> Option<String> {
    if !kind.is_well_formed(subject) {
        return Some(format!("the value must have the form {}", kind.form()));
    }
    match kind {
        RequestKind::Promote => {
            let (of, step) = subject.rsplit_once('/')?;
            let candidate = match candidate_of(status, of) {
                Ok(candidate) => candidate,
                Err(misfit) => return Some(misfit),
            };
            let is_it = step == "all" || step == candidate.step.to_string();
            (!is_it).then(|| {
                let present = candidate.step_in_words();
                format!("{} is in {present}, not in step {step}", candidate.revision)
            })
        }
        RequestKind::Abort => candidate_of(status, subject).err(),
        RequestKind::Retry => match &status.rejected {
            None => Some("no revision is rejected".to_owned()),
            Some(rejected) => {
                let name = format!("{}@{}", rejected.revision, rejected.at);
                (name != subject).then(|| format!("the rejected revision is {name}"))
            }
        },
        RequestKind::Abandon => match status.stable.as_ref().zip(status.lost.as_ref()) {
            None => Some("the stable revision is not lost".to_owned()),
            Some((stable, lost)) => {
                let name = format!("{}@{}", stable.revision, lost.since);
                (name != subject).then(|| format!("the lost revision is {name}"))
            }
        },
        RequestKind::Swap => {
            let generation = generation.unwrap_or_default().to_string();
            let (_, about) = subject.split_once('@')?;
            (about != generation).then(|| {
                format!("the spec has changed: its generation is {generation}, not {about}")
            })
        }
        RequestKind::Reset => match status.last_trip() {
            None => match reset(status) {
                Some(since) if since == subject => None,
                Some(since) => Some(format!(
                    "no guardrail is tripped; to clear queues and notes, name {since}"
                )),
                None => Some("no revision is stable".to_owned()),
            },
            Some(last) if last > subject => Some(tripped_later(last)),
            Some(last) => {
                (last != subject).then(|| format!("the last guardrail tripped at {last}"))
            }
        },
    }
}

fn tripped_later(last: &str) -> String {
    format!("a guardrail tripped later, at {last}")
}

/// The candidate, if this is the name of its rollout.
fn candidate_of<'a>(
    status: &'a ControllerStatus,
    name: &str,
) -> Result<&'a CandidateStatus, String> {
    let candidate = status.candidate.as_ref();
    let candidate = candidate.ok_or_else(|| match &status.rejected {
        Some(rejected) => format!(
            "there is no candidate: {} was rolled back at {}: {}",
            rejected.revision, rejected.at, rejected.reason
        ),
        None => "there is no candidate".to_owned(),
    })?;
    let present = rollout_name(candidate);
    if present == name {
        Ok(candidate)
    } else {
        Err(format!("the candidate is {present}"))
    }
}

fn is_of_rollout(candidate: &CandidateStatus, subject: &str) -> bool {
    let name = subject.split('/').next().unwrap_or_default();
    rollout_name(candidate) == name
}

/// The revision that a request names.
fn revision(subject: &str) -> &str {
    subject.split('@').next().unwrap_or_default()
}

fn done(message: String) -> Answer {
    (RequestResult::Done, message)
}

fn refused(message: String) -> Answer {
    (RequestResult::Refused, message)
}

fn pending(message: String) -> Answer {
    (RequestResult::Pending, message)
}
