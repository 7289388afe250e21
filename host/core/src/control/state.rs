//! The state of one controller's rollout.
//!
//! The state is restored from the record once ([`Rollout::restore`]). From then on only
//! transitions change it, and the status is a projection of it ([`Rollout::write`]).

use std::time::Duration;

use super::counts::StepCounts;
use super::text::one_line;
use crate::api::{
    CandidateStatus, ComparisonStatus, ControllerStatus, HumanDuration, LostStatus, RejectedStatus,
    RevisionStatus, StepConfig,
};
use crate::mutant::Mutant;
use crate::rollout::progress::{Step, StepObservation, StepWait};

/// The remaining time of a step without an end.
const UNTIL_PROMOTED: &str = "until promoted";

/// The state of one controller's rollout.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rollout {
    /// No revision is stable yet.
    New,
    /// The stable revision runs.
    Stable { stable: RevisionStatus },
    /// A candidate runs beside the stable revision.
    RollingOut {
        stable: RevisionStatus,
        candidate: Box<Candidate>,
    },
    /// The stable revision runs. The rejected revision is not rolled out again until an
    /// operator retries it.
    RolledBack {
        stable: RevisionStatus,
        rejected: RejectedStatus,
    },
    /// After a start, the stable revision cannot be loaded: nothing runs.
    Lost {
        loss: Loss,
        /// The state to return to once the stable revision is loaded: one of the three
        /// above.
        before: Box<Rollout>,
    },
}

/// A candidate, and the progress of its rollout.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    /// The revision. Its time names the rollout.
    pub(super) revision: RevisionStatus,
    /// The number of the step, counted from 1.
    pub(super) number: u32,
    /// How many steps there are.
    pub(super) of: u32,
    /// The step. If the spec has no steps any more, a paused candidate keeps its step.
    pub(super) step: Option<StepConfig>,
    /// The time in the step.
    pub(super) elapsed: Duration,
    /// The counts in the step.
    pub(super) counts: StepCounts,
    /// Why the candidate stays in the step.
    pub(super) wait: Wait,
}

/// Why a candidate stays in its step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Wait {
    /// The step has just started.
    #[default]
    Started,
    /// The reason that an earlier host recorded.
    Recorded(String),
    /// The reason of the analysis.
    Step(StepWait),
    /// The revision that the spec describes is not loaded. The analysis has this
    /// reason.
    Described(StepWait),
    /// The operator does not grant what the candidate declares. The analysis has this
    /// reason.
    Granted(StepWait),
    /// A watch is interrupted, and the step's time does not pass. The analysis has this reason.
    Interrupted(StepWait, String),
    /// The module is unsigned, and may not write.
    Unsigned,
    /// The controller's account may not open the watches of the candidate. The analysis
    /// has this reason.
    Authorized(StepWait),
}

/// Whether a candidate may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CandidateEligibility {
    /// The spec describes it, and it may run.
    Current,
    /// The spec describes it. The operator does not grant what it declares.
    MissingGrant,
    /// The spec describes it. The controller's account may not open its watches.
    MissingAuthorization,
    /// The revision that the spec describes is another one, or not loaded.
    NotLoaded,
}

/// Why the stable revision cannot be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// When it was lost. The time names what an operator abandons.
    pub(super) since: String,
    /// Why.
    pub(super) reason: String,
    /// Whether it was a built-in guest, and this version of Davit has another one of
    /// that name.
    pub(super) is_updated: bool,
}

