//! Plans about objects of a kind that no recorded list has.

use serde_json::{Value, json};

use super::bench::{Guest, IDLE, Recorder, SECOND, Trial, delete, nothing, plan};
use crate::backtest::Report;
use crate::plan::{Decision, DeleteOptions, Patch, PatchKind, Step};

/// A plan for the claim of a pod that has failed.
fn claim(key: &str, pod: &Value, step: Step) -> Decision {
    if pod["status"]["phase"] != "Failed" {
        return nothing();
    }
    let mut decision = plan(key, pod, vec![step]);
    let target = &mut decision.plans[0].target;
    target.kind = "PersistentVolumeClaim".into();
    target.uid.insert_str(0, "claim-of-");
    decision
}

/// Deletes the claim of a pod that has failed.
const RECLAIMER: Guest = Guest {
    name: "reclaimer",
    policy: |key, pod, _| claim(key, pod, Step::Delete(DeleteOptions::default())),
};

/// Deletes the pod too.
const THOROUGH: Guest = Guest {
    name: "thorough",
    policy: |key, pod, call| {
        let mut decision = (RECLAIMER.policy)(key, pod, call);
        if let Some(plan) = delete(key, pod)
            .plans
            .pop()
            .filter(|_| !decision.plans.is_empty())
        {
            decision.plans.push(plan);
        }
        decision
    },
};

/// Two pods fail, one after the other, while this guest runs.
fn test(recorded: Guest, candidate: Guest) -> Report {
    let mut recorder = Recorder::start(recorded);
    recorder.node("n1", None);
    for name in ["a", "b"] {
        recorder.pod(name, name, "Failed");
        recorder.pass(10 * SECOND);
    }
    recorder.pass(90 * SECOND);
    Trial::of(candidate).run(&recorder.records).unwrap()
}

#[test]
fn a_deletion_of_a_kind_that_no_recorded_list_has_is_unknown() {
    for (recorded, candidate, agree, unknown) in [
        (IDLE, RECLAIMER, 0, 2),
        (RECLAIMER, IDLE, 0, 2),
        (RECLAIMER, RECLAIMER, 2, 0),
    ] {
        let name = (recorded.name, candidate.name);
        let report = test(recorded, candidate);
        let found = &report.agreement;
        assert_eq!((found.agree, found.unknown), (agree, unknown), "{name:?}");
        assert_eq!(
            (found.only_candidate, found.only_recorded),
            (0, 0),
            "{name:?}"
        );
        // Nobody knows whether somebody creates it again.
        for (side, guest) in [(&report.candidate, candidate), (&report.recorded, recorded)] {
            let recreated = (guest.name == "idle").then_some(0);
            assert_eq!(side.regret.recreated, recreated, "{name:?}");
            assert_eq!(side.regret.nodes_back, Some(0), "{name:?}");
        }
        let tried = report.activity.unrecorded_targets;
        assert_eq!(tried > 0, candidate.name == "reclaimer", "{tried}");
        assert!(tried < 10, "it is retried at a distance: {tried}");
        let mut notes = report.notes.iter();
        let names = |note: &&String| note.contains("PersistentVolumeClaim");
        let note = notes.find(|note| note.starts_with("not modelled: ") && names(note));
        assert_eq!(note.is_some(), tried > 0, "{:?}", report.notes);
    }
}

#[test]
fn a_kind_that_a_recorded_list_has_is_known_beside_one_that_is_not() {
    let report = test(IDLE, THOROUGH);
    let found = &report.agreement;
    assert_eq!((found.unknown, found.only_candidate), (2, 2), "{report:?}");
}

#[test]
fn a_patch_of_a_kind_that_no_recorded_list_has_is_not_modelled() {
    const LABELS: Guest = Guest {
        name: "labels",
        policy: |key, pod, _| {
            let body = json!({"metadata": {"labels": {"left": "true"}}});
            let patch = Patch {
                kind: PatchKind::Merge,
                subresource: String::new(),
                body: rmp_serde::to_vec_named(&body).unwrap(),
            };
            claim(key, pod, Step::Patch(patch))
        },
    };
    let report = test(IDLE, LABELS);
    assert!(report.activity.unrecorded_targets > 0, "{report:?}");
    assert_eq!(report.activity.patches, 0);
}

/// A host that starts lists for a while, and its lists are known from before.
#[test]
fn a_kind_stays_known_when_another_host_records() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    let mut backtest = Trial::of(IDLE).drive(&recorder.records).unwrap();
    let target = delete("ns/c", &json!({"metadata": {"uid": "c"}}));
    let target = &target.plans[0].target;
    assert!(backtest.cluster.has_recorded_kind_of(target));
    backtest.cluster.history.restart();
    assert!(backtest.cluster.has_recorded_kind_of(target));
}
