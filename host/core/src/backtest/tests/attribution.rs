//! Who has deleted an object, as far as a journal shows it.

use std::time::Duration;

use serde_json::json;

use super::against::{counts, marked, trial, trial_of};
use super::bench::{
    EAGER, FAILED, FIELDS, Guest, IDLE, PATIENT, Recorder, Requests, SECOND, Trial, desired, offer,
    terminating,
};
use crate::backtest::{Against, Backtest, BacktestSettings, Report};
use crate::desired::DesiredController;
use crate::gate::Mode;
use crate::journal::Entry;

/// A mark of `PodGC`.
const ORPHANED: &str = "DeletionByPodGC";
/// How long the other side has after the policy.
const WINDOW: Duration = Duration::from_mins(5);

/// PodGC, in the cluster or of Davit, marks a pod that has failed, and deletes it.
fn collect(recorder: &mut Recorder, name: &str) {
    let key = format!("ns/{name}");
    recorder.put("pods", &key, marked(name, "Failed", ORPHANED));
    recorder.pass(SECOND);
    recorder.remove(name);
}

/// History lasts until its last entry.
fn end(recorder: &mut Recorder) {
    recorder.pass(2 * WINDOW);
    recorder.node("end", None);
}

/// A policy that replaces no controller of Kubernetes, beside everybody but Davit.
fn own_policy(guest: Guest, change: impl Fn(&mut DesiredController<Guest>)) -> Trial {
    let mut trial = Trial::of(guest);
    change(&mut trial.desired);
    trial.settings.against = Against::Cluster;
    trial.settings.tolerance = BacktestSettings::TOLERANCE;
    trial
}

/// The recording host follows, and another replica executes the same plans. In a dry run nobody
/// does.
#[test]
fn what_another_replica_of_davit_deletes_is_not_the_clusters() {
    for (mode, agree, by_others) in [(Mode::Enforce, 0, 1), (Mode::DryRun, 1, 0)] {
        let mut controller = desired(FAILED, &FIELDS);
        controller.leads = false;
        controller.settings.mode = mode;
        let mut recorder = Recorder::start_as(controller);
        recorder.pod("a", "a", "Running");
        recorder.pass(10 * SECOND);
        recorder.pod("a", "a", "Failed");
        recorder.pass(SECOND);
        collect(&mut recorder, "a");
        end(&mut recorder);
        let report = trial(FAILED, false).run(&recorder.records).unwrap();
        assert_eq!(counts(&report), (agree, 0, Some(0), by_others), "{mode:?}");
        let notes = report.notes.join("\n");
        let is_noted = notes.contains("another replica led test");
        assert_eq!(is_noted, mode == Mode::Enforce, "{notes}");
        let idle = trial(IDLE, false).run(&recorder.records).unwrap();
        assert_eq!(counts(&idle), (0, 0, Some(0), 0), "{mode:?}");
        assert_eq!(idle.agreement.unknown, agree, "it had ended: {mode:?}");
    }
}

#[test]
fn what_a_controller_of_davit_deletes_without_a_reply_is_not_the_clusters() {
    let mut recorder = Recorder::start(FAILED);
    recorder.requests = Requests::LoseReplies;
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(SECOND / 2);
    collect(&mut recorder, "a");
    end(&mut recorder);
    let report = trial(IDLE, false).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (0, 0, Some(0), 0));
}

fn selecting(controller: &mut DesiredController<Guest>) {
    let mut manifest = (*controller.stable.manifest).clone();
    manifest.watches[0].label_selector = "temp=true".into();
    controller.stable.manifest = manifest.into();
}

/// Of two pods that the list shows no more, one may live on, and one was terminating.
fn selected() -> Recorder {
    let mut controller = desired(IDLE, &FIELDS);
    selecting(&mut controller);
    let mut recorder = Recorder::start_as(controller);
    recorder.pod("left", "left", "Failed");
    recorder.pod("gone", "gone", "Running");
    recorder.pass(10 * SECOND);
    recorder.remove("left");
    recorder.put("pods", "ns/gone", terminating("gone", "Running"));
    recorder.pass(SECOND);
    recorder.remove("gone");
    end(&mut recorder);
    recorder
}

/// A user may have removed a label to save it.
#[test]
fn an_object_that_leaves_a_selector_is_not_known_to_be_deleted() {
    let recorder = selected();
    let run = |guest| own_policy(guest, selecting).run(&recorder.records).unwrap();
    for guest in [IDLE, FAILED] {
        let report = run(guest);
        assert_eq!(counts(&report), (0, 0, Some(1), 0), "{}", guest.name);
        assert_eq!(report.agreement.unknown, 1, "{}", guest.name);
        assert_eq!(report.recorded.deletions, 1, "{}", guest.name);
    }
    // The policy does not have it any more half a minute later.
    assert_eq!(run(PATIENT).candidate.deletions, 0);
}

/// A user removes a label of a pod and sets it again. What both sides delete later counts.
#[test]
fn an_object_that_returns_to_its_selector_is_compared() {
    for (away, unknown) in [(30 * SECOND, 0), (70 * SECOND, 1)] {
        let mut controller = desired(IDLE, &FIELDS);
        selecting(&mut controller);
        let mut recorder = Recorder::start_as(controller);
        recorder.pod("a", "a", "Running");
        recorder.pass(10 * SECOND);
        recorder.remove("a");
        recorder.pass(away);
        recorder.pod("a", "a", "Running");
        recorder.pass(10 * SECOND);
        recorder.pod("a", "a", "Failed");
        recorder.pass(SECOND);
        recorder.put("pods", "ns/a", terminating("a", "Failed"));
        recorder.pass(SECOND);
        recorder.remove("a");
        end(&mut recorder);
        let report = own_policy(FAILED, selecting).run(&recorder.records);
        let report = report.unwrap();
        assert_eq!(counts(&report), (1, 0, Some(0), 0), "{away:?}");
        assert_eq!(report.agreement.unknown, unknown, "{away:?}");
        let deletions = (report.candidate.deletions, report.recorded.deletions);
        assert_eq!(deletions, (1, 1), "{away:?}");
    }
}

