//! What happens while nobody records.

use std::time::Duration;

use super::against::{marked, trial};
use super::bench::{EAGER, FAILED, Guest, IDLE, Recorder, SECOND, Trial, terminating};
use crate::backtest::{Against, Report};

/// A pod `a` that has failed, and goes after the host has recorded for so long and ended. The
/// next one lists without it; another failed pod is there.
fn recorded(time: Duration) -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pod("b", "b", "Failed");
    recorder.pass(time);
    // The last entry says how far time ran.
    recorder.node("n1", None);
    restart_without(&mut recorder, "a");
    recorder
}

fn restart_without(recorder: &mut Recorder, name: &str) {
    recorder.stop();
    recorder.remove(name);
    recorder.now.wall.0 += 20_000;
    recorder.restart();
    recorder.pass(700 * SECOND);
    recorder.node("end", None);
}

fn run(guest: Guest, against: Against, recorder: &Recorder) -> Report {
    let trial = match against {
        Against::Recorded => Trial::of(guest),
        Against::Cluster => trial(guest, false),
    };
    trial.run(&recorder.records).unwrap()
}

/// The other side may have deleted it.
#[test]
fn what_the_candidate_deletes_and_goes_while_nobody_records_is_unknown() {
    let recorder = recorded(10 * SECOND);
    for against in [Against::Recorded, Against::Cluster] {
        let found = run(FAILED, against, &recorder).agreement;
        assert_eq!((found.only_candidate, found.unknown), (1, 1), "{against:?}");
        assert_eq!((found.agree, found.by_others), (0, 0), "{against:?}");
    }
}

/// The journal ends before the lists of the next host prove anything.
#[test]
fn what_is_not_listed_again_at_the_end_is_unknown() {
    let mut recorder = recorded(10 * SECOND);
    let mut ends = recorder.records.iter();
    let start = ends.rposition(|it| matches!(it.entry, crate::journal::Entry::KeyframeEnd));
    recorder.records.truncate(start.unwrap() + 1);
    let found = run(FAILED, Against::Cluster, &recorder).agreement;
    assert_eq!((found.only_candidate, found.unknown), (0, 2));
}

/// The cluster's controller would have deleted it within the window.
#[test]
fn what_has_outlived_the_window_is_the_candidates_alone() {
    let recorder = recorded(400 * SECOND);
    for (against, only_candidate) in [(Against::Recorded, 1), (Against::Cluster, 2)] {
        let found = run(FAILED, against, &recorder).agreement;
        let expected = (only_candidate, 2 - only_candidate);
        assert_eq!((found.only_candidate, found.unknown), expected);
    }
}

/// The policy had no time to decide about it.
#[test]
fn what_the_cluster_deletes_and_goes_while_nobody_records_is_unknown() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.put("pods", "ns/a", marked("a", "Failed", "DeletionByPodGC"));
    recorder.pass(SECOND);
    restart_without(&mut recorder, "a");
    let found = run(IDLE, Against::Cluster, &recorder).agreement;
    assert_eq!((found.only_cluster, found.unknown), (Some(0), 1));
}

/// A pod is terminating when the next host lists, and goes then.
fn terminated_unseen(time: Duration) -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(time);
    recorder.node("n1", None);
    recorder.stop();
    recorder.put("pods", "ns/a", terminating("a", "Running"));
    recorder.now.wall.0 += 20_000;
    recorder.restart();
    recorder.pass(7 * SECOND);
    recorder.remove("a");
    recorder.pass(700 * SECOND);
    recorder.node("end", None);
    recorder
}

/// The other side has deleted it then, or somebody else.
#[test]
fn what_is_terminating_in_the_next_list_was_deleted_while_nobody_recorded() {
    let within = terminated_unseen(10 * SECOND);
    let after = terminated_unseen(400 * SECOND);
    for (against, recorder, only_candidate) in [
        (Against::Recorded, &within, 0),
        (Against::Cluster, &within, 0),
        (Against::Recorded, &after, 0),
        (Against::Cluster, &after, 1),
    ] {
        let found = run(EAGER, against, recorder).agreement;
        let unknown = 1 - only_candidate;
        assert_eq!(
            (found.only_candidate, found.unknown),
            (only_candidate, unknown)
        );
        assert_eq!((found.agree, found.by_others), (0, 0), "{against:?}");
    }
}

/// It stays no longer for the policy when another host records.
#[test]
fn what_the_cluster_has_deleted_and_the_next_host_lists_is_unknown_without_a_plan() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.put("pods", "ns/a", marked("a", "Running", "DeletionByPodGC"));
    recorder.pass(SECOND);
    recorder.stop();
    recorder.restart();
    recorder.pass(7 * SECOND);
    recorder.remove("a");
    recorder.pass(700 * SECOND);
    recorder.node("end", None);
    let found = run(IDLE, Against::Cluster, &recorder).agreement;
    assert_eq!((found.only_cluster, found.unknown), (Some(0), 1));
}

/// The candidate deletes a pod that runs, and the watches break ten seconds later. The pod goes
/// within the window, or not at all.
fn interrupted(goes: bool) -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.interrupt();
    recorder.pass(20 * SECOND);
    if goes {
        recorder.remove("a");
    }
    // Longer than the window.
    recorder.pass(700 * SECOND);
    recorder
}

/// For example while a permission is missing: the window is over when the watch continues, and
/// nobody knows whether the pod has outlived it.
#[test]
fn what_goes_while_a_watch_is_interrupted_for_longer_than_the_window_is_unknown() {
    let mut recorder = interrupted(true);
    recorder.list_again();
    recorder.node("end", None);
    let found = run(EAGER, Against::Cluster, &recorder).agreement;
    assert_eq!((found.only_candidate, found.unknown), (0, 1));
    assert_eq!((found.agree, found.by_others), (0, 0));
}

/// The journal ends before the watch continues.
#[test]
fn what_is_not_watched_at_the_end_of_the_window_is_unknown() {
    let mut recorder = interrupted(false);
    recorder.keyframe();
    let found = run(EAGER, Against::Cluster, &recorder).agreement;
    assert_eq!((found.only_candidate, found.unknown), (0, 1));
    // Once the watch continues, it is known to have lived on.
    recorder.list_again();
    recorder.pass(60 * SECOND);
    recorder.node("end", None);
    let found = run(EAGER, Against::Cluster, &recorder).agreement;
    assert_eq!((found.only_candidate, found.unknown), (1, 0));
}

/// The keyframe says that the watch is interrupted.
#[test]
fn a_test_may_start_while_a_watch_is_interrupted() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.interrupt();
    recorder.pass(10 * SECOND);
    let start = recorder.records.len();
    recorder.keyframe();
    recorder.pass(10 * SECOND);
    recorder.remove("a");
    recorder.pass(10 * SECOND);
    recorder.list_again();
    recorder.pass(700 * SECOND);
    recorder.node("end", None);
    let records = recorder.records.get(start..).unwrap();
    let found = trial(EAGER, false).run(records).unwrap().agreement;
    assert_eq!((found.by_others, found.unknown), (0, 1));
}
