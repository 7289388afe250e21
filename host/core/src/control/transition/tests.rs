//! The rows of the table in docs/rollouts.md, each by itself.

mod situations;

use std::time::Duration;

use super::table::{Phase, next};
use super::*;
use crate::rollout::progress::{Step, StepObservation};
use crate::time::Instant;

fn revision(name: &str) -> RevisionStatus {
    RevisionStatus {
        revision: name.into(),
        since: "before".into(),
        ..RevisionStatus::default()
    }
}

fn stable() -> Rollout {
    let stable = revision("a");
    Rollout::Stable { stable }
}

fn rolling_out() -> Rollout {
    Rollout::RollingOut {
        stable: revision("a"),
        candidate: Box::new(Candidate::new(revision("b"))),
    }
}

fn rolled_back() -> Rollout {
    Rollout::RolledBack {
        stable: revision("a"),
        rejected: RejectedStatus {
            revision: "b".into(),
            ..RejectedStatus::default()
        },
    }
}

fn known() -> [Rollout; 3] {
    [stable(), rolling_out(), rolled_back()]
}

fn lost(before: Rollout, is_updated: bool) -> Rollout {
    Rollout::Lost {
        loss: Loss {
            since: "before".into(),
            reason: "it is not kept".into(),
            is_updated,
        },
        before: Box::new(before),
    }
}

fn steps() -> Vec<StepConfig> {
    let step = |weight| Step {
        weight,
        lasts: Some(Duration::from_secs(60)),
    };
    [0, 50].map(|weight| StepConfig(step(weight))).into()
}

/// The stable revision is loaded, and the spec with steps describes this one.
fn describes(name: &str) -> Circumstances {
    Circumstances {
        stable_loaded: true,
        is_superseded: name == "a",
        described: Some(RevisionStatus {
            since: String::new(),
            ..revision(name)
        }),
        steps: steps(),
        ..Circumstances::default()
    }
}

/// The stable revision is loaded; the revision that the spec describes is not.
fn describes_nothing() -> Circumstances {
    Circumstances {
        described: None,
        ..describes("b")
    }
}

fn without_steps(circumstances: Circumstances) -> Circumstances {
    Circumstances {
        steps: Vec::new(),
        ..circumstances
    }
}

fn failed(is_updated: bool) -> LoadFailureOfStable {
    LoadFailureOfStable {
        reason: "it is not kept".into(),
        is_updated,
    }
}

/// Applies the transitions of one reconcile before the analysis: the state after them,
/// and the reasons of the notices.
fn look(mut state: Rollout, now: &Circumstances) -> (Rollout, Vec<&'static str>) {
    let mut reasons = Vec::new();
    let mut now = now.clone();
    while let Some(transition) = next(Phase::Stable, &state, &now) {
        apply(&mut state, transition, &now, &mut reasons);
        now.stable_loaded |= matches!(state, Rollout::Stable { .. });
    }
    if let Some(transition) = next(Phase::Candidate, &state, &now) {
        apply(&mut state, transition, &now, &mut reasons);
    }
    (state, reasons)
}

fn apply(
    state: &mut Rollout,
    transition: Transition,
    now: &Circumstances,
    reasons: &mut Vec<&'static str>,
) {
    let notice = state.apply(transition, now, || "now".into());
    reasons.extend(notice.map(|notice| notice.reason));
}

/// Ends the step of the candidate.
fn end(mut state: Rollout, how: StepOutcome) -> (Rollout, Vec<&'static str>) {
    let mut reasons = Vec::new();
    if let Some(transition) = state.end_step(how, CandidateEligibility::Current) {
        apply(&mut state, transition, &describes("b"), &mut reasons);
    }
    (state, reasons)
}

fn named_now(name: &str) -> RevisionStatus {
    RevisionStatus {
        since: "now".into(),
        ..revision(name)
    }
}

#[test]
fn the_first_revision_is_stable_from_the_start() {
    let (state, reasons) = look(Rollout::New, &describes("a"));
    let stable = named_now("a");
    assert_eq!(state, Rollout::Stable { stable });
    assert!(reasons.is_empty());
    assert_eq!(look(Rollout::New, &describes_nothing()).0, Rollout::New);
}

#[test]
fn another_revision_with_steps_is_rolled_out_from_step_1() {
    let (state, reasons) = look(stable(), &describes("b"));
    assert_eq!(state.stable(), Some(&revision("a")));
    let candidate = state.candidate().unwrap();
    assert_eq!(candidate.revision, named_now("b"));
    assert_eq!(candidate.number, 1);
    assert_eq!(reasons, ["RolloutStarted"]);
}

#[test]
fn another_revision_without_steps_replaces_the_stable_one() {
    for state in known() {
        let (state, reasons) = look(state, &without_steps(describes("c")));
        let stable = named_now("c");
        assert_eq!(state, Rollout::Stable { stable });
        assert_eq!(reasons, ["Swapped"]);
    }
}