impl Rollout {
    /// The state that a record holds.
    pub(super) fn restore(status: &ControllerStatus) -> Self {
        let Some(stable) = status.stable.clone() else {
            return Self::New;
        };
        let candidate = status.candidate.as_ref();
        let rejected = status.rejected.clone();
        let rejected = rejected.filter(|_| !Mutant::ForgetRejections.is_active());
        // A host never records one revision as both.
        let candidate = candidate.filter(|candidate| {
            let rejected = rejected.as_ref();
            rejected.is_none_or(|rejected| rejected.revision != candidate.revision)
        });
        let state = match (candidate, rejected) {
            (Some(candidate), _) => Self::RollingOut {
                stable,
                candidate: Box::new(Candidate::restore(candidate)),
            },
            (None, Some(rejected)) => Self::RolledBack { stable, rejected },
            (None, None) => Self::Stable { stable },
        };
        match &status.lost {
            None => state,
            Some(lost) => Self::Lost {
                loss: Loss {
                    since: lost.since.clone(),
                    reason: lost.reason.clone(),
                    is_updated: false,
                },
                before: Box::new(state),
            },
        }
    }

    /// The state, or the state before a loss.
    pub(super) fn known(&self) -> &Self {
        match self {
            Self::Lost { before, .. } => before,
            other => other,
        }
    }

    pub(super) fn known_mut(&mut self) -> &mut Self {
        match self {
            Self::Lost { before, .. } => before,
            other => other,
        }
    }

    /// The stable revision.
    pub(super) fn stable(&self) -> Option<&RevisionStatus> {
        match self.known() {
            Self::New | Self::Lost { .. } => None,
            Self::Stable { stable }
            | Self::RollingOut { stable, .. }
            | Self::RolledBack { stable, .. } => Some(stable),
        }
    }

    pub(super) fn candidate(&self) -> Option<&Candidate> {
        match self.known() {
            Self::RollingOut { candidate, .. } => Some(candidate),
            _ => None,
        }
    }

    pub(super) fn candidate_mut(&mut self) -> Option<&mut Candidate> {
        match self.known_mut() {
            Self::RollingOut { candidate, .. } => Some(candidate),
            _ => None,
        }
    }

    pub(super) fn rejected(&self) -> Option<&RejectedStatus> {
        match self.known() {
            Self::RolledBack { rejected, .. } => Some(rejected),
            _ => None,
        }
    }

    /// Notes whether the revision that the spec describes is unsigned: its pin or its
    /// signatures may have changed in the spec.
    pub(super) fn note_unsigned(&mut self, described: &RevisionStatus) {
        let (stable, candidate) = match self.known_mut() {
            Self::New | Self::Lost { .. } => return,
            Self::Stable { stable } | Self::RolledBack { stable, .. } => (stable, None),
            Self::RollingOut { stable, candidate } => (stable, Some(&mut candidate.revision)),
        };
        for revision in [Some(stable), candidate].into_iter().flatten() {
            let is_it = revision.revision == described.revision;
            if is_it && revision.digest == described.digest {
                revision.unsigned = described.unsigned;
            }
        }
    }

    pub(super) fn loss(&self) -> Option<&Loss> {
        match self {
            Self::Lost { loss, .. } => Some(loss),
            _ => None,
        }
    }

    /// Writes the revisions into a status. `ready` is the name of the revision that the
    /// spec describes, if it is loaded.
    pub(super) fn write(&self, status: &mut ControllerStatus, ready: Option<&str>) {
        status.stable = self.stable().cloned();
        status.candidate = self.candidate().map(Candidate::status);
        status.rejected = self.rejected().cloned();
        status.lost = self.loss().map(|loss| LostStatus {
            since: loss.since.clone(),
            reason: loss.reason.clone(),
            ready: ready.map(ToOwned::to_owned),
        });
    }
}

impl Candidate {
    /// A candidate whose rollout starts.
    pub(super) fn new(revision: RevisionStatus) -> Self {
        Self {
            revision,
            number: 1,
            of: 0,
            step: None,
            elapsed: Duration::ZERO,
            counts: StepCounts::default(),
            wait: Wait::Started,
        }
    }

