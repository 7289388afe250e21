//! What the garbage collector deletes while the watch of the owners lags behind.

use std::time::Duration;

use serde_json::{Value, json};

use super::against::{LATE, counts, trial_of};
use super::bench::{EAGER, Guest, IDLE, Recorder, SECOND};
use crate::backtest::Report;

/// A pod in this phase with an owner.
fn owned(phase: &str) -> Value {
    json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a",
            "ownerReferences": [{"uid": "o", "kind": "Node"}]},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase},
    })
}

/// How the owner ends, after its pod is gone in the journal.
#[derive(Clone, Copy, Debug)]
enum Owner {
    IsGone(Duration),
    Terminates(Duration),
    Stays,
}

/// A running pod with an owner, both of which go.
fn recorded(owner: Owner) -> Recorder {
    recorded_in("Running", owner)
}

/// The same with a pod in this phase.
fn recorded_in(phase: &str, owner: Owner) -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    recorder.node("o", None);
    recorder.put("pods", "ns/a", owned(phase));
    recorder.pass(9 * SECOND);
    recorder.remove("a");
    match owner {
        Owner::IsGone(lag) => {
            recorder.pass(lag);
            recorder.take("nodes", "o");
        }
        Owner::Terminates(lag) => {
            recorder.pass(lag);
            let metadata = json!({"name": "o", "uid": "o",
                "deletionTimestamp": "2026-11-20T12:00:00Z"});
            recorder.put("nodes", "o", json!({"metadata": metadata}));
        }
        Owner::Stays => {}
    }
    recorder
}

fn end(recorder: &mut Recorder) {
    recorder.pass(1_000 * SECOND);
    recorder.node("end", None);
}

fn run(guest: Guest, open_loop: bool, recorder: &Recorder) -> Report {
    let trial = trial_of("garbage-collector", guest, open_loop);
    trial.run(&recorder.records).unwrap()
}

/// Owners and dependents are of different kinds, and so of different watches: their order in a
/// journal is not the order in which the API server stored the changes.
#[test]
fn what_the_journal_shows_before_the_end_of_its_owner_was_collected() {
    for owner in [
        Owner::IsGone(SECOND),
        Owner::IsGone(100 * SECOND),
        Owner::Terminates(SECOND),
    ] {
        let mut recorder = recorded(owner);
        end(&mut recorder);
        for (guest, expected) in [
            (EAGER, (1, 0, Some(0), 0)),
            (LATE, (1, 0, Some(0), 0)),
            (IDLE, (0, 0, Some(1), 0)),
        ] {
            for open_loop in [false, true] {
                let report = run(guest, open_loop, &recorder);
                let which = format!("{} {owner:?} {open_loop}", guest.name);
                assert_eq!(counts(&report), expected, "{which}");
                assert_eq!(report.agreement.unknown, 0, "{which}");
                assert_eq!(report.recorded.deletions, 1, "{which}");
                // At its own time, not at that of its owner.
                let ends = report.recorded.worst_minute_ends;
                assert_eq!(ends.as_deref(), Some("2026-11-20T12:00:10.000Z"));
            }
        }
    }
}

/// As long as its owner is there, it seems to be the work of PodGC, as the pods of a Job do.
#[test]
fn a_pod_that_had_ended_may_have_been_collected() {
    let mut recorder = recorded_in("Succeeded", Owner::IsGone(SECOND));
    end(&mut recorder);
    let report = run(EAGER, false, &recorder);
    assert_eq!(counts(&report), (1, 0, Some(0), 0));
    // What had ended does not stay for the policy.
    let report = run(IDLE, false, &recorder);
    assert_eq!(counts(&report), (0, 0, Some(0), 0));
    assert_eq!(report.agreement.unknown, 1);
}

#[test]
fn what_is_gone_while_its_owner_stays_somebody_else_has_deleted() {
    for owner in [Owner::Stays, Owner::IsGone(400 * SECOND)] {
        let mut recorder = recorded(owner);
        end(&mut recorder);
        for (guest, by_others) in [(EAGER, 1), (LATE, 1), (IDLE, 0)] {
            let report = run(guest, false, &recorder);
            let which = format!("{} {owner:?}", guest.name);
            assert_eq!(counts(&report), (0, 0, Some(0), by_others), "{which}");
            assert_eq!(report.agreement.unknown, 0, "{which}");
            assert_eq!(report.recorded.deletions, 0, "{which}");
        }
    }
}

/// The journal, or the host that records, ends before the window of the owner is over.
#[test]
fn whether_the_owner_follows_is_unknown_when_nobody_records_any_more() {
    for (has_other_host, time, unknown) in [
        (false, SECOND, 1),
        (true, SECOND, 1),
        // The watch of the owner would have caught up.
        (false, 100 * SECOND, 0),
        (true, 100 * SECOND, 0),
    ] {
        let mut recorder = recorded(Owner::Stays);
        recorder.pass(time);
        recorder.node("last", None);
        if has_other_host {
            recorder.stop();
            recorder.take("nodes", "o");
            recorder.restart();
            recorder.pass(1_000 * SECOND);
        }
        recorder.node("end", None);
        let found = run(IDLE, false, &recorder).agreement;
        assert_eq!(found.unknown, unknown, "{has_other_host} {time:?}");
        let found = run(EAGER, false, &recorder).agreement;
        assert_eq!((found.agree, found.by_others), (0, 0), "{has_other_host}");
        let only = (found.only_candidate, found.unknown);
        assert_eq!(only, (0, 1), "{has_other_host}");
    }
}
