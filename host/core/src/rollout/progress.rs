//! The steps of a rollout: when one ends, and how.
//!
//! Nothing here remembers anything. The whole state is [`Progress`], which is
//! written down with every change, so that a host that was restarted, or that
//! leads from now on, goes on where another stopped. Time in a step is counted
//! only while the candidate runs beside the stable revision: a host that was
//! away for an hour has seen nothing of it.

use std::fmt;
use std::time::Duration;

use super::compare::Counts;

/// One step of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The candidate's share of the cohorts, in percent; 0 is a shadow.
    pub weight: u8,
    /// How long it lasts; none until an operator promotes.
    pub lasts: Option<Duration>,
}

/// What a candidate must hold to; none for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// Targets that must have been compared in a step before it can end well.
    pub min_decisions: u64,
    /// Calls that may fail in a step.
    pub max_failed_calls: u64,
    /// Of the targets compared, so many percent may be disagreed on.
    pub max_disagreement_percent: Option<u8>,
    /// Plans that the gate or the API server may refuse in a step.
    pub max_refused_writes: u64,
    /// The time that 95 of 100 calls must take at most.
    pub max_call_latency: Option<Duration>,
}

/// What was seen of a candidate in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepObservation {
    /// How its decisions compare.
    pub counts: Counts,
    /// Calls that failed.
    pub failed_calls: u64,
    /// How the last of them did.
    pub last_failure: String,
    /// Plans that were refused: by the gate, or by the API server as forbidden
    /// or invalid.
    pub refused_writes: u64,
    /// Why the last of them was.
    pub last_refusal: String,
    /// The time that 95 of 100 calls took at most; none without calls.
    pub call_latency: Option<Duration>,
    /// What it has used up, if it has.
    pub spent: Option<String>,
}

/// How far a rollout is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The index of the step.
    pub step: usize,
    /// How long it has been under way.
    pub elapsed: Duration,
}

/// What an operator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The step ends well, whatever the analysis says.
    Promote,
    /// The candidate takes over at once.
    PromoteFully,
    /// The candidate is taken back.
    Abort,
}

/// What a candidate does wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnalysisFailure {
    /// Its calls fail.
    FailedCalls {
        /// How many did.
        calls: u64,
        /// How many may.
        most: u64,
        /// How the last one did.
        last: String,
    },
    /// It disagrees too often.
    Disagreement {
        /// How often it did.
        disagreements: u64,
        /// Of so many.
        compared: u64,
        /// How many percent may be.
        most: u8,
    },
    /// Its plans are refused.
    RefusedWrites {
        /// How many were.
        plans: u64,
        /// How many may be.
        most: u64,
        /// Why the last one was.
        last: String,
    },
    /// Its calls take long.
    Latency {
        /// What 95 of 100 took at most.
        took: Duration,
        /// What they may take.
        most: Duration,
    },
    /// It has used up its part of a guardrail.
    Trip(String),
    /// An operator takes it back.
    Aborted,
}

/// Why a step goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepWait {
    /// An operator has paused it.
    Paused,
    /// Its time is not over.
    Running {
        /// How much of it is left.
        left: Duration,
    },
    /// Its time is over, but too little was compared.
    Inconclusive {
        /// The targets compared.
        compared: u64,
        /// How many it takes.
        least: u64,
    },
    /// It waits for an operator.
    UntilPromoted,
}

/// What becomes of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The step goes on.
    StepWait(StepWait),
    /// The next step begins.
    Advance,
    /// The candidate takes over.
    Promote,
    /// The candidate is taken back.
    RollBack(AnalysisFailure),
}

/// What is next for a candidate.
///
/// A failure ends a rollout at any time, also while it is paused. Disagreement
/// and latency are judged once the minimum of decisions is there.
#[must_use]
pub fn next(
    steps: &[Step],
    analysis: &Analysis,
    progress: &Progress,
    observed: &StepObservation,
    paused: bool,
    request: Option<Request>,
) -> StepOutcome {
    if request == Some(Request::Abort) {
        return StepOutcome::RollBack(AnalysisFailure::Aborted);
    }
    if let Some(failure) = failure(analysis, observed) {
        return StepOutcome::RollBack(failure);
    }
    let is_last = progress.step + 1 >= steps.len();
    let advance = if is_last {
        StepOutcome::Promote
    } else {
        StepOutcome::Advance
    };
    match request {
        Some(Request::PromoteFully) => return StepOutcome::Promote,
        Some(Request::Promote) => return advance,
        Some(Request::Abort) | None => {}
    }
    // If there are fewer steps now than were already taken, the last one holds.
    let Some(step) = steps.get(progress.step).or(steps.last()) else {
        return if paused {
            StepOutcome::StepWait(StepWait::Paused)
        } else {
            StepOutcome::Promote
        };
    };
    match step.lasts {
        _ if paused => StepOutcome::StepWait(StepWait::Paused),
        None => StepOutcome::StepWait(StepWait::UntilPromoted),
        Some(lasts) if progress.elapsed < lasts => StepOutcome::StepWait(StepWait::Running {
            left: lasts.saturating_sub(progress.elapsed),
        }),
        Some(_) if observed.counts.compared() < analysis.min_decisions => {
            StepOutcome::StepWait(StepWait::Inconclusive {
                compared: observed.counts.compared(),
                least: analysis.min_decisions,
            })
        }
        Some(_) => advance,
    }
}

