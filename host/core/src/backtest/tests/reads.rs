//! What a policy reads, and what the journal does not have.

use serde_json::json;

use super::bench::{FAILED, Guest, IDLE, Recorder, SECOND, Trial, desired, nothing, plan};
use crate::backtest::{Backtest, LiveAnswers, Refusal, Report};
use crate::journal::Record;
use crate::live::{ReadAnswer, ReadRequest};
use crate::manifest::Source;
use crate::object::{ApiResource, ObjectRef};
use crate::plan::{Decision, GetRequest, ListRequest, Patch, PatchKind, Step, Verdict};

pub(super) fn recorded() -> Vec<Record> {
    let mut recorder = Recorder::start(IDLE);
    recorder.node("n1", None);
    recorder.pod("a", "a", "Failed");
    recorder.pass(90 * SECOND);
    recorder.pod("b", "b", "Running");
    recorder.records
}

fn run(guest: Guest, fields: &[&str]) -> Result<Report, Refusal> {
    let trial = Trial {
        desired: desired(guest, fields),
        ..Trial::of(guest)
    };
    trial.run(&recorded())
}

#[test]
fn fields_that_are_not_recorded_are_refused_by_name() {
    let error = run(
        FAILED,
        &["status.phase", "spec.tolerations", "status.reason"],
    );
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "the guest watches fields of v1/pods that the journal does not have: spec.tolerations, \
         status.reason"
    );
}

/// A guest that watches this resource in place of the nodes.
fn watching(plural: &str) -> Trial {
    let mut trial = Trial::of(FAILED);
    let mut manifest = (*trial.desired.stable.manifest).clone();
    manifest.watches[1].source = Source::One(ApiResource::new("", "v1", plural));
    trial.desired.stable.manifest = manifest.into();
    trial
}

#[test]
fn a_resource_that_is_not_recorded_is_refused_by_name() {
    let error = watching("persistentvolumeclaims")
        .run(&recorded())
        .unwrap_err();
    let resource = "v1/persistentvolumeclaims".to_owned();
    assert_eq!(error, Refusal::Resource { resource });
    assert_eq!(
        error.to_string(),
        "the guest watches v1/persistentvolumeclaims, which the journal does not have"
    );
}

/// The API server of the journal does not serve it.
#[test]
fn a_guest_that_watches_a_resource_that_is_not_served_never_starts() {
    let error = watching("configmaps").run(&recorded()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the policy never started: test: v1/configmaps is watched, and the API server does not \
         serve it"
    );
}

#[test]
fn other_selectors_are_refused() {
    let mut trial = Trial::of(FAILED);
    let mut manifest = (*trial.desired.stable.manifest).clone();
    manifest.watches[0].label_selector = "app=x".into();
    trial.desired.stable.manifest = manifest.into();
    let error = trial.run(&recorded()).unwrap_err();
    assert!(matches!(error, Refusal::Selectors { .. }), "{error}");
}

#[test]
fn a_policy_with_fewer_fields_sees_no_others() {
    const CURIOUS: Guest = Guest {
        name: "curious",
        policy: |_, pod, _| {
            assert_eq!(pod.pointer("/spec/nodeName"), None, "it is not declared");
            assert!(pod.pointer("/status/phase").is_some());
            nothing()
        },
    };
    let report = run(CURIOUS, &["status.phase"]).unwrap();
    assert!(report.activity.calls > 1);
}

#[test]
fn a_policy_of_one_namespace_sees_no_other() {
    let mut trial = Trial::of(FAILED);
    let mut manifest = (*trial.desired.stable.manifest).clone();
    manifest.watches[0].namespace = "other".into();
    trial.desired.stable.manifest = manifest.into();
    let report = trial.run(&recorded()).unwrap();
    assert_eq!(report.candidate.deletions, 0);
}

#[test]
fn patches_are_applied_to_what_is_recorded() {
    /// Marks a failed pod, and deletes it when it is marked.
    const MARKER: Guest = Guest {
        name: "marker",
        policy: |key, pod, _| match pod["status"]["phase"].as_str() {
            Some("Failed") => {
                let body = json!({"status": {"phase": "Marked", "note": "x"}});
                let patch = Patch {
                    kind: PatchKind::StrategicMerge,
                    subresource: "status".into(),
                    body: rmp_serde::to_vec_named(&body).unwrap(),
                };
                Decision {
                    verdict: Verdict::RequeueWhenObserved,
                    ..plan(key, pod, vec![Step::Patch(patch)])
                }
            }
            Some("Marked") => {
                assert_eq!(pod.pointer("/status/note"), None, "it is not recorded");
                super::bench::delete(key, pod)
            }
            _ => nothing(),
        },
    };
    let report = run(MARKER, &["status.phase"]).unwrap();
    assert_eq!(report.activity.patches, 1);
    assert_eq!(report.candidate.deletions, 1);
}

