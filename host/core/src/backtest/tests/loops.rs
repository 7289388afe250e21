//! Closed loops, open loops, and what stays.

use std::time::Duration;

use serde_json::json;

use super::bench::{
    ENDED, FAILED, Guest, IDLE, PATIENT, Recorder, Requests, SECOND, START, Trial, delete, nothing,
    plan,
};
use crate::backtest::{Difference, Report};
use crate::gate::Mode;
use crate::journal::Entry;
use crate::plan::{Decision, DeleteOptions, Patch, PatchKind, Step, Verdict};

/// A recorded host that deletes failed pods: two of them, and another one has succeeded.
fn recorded() -> Recorder {
    let mut recorder = Recorder::start(FAILED);
    recorder.node("n1", None);
    for name in ["a", "b", "c"] {
        recorder.pod(name, name, "Running");
    }
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.pod("b", "b", "Failed");
    recorder.pod("c", "c", "Succeeded");
    recorder.pass(100 * SECOND);
    // History lasts until its last entry.
    recorder.node("n2", None);
    recorder
}

fn counts(report: &Report) -> (u64, u64, u64) {
    let agreement = &report.agreement;
    (
        agreement.agree,
        agreement.only_candidate,
        agreement.only_recorded,
    )
}

#[test]
fn the_recorded_policy_itself_deletes_the_same_at_the_same_time() {
    let recorder = recorded();
    let report = Trial::of(FAILED).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (2, 0, 0));
    assert_eq!(report.agreement.same_time, 2);
    assert_eq!(report.candidate, report.recorded);
    assert_eq!(report.candidate.by_reason["test"], 2);
    assert_eq!(report.candidate.by_owner_kind["ReplicaSet"], 2);
    assert_eq!(report.candidate.by_namespace["ns"], 2);
    assert!(report.surprising.is_empty() && report.notes.is_empty());
    assert!(report.activity.calls > 0 && report.activity.failed_calls == 0);
}

#[test]
fn what_only_the_candidate_deletes_is_surprising_with_what_it_saw() {
    let recorder = recorded();
    let report = Trial::of(ENDED).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (2, 1, 0));
    let surprise = &report.surprising[0];
    assert_eq!(surprise.difference, Difference::OnlyCandidate);
    assert_eq!(surprise.object, "v1 Pod ns/c (c)");
    assert_eq!(surprise.message, "c should go");
    let saw = surprise.saw.as_ref().unwrap();
    assert_eq!(saw["status"]["phase"], "Succeeded");
    assert_eq!(saw["metadata"]["uid"], "c");
}

#[test]
fn what_the_policy_keeps_goes_when_history_says_so() {
    let recorder = recorded();
    let report = Trial::of(IDLE).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (0, 0, 2));
    assert_eq!(report.candidate.deletions, 0);
    // The patient policy is too late: the recorded one has deleted the pods at once.
    let report = Trial::of(PATIENT).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (0, 0, 2));
}

#[test]
fn what_the_recorded_controller_deletes_stays_if_it_is_kept() {
    let recorder = recorded();
    let mut trial = Trial::of(PATIENT);
    trial.settings.tolerance = Duration::MAX;
    let report = trial.run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (2, 0, 0));
    let later = report.agreement.later;
    assert_eq!(later.count, 2);
    // A pod that was running for ten seconds was reconciled then, and created as an item again.
    assert!(later.median_seconds >= 29.0, "{later:?}");
    assert!(later.max_seconds <= 31.0, "{later:?}");
}

/// The recorded deletion changes the pod before it is gone, and the policy names the version
/// that it has seen.
#[test]
fn what_the_recorded_deletion_changes_does_not_change_an_object_that_is_kept() {
    const EXACT: Guest = Guest {
        name: "exact",
        policy: |key, pod, call| {
            let mut decision = (PATIENT.policy)(key, pod, call);
            let view = call.snapshot.view(call.views["pods"]).unwrap();
            for plan in &mut decision.plans {
                let version = view.get(key).unwrap().record().resource_version.to_string();
                plan.steps = vec![Step::Delete(DeleteOptions {
                    resource_version: version,
                    ..DeleteOptions::default()
                })];
            }
            decision
        },
    };
    let mut recorder = Recorder::start(FAILED);
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(5 * SECOND);
    recorder.pod("a", "a", "Terminating");
    recorder.pass(5 * SECOND);
    recorder.remove("a");
    recorder.pass(100 * SECOND);
    recorder.node("n2", None);
    let mut trial = Trial::of(EXACT);
    trial.settings.tolerance = Duration::MAX;
    let report = trial.run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (1, 0, 0));
    assert_eq!(report.activity.failed_plans, 0);
}