#[test]
fn what_the_policy_does_not_watch_is_not_compared() {
    let mut recorder = Recorder::start(IDLE);
    let pod = json!({
        "metadata": {"name": "a", "namespace": "other", "uid": "a"},
        "status": {"phase": "Running"},
    });
    recorder.put("pods", "other/a", pod);
    recorder.pod("b", "b", "Running");
    recorder.pass(10 * SECOND);
    recorder.take("pods", "other/a");
    recorder.remove("b");
    end(&mut recorder);
    let namespaced = |controller: &mut DesiredController<Guest>| {
        let mut manifest = (*controller.stable.manifest).clone();
        manifest.watches[0].namespace = "ns".into();
        controller.stable.manifest = manifest.into();
    };
    let report = own_policy(IDLE, namespaced).run(&recorder.records);
    assert_eq!(counts(&report.unwrap()), (0, 0, Some(1), 0));
}

/// A running pod that the policy deletes, and that somebody deletes after this time, perhaps
/// while the watch is broken.
fn deleted_after(time: Duration, in_gap: bool) -> Report {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(time);
    if in_gap {
        recorder.interrupt();
        recorder.pass(30 * SECOND);
        recorder.remove("a");
        recorder.list_again();
    } else {
        recorder.remove("a");
    }
    end(&mut recorder);
    trial(EAGER, false).run(&recorder.records).unwrap()
}

#[test]
fn what_goes_while_a_watch_is_broken_has_an_unknown_author() {
    for (in_gap, by_others, unknown) in [(false, 1, 0), (true, 0, 1)] {
        let report = deleted_after(10 * SECOND, in_gap);
        assert_eq!(counts(&report), (0, 0, Some(0), by_others), "{in_gap}");
        assert_eq!(report.agreement.unknown, unknown, "{in_gap}");
    }
}

/// Every pod goes at some time.
#[test]
fn what_others_delete_after_the_window_is_the_candidates_alone() {
    for (time, in_gap, only_candidate) in [
        (WINDOW, false, 0),
        (WINDOW + SECOND, false, 1),
        (WINDOW, true, 0),
        (WINDOW + SECOND, true, 1),
    ] {
        let report = deleted_after(time, in_gap);
        let others = report.agreement.by_others + report.agreement.unknown;
        let found = (report.agreement.only_candidate, others);
        assert_eq!(found, (only_candidate, 1 - only_candidate), "{time:?}");
    }
}

/// That it terminates is no news then.
#[test]
fn a_deletion_of_what_terminates_already_is_compared_with_its_end() {
    for (phase, expected) in [
        ("Running", (0, 0, Some(0), 1)),
        ("Failed", (1, 0, Some(0), 0)),
    ] {
        let mut recorder = Recorder::start(IDLE);
        recorder.put("pods", "ns/a", terminating("a", phase));
        recorder.pass(10 * SECOND);
        recorder.remove("a");
        end(&mut recorder);
        let report = trial(EAGER, false).run(&recorder.records).unwrap();
        assert_eq!(counts(&report), expected, "{phase}");
    }
}

/// taint-eviction marks each pod of a tainted node, also one that a user is deleting, and deletes
/// that one no more. PodGC forces the end of what it marks.
#[test]
fn a_mark_of_a_pod_that_terminates_already_is_a_deletion_by_podgc_alone() {
    for (name, reason, only_cluster) in [
        ("taint-eviction", "DeletionByTaintManager", 1),
        ("podgc", ORPHANED, 2),
    ] {
        let mut recorder = Recorder::start(IDLE);
        for pod in ["x", "y"] {
            recorder.pod(pod, pod, "Running");
        }
        recorder.pass(10 * SECOND);
        let mut user = terminating("x", "Running");
        recorder.put("pods", "ns/x", user.clone());
        recorder.pass(SECOND);
        user["status"] = marked("x", "Running", reason)["status"].take();
        recorder.put("pods", "ns/x", user);
        recorder.put("pods", "ns/y", marked("y", "Running", reason));
        recorder.pass(30 * SECOND);
        recorder.remove("x");
        recorder.remove("y");
        end(&mut recorder);
        let report = trial_of(name, IDLE, false).run(&recorder.records).unwrap();
        assert_eq!(counts(&report), (0, 0, Some(only_cluster), 0), "{name}");
        assert_eq!(report.agreement.unknown, 0, "{name}");
    }
}

/// A recorder sees what another host of Davit deletes, and not its rulings.
#[test]
fn a_journal_without_controllers_has_a_note_about_other_hosts_of_davit() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    collect(&mut recorder, "a");
    end(&mut recorder);
    for runs_controllers in [true, false] {
        let mut backtest = Backtest::new(trial(IDLE, false).settings);
        let mut desired = Some(trial(IDLE, false).desired);
        for record in recorder.records.iter().cloned() {
            if matches!(record.entry, Entry::Controller(_)) && !runs_controllers {
                continue;
            }
            if backtest.is_complete()
                && let Some(desired) = desired.take()
            {
                backtest.start(desired);
            }
            offer(&mut backtest, record).unwrap();
        }
        let report = backtest.finish().unwrap();
        assert_eq!(counts(&report), (0, 0, Some(1), 0), "{runs_controllers}");
        let notes = report.notes.join("\n");
        let is_noted = notes.contains("another host of Davit");
        assert_eq!(is_noted, !runs_controllers, "{notes}");
    }
}