fn failure(analysis: &Analysis, observed: &StepObservation) -> Option<AnalysisFailure> {
    if let Some(spent) = &observed.spent {
        return Some(AnalysisFailure::Trip(spent.clone()));
    }
    if observed.failed_calls > analysis.max_failed_calls {
        return Some(AnalysisFailure::FailedCalls {
            calls: observed.failed_calls,
            most: analysis.max_failed_calls,
            last: observed.last_failure.clone(),
        });
    }
    if observed.refused_writes > analysis.max_refused_writes {
        return Some(AnalysisFailure::RefusedWrites {
            plans: observed.refused_writes,
            most: analysis.max_refused_writes,
            last: observed.last_refusal.clone(),
        });
    }
    let compared = observed.counts.compared();
    if compared < analysis.min_decisions.max(1) {
        return None;
    }
    if let Some(most) = analysis.max_disagreement_percent {
        let disagreements = observed.counts.disagreements();
        if disagreements * 100 > compared * u64::from(most) {
            return Some(AnalysisFailure::Disagreement {
                disagreements,
                compared,
                most,
            });
        }
    }
    match (observed.call_latency, analysis.max_call_latency) {
        (Some(took), Some(most)) if took > most => Some(AnalysisFailure::Latency { took, most }),
        _ => None,
    }
}

impl fmt::Display for AnalysisFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FailedCalls { calls, most, last } => write!(
                f,
                "{calls} calls failed, of which {most} may; the last: {last}"
            ),
            Self::Disagreement {
                disagreements,
                compared,
                most,
            } => write!(
                f,
                "it disagrees with the stable revision on {disagreements} of {compared} targets, \
                 and {most} % may be"
            ),
            Self::RefusedWrites { plans, most, last } => write!(
                f,
                "{plans} of its plans were refused, of which {most} may be; the last: {last}"
            ),
            Self::Latency { took, most } => write!(
                f,
                "5 of 100 calls take {took:?} or more, and {most:?} is the limit"
            ),
            Self::Trip(spent) => write!(f, "its part of a guardrail is used up: {spent}"),
            Self::Aborted => f.write_str("an operator aborted the rollout"),
        }
    }
}

