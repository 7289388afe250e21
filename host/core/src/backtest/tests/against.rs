//! Policies beside what the cluster's own controllers deleted.

use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{
    EAGER, FAILED, FIELDS, Guest, IDLE, Recorder, SECOND, START, Trial, delete, desired, nothing,
    plan, terminating,
};
use crate::backtest::{Against, BacktestSettings, Difference, Report, Threshold};
use crate::machine::Call;
use crate::manifest::Manifest;
use crate::object::Uid;
use crate::plan::{Decision, Patch, PatchKind, Step, Verdict};

/// Deletes a pod so long after the start of the recording host.
fn delete_after(time: Duration, key: &str, pod: &Value, call: &Call<Guest>) -> Decision {
    let since = u64::try_from(call.now.wall.0 - START).unwrap();
    match time.saturating_sub(Duration::from_millis(since)) {
        Duration::ZERO => delete(key, pod),
        rest => Decision {
            verdict: Verdict::RequeueAfter(rest),
            ..nothing()
        },
    }
}

/// Deletes every pod half a minute after the start.
pub(super) const LATE: Guest = Guest {
    name: "late",
    policy: |key, pod, call| delete_after(30 * SECOND, key, pod, call),
};

/// Deletes every pod later than the window after the start.
const TOO_LATE: Guest = Guest {
    name: "too late",
    policy: |key, pod, call| delete_after(500 * SECOND, key, pod, call),
};

/// A running pod that a controller has marked for this reason.
pub(super) fn marked(name: &str, phase: &str, reason: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase, "conditions": [
            {"type": "DisruptionTarget", "status": "True", "reason": reason},
        ]},
    })
}

/// A cluster without controllers of Davit. PodGC deletes the pods a and e, half a minute and ten
/// seconds after they have failed, and the pod b, which runs. It leaves the pod c. Somebody evicts
/// the pod d, which has failed, and a user deletes f.
fn recorded() -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    for name in ["a", "b", "c", "d", "e", "f"] {
        recorder.pod(name, name, "Running");
    }
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    recorder.pass(30 * SECOND);
    recorder.remove("a");
    recorder.put("pods", "ns/b", marked("b", "Running", "DeletionByPodGC"));
    recorder.pass(SECOND);
    recorder.remove("b");
    recorder.pod("c", "c", "Failed");
    recorder.pod("d", "d", "Failed");
    recorder.pass(5 * SECOND);
    recorder.put(
        "pods",
        "ns/d",
        marked("d", "Failed", "EvictionByEvictionAPI"),
    );
    recorder.pass(SECOND);
    recorder.remove("d");
    recorder.remove("f");
    recorder.pod("e", "e", "Failed");
    recorder.pass(10 * SECOND);
    recorder.remove("e");
    recorder.pass(200 * SECOND);
    recorder.node("n1", None);
    recorder
}

/// A trial of this policy in the place of PodGC.
pub(super) fn trial(guest: Guest, open_loop: bool) -> Trial {
    trial_of("podgc", guest, open_loop)
}

/// The same in the place of the controller that this guest replaces.
pub(super) fn trial_of(name: &str, guest: Guest, open_loop: bool) -> Trial {
    let mut trial = Trial::of(guest);
    trial.desired.stable.manifest = Manifest {
        name: name.into(),
        ..(*trial.desired.stable.manifest).clone()
    }
    .into();
    trial.settings.against = Against::Cluster;
    trial.settings.open_loop = open_loop;
    trial.settings.tolerance = BacktestSettings::TOLERANCE;
    trial
}

fn tested(guest: Guest, open_loop: bool) -> Report {
    trial(guest, open_loop).run(&recorded().records).unwrap()
}

/// How many objects both, only the candidate and only the cluster delete, and how many somebody
/// else.
pub(super) fn counts(report: &Report) -> (u64, u64, Option<u64>, u64) {
    let agreement = &report.agreement;
    assert_eq!(agreement.only_recorded, 0);
    (
        agreement.agree,
        agreement.only_candidate,
        agreement.only_cluster,
        agreement.by_others,
    )
}

