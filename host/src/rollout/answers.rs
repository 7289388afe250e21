//! What the host answers to the requests of operators.
//!
//! Every request gets one answer, which stands in the status beside what came of
//! it: both are written at once. A request that does not fit, or that has been
//! answered, is void from then on, so that an operator who was told no is not
//! surprised by a late yes. One that fits and cannot be fulfilled yet is
//! `Pending`, and stays in force.

use jiff::Timestamp;

use super::declared::{RequestKind, subject, trial};
use super::managed::{Managed, Told, time};
use super::revision::Revision;
use davit_core::api::{CandidateStatus, ControllerStatus, RequestResult, RequestStatus};
use davit_core::observation::Observation;

/// A request without an answer that holds for good.
pub(super) struct OpenRequest {
    kind: RequestKind,
    value: String,
    /// Why it does not fit things as they are; none if it does.
    misfit: Option<String>,
}

type Answer = (RequestResult, String);

impl Managed {
    /// Sorts out which requests are in force for what follows; returns those
    /// that want an answer.
    pub(super) fn review_requests(&mut self) -> Vec<OpenRequest> {
        let mut in_force = self.asked.clone();
        let mut open = Vec::new();
        for kind in RequestKind::ALL {
            let Some(value) = self.asked.get(kind) else {
                continue;
            };
            match self.final_answer(kind, value) {
                // What resets a trip is no part of the status: a host that
                // crashed in between has it done again by the next one.
                Some(RequestResult::Done) if kind == RequestKind::Reset => {}
                Some(_) => in_force.clear(kind),
                None => {
                    let misfit = misfit(&self.status, self.generation, kind, subject(value));
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
        self.requests = in_force;
        open
    }

    /// Writes the answers down; tells people of requests that are refused.
    pub(super) fn answer_requests(
        &mut self,
        open: Vec<OpenRequest>,
        seen: Option<&Observation>,
        now: Timestamp,
        told: &mut Vec<Told>,
    ) {
        let asked = &self.asked;
        self.status.requests.retain(|answer| {
            let mut all = RequestKind::ALL.into_iter();
            all.any(|kind| kind.name() == answer.request && asked.get(kind).is_some())
        });
        for OpenRequest {
            kind,
            value,
            misfit,
        } in open
        {
            let (result, message) = match misfit {
                Some(misfit) => (RequestResult::Refused, misfit),
                None => self.came_of(kind, subject(&value), seen),
            };
            let request = kind.name();
            if result == RequestResult::Refused {
                let message = format!("the request {request}: {value} was refused: {message}");
                told.push(Told::warning("RequestRefused", message));
            }
            let answers = &mut self.status.requests;
            let former = answers.iter().position(|answer| answer.request == request);
            let answer = RequestStatus {
                request: request.to_owned(),
                value,
                result,
                message,
                at: time(now),
            };
            match former.and_then(|position| answers.get_mut(position)) {
                // Its time is that of its first showing.
                Some(former) if former.is_same(&answer) => {}
                Some(former) => *former = answer,
                None => answers.push(answer),
            }
        }
    }

    fn final_answer(&self, kind: RequestKind, value: &str) -> Option<RequestResult> {
        let answer = self.status.answer(kind.name(), value)?;
        (answer.result != RequestResult::Pending).then_some(answer.result)
    }

    /// What came of a request that did fit, before this look.
    fn came_of(&self, kind: RequestKind, subject: &str, seen: Option<&Observation>) -> Answer {
        let (status, revision) = (&self.status, revision(subject));
        match kind {
            RequestKind::Promote => {
                let was_in = subject.rsplit_once('/').map_or("", |(_, step)| step);
                match &status.candidate {
                    Some(candidate) if same_trial(candidate, subject) => {
                        let step = candidate.step.to_string();
                        if was_in != "all" && step != was_in {
                            done(format!("{revision} is in {}", candidate.step_in_words()))
                        } else {
                            self.still_waits()
                        }
                    }
                    _ => self.ended(revision),
                }
            }
            RequestKind::Abort => match &status.candidate {
                Some(candidate) if same_trial(candidate, subject) => self.still_waits(),
                _ => done(format!("the candidate {revision} was rolled back")),
            },
            RequestKind::Retry => match (&status.rejected, &status.candidate) {
                (Some(_), _) => self.still_waits(),
                (None, Some(candidate)) if candidate.revision == revision => done(format!(
                    "{revision} is tried again: {}",
                    candidate.step_in_words()
                )),
                (None, _) => self.ended(revision),
            },
            RequestKind::Abandon => match (&status.lost, &status.stable) {
                (Some(_), _) => self.still_waits(),
                (None, Some(stable)) if stable.revision != revision => done(format!(
                    "{} is the stable revision; {revision} was abandoned",
                    stable.revision
                )),
                _ => refused(format!("the stable revision {revision} is there again")),
            },
            RequestKind::Swap => match &status.stable {
                Some(stable) if stable.revision == revision => {
                    done(format!("{revision} is the stable revision"))
                }
                _ if self.is_current() => {
                    let described = self.desired.as_ref().map(Revision::name);
                    let described = described.unwrap_or_default();
                    refused(format!("the spec describes {described}, not {revision}"))
                }
                _ => self.still_waits(),
            },
            RequestKind::Reset => {
                if self.requests.resets(status) && is_running(seen) {
                    let tripped = status.tripped.iter().map(|one| one.guardrail.as_str());
                    let tripped = tripped.collect::<Vec<_>>().join(", ");
                    done(format!("the tripped guardrails were reset: {tripped}"))
                } else if self.requests.resets(status) {
                    pending("the controller does not run yet".to_owned())
                } else {
                    match status.last_trip() {
                        Some(last) => refused(tripped_later(last)),
                        None => done("no guardrail is tripped any more".to_owned()),
                    }
                }
            }
        }
    }

    /// The trial of a revision ended in this look, and not by an abort.
    fn ended(&self, revision: &str) -> Answer {
        let status = &self.status;
        let stable = status.stable.as_ref();
        if stable.is_some_and(|stable| stable.revision == revision) {
            return done(format!("{revision} is the stable revision"));
        }
        match &status.rejected {
            Some(rejected) if rejected.revision == revision => refused(format!(
                "{revision} was rolled back first: {}",
                rejected.reason
            )),
            _ => refused(format!("the spec does not describe {revision} any more")),
        }
    }

    /// Why a request that fits is not fulfilled yet.
    fn still_waits(&self) -> Answer {
        let problem = self.spec_error.as_ref().map(ToString::to_string);
        let problem = problem.or_else(|| Some(self.problem.as_ref()?.message.clone()));
        pending(
            problem.unwrap_or_else(|| "what the spec describes is still being prepared".to_owned()),
        )
    }
}

/// Whether the controller's stable revision runs on this host.
pub(super) fn is_running(seen: Option<&Observation>) -> bool {
    seen.is_some_and(|seen| seen.stable.is_some())
}

/// Why a request does not fit things as they are.
fn misfit(
    status: &ControllerStatus,
    generation: Option<i64>,
    kind: RequestKind,
    subject: &str,
) -> Option<String> {
    if !kind.is_well_formed(subject) {
        return Some(format!("the value has to be {}", kind.form()));
    }
    match kind {
        RequestKind::Promote => {
            let (of, step) = subject.rsplit_once('/')?;
            let candidate = match of_the_trial(status, of) {
                Ok(candidate) => candidate,
                Err(misfit) => return Some(misfit),
            };
            let is_it = step == "all" || step == candidate.step.to_string();
            (!is_it).then(|| {
                let present = candidate.step_in_words();
                format!("{} is in {present}, not in step {step}", candidate.revision)
            })
        }
        RequestKind::Abort => of_the_trial(status, subject).err(),
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
                (name != subject).then(|| format!("what is lost is {name}"))
            }
        },
        RequestKind::Swap => {
            let generation = generation.unwrap_or_default().to_string();
            let (_, about) = subject.split_once('@')?;
            (about != generation).then(|| {
                format!("the spec is another by now: of generation {generation}, not {about}")
            })
        }
        RequestKind::Reset => match status.last_trip() {
            None => Some("no guardrail is tripped".to_owned()),
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

/// The candidate, if the name of a trial is that of its present one.
fn of_the_trial<'a>(
    status: &'a ControllerStatus,
    name: &str,
) -> Result<&'a CandidateStatus, String> {
    let candidate = status.candidate.as_ref();
    let candidate = candidate.ok_or_else(|| match &status.rejected {
        Some(rejected) => format!(
            "no candidate is being tried: {} was rolled back at {}: {}",
            rejected.revision, rejected.at, rejected.reason
        ),
        None => "no candidate is being tried".to_owned(),
    })?;
    let present = trial(candidate);
    if present == name {
        Ok(candidate)
    } else {
        Err(format!("the candidate is {present}"))
    }
}

fn same_trial(candidate: &CandidateStatus, subject: &str) -> bool {
    let name = subject.split('/').next().unwrap_or_default();
    trial(candidate) == name
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