#[test]
fn a_spec_that_describes_the_stable_revision_again_ends_the_rollout() {
    let (state, reasons) = look(rolling_out(), &describes("a"));
    assert_eq!(state, stable());
    assert_eq!(reasons, ["RolloutEnded"]);
    // This holds while its source cannot be read, too.
    let away = Circumstances {
        described: None,
        ..describes("a")
    };
    assert_eq!(look(rolling_out(), &away), (stable(), vec!["RolloutEnded"]));
}

#[test]
fn a_third_revision_is_rolled_out_from_step_1() {
    let (state, _) = end(rolling_out(), StepOutcome::Advance);
    assert_eq!(state.candidate().unwrap().number, 2);
    let (state, reasons) = look(state, &describes("c"));
    let candidate = state.candidate().unwrap();
    assert_eq!(candidate.revision, named_now("c"));
    assert_eq!(candidate.number, 1);
    assert_eq!(reasons, ["RolloutStarted"]);
}

#[test]
fn nothing_starts_while_the_described_revision_is_not_loaded() {
    for state in known() {
        let (after, reasons) = look(state.clone(), &describes_nothing());
        assert_eq!(after, state);
        assert!(reasons.is_empty());
    }
}

#[test]
fn an_abort_rolls_the_candidate_back() {
    let (state, reasons) = end(
        rolling_out(),
        StepOutcome::RollBack(AnalysisFailure::Aborted),
    );
    let rejected = state.rejected().unwrap();
    assert_eq!(rejected.revision, "b");
    assert_eq!(rejected.at, "now");
    assert_eq!(rejected.step, 1);
    assert_eq!(rejected.cause, "aborted");
    assert_eq!(reasons, ["RolledBack"]);
}

#[test]
fn an_exceeded_limit_rolls_the_candidate_back_with_a_warning() {
    let mut state = rolling_out();
    let failure = AnalysisFailure::Trip("deletesPerMinute of 3".into());
    let now = describes("b");
    let notice = state.apply(Transition::RollBack(failure.clone()), &now, || "now".into());
    let notice = notice.unwrap();
    assert!(notice.warning);
    assert_eq!(
        notice.message,
        format!("b was rolled back in step 1: {failure}")
    );
    let rejected = state.rejected().unwrap();
    assert_eq!(rejected.cause, "guardrail");
    assert_eq!(rejected.reason, failure.to_string());
}

#[test]
fn a_full_promotion_makes_the_candidate_stable() {
    let (state, reasons) = end(rolling_out(), StepOutcome::Promote);
    let stable = named_now("b");
    assert_eq!(state, Rollout::Stable { stable });
    assert_eq!(reasons, ["Promoted"]);
}

#[test]
fn a_swap_replaces_the_stable_revision_whatever_the_state() {
    let swap = Circumstances {
        requests: OperatorRequests {
            swap: true,
            ..OperatorRequests::default()
        },
        ..describes("b")
    };
    for state in known() {
        for stable_loaded in [true, false] {
            let now = Circumstances {
                stable_loaded,
                ..swap.clone()
            };
            let (state, reasons) = look(state.clone(), &now);
            let stable = named_now("b");
            assert_eq!(state, Rollout::Stable { stable });
            assert_eq!(reasons, ["Swapped"]);
        }
        let (state, reasons) = look(
            lost(state, false),
            &Circumstances {
                stable_loaded: false,
                ..swap.clone()
            },
        );
        assert_eq!(state.stable(), Some(&named_now("b")));
        assert_eq!(reasons, ["Swapped"]);
    }
}

#[test]
fn a_step_that_ends_well_starts_the_next_one() {
    let mut state = rolling_out();
    let candidate = state.candidate_mut().unwrap();
    candidate.elapsed = Duration::from_secs(60);
    let failed = StepObservation {
        failed_calls: 1,
        ..StepObservation::default()
    };
    candidate.counts.observe(&failed, Instant::ZERO);
    let (state, reasons) = end(state, StepOutcome::Advance);
    let expected = Candidate {
        number: 2,
        ..Candidate::new(revision("b"))
    };
    assert_eq!(state.candidate(), Some(&expected), "the counts restart");
    assert_eq!(reasons, ["StepStarted"]);
}

#[test]
fn a_step_that_continues_has_a_reason() {
    for (hold, expected) in [
        (StepWait::Paused, "paused by an operator"),
        (
            StepWait::Running {
                left: Duration::from_secs(7),
            },
            "the end of the step's time",
        ),
        (
            StepWait::Inconclusive {
                compared: 3,
                least: 10,
            },
            "inconclusive: 3 of 10 targets compared",
        ),
        (
            StepWait::UntilPromoted,
            "waiting for an operator to promote it",
        ),
    ] {
        let (state, reasons) = end(rolling_out(), StepOutcome::StepWait(hold.clone()));
        assert_eq!(state.candidate().unwrap().wait.to_string(), expected);
        assert!(reasons.is_empty());
    }
}