#[test]
fn a_policy_is_compared_with_the_controller_of_the_cluster_that_it_replaces() {
    for open_loop in [false, true] {
        let report = tested(FAILED, open_loop);
        assert_eq!(counts(&report), (2, 1, Some(1), 1), "{open_loop}");
        let earlier = report.agreement.earlier;
        assert_eq!((earlier.count, report.agreement.later.count), (2, 0));
        assert!((earlier.max_seconds - 30.0).abs() < 0.1, "{earlier:?}");
        assert!((earlier.median_seconds - 10.0).abs() < 0.1, "{earlier:?}");
        let by_reason = &report.recorded.by_reason;
        let marked = "pod-garbage-collector-controller, by its mark";
        let ended = "pod-garbage-collector-controller, by the object's state";
        assert_eq!((by_reason[marked], by_reason[ended]), (1, 2));
        let mut surprising = report.surprising.iter();
        let only = surprising.find(|one| one.difference == Difference::OnlyCluster);
        let only = only.unwrap();
        assert_eq!(only.uid, "b");
        assert!(only.message.contains("DeletionByPodGC"), "{}", only.message);
        let note = report
            .notes
            .iter()
            .find(|note| note.contains("lacks fields"));
        assert!(note.unwrap().contains("status.conditions[*].reason"));
    }
}

/// PodGC marks a pod that runs, ten seconds after the start, and deletes it so long afterwards.
fn orphaned(terminates: Duration) -> Recorder {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(9 * SECOND);
    recorder.put("pods", "ns/a", marked("a", "Running", "DeletionByPodGC"));
    recorder.pass(terminates);
    recorder.remove("a");
    recorder.pass(1_000 * SECOND);
    recorder.node("end", None);
    recorder
}

/// What both, only the candidate and only the cluster delete, and what is unknown.
fn results(guest: Guest, open_loop: bool, tolerance: Duration, recorder: &Recorder) -> [u64; 4] {
    let mut trial = trial(guest, open_loop);
    trial.settings.tolerance = tolerance;
    let found = trial.run(&recorder.records).unwrap().agreement;
    let only_cluster = found.only_cluster.unwrap();
    [
        found.agree,
        found.only_candidate,
        only_cluster,
        found.unknown,
    ]
}

/// It stays for it, as it was before the cluster marked and deleted it, whether or not what the
/// policy deletes is gone for the policy. A dry run in a cluster holds it too.
#[test]
fn a_policy_that_waits_longer_than_the_cluster_deletes_later() {
    for open_loop in [false, true] {
        let report = trial(LATE, open_loop).run(&orphaned(SECOND).records);
        let report = report.unwrap();
        assert_eq!(counts(&report), (1, 0, Some(0), 0), "{open_loop}");
        let later = report.agreement.later;
        assert_eq!(later.count, 1);
        assert!((later.max_seconds - 20.0).abs() < 1.5, "{later:?}");
        // It stays for the window of the comparison, whatever the tolerance.
        assert!((report.policy.tolerance_seconds - 300.0).abs() < f64::EPSILON);
        assert_eq!(report.candidate.deletions, 1, "it counts once");
    }
}

/// The policy had no time to decide about it.
#[test]
fn what_does_not_stay_and_the_policy_has_not_deleted_is_unknown() {
    let recorder = orphaned(SECOND);
    for (guest, tolerance, expected) in [
        (LATE, Duration::ZERO, [0, 0, 0, 1]),
        (IDLE, Duration::ZERO, [0, 0, 0, 1]),
        (EAGER, Duration::ZERO, [1, 0, 0, 0]),
        (IDLE, SECOND, [0, 0, 1, 0]),
    ] {
        for open_loop in [false, true] {
            let found = results(guest, open_loop, tolerance, &recorder);
            assert_eq!(found, expected, "{} {tolerance:?} {open_loop}", guest.name);
        }
    }
    // Another pod has taken its name before the policy deletes it.
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(9 * SECOND);
    recorder.put("pods", "ns/a", marked("a", "Running", "DeletionByPodGC"));
    recorder.remove("a");
    recorder.pass(SECOND);
    recorder.pod("a", "b", "Running");
    recorder.pass(1_000 * SECOND);
    recorder.node("end", None);
    let found = results(IDLE, false, SECOND, &recorder);
    assert_eq!(found, [0, 0, 0, 1]);
}