#[test]
fn users_delete_objects_also_if_they_are_kept() {
    let mut recorder = recorded();
    recorder.pod("d", "d", "Failed");
    recorder.pod("e", "e", "Running");
    recorder.pass(SECOND);
    recorder.remove("e");
    recorder.pass(100 * SECOND);
    recorder.node("n3", None);
    let mut trial = Trial::of(PATIENT);
    trial.settings.tolerance = Duration::MAX;
    let report = trial.run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (3, 0, 0));
}

/// The first plan of a decision patches its target, and the second one deletes it.
#[test]
fn a_patch_of_an_object_is_not_its_deletion() {
    const CAREFUL: Guest = Guest {
        name: "careful",
        policy: |key, pod, _| {
            if pod["status"]["phase"] != "Failed" {
                return nothing();
            }
            let body = json!({"status": {"phase": "Failed"}});
            let patch = Patch {
                kind: PatchKind::StrategicMerge,
                subresource: "status".into(),
                body: rmp_serde::to_vec_named(&body).unwrap(),
            };
            let mut decision = plan(key, pod, vec![Step::Patch(patch)]);
            decision.plans[0].reason = "first".into();
            decision.plans.extend(delete(key, pod).plans);
            decision
        },
    };
    let mut recorder = Recorder::start(CAREFUL);
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND);
    let is_patch = |entry: &Entry| matches!(entry, Entry::Execution(it) if it.reason == "first");
    let of_patch = recorder.records.iter().filter(|it| is_patch(&it.entry));
    assert!(of_patch.count() > 0);
    let is_deletion = |entry: &Entry| matches!(entry, Entry::Execution(it) if it.reason == "test");
    recorder.records.retain(|it| !is_deletion(&it.entry));
    let report = Trial::of(IDLE).run(&recorder.records).unwrap();
    assert_eq!(report.recorded.deletions, 0);
}

#[test]
fn a_deletion_with_a_long_reason_counts() {
    const WORDY: Guest = Guest {
        name: "wordy",
        policy: |key, pod, _| {
            if pod["status"]["phase"] != "Failed" {
                return nothing();
            }
            let mut decision = delete(key, pod);
            decision.plans[0].reason = "it failed\n".repeat(100);
            decision
        },
    };
    let mut recorder = Recorder::start(WORDY);
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND);
    let report = Trial::of(WORDY).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (1, 0, 0));
}

/// A user was faster than the recorded controller. What another host would have said of its
/// request is not known, either.
#[test]
fn what_a_user_deletes_before_the_recorded_controller_is_not_kept() {
    for is_entered in [true, false] {
        let mut recorder = recorded();
        recorder.requests = Requests::AreOvertaken;
        recorder.pod("d", "d", "Failed");
        recorder.pass(SECOND);
        if !is_entered {
            let is_it =
                |entry: &Entry| matches!(entry, Entry::Execution(it) if it.target.name == "d");
            recorder.records.retain(|it| !is_it(&it.entry));
            recorder.restart();
        }
        recorder.pass(100 * SECOND);
        recorder.node("n3", None);
        let mut trial = Trial::of(PATIENT);
        trial.settings.tolerance = Duration::MAX;
        let report = trial.run(&recorder.records).unwrap();
        assert_eq!(counts(&report), (2, 0, 0), "{is_entered}");
    }
}

/// In a closed loop, a deleted pod is gone; in an open loop, it fails again and again, and
/// counts once.
#[test]
fn nothing_disappears_in_an_open_loop() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    for phase in ["Running", "Failed", "Running", "Failed"] {
        recorder.pass(40 * SECOND);
        recorder.pod("a", "a", phase);
    }
    let closed = Trial::of(FAILED).run(&recorder.records).unwrap();
    let mut trial = Trial::of(FAILED);
    trial.settings.open_loop = true;
    let open = trial.run(&recorder.records).unwrap();
    assert_eq!(
        (closed.candidate.deletions, open.candidate.deletions),
        (1, 1)
    );
    assert!(open.activity.calls > closed.activity.calls);
    assert_eq!(
        (closed.activity.executed_plans, open.activity.executed_plans),
        (1, 0)
    );
    assert!(open.notes[0].contains("open loop"), "{:?}", open.notes);
    assert!(!open.policy.closed_loop && closed.policy.closed_loop);
}

