//! Deletions of the recorded controller whose replies are lost.

use std::time::Duration;

use super::bench::{FAILED, Guest, IDLE, PATIENT, Recorder, Requests, SECOND, Trial};
use crate::backtest::Report;

/// A recorded host that deletes the pod a when it fails, and whose requests end so.
fn recorded(requests: Requests) -> Recorder {
    let mut recorder = Recorder::start(FAILED);
    recorder.requests = requests;
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND / 2);
    recorder
}

fn end(recorder: &mut Recorder) {
    recorder.pass(1_000 * SECOND);
    recorder.node("end", None);
}

fn run(guest: Guest, tolerance: Duration, recorder: &Recorder) -> Report {
    let mut trial = Trial::of(guest);
    trial.settings.tolerance = tolerance;
    trial.run(&recorder.records).unwrap()
}

/// What both, only the candidate and only the recorded controller delete, and what is unknown.
fn counts(report: &Report) -> [u64; 4] {
    let found = &report.agreement;
    [
        found.agree,
        found.only_candidate,
        found.only_recorded,
        found.unknown,
    ]
}

const TOLERANCES: [Duration; 3] = [Duration::ZERO, Duration::from_secs(60), Duration::MAX];

/// The counts are these, however long the policy has after the recorded controller.
fn assert_counts(recorder: &Recorder, guest: Guest, expected: [u64; 4]) {
    for tolerance in TOLERANCES {
        let found = counts(&run(guest, tolerance, recorder));
        assert_eq!(found, expected, "{} {tolerance:?}", guest.name);
    }
}

/// Somebody else may have deleted it at that time. Whatever the policy does, nobody can compare.
#[test]
fn what_goes_after_a_request_without_a_reply_is_unknown() {
    for requests in [Requests::LoseReplies, Requests::FailLate, Requests::Hang] {
        let mut recorder = recorded(requests);
        if matches!(requests, Requests::Hang) {
            recorder.restart();
        }
        end(&mut recorder);
        for guest in [FAILED, PATIENT, IDLE] {
            for tolerance in TOLERANCES {
                let report = run(guest, tolerance, &recorder);
                let which = format!("{} {requests:?} {tolerance:?}", guest.name);
                assert_eq!(counts(&report), [0, 0, 0, 1], "{which}");
                assert_eq!(report.recorded.deletions, 0, "{which}");
                let notes = report.notes.join("\n");
                assert!(notes.contains("asked for 1 deletions"), "{notes}");
            }
        }
    }
}

/// A pod with a grace period has only a deletion timestamp at first, which is as unanswered.
#[test]
fn what_terminates_after_a_request_without_a_reply_is_unknown() {
    let mut recorder = Recorder::start(FAILED);
    recorder.requests = Requests::LoseReplies;
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND / 2);
    let terminating = super::bench::terminating("a", "Running");
    recorder.put("pods", "ns/a", terminating);
    recorder.pass(200 * SECOND);
    recorder.remove("a");
    end(&mut recorder);
    for guest in [FAILED, IDLE] {
        assert_counts(&recorder, guest, [0, 0, 0, 1]);
    }
}

/// The request had no effect. What happens to the object later has nothing to do with it.
#[test]
fn what_lives_on_after_a_request_without_a_reply_was_not_deleted() {
    let mut recorder = Recorder::start(FAILED);
    recorder.requests = Requests::LoseReplies;
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND / 2);
    recorder.pod("a", "a", "Running");
    recorder.pass(200 * SECOND);
    recorder.remove("a");
    end(&mut recorder);
    assert_counts(&recorder, FAILED, [0, 1, 0, 0]);
    assert_counts(&recorder, IDLE, [0; 4]);
}

/// The minute counts from the last request. The first one is forgotten after its own.
#[test]
fn what_goes_after_the_last_of_many_requests_is_unknown() {
    let mut recorder = Recorder::start(FAILED);
    recorder.requests = Requests::LoseReplies;
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(75 * SECOND);
    recorder.remove("a");
    end(&mut recorder);
    for guest in [FAILED, IDLE] {
        for tolerance in TOLERANCES {
            let report = run(guest, tolerance, &recorder);
            assert_eq!(
                counts(&report),
                [0, 0, 0, 1],
                "{} {tolerance:?}",
                guest.name
            );
            let notes = report.notes.join("\n");
            assert!(notes.contains("asked for 1 deletions"), "{notes}");
        }
    }
}

#[test]
fn a_request_that_is_answered_later_counts() {
    let mut recorder = Recorder::start(FAILED);
    recorder.requests = Requests::LoseReplies;
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND / 2);
    recorder.requests = Requests::Succeed;
    recorder.deletes = true;
    end(&mut recorder);
    assert_counts(&recorder, FAILED, [1, 0, 0, 0]);
    assert_counts(&recorder, IDLE, [0, 0, 1, 0]);
}
