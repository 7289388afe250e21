//! What the recorded controller deleted stays for a while.

use std::time::Duration;

use super::bench::{Guest, IDLE, PATIENT, Recorder, SECOND, Trial, delete, nothing};
use crate::backtest::Report;
use crate::plan::{Decision, Verdict};

/// Deletes a failed pod after five minutes, if it is not the only pod: a pod that stays too
/// long is noticed.
const COUNTING: Guest = Guest {
    name: "counting",
    policy: |key, pod, call| {
        let waited = call.now.instant.since(call.items[0].created_at);
        let view = call.snapshot.view(call.views["pods"]).unwrap();
        match pod["status"]["phase"].as_str() {
            Some("Failed") if waited < 300 * SECOND => Decision {
                verdict: Verdict::RequeueAfter((300 * SECOND).saturating_sub(waited)),
                ..nothing()
            },
            Some("Failed") if view.len() > 1 => delete(key, pod),
            _ => nothing(),
        }
    },
};

fn run(guest: Guest, tolerance: Duration, recorder: &Recorder) -> Report {
    let mut trial = Trial::of(guest);
    trial.settings.tolerance = tolerance;
    trial.run(&recorder.records).unwrap()
}

fn counts(report: &Report) -> (u64, u64, u64) {
    let agreement = &report.agreement;
    (
        agreement.agree,
        agreement.only_candidate,
        agreement.only_recorded,
    )
}

/// A recorded host that deletes failed pods at once, until history ends long afterwards.
fn recorded() -> Recorder {
    let mut recorder = Recorder::start(super::bench::FAILED);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.node("n1", None);
    recorder
}

fn end(recorder: &mut Recorder) {
    recorder.pass(1000 * SECOND);
    recorder.node("end", None);
}

#[test]
fn a_policy_that_is_late_by_less_than_the_tolerance_agrees() {
    let mut recorder = recorded();
    end(&mut recorder);
    assert_eq!(counts(&run(PATIENT, Duration::ZERO, &recorder)), (0, 0, 1));
    assert_eq!(counts(&run(PATIENT, 10 * SECOND, &recorder)), (0, 0, 1));
    let report = run(PATIENT, 60 * SECOND, &recorder);
    assert_eq!(counts(&report), (1, 0, 0));
    assert_eq!(report.agreement.later.count, 1);
    assert!(!report.policy.keep);
    assert!((report.policy.tolerance_seconds - 60.0).abs() < f64::EPSILON);
}

/// Otherwise the policy would count what nobody has any more.
#[test]
fn what_the_recorded_controller_deleted_is_gone_after_the_tolerance() {
    let mut recorder = recorded();
    recorder.deletes = false;
    recorder.pod("b", "b", "Failed");
    recorder.deletes = true;
    end(&mut recorder);
    let kept = run(COUNTING, Duration::MAX, &recorder);
    assert_eq!(kept.agreement.agree, 1, "a and b are there: {kept:?}");
    let report = run(COUNTING, 60 * SECOND, &recorder);
    assert_eq!(report.candidate.deletions, 0, "b alone is there");
}

#[test]
fn an_object_that_history_still_has_after_the_tolerance_is_the_one_of_history() {
    let mut recorder = recorded();
    recorder.deletes = false;
    recorder.pod("b", "b", "Failed");
    recorder.pass(SECOND);
    // It is terminating, and changes meanwhile.
    recorder.pod("b", "b", "Running");
    recorder.pass(100 * SECOND);
    end(&mut recorder);
    let report = run(PATIENT, 10 * SECOND, &recorder);
    assert_eq!(report.candidate.deletions, 0, "{report:?}");
    let kept = run(PATIENT, Duration::MAX, &recorder);
    assert_eq!(kept.candidate.deletions, 2);
}

#[test]
fn a_name_that_is_taken_again_ends_the_stay() {
    let mut recorder = recorded();
    recorder.pod("a", "other", "Running");
    end(&mut recorder);
    let report = run(PATIENT, 600 * SECOND, &recorder);
    assert_eq!(counts(&report), (0, 0, 1));
    let idle = run(IDLE, 600 * SECOND, &recorder);
    assert_eq!(counts(&idle), (0, 0, 1));
}