    fn restore(status: &CandidateStatus) -> Self {
        let step = status.step_text.parse().ok();
        Self {
            revision: RevisionStatus {
                revision: status.revision.clone(),
                digest: status.digest.clone(),
                config_hash: status.config_hash.clone(),
                since: status.since.clone(),
                unsigned: status.unsigned,
            },
            number: status.step,
            of: status.steps,
            step: step.or(Some(StepConfig(Step {
                weight: status.weight,
                lasts: None,
            }))),
            elapsed: Duration::from_secs(status.elapsed_seconds),
            counts: StepCounts::since(StepObservation::from(status)),
            wait: Wait::Recorded(status.waits_for.clone()),
        }
    }

    /// The next step starts.
    pub(super) fn advance(&mut self) {
        self.number += 1;
        self.elapsed = Duration::ZERO;
        self.counts = StepCounts::default();
        self.wait = Wait::Started;
    }

    /// Takes the present step from the spec. Without steps, the candidate keeps its
    /// step.
    pub(super) fn follow(&mut self, steps: &[StepConfig]) {
        if let Some(step) = step_of(steps, self.number) {
            self.of = u32::try_from(steps.len()).unwrap_or(u32::MAX);
            self.step = Some(*step);
        }
    }

    /// The candidate's share of the cohorts, in percent.
    pub(super) fn weight(&self) -> u8 {
        self.step.map_or(0, |step| step.0.weight)
    }

    /// The reason of the analysis.
    pub(super) fn hold(&self) -> Option<&StepWait> {
        match &self.wait {
            Wait::Step(hold)
            | Wait::Interrupted(hold, _)
            | Wait::Described(hold)
            | Wait::Granted(hold)
            | Wait::Authorized(hold) => Some(hold),
            Wait::Started | Wait::Recorded(_) | Wait::Unsigned => None,
        }
    }

    /// The candidate as a status has it.
    pub(super) fn status(&self) -> CandidateStatus {
        let elapsed = Duration::from_secs(self.elapsed.as_secs());
        let counted = self.counts.sum();
        let revision = self.revision.clone();
        CandidateStatus {
            revision: revision.revision,
            digest: revision.digest,
            config_hash: revision.config_hash,
            since: revision.since,
            unsigned: revision.unsigned,
            step: self.number,
            steps: self.of,
            step_text: self.step.map(|step| step.to_string()).unwrap_or_default(),
            weight: self.weight(),
            elapsed_seconds: elapsed.as_secs(),
            elapsed: HumanDuration(elapsed).to_string(),
            remaining: self
                .step
                .map_or_else(String::new, |step| remaining(&step, elapsed)),
            waits_for: self.wait.to_string(),
            comparison: ComparisonStatus::from(&counted.counts),
            failed_calls: counted.failed_calls,
            refused_writes: counted.refused_writes,
        }
    }
}

fn remaining(step: &StepConfig, elapsed: Duration) -> String {
    match step.0.lasts {
        None => UNTIL_PROMOTED.to_owned(),
        Some(lasts) => HumanDuration(lasts.saturating_sub(elapsed)).to_string(),
    }
}

impl std::fmt::Display for Wait {
    /// Without the time left, which changes every second.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Started => Ok(()),
            Self::Recorded(text) => f.write_str(text),
            Self::Step(StepWait::Running { .. }) => f.write_str("the end of the step's time"),
            Self::Step(hold) => hold.fmt(f),
            Self::Interrupted(_, interrupted) => write!(
                f,
                "the end of the step's time, which does not pass: {}",
                one_line(interrupted)
            ),
            Self::Unsigned => f.write_str(
                "the module is unsigned: pin its digest (module.digest), or require signatures \
                 (module.verify)",
            ),
            Self::Described(_) => {
                f.write_str("the host is loading the revision that the spec describes")
            }
            Self::Granted(_) => f.write_str("spec.permissions does not grant what it declares"),
            Self::Authorized(_) => {
                f.write_str("the controller's ServiceAccount may not do what it needs")
            }
        }
    }
}

/// The step of that number; the last one if there are fewer by now.
pub(super) fn step_of(steps: &[StepConfig], number: u32) -> Option<&StepConfig> {
    let index = (number as usize).saturating_sub(1);
    steps.get(index).or(steps.last())
}