/// Every pod goes at some time. A longer tolerance lets the policy be later, and not the cluster.
#[test]
fn deletions_agree_within_the_window() {
    const AT_ONCE: Duration = SECOND;
    let deleted_after = |time| {
        let mut recorder = Recorder::start(IDLE);
        recorder.pod("a", "a", "Failed");
        recorder.pass(time);
        recorder.remove("a");
        recorder.pass(1_000 * SECOND);
        recorder.node("end", None);
        recorder
    };
    let slow = || orphaned(900 * SECOND);
    for (guest, tolerance, recorder, expected) in [
        (FAILED, AT_ONCE, deleted_after(295 * SECOND), [1, 0, 0, 0]),
        (FAILED, AT_ONCE, deleted_after(335 * SECOND), [0, 1, 0, 0]),
        (
            FAILED,
            Duration::MAX,
            deleted_after(335 * SECOND),
            [0, 1, 0, 0],
        ),
        (TOO_LATE, AT_ONCE, slow(), [0, 0, 1, 0]),
        (TOO_LATE, 600 * SECOND, slow(), [1, 0, 0, 0]),
    ] {
        let found = results(guest, false, tolerance, &recorder);
        assert_eq!(found, expected, "{} {tolerance:?}", guest.name);
    }
}

#[test]
fn thresholds_cannot_be_judged_if_the_journal_does_not_show_who_deleted_an_object() {
    const MARKS: [&str; 6] = [
        "metadata.deletionTimestamp",
        "metadata.ownerReferences[*].uid",
        "status.reason",
        "status.conditions[*].type",
        "status.conditions[*].status",
        "status.conditions[*].reason",
    ];
    let all = [&FIELDS[..], &MARKS].concat();
    for (fields, is_complete) in [(&FIELDS[..], false), (&all, true)] {
        let mut recorder = Recorder::start_as(desired(IDLE, fields));
        recorder.pod("a", "a", "Failed");
        recorder.pass(10 * SECOND);
        recorder.remove("a");
        recorder.pass(100 * SECOND);
        recorder.node("n1", None);
        let report = trial(FAILED, false).run(&recorder.records).unwrap();
        let complete = report.agreement.is_attribution_complete;
        assert_eq!(complete, Some(is_complete));
        for (threshold, depends) in [
            ("only-cluster>0", true),
            ("only-candidate>0", true),
            ("by-others>0", true),
            ("unknown>0", false),
            ("deletes>1", false),
        ] {
            let threshold: Threshold = threshold.parse().unwrap();
            assert!(!threshold.is_exceeded(&report), "{threshold}");
            let is_unknown = depends && !is_complete;
            assert_eq!(threshold.is_unknown(&report), is_unknown, "{threshold}");
        }
    }
}

/// Labels pods that have failed, and deletes nothing.
const LABELLING: Guest = Guest {
    name: "labelling",
    policy: |key, pod, _| match pod["status"]["phase"].as_str() {
        Some("Failed") => {
            let patch = Patch {
                kind: PatchKind::StrategicMerge,
                subresource: String::new(),
                body: rmp_serde::to_vec_named(&json!({"metadata": {}})).unwrap(),
            };
            plan(key, pod, vec![Step::Patch(patch)])
        }
        _ => nothing(),
    },
};

/// Otherwise each object that Davit has ever written would count as deleted by Davit.
#[test]
fn what_a_controller_of_davit_has_patched_may_be_deleted_by_the_cluster() {
    let mut recorder = Recorder::start(LABELLING);
    recorder.deletes = false;
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.put("pods", "ns/a", marked("a", "Failed", "DeletionByPodGC"));
    recorder.pass(SECOND);
    recorder.remove("a");
    recorder.pass(100 * SECOND);
    recorder.node("n1", None);
    let report = trial(FAILED, false).run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (1, 0, Some(0), 0));
}

/// The recorded host deletes failed pods itself.
#[test]
fn what_a_controller_of_davit_deletes_is_not_the_clusters() {
    let mut recorder = Recorder::start(FAILED);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    recorder.pass(100 * SECOND);
    recorder.node("n1", None);
    let mut trial = Trial::of(FAILED);
    trial.settings.against = Against::Cluster;
    trial.settings.tolerance = Duration::MAX;
    let report = trial.run(&recorder.records).unwrap();
    assert_eq!(counts(&report), (0, 0, Some(0), 1));
}

/// A Job, or a user, may have deleted the pods that have ended.
#[test]
fn it_is_unknown_who_deleted_a_pod_that_has_ended_and_that_the_policy_keeps() {
    let report = tested(IDLE, false);
    assert_eq!(counts(&report), (0, 0, Some(1), 0));
    assert_eq!(report.agreement.unknown, 2);
}