/// Patches the phase of a failed pod, and deletes one that runs.
const MARKER: Guest = Guest {
    name: "marker",
    policy: |key, pod, _| match pod["status"]["phase"].as_str() {
        Some("Failed") => {
            let patch = Patch {
                kind: PatchKind::Merge,
                subresource: "status".into(),
                body: rmp_serde::to_vec_named(&json!({"status": {"phase": "Marked"}})).unwrap(),
            };
            plan(key, pod, vec![Step::Patch(patch)])
        }
        Some("Running") => super::bench::delete(key, pod),
        _ => nothing(),
    },
};

/// A recorded state that is as before ends nothing.
#[test]
fn a_patch_lasts_until_somebody_writes_the_field() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    let marked = Trial::of(MARKER).run(&recorder.records).unwrap();
    assert_eq!(
        (marked.activity.patches, marked.candidate.deletions),
        (1, 0)
    );
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    let report = Trial::of(MARKER).run(&recorder.records).unwrap();
    assert_eq!(
        (report.activity.patches, report.candidate.deletions),
        (1, 1)
    );
}

/// As of twenty rounds of a status that users reset.
#[test]
fn what_others_have_written_since_leaves_room_for_patches() {
    let mut recorder = Recorder::start(IDLE);
    for _ in 0..20 {
        recorder.pod("a", "a", "Failed");
        recorder.pass(SECOND * 2);
        recorder.pod("a", "a", "Pending");
        recorder.pass(SECOND * 2);
    }
    let report = Trial::of(MARKER).run(&recorder.records).unwrap();
    assert_eq!(report.activity.patches, 20);
}

#[test]
fn a_json_patch_is_not_modelled_and_is_retried_at_a_distance() {
    const PATCHER: Guest = Guest {
        name: "patcher",
        policy: |key, pod, _| match pod["status"]["phase"].as_str() {
            Some("Failed") => {
                let patch = Patch {
                    kind: PatchKind::Json,
                    subresource: String::new(),
                    body: rmp_serde::to_vec_named(&json!([])).unwrap(),
                };
                plan(key, pod, vec![Step::Patch(patch)])
            }
            _ => nothing(),
        },
    };
    let report = run(PATCHER, &["status.phase"]).unwrap();
    let tried = report.activity.unmodelled_patches;
    assert!((1..60).contains(&tried), "{tried}");
    assert!(report.notes.iter().any(|note| note.contains("patches")));
}

/// A backtest whose policy has deleted the pod a, and not b.
pub(super) fn after_deletion() -> Backtest<Guest> {
    let trial = Trial::of(FAILED);
    let mut backtest = Backtest::new(trial.settings);
    let mut desired = Some(trial.desired);
    for record in recorded() {
        if backtest.controller().is_some_and(|it| it.stable.is_some())
            && let Some(desired) = desired.take()
        {
            backtest.start(desired);
        }
        super::bench::offer(&mut backtest, record).unwrap();
    }
    backtest
}

pub(super) fn get(name: &str, uid: &str, fields: &[&str]) -> ReadRequest {
    ReadRequest::Get(vec![GetRequest {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
        },
        fields: fields.iter().map(|path| path.parse().unwrap()).collect(),
    }])
}

#[test]
fn live_reads_see_the_cluster_as_the_policy_left_it() {
    let mut backtest = after_deletion();
    backtest.answer_from(LiveAnswers::of("test"));
    let mut classes = Vec::new();
    for (name, uid) in [("a", ""), ("b", ""), ("b", "other"), ("c", "")] {
        let Ok(ReadAnswer::Get(answers)) = backtest.read(&get(name, uid, &[])) else {
            panic!("{name} is refused");
        };
        let answer = answers.into_iter().next().unwrap();
        classes.push(answer.map_or_else(|failure| failure.class.as_str(), |_| "found"));
    }
    assert_eq!(classes, ["not-found", "found", "uid-mismatch", "not-found"]);
    backtest.answers = None;
    let list = |plural: &str, labels: &str| {
        ReadRequest::List(ListRequest {
            resource: ApiResource::new("", "v1", plural),
            namespace: String::new(),
            label_selector: labels.into(),
            field_selector: String::new(),
            fields: vec![],
        })
    };
    let pods = backtest.read(&list("pods", "")).unwrap();
    assert!(matches!(pods, ReadAnswer::List(Ok(pods)) if pods.len() == 1));
    let error = backtest.read(&list("pods", "app=x")).unwrap_err();
    assert!(error.to_string().contains("labels=\"app=x\""), "{error}");
    let error = backtest.read(&get("b", "", &["spec.tolerations"]));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("v1 Pod ns/b (spec.tolerations) live"),
        "{error}"
    );
}