/// The spec of the dry run that `docs/adoption.md` starts with. Its comparison would watch fields
/// that no profile has, and would hold what history deletes.
#[test]
fn an_open_loop_does_not_compare_its_dry_run_itself() {
    let recorder = recorded();
    let mut trial = Trial::of(FAILED);
    trial.settings.open_loop = true;
    trial.desired.settings.compares_with_cluster = true;
    let report = trial.run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (2, 0, 0));
}

#[test]
fn a_policy_that_never_rests_is_refused_with_its_item() {
    const RESTLESS: Guest = Guest {
        name: "restless",
        policy: |_, _, _| Decision {
            verdict: Verdict::RequeueAfter(Duration::from_millis(1)),
            ..nothing()
        },
    };
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(100 * SECOND);
    recorder.node("n1", None);
    let error = Trial::of(RESTLESS).run(&recorder.records).unwrap_err();
    let error = error.to_string();
    for part in ["test never rests", "6000 times", "the item pods ns/a"] {
        assert!(error.contains(part), "{error}");
    }
}

/// Otherwise virtual time would pass for months, a second at a time.
#[test]
fn an_entry_of_the_far_future_is_refused() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(100 * SECOND);
    recorder.node("n1", None);
    let last = recorder.records.last_mut().unwrap();
    last.now.instant = last.now.instant.after(400 * 24 * 3600 * SECOND);
    let error = Trial::of(FAILED).run(&recorder.records).unwrap_err();
    assert!(error.to_string().contains("400 days"), "{error}");
}

#[test]
fn the_report_says_how_far_time_ran_and_what_waits_then() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.node("n1", None);
    let report = Trial::of(PATIENT).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 0);
    assert_eq!(report.span.pending_items, 1);
    assert_eq!(report.span.to, "2026-11-20T12:00:11.000Z");
    let note = report.notes.iter().find(|note| note.contains("1 items"));
    assert!(note.is_some(), "{:?}", report.notes);
    let report = Trial::of(IDLE).run(&recorder.records).unwrap();
    assert_eq!(report.span.pending_items, 0);
}

/// It fails again and again.
#[test]
fn an_object_that_a_recorded_dry_run_would_have_deleted_counts_once() {
    let mut recorder = Recorder::start_in(Mode::DryRun, FAILED);
    for phase in ["Failed", "Running", "Failed", "Running", "Failed"] {
        recorder.pod("a", "a", phase);
        recorder.pass(40 * SECOND);
    }
    recorder.node("n1", None);
    let report = Trial::of(IDLE).run(&recorder.records).unwrap();
    let note = report.notes.iter().find(|note| note.contains("dry run"));
    assert!(note.unwrap().contains("for 1 objects"), "{note:?}");
}

#[test]
fn timers_fire_between_two_entries() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    // Nothing is recorded for a while.
    recorder.pass(300 * SECOND);
    recorder.pod("b", "b", "Running");
    let report = Trial::of(PATIENT).run(&recorder.records).unwrap();
    let ended = report.candidate.worst_minute_ends.unwrap();
    assert_eq!(ended, "2026-11-20T12:00:41.000Z");
}

/// Deletes pods that have failed a millisecond after twenty seconds, by the wall clock.
const PUNCTUAL: Guest = Guest {
    name: "punctual",
    policy: |key, pod, call| {
        let rest = u64::try_from(START + 20_001 - call.now.wall.0).unwrap_or_default();
        match (pod["status"]["phase"].as_str(), rest) {
            (Some("Failed"), 0) => delete(key, pod),
            (Some("Failed"), _) => Decision {
                verdict: Verdict::RequeueAfter(Duration::from_millis(rest)),
                ..nothing()
            },
            _ => nothing(),
        }
    },
};

/// The wall clock has milliseconds, and the timers of two items wake in between.
#[test]
fn the_wall_clock_advances_with_wakes_that_are_less_than_a_millisecond_apart() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pass(9 * SECOND);
    for name in ["a", "b"] {
        recorder.now.instant = recorder.now.instant.after(Duration::from_micros(300));
        recorder.pod(name, name, "Failed");
    }
    recorder.pass(100 * SECOND);
    recorder.node("n1", None);
    let report = Trial::of(PUNCTUAL).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 2);
    let last = report.candidate.worst_minute_ends.unwrap();
    assert_eq!(last, "2026-11-20T12:00:20.001Z");
    assert!(report.activity.calls < 10, "{:?}", report.activity);
}