/// Otherwise the column of the cluster would have what the history limit of Jobs deletes.
#[test]
fn a_deletion_whose_author_is_unknown_is_none_of_the_cluster() {
    let mut recorder = Recorder::start(IDLE);
    for name in ["a", "b", "c"] {
        recorder.pod(name, name, "Succeeded");
    }
    recorder.pass(10 * SECOND);
    for name in ["a", "b", "c"] {
        recorder.remove(name);
    }
    recorder.pass(400 * SECOND);
    recorder.node("end", None);
    for (guest, agree) in [(IDLE, 0), (EAGER, 3)] {
        let report = trial(guest, false).run(&recorder.records).unwrap();
        assert_eq!(counts(&report), (agree, 0, Some(0), 0), "{}", guest.name);
        assert_eq!(report.agreement.unknown, 3 - agree, "{}", guest.name);
        let cluster = report.recorded;
        assert_eq!(cluster.deletions, agree, "{}", guest.name);
        assert_eq!(cluster.deletes_per_minute, agree, "{}", guest.name);
        assert_eq!(cluster.by_reason.values().sum::<u64>(), agree);
        assert_eq!(cluster.by_hour.values().sum::<u64>(), agree);
    }
}

/// It counts at its own time: two within a minute, although the plan about the first one is late.
#[test]
fn a_deletion_counts_for_the_cluster_when_the_policy_deletes_the_object_too() {
    let mut recorder = Recorder::start(IDLE);
    for name in ["a", "b"] {
        recorder.pod(name, name, "Failed");
        recorder.pass(4 * SECOND);
        recorder.put("pods", &format!("ns/{name}"), terminating(name, "Failed"));
    }
    recorder.pass(100 * SECOND);
    for name in ["a", "b"] {
        recorder.remove(name);
    }
    recorder.pass(400 * SECOND);
    recorder.node("end", None);
    for (guest, agree) in [(IDLE, 0), (LATE, 2)] {
        let report = trial(guest, false).run(&recorder.records).unwrap();
        assert_eq!(counts(&report), (agree, 0, Some(0), 0), "{}", guest.name);
        let cluster = report.recorded;
        assert_eq!(
            (cluster.deletions, cluster.deletes_per_minute),
            (agree, agree)
        );
        if agree > 0 {
            let ends = cluster.worst_minute_ends;
            assert_eq!(ends.as_deref(), Some("2026-11-20T12:00:09.000Z"));
        }
    }
}

/// Otherwise what others delete would heap up for it.
#[test]
fn an_object_stays_for_a_window_of_time_after_the_cluster_has_deleted_it() {
    let sees = |recorder: &Recorder| {
        let backtest = trial(IDLE, false).drive(&recorder.records).unwrap();
        backtest.cluster.has_or_keeps(&Uid::new("a"))
    };
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.put("pods", "ns/a", marked("a", "Running", "DeletionByPodGC"));
    recorder.remove("a");
    recorder.pass(250 * SECOND);
    recorder.node("n1", None);
    assert!(sees(&recorder));
    recorder.pass(60 * SECOND);
    recorder.node("n2", None);
    assert!(!sees(&recorder));
}

/// Deletes a pod that has ended if there are more than two pods.
const COUNTING: Guest = Guest {
    name: "counting",
    policy: |key, pod, call| {
        let view = call.snapshot.view(call.views["pods"]).unwrap();
        match pod["status"]["phase"].as_str() {
            Some("Succeeded") if view.len() > 2 => delete(key, pod),
            _ => nothing(),
        }
    },
};

/// A user deletes pods that have ended, and others end. The policy would count those that stay,
/// and delete others in their place.
#[test]
fn a_pod_that_has_ended_does_not_stay() {
    let mut recorder = Recorder::start(IDLE);
    for name in ["a", "b"] {
        recorder.pod(name, name, "Succeeded");
    }
    for (gone, new) in [("b", "c"), ("c", "d")] {
        recorder.pass(10 * SECOND);
        recorder.remove(gone);
        recorder.pass(SECOND);
        recorder.pod(new, new, "Succeeded");
    }
    recorder.pass(1_000 * SECOND);
    recorder.node("end", None);
    let found = results(COUNTING, false, SECOND, &recorder);
    assert_eq!(found, [0, 0, 0, 2]);
}