impl fmt::Display for StepWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused => f.write_str("paused by an operator"),
            Self::Running { left } => {
                write!(f, "{} seconds left", left.as_secs_f64().ceil())
            }
            Self::Inconclusive { compared, least } => write!(
                f,
                "inconclusive: {compared} targets were compared, and it takes {least}"
            ),
            Self::UntilPromoted => f.write_str("waiting until it is promoted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    const STEPS: [Step; 3] = [
        Step {
            weight: 0,
            lasts: Some(MINUTE),
        },
        Step {
            weight: 10,
            lasts: Some(MINUTE),
        },
        Step {
            weight: 50,
            lasts: None,
        },
    ];

    const ANALYSIS: Analysis = Analysis {
        min_decisions: 10,
        max_failed_calls: 1,
        max_disagreement_percent: Some(20),
        max_refused_writes: 2,
        max_call_latency: Some(Duration::from_millis(100)),
    };

    fn seen(agree: u64, different: u64) -> StepObservation {
        StepObservation {
            counts: Counts {
                agree,
                different,
                ..Counts::default()
            },
            ..StepObservation::default()
        }
    }

    fn after(step: usize, elapsed: Duration, observed: &StepObservation) -> StepOutcome {
        let progress = Progress { step, elapsed };
        next(&STEPS, &ANALYSIS, &progress, observed, false, None)
    }

    fn asked(
        step: usize,
        observed: &StepObservation,
        paused: bool,
        request: Option<Request>,
    ) -> StepOutcome {
        let progress = Progress {
            step,
            elapsed: 2 * MINUTE,
        };
        next(&STEPS, &ANALYSIS, &progress, observed, paused, request)
    }

    #[test]
    fn a_step_lasts_its_time_and_needs_its_decisions() {
        let left = Duration::from_secs(1);
        let early = after(0, Duration::from_secs(59), &seen(10, 0));
        assert_eq!(early, StepOutcome::StepWait(StepWait::Running { left }));
        let inconclusive = StepOutcome::StepWait(StepWait::Inconclusive {
            compared: 9,
            least: 10,
        });
        assert_eq!(after(0, 100 * MINUTE, &seen(9, 0)), inconclusive);
        assert_eq!(after(0, MINUTE, &seen(10, 0)), StepOutcome::Advance);
        let waits = StepOutcome::StepWait(StepWait::UntilPromoted);
        assert_eq!(after(2, 100 * MINUTE, &seen(100, 0)), waits);
    }

    #[test]
    fn every_limit_takes_the_candidate_back() {
        let none = || seen(10, 0);
        let limits: [(StepObservation, &str); 5] = [
            (
                StepObservation {
                    failed_calls: 2,
                    last_failure: "trap: unreachable".into(),
                    ..none()
                },
                "2 calls failed, of which 1 may; the last: trap: unreachable",
            ),
            (
                StepObservation {
                    refused_writes: 3,
                    last_refusal: "forbidden".into(),
                    ..none()
                },
                "3 of its plans were refused, of which 2 may be; the last: forbidden",
            ),
            (
                seen(7, 3),
                "it disagrees with the stable revision on 3 of 10 targets, and 20 % may be",
            ),
            (
                StepObservation {
                    call_latency: Some(Duration::from_millis(101)),
                    ..none()
                },
                "5 of 100 calls take 101ms or more, and 100ms is the limit",
            ),
            (
                StepObservation {
                    spent: Some("deletesPerMinute of 3".into()),
                    ..none()
                },
                "its part of a guardrail is used up: deletesPerMinute of 3",
            ),
        ];
        for (observed, said) in limits {
            for (elapsed, paused) in [(Duration::ZERO, false), (MINUTE, false), (MINUTE, true)] {
                let progress = Progress { step: 1, elapsed };
                let next = next(&STEPS, &ANALYSIS, &progress, &observed, paused, None);
                let StepOutcome::RollBack(failure) = next else {
                    panic!("{said}: {next:?}");
                };
                assert_eq!(failure.to_string(), said);
            }
        }
        assert_eq!(
            after(1, MINUTE, &seen(8, 2)),
            StepOutcome::Advance,
            "20 % are allowed"
        );
    }

    #[test]
    fn few_decisions_are_no_evidence_of_disagreement() {
        assert!(matches!(
            after(0, MINUTE, &seen(0, 9)),
            StepOutcome::StepWait(_)
        ));
        assert!(matches!(
            after(0, MINUTE, &seen(0, 10)),
            StepOutcome::RollBack(_)
        ));
    }

    #[test]
    fn an_operator_decides() {
        let (good, bad) = (seen(10, 0), seen(0, 10));
        assert_eq!(
            asked(0, &good, true, None),
            StepOutcome::StepWait(StepWait::Paused)
        );
        assert_eq!(
            asked(0, &seen(0, 0), true, Some(Request::Promote)),
            StepOutcome::Advance
        );
        assert_eq!(
            asked(2, &good, false, Some(Request::Promote)),
            StepOutcome::Promote
        );
        assert_eq!(
            asked(0, &good, false, Some(Request::PromoteFully)),
            StepOutcome::Promote
        );
        let aborted = StepOutcome::RollBack(AnalysisFailure::Aborted);
        assert_eq!(asked(1, &good, true, Some(Request::Abort)), aborted);
        let faulty = asked(1, &bad, false, Some(Request::PromoteFully));
        assert!(
            matches!(faulty, StepOutcome::RollBack(_)),
            "not past a limit"
        );
    }

    #[test]
    fn fewer_steps_than_were_taken_are_no_reason_to_promote() {
        let waits = StepOutcome::StepWait(StepWait::UntilPromoted);
        assert_eq!(
            after(7, MINUTE, &seen(10, 0)),
            waits,
            "as the last one does"
        );
        let nothing = StepObservation::default();
        let progress = Progress::default();
        let immediate = next(&[], &ANALYSIS, &progress, &nothing, false, None);
        assert_eq!(immediate, StepOutcome::Promote);
    }
}