#[test]
fn a_rejected_revision_is_rolled_out_again_only_when_it_is_retried() {
    let (state, reasons) = look(rolled_back(), &describes("b"));
    assert_eq!(state, rolled_back());
    assert!(reasons.is_empty());
    let retry = Circumstances {
        requests: OperatorRequests {
            retry: true,
            ..OperatorRequests::default()
        },
        ..describes("b")
    };
    let (state, reasons) = look(rolled_back(), &retry);
    assert_eq!(state.candidate().unwrap().revision, named_now("b"));
    assert_eq!(state.rejected(), None);
    assert_eq!(reasons, ["RolloutStarted"]);
}

#[test]
fn another_revision_is_rolled_out_after_a_rejected_one() {
    let (state, reasons) = look(rolled_back(), &describes("c"));
    assert_eq!(state.candidate().unwrap().revision, named_now("c"));
    assert_eq!(reasons, ["RolloutStarted"]);
}

#[test]
fn a_spec_that_describes_the_stable_revision_forgives_the_rejected_one() {
    let (state, reasons) = look(rolled_back(), &describes("a"));
    assert_eq!(state, stable());
    assert!(reasons.is_empty());
}

#[test]
fn a_stable_revision_that_cannot_be_loaded_is_lost() {
    for state in known() {
        let now = Circumstances {
            stable_loaded: false,
            failure: Some(failed(false)),
            ..describes("b")
        };
        let (after, reasons) = look(state.clone(), &now);
        assert_eq!(after.loss().unwrap().since, "now");
        assert_eq!(after.known(), &state);
        assert!(reasons.is_empty());
        // It is one loss, however often it is observed.
        let again = look(after.clone(), &now);
        assert_eq!(again, (after, Vec::new()));
    }
}

#[test]
fn a_lost_revision_that_is_loaded_continues_as_before() {
    for state in known() {
        let (after, reasons) = look(lost(state.clone(), false), &describes_nothing());
        assert_eq!(after, state);
        assert!(reasons.is_empty());
    }
}

#[test]
fn the_described_revision_replaces_a_lost_one_that_is_abandoned() {
    let now = Circumstances {
        stable_loaded: false,
        requests: OperatorRequests {
            abandon: true,
            ..OperatorRequests::default()
        },
        failure: Some(failed(false)),
        ..describes("b")
    };
    for state in known() {
        let (after, reasons) = look(lost(state.clone(), false), &now);
        let stable = named_now("b");
        assert_eq!(after, Rollout::Stable { stable });
        assert_eq!(reasons, ["Promoted"]);
        // But not before it is loaded.
        let not_loaded = Circumstances {
            described: None,
            ..now.clone()
        };
        let before = lost(state, false);
        assert_eq!(look(before.clone(), &not_loaded).0, before);
    }
}

#[test]
fn an_update_of_davit_replaces_a_lost_builtin_guest() {
    let now = Circumstances {
        stable_loaded: false,
        is_update: true,
        failure: Some(failed(true)),
        ..describes("c")
    };
    for state in known() {
        let (after, reasons) = look(state, &now);
        let stable = named_now("c");
        assert_eq!(after, Rollout::Stable { stable });
        assert_eq!(reasons, ["Updated"]);
    }
}

#[test]
fn an_update_never_promotes_a_candidate_or_a_rejected_revision() {
    let now = Circumstances {
        stable_loaded: false,
        is_update: true,
        failure: Some(failed(true)),
        ..describes("b")
    };
    for state in [rolling_out(), rolled_back()] {
        let (after, reasons) = look(state.clone(), &now);
        assert_eq!(after.known(), &state);
        assert!(after.loss().is_some());
        assert!(reasons.is_empty());
    }
}

#[test]
fn an_unavailable_source_is_not_an_update() {
    let now = Circumstances {
        stable_loaded: false,
        is_update: true,
        failure: Some(failed(false)),
        ..describes("c")
    };
    assert!(look(stable(), &now).0.loss().is_some());
}

#[test]
fn a_lost_candidate_can_still_be_aborted() {
    let (state, reasons) = end(
        lost(rolling_out(), false),
        StepOutcome::RollBack(AnalysisFailure::Aborted),
    );
    assert!(state.loss().is_some());
    assert_eq!(state.rejected().unwrap().revision, "b");
    assert_eq!(reasons, ["RolledBack"]);
}

/// After a start, an invalid spec describes nothing.
#[test]
fn without_a_readable_spec_every_state_stays() {
    let nothing = Circumstances {
        stable_loaded: true,
        ..Circumstances::default()
    };
    for state in known() {
        assert_eq!(look(state.clone(), &nothing).0, state);
    }
}
