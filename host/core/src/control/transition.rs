//! How a rollout changes its state.
//!
//! Each controller is reconciled once a second in three phases: which revision is
//! stable, which is the candidate, and how the candidate's step ends. The [`table`] says
//! which change the first two phases make, [`Rollout::end_step`] that of the third, and
//! [`Rollout::apply`] makes it. All depend on nothing but their arguments.

pub(super) mod table;

use super::notice::Notice;
use super::state::{Candidate, CandidateEligibility, Loss, Rollout, Wait, step_of};
use super::text::one_line;
use crate::api::{RejectedStatus, RevisionStatus, StepConfig};
use crate::rollout::progress::{AnalysisFailure, StepOutcome, StepWait};

/// The inputs of a transition besides the state.
#[derive(Clone, Debug, Default)]
pub(super) struct Circumstances {
    /// Whether the stable revision is loaded.
    pub(super) stable_loaded: bool,
    /// Whether the spec describes another revision than the candidate, and that is loaded:
    /// the stable revision, or one that may not run.
    pub(super) is_superseded: bool,
    /// The revision that the spec describes, once it is loaded and may run.
    pub(super) described: Option<RevisionStatus>,
    /// The steps of the spec.
    pub(super) steps: Vec<StepConfig>,
    /// Why the stable revision cannot be loaded.
    pub(super) failure: Option<LoadFailureOfStable>,
    /// Whether the revision that the spec describes differs from the stable one only by
    /// an update of Davit.
    pub(super) is_update: bool,
    /// The requests of operators.
    pub(super) requests: OperatorRequests,
}

/// The requests of operators, except those that end a step.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OperatorRequests {
    /// To abandon the lost stable revision.
    pub(super) abandon: bool,
    /// To swap in the revision that the spec describes.
    pub(super) swap: bool,
    /// To retry the rejected revision.
    pub(super) retry: bool,
}

/// Why the stable revision cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadFailureOfStable {
    pub(super) reason: String,
    /// Whether it was a built-in guest, and this version of Davit has another one of
    /// that name.
    pub(super) is_updated: bool,
}

/// A change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// The first revision is stable from the start.
    Establish,
    /// The stable revision cannot be loaded after a start.
    Lose,
    /// The lost revision is loaded.
    Recover,
    /// An operator abandons the lost revision.
    Abandon,
    /// Davit was updated, and the former built-in guest is gone.
    Update,
    /// Another revision replaces the stable one without steps.
    Swap,
    /// The rollout of another revision starts.
    Start,
    /// The spec describes the stable revision again.
    End,
    /// The next step starts.
    Advance,
    /// The candidate becomes stable.
    Promote,
    /// The candidate is rolled back.
    RollBack(AnalysisFailure),
}

impl Rollout {
    /// Makes a transition. `name` returns the unique time that names the rollout,
    /// rejection or loss that starts.
    pub(super) fn apply(
        &mut self,
        transition: Transition,
        now: &Circumstances,
        name: impl FnOnce() -> String,
    ) -> Option<Notice> {
        let notice = self.notice(&transition, now);
        match transition {
            Transition::Establish | Transition::Abandon | Transition::Update | Transition::Swap => {
                self.establish(now.described.clone(), name);
            }
            Transition::Promote => {
                let candidate = self.candidate().map(|one| one.revision.clone());
                self.establish(candidate, name);
            }
            Transition::Lose => self.lose(now.failure.clone(), name),
            Transition::Recover => *self = self.known().clone(),
            Transition::Start => {
                if let (Some(stable), Some(described)) = (self.stable(), &now.described) {
                    let (stable, mut revision) = (stable.clone(), described.clone());
                    revision.since = name();
                    let candidate = Box::new(Candidate::new(revision));
                    *self = Self::RollingOut { stable, candidate };
                }
            }
            Transition::End => {
                if let Some(stable) = self.stable().cloned() {
                    *self.known_mut() = Self::Stable { stable };
                }
            }
            Transition::Advance => {
                if let Some(candidate) = self.candidate_mut() {
                    candidate.advance();
                }
            }
            Transition::RollBack(failure) => self.roll_back(&failure, name),
        }
        notice
    }

    /// Makes a revision stable.
    fn establish(&mut self, revision: Option<RevisionStatus>, name: impl FnOnce() -> String) {
        if let Some(mut stable) = revision {
            stable.since = name();
            *self = Self::Stable { stable };
        }
    }

    fn lose(&mut self, failure: Option<LoadFailureOfStable>, name: impl FnOnce() -> String) {
        let Some(LoadFailureOfStable { reason, is_updated }) = failure else {
            return;
        };
        let since = self.loss().map(|loss| loss.since.clone());
        *self = Self::Lost {
            loss: Loss {
                since: since.unwrap_or_else(name),
                reason,
                is_updated,
            },
            before: Box::new(self.known().clone()),
        };
    }

