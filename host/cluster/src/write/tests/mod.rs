mod applies;
mod deletions;
mod failures;
mod patches;
mod undo;

use std::future::pending;
use std::time::Duration;

use davit_core::expectation::WriteResult;
use davit_core::failure::{Failure, FailureClass};
use davit_core::object::ObjectRef;
use davit_core::plan::{Create, DeleteOptions, Event, Patch, PatchKind, PropagationPolicy, Step};
use serde_json::{Value, json};

use super::*;
use crate::testing::{RecordedRequest, Reply, Server, mapping, pod, status};

fn writer(server: &Server) -> Writer {
    let api = server.api();
    Writer::new(&api, Recorder::start(api.clone()), "podgc", None)
}

fn decision() -> Decision {
    Decision {
        controller: "podgc".into(),
        revision: "0123456789".into(),
        id: "1-2".into(),
    }
}

async fn execute(server: &Server, step: Step) -> Result<Option<WriteResult>, Failure> {
    execute_on(&writer(server), &pod(), step).await
}

/// Executes a plan of one step.
async fn execute_on(
    writer: &Writer,
    target: &ObjectRef,
    step: Step,
) -> Result<Option<WriteResult>, Failure> {
    execute_in_term(writer, target, step, &Term::unlimited()).await
}

async fn execute_in_term(
    writer: &Writer,
    target: &ObjectRef,
    step: Step,
    term: &Term,
) -> Result<Option<WriteResult>, Failure> {
    let (plan, mapping) = (Arc::new(plan(target, step)), Arc::new(mapping()));
    let decision = decision();
    let executed = writer.execute(&mapping, &plan, Some(&decision), &(), pending(), term);
    let (outcome, _) = executed.await;
    match outcome.failed {
        Some((position, failure)) => {
            assert_eq!(position, 0);
            Err(failure)
        }
        None => Ok(outcome.written),
    }
}

fn plan(target: &ObjectRef, step: Step) -> Plan {
    Plan {
        target: target.clone(),
        reason: "orphaned".into(),
        message: String::new(),
        steps: vec![step],
        measures: Vec::new(),
        when_cancelled: None,
    }
}

fn messagepack(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

fn patch(kind: PatchKind, subresource: &str, body: &Value) -> Step {
    Step::Patch(Patch {
        kind,
        subresource: subresource.into(),
        body: messagepack(body),
    })
}

fn status_patch(body: &Value) -> Step {
    patch(PatchKind::StrategicMerge, "status", body)
}

fn line(seen: &RecordedRequest) -> String {
    format!("{} {}", seen.method, seen.uri)
}

fn patched() -> Value {
    json!({"kind": "Pod", "metadata": {"name": "p", "uid": "u-1", "resourceVersion": "12"}})
}

#[tokio::test]
async fn invalid_requests_are_not_sent() {
    let server = Server::always(200, patched());
    let no_uid = ObjectRef {
        uid: String::new(),
        ..pod()
    };
    let no_name = ObjectRef {
        name: String::new(),
        ..pod()
    };
    let elsewhere = ObjectRef {
        name: "..".into(),
        ..pod()
    };
    let no_namespace = ObjectRef {
        namespace: String::new(),
        ..pod()
    };
    let other_uid = json!({"metadata": {"uid": "u-2"}});
    let delete = || Step::Delete(DeleteOptions::default());
    let broken = Step::Patch(Patch {
        kind: PatchKind::Merge,
        subresource: String::new(),
        body: vec![0x81],
    });
    let trailing = Step::Patch(Patch {
        kind: PatchKind::Merge,
        subresource: String::new(),
        body: vec![0x80, 0x80],
    });
    for (target, step, reason) in [
        (no_uid.clone(), delete(), "no uid"),
        (no_uid, status_patch(&json!({})), "no uid"),
        (no_name, delete(), "\"\" is not a valid object name"),
        (elsewhere, delete(), "\"..\" is not a valid object name"),
        (no_namespace, delete(), "the object has no namespace"),
        (pod(), status_patch(&other_uid), "\"u-2\""),
        (pod(), status_patch(&json!([])), "a list where a map"),
        (
            pod(),
            patch(PatchKind::Json, "", &json!({})),
            "a map where a list",
        ),
        (pod(), broken, "it is truncated"),
        (pod(), trailing, "bytes follow the value"),
    ] {
        let failure = execute_on(&writer(&server), &target, step)
            .await
            .unwrap_err();
        assert_eq!(failure.class, FailureClass::Invalid, "{failure}");
        assert!(failure.message.contains(reason), "{failure}");
    }
    let unknown = ObjectRef {
        kind: "Gadget".into(),
        ..pod()
    };
    let failure = execute_on(&writer(&server), &unknown, delete())
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Unmappable);
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn an_object_is_created_in_its_collection() {
    let created = json!({"kind": "Pod", "metadata": {"uid": "u-9", "resourceVersion": "3"}});
    let server = Server::always(201, created);
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}});
    let step = Step::Create(Create {
        object: ObjectRef {
            name: String::new(),
            uid: String::new(),
            ..pod()
        },
        body: messagepack(&body),
    });
    // The version is not one of the target.
    assert_eq!(execute(&server, step).await.unwrap(), None);
    let seen = server.only();
    assert_eq!(
        line(&seen),
        "POST /api/v1/namespaces/ns/pods?fieldManager=davit%2Fpodgc"
    );
    assert_eq!(seen.json(), body);
}

#[tokio::test(start_paused = true)]
async fn an_event_never_fails_a_plan() {
    let server = Server::always(403, status(403, "Forbidden", "no events", json!({})));
    let writer = writer(&server);
    let step = Step::Event(Event {
        event_type: "Normal".into(),
        reason: "Test".into(),
        message: "m".into(),
        component: "c".into(),
    });
    assert_eq!(execute_on(&writer, &pod(), step).await, Ok(None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(line(&server.only()), "POST /api/v1/namespaces/ns/events");
}
