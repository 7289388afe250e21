//! What a policy reads, and what the journal does not have.

use std::time::Duration;

use serde_json::json;

use super::bench::{FAILED, Guest, IDLE, Recorder, SECOND, Trial, desired, nothing, plan};
use crate::backtest::{Backtest, LiveAnswers, Refusal, Report};
use crate::controller::{CallId, ControllerId};
use crate::journal::{AnswerEntry, CallEntry, Entry, LiveRead, Record};
use crate::live::{ReadAnswer, ReadRequest};
use crate::mapping::{Mapping, ServedResource};
use crate::object::{ApiResource, Kind, ObjectRecord, ObjectRef};
use crate::plan::{Decision, GetRequest, ListRequest, Patch, PatchKind, Step, Verdict};
use crate::rollout::Role;
use crate::time::{Instant, Now};

fn recorded() -> Vec<Record> {
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

#[test]
fn a_resource_that_is_not_recorded_is_refused_by_name() {
    let mut trial = Trial::of(FAILED);
    let mut manifest = (*trial.desired.stable.manifest).clone();
    manifest.watches[1].source =
        crate::manifest::Source::One(ApiResource::new("", "v1", "configmaps"));
    trial.desired.stable.manifest = manifest.into();
    let error = trial.run(&recorded()).unwrap_err().to_string();
    // The API server of the journal does not serve it.
    assert!(error.starts_with("the policy never started: "), "{error}");
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
fn after_deletion() -> Backtest<Guest> {
    let trial = Trial::of(FAILED);
    let mut backtest = Backtest::new(trial.settings);
    let mut desired = Some(trial.desired);
    for record in recorded() {
        if backtest.controller().is_some_and(|it| it.stable.is_some())
            && let Some(desired) = desired.take()
        {
            backtest.start(desired);
        }
        backtest.offer(record);
        while let Some(call) = backtest.poll().unwrap() {
            let decisions = super::bench::decide(&call);
            backtest.answer(call.id, Ok(decisions));
        }
    }
    backtest
}

fn get(name: &str, uid: &str, fields: &[&str]) -> ReadRequest {
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
    let mut classes = Vec::new();
    for (name, uid) in [("a", ""), ("b", ""), ("b", "other"), ("c", "")] {
        let Ok(ReadAnswer::Get(answers)) = backtest.read(&get(name, uid, &[])) else {
            panic!("{name} is refused");
        };
        let answer = answers.into_iter().next().unwrap();
        classes.push(answer.map_or_else(|failure| failure.class.as_str(), |_| "found"));
    }
    assert_eq!(classes, ["not-found", "found", "uid-mismatch", "not-found"]);
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

/// The recorded controller has read an object, a list and a Secret live.
fn answers(at: Now, reads: Vec<(ReadRequest, ReadAnswer)>) -> LiveAnswers {
    let id = CallId {
        controller: ControllerId(1),
        number: 1,
    };
    let call = Entry::Call(CallEntry {
        id,
        controller: "test".into(),
        revision: "r".into(),
        role: Role::Stable,
        items: vec![],
        reasons: vec![],
        continues: None,
    });
    let reads = reads.into_iter();
    let answer = Entry::Answer(Box::new(AnswerEntry {
        call: id,
        result: Ok(vec![]),
        is_void: false,
        took: SECOND,
        reads: None,
        live: reads
            .map(|(request, answer)| LiveRead { request, answer })
            .collect(),
        versions: vec![],
    }));
    let mut answers = LiveAnswers::of("test");
    for entry in [call, answer] {
        answers.note(Record { now: at, entry });
    }
    answers
}

fn record(uid: &str) -> ObjectRecord {
    let data = json!({"metadata": {"uid": uid}, "spec": {"tolerations": []}});
    ObjectRecord {
        kind: Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        },
        resource_version: "7".into(),
        changed_at: Instant::ZERO,
        data: rmp_serde::to_vec_named(&data).unwrap().into(),
    }
}

#[test]
fn a_live_read_of_what_is_not_recorded_gets_the_recorded_answer_of_about_the_same_time() {
    let mut backtest = after_deletion();
    let now = recorded().last().unwrap().now;
    let read = |name: &str, uid: &str| {
        let answer = ReadAnswer::Get(vec![Ok(record(uid))]);
        (get(name, "", &["spec.tolerations"]), answer)
    };
    let list = ReadRequest::List(ListRequest {
        resource: ApiResource::new("", "v1", "pods"),
        namespace: String::new(),
        label_selector: "app=x".into(),
        field_selector: String::new(),
        fields: vec![],
    });
    let listed = ReadAnswer::List(Ok(vec![record("a"), record("b")]));
    let reads = vec![read("a", "a"), read("b", "b"), (list.clone(), listed)];
    let at = |seconds: u64| Now {
        wall: now.wall_at(now.instant.after(Duration::from_secs(seconds))),
        ..now
    };
    for (seconds, is_near) in [(30, true), (90, false)] {
        backtest.answer_from(answers(at(seconds), reads.clone()));
        let mut classes = Vec::new();
        for name in ["a", "b", "c"] {
            let Ok(ReadAnswer::Get(answers)) = backtest.read(&get(name, "", &["spec.tolerations"]))
            else {
                panic!("{name} is refused");
            };
            let answer = answers.into_iter().next().unwrap();
            classes.push(answer.map_or_else(|failure| failure.class.as_str(), |_| "found"));
        }
        let Ok(ReadAnswer::List(objects)) = backtest.read(&list) else {
            panic!("the list is refused");
        };
        if is_near {
            // The policy has deleted the pod a.
            assert_eq!(classes, ["not-found", "found", "server"]);
            let objects = objects.unwrap();
            assert_eq!(objects.len(), 1);
            // Not a version that the backtest never had.
            assert_ne!(&*objects[0].resource_version, "7");
        } else {
            assert_eq!(classes, ["server"; 3]);
            assert!(objects.is_err());
        }
    }
    let report = backtest.finish().unwrap();
    assert_eq!(report.undecided.reads, 1 + 4);
    assert_eq!(report.activity.recorded_reads, 3);
    let note = report.notes.iter().find(|it| it.contains("not decidable"));
    assert!(note.unwrap().contains("v1 Pod ns/c"), "{note:?}");
}

#[test]
fn the_recorded_answer_about_a_secret_lacks_its_data() {
    let mut backtest = after_deletion();
    let mapping = Mapping::new([ServedResource {
        resource: ApiResource::new("", "v1", "secrets"),
        kind: "Secret".into(),
        namespaced: true,
        verbs: ["list".to_owned()].into(),
        preferred: true,
    }]);
    let now = recorded().last().unwrap().now;
    backtest.offer(Record {
        now,
        entry: Entry::Mapping(mapping.into()),
    });
    assert!(backtest.poll().unwrap().is_none());
    let ReadRequest::Get(mut requests) = get("s", "", &["data"]) else {
        panic!("an object");
    };
    requests[0].target.kind = "Secret".into();
    let request = ReadRequest::Get(requests);
    let answer = ReadAnswer::Get(vec![Ok(record("s"))]);
    backtest.answer_from(answers(now, vec![(request.clone(), answer)]));
    let Ok(ReadAnswer::Get(answers)) = backtest.read(&request) else {
        panic!("it is refused");
    };
    assert!(answers[0].is_err(), "{answers:?}");
}
