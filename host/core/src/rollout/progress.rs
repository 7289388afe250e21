//! The steps of a rollout: when one ends, and how.
//!
//! The whole state is [`Progress`], which is recorded with every change, so that the
//! next host continues from there. Time in a step counts only while the candidate runs
//! beside the stable revision: a host that was down for an hour has observed nothing.

use std::fmt;
use std::time::Duration;

use super::compare::Counts;

/// One step of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The candidate's share of the cohorts, in percent; 0 is a shadow.
    pub weight: u8,
    /// The duration; none until an operator promotes.
    pub lasts: Option<Duration>,
}

/// The limits that a candidate must keep; none for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The compared targets that a step needs before the next step can start.
    pub min_decisions: u64,
    /// The most failed calls in a step.
    pub max_failed_calls: u64,
    /// The most disagreements, in percent of the compared targets.
    pub max_disagreement_percent: Option<u8>,
    /// The most plans that the gate or the API server refuses in a step.
    pub max_refused_writes: u64,
    /// The highest 95th percentile of the duration of calls.
    pub max_call_latency: Option<Duration>,
}

/// The counts of a candidate in a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepObservation {
    /// The results of the comparison.
    pub counts: Counts,
    /// The failed calls.
    pub failed_calls: u64,
    /// The last failure.
    pub last_failure: String,
    /// The plans that the gate refused, or that the API server refused as forbidden or
    /// invalid.
    pub refused_writes: u64,
    /// The last refusal.
    pub last_refusal: String,
    /// The 95th percentile of the duration of calls; none without calls.
    pub call_latency: Option<Duration>,
    /// The candidate's tripped guardrail, if there is one.
    pub trip: Option<String>,
}

/// The progress of a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The index of the step.
    pub step: usize,
    /// The time in the step.
    pub elapsed: Duration,
}

/// A request of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Start the next step, whatever the analysis says.
    Promote,
    /// Promote the candidate immediately.
    PromoteFully,
    /// Roll the candidate back.
    Abort,
}

/// Why a candidate is rolled back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnalysisFailure {
    /// Too many calls failed.
    FailedCalls {
        /// The number of failed calls.
        calls: u64,
        /// The limit.
        most: u64,
        /// The last failure.
        last: String,
    },
    /// The revisions disagree too often.
    Disagreement {
        /// The number of disagreements.
        disagreements: u64,
        /// The number of compared targets.
        compared: u64,
        /// The limit, in percent.
        most: u8,
    },
    /// Too many plans were refused.
    RefusedWrites {
        /// The number of refused plans.
        plans: u64,
        /// The limit.
        most: u64,
        /// The last refusal.
        last: String,
    },
    /// Calls take too long.
    Latency {
        /// The 95th percentile.
        took: Duration,
        /// The limit.
        most: Duration,
    },
    /// The candidate's share of a guardrail tripped.
    Trip(String),
    /// An operator aborted the rollout.
    Aborted,
}

/// Why a candidate stays in its step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepWait {
    /// An operator has paused the rollout.
    Paused,
    /// The time of the step has not passed.
    Running {
        /// The time left.
        left: Duration,
    },
    /// The time has passed, but too few targets were compared.
    Inconclusive {
        /// The number of compared targets.
        compared: u64,
        /// The number that the step needs.
        least: u64,
    },
    /// The step lasts until an operator promotes.
    UntilPromoted,
}

/// What happens to a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The candidate stays in its step.
    StepWait(StepWait),
    /// The next step starts.
    Advance,
    /// The candidate is promoted.
    Promote,
    /// Roll the candidate back.
    RollBack(AnalysisFailure),
}

/// Decides what happens to a candidate.
///
/// A failure ends a rollout at any time, also while it is paused. Disagreement and
/// latency count once the minimum of targets is compared.
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
    // If the spec has fewer steps by now, the last one applies.
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
    if let Some(trip) = &observed.trip {
        return Some(AnalysisFailure::Trip(trip.clone()));
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
                "{calls} calls failed (limit {most}); last failure: {last}"
            ),
            Self::Disagreement {
                disagreements,
                compared,
                most,
            } => write!(
                f,
                "the revisions disagree on {disagreements} of {compared} targets (limit {most} %)"
            ),
            Self::RefusedWrites { plans, most, last } => write!(
                f,
                "{plans} plans were refused (limit {most}); last refusal: {last}"
            ),
            Self::Latency { took, most } => {
                write!(f, "5 of 100 calls take {took:?} or more (limit {most:?})")
            }
            Self::Trip(trip) => write!(f, "its share of a guardrail tripped: {trip}"),
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
            Self::Inconclusive { compared, least } => {
                write!(f, "inconclusive: {compared} of {least} targets compared")
            }
            Self::UntilPromoted => f.write_str("waiting for an operator to promote it"),
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

    fn after_request(
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
    fn every_exceeded_limit_rolls_the_candidate_back() {
        let none = || seen(10, 0);
        let limits: [(StepObservation, &str); 5] = [
            (
                StepObservation {
                    failed_calls: 2,
                    last_failure: "trap: unreachable".into(),
                    ..none()
                },
                "2 calls failed (limit 1); last failure: trap: unreachable",
            ),
            (
                StepObservation {
                    refused_writes: 3,
                    last_refusal: "forbidden".into(),
                    ..none()
                },
                "3 plans were refused (limit 2); last refusal: forbidden",
            ),
            (
                seen(7, 3),
                "the revisions disagree on 3 of 10 targets (limit 20 %)",
            ),
            (
                StepObservation {
                    call_latency: Some(Duration::from_millis(101)),
                    ..none()
                },
                "5 of 100 calls take 101ms or more (limit 100ms)",
            ),
            (
                StepObservation {
                    trip: Some("deletesPerMinute of 3".into()),
                    ..none()
                },
                "its share of a guardrail tripped: deletesPerMinute of 3",
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
            after_request(0, &good, true, None),
            StepOutcome::StepWait(StepWait::Paused)
        );
        assert_eq!(
            after_request(0, &seen(0, 0), true, Some(Request::Promote)),
            StepOutcome::Advance
        );
        assert_eq!(
            after_request(2, &good, false, Some(Request::Promote)),
            StepOutcome::Promote
        );
        assert_eq!(
            after_request(0, &good, false, Some(Request::PromoteFully)),
            StepOutcome::Promote
        );
        let aborted = StepOutcome::RollBack(AnalysisFailure::Aborted);
        assert_eq!(after_request(1, &good, true, Some(Request::Abort)), aborted);
        let faulty = after_request(1, &bad, false, Some(Request::PromoteFully));
        assert!(
            matches!(faulty, StepOutcome::RollBack(_)),
            "not past a limit"
        );
    }

    #[test]
    fn with_fewer_steps_the_last_one_applies() {
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