    fn roll_back(&mut self, failure: &AnalysisFailure, name: impl FnOnce() -> String) {
        if let Self::RollingOut { stable, candidate } = self.known_mut() {
            let rejected = RejectedStatus {
                revision: candidate.revision.revision.clone(),
                at: name(),
                step: candidate.number,
                cause: cause(failure).to_owned(),
                reason: one_line(&failure.to_string()),
            };
            let stable = stable.clone();
            *self.known_mut() = Self::RolledBack { stable, rejected };
        }
    }

    /// The notice of a transition, before it is made.
    fn notice(&self, transition: &Transition, now: &Circumstances) -> Option<Notice> {
        let described = now.described.as_ref().map_or("", |one| &one.revision);
        let stable = self.stable().map_or("", |one| &one.revision);
        let candidate = self.candidate();
        let name = candidate.map_or("", |one| &one.revision.revision);
        Some(match transition {
            Transition::Establish | Transition::Recover | Transition::Lose => return None,
            Transition::Abandon => Notice::normal(
                "Promoted",
                format!("{described} is promoted: the lost revision {stable} is abandoned"),
            ),
            Transition::Update => {
                let reason = self.loss().map_or("", |loss| &loss.reason);
                Notice::warning(
                    "Updated",
                    format!(
                        "{described} replaces {stable} immediately, without steps: this version of Davit has \
                         another built-in guest of that name, and the former one cannot be \
                         loaded: {reason}"
                    ),
                )
            }
            Transition::Swap => {
                let how = match (now.stable_loaded, now.requests.swap) {
                    (false, _) => ", which is not loaded",
                    (true, true) => " without steps",
                    (true, false) => "",
                };
                Notice::normal("Swapped", format!("{described} replaces {stable}{how}"))
            }
            Transition::Start => {
                let step = step_text(&now.steps, 1);
                let message = format!("rollout of {described} started, {stable} is stable: {step}");
                Notice::normal("RolloutStarted", message)
            }
            Transition::End => {
                candidate?;
                let message = format!("the spec does not describe {name} any more");
                Notice::normal("RolloutEnded", message)
            }
            Transition::Advance => {
                let number = candidate?.number + 1;
                let (of, text) = (now.steps.len(), step_text(&now.steps, number));
                Notice::normal(
                    "StepStarted",
                    format!("{name}: step {number} of {of}: {text}"),
                )
            }
            Transition::Promote => Notice::normal("Promoted", format!("{name} is promoted")),
            Transition::RollBack(failure) => Notice {
                warning: *failure != AnalysisFailure::Aborted,
                reason: "RolledBack",
                message: format!(
                    "{name} was rolled back in step {}: {failure}",
                    candidate?.number
                ),
            },
        })
    }

    /// Applies the outcome of the analysis. Returns the transition that ends the step,
    /// if it ends.
    pub(super) fn end_step(
        &mut self,
        next: StepOutcome,
        standing: CandidateEligibility,
    ) -> Option<Transition> {
        match next {
            StepOutcome::StepWait(hold) => {
                if let Some(candidate) = self.candidate_mut() {
                    candidate.wait = wait(hold, standing);
                }
                None
            }
            StepOutcome::Advance => Some(Transition::Advance),
            StepOutcome::Promote => Some(Transition::Promote),
            StepOutcome::RollBack(failure) => Some(Transition::RollBack(failure)),
        }
    }
}

fn wait(hold: StepWait, standing: CandidateEligibility) -> Wait {
    match standing {
        CandidateEligibility::Current => Wait::Step(hold),
        CandidateEligibility::MissingGrant => Wait::Granted(hold),
        CandidateEligibility::MissingAuthorization => Wait::Authorized(hold),
        CandidateEligibility::NotLoaded => Wait::Described(hold),
    }
}

fn step_text(steps: &[StepConfig], number: u32) -> String {
    let step = step_of(steps, number);
    step.map(ToString::to_string).unwrap_or_default()
}

/// The cause of a rollback, in at most two words.
fn cause(failure: &AnalysisFailure) -> &'static str {
    match failure {
        AnalysisFailure::FailedCalls { .. } => "failed calls",
        AnalysisFailure::Disagreement { .. } => "disagreement",
        AnalysisFailure::RefusedWrites { .. } => "refused writes",
        AnalysisFailure::Latency { .. } => "slow calls",
        AnalysisFailure::Trip(_) => "guardrail",
        AnalysisFailure::Aborted => "aborted",
    }
}

#[cfg(test)]
mod tests;
