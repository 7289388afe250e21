use std::time::Duration;

use davit_core::expectation::Written;
use davit_core::failure::FailureClass;
use davit_core::plan::{Create, DeleteOptions, Event, Patch, PatchKind, PropagationPolicy};
use serde_json::{Value, json};

use super::*;
use crate::testing::{Reply, Seen, Server, mapping, pod, status};

fn writer(server: &Server) -> Writer {
    let api = server.api();
    Writer::new(&api, Recorder::start(api.clone()), "podgc", None)
}

fn decision() -> Decision {
    Decision {
        revision: "0123456789".into(),
        id: "1-2".into(),
    }
}

async fn execute(server: &Server, step: Step) -> Result<Outcome, Failure> {
    writer(server)
        .execute(
            &mapping(),
            &pod(),
            &step,
            &decision(),
            &mut Course::default(),
        )
        .await
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

fn line(seen: &Seen) -> String {
    format!("{} {}", seen.method, seen.uri)
}

fn patched() -> Value {
    json!({"kind": "Pod", "metadata": {"name": "p", "uid": "u-1", "resourceVersion": "12"}})
}

#[tokio::test]
async fn a_status_patch_carries_the_uid_and_sorted_keys() {
    let server = Server::always(200, patched());
    let body = json!({"status": {"phase": "Failed", "observedGeneration": 1}});
    let outcome = execute(&server, status_patch(&body)).await.unwrap();
    assert_eq!(outcome.written(), Written::Version(12));
    let seen = server.only();
    assert_eq!(
        line(&seen),
        "PATCH /api/v1/namespaces/ns/pods/p/status?fieldManager=davit%2Fpodgc"
    );
    assert_eq!(
        seen.header("content-type"),
        "application/strategic-merge-patch+json"
    );
    assert_eq!(
        seen.text,
        r#"{"metadata":{"uid":"u-1"},"status":{"observedGeneration":1,"phase":"Failed"}}"#
    );
}

#[tokio::test]
async fn keys_are_sorted_whatever_order_the_guest_wrote_them_in() {
    let server = Server::always(200, patched());
    let mut body = Vec::new();
    rmp::encode::write_map_len(&mut body, 2).unwrap();
    for key in ["z", "a"] {
        rmp::encode::write_str(&mut body, key).unwrap();
        rmp::encode::write_nil(&mut body).unwrap();
    }
    let step = Step::Patch(Patch {
        kind: PatchKind::Merge,
        subresource: String::new(),
        body,
    });
    execute(&server, step).await.unwrap();
    let seen = server.only();
    assert_eq!(seen.header("content-type"), "application/merge-patch+json");
    assert_eq!(seen.text, r#"{"a":null,"metadata":{"uid":"u-1"},"z":null}"#);
}

#[tokio::test]
async fn a_json_patch_tests_the_uid_first() {
    let server = Server::always(200, patched());
    let operation = json!({"op": "remove", "path": "/metadata/finalizers"});
    let step = patch(PatchKind::Json, "", &json!([operation]));
    execute(&server, step).await.unwrap();
    let seen = server.only();
    assert_eq!(seen.header("content-type"), "application/json-patch+json");
    let test = json!({"op": "test", "path": "/metadata/uid", "value": "u-1"});
    assert_eq!(seen.json(), json!([test, operation]));
}

#[tokio::test]
async fn what_must_not_be_sent_is_not_sent() {
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
        (no_name, delete(), "\"\" is no object's name"),
        (elsewhere, delete(), "\"..\" is no object's name"),
        (no_namespace, delete(), "none is given"),
        (pod(), status_patch(&other_uid), "\"u-2\""),
        (pod(), status_patch(&json!([])), "a list where a map"),
        (
            pod(),
            patch(PatchKind::Json, "", &json!({})),
            "a map where a list",
        ),
        (pod(), broken, "no MessagePack"),
        (pod(), trailing, "1 bytes follow"),
    ] {
        let failure = writer(&server)
            .execute(
                &mapping(),
                &target,
                &step,
                &decision(),
                &mut Course::default(),
            )
            .await
            .unwrap_err();
        assert_eq!(failure.class, FailureClass::Invalid, "{failure}");
        assert!(failure.message.contains(reason), "{failure}");
    }
    let unknown = ObjectRef {
        kind: "Gadget".into(),
        ..pod()
    };
    let failure = writer(&server)
        .execute(
            &mapping(),
            &unknown,
            &delete(),
            &decision(),
            &mut Course::default(),
        )
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::Unmappable);
    assert_eq!(server.seen().len(), 0);
}

#[tokio::test]
async fn a_deletion_carries_its_preconditions() {
    let server = Server::always(200, status(200, "", "", json!({"uid": "u-1"})));
    let options = DeleteOptions {
        resource_version: "11".into(),
        propagation_policy: Some(PropagationPolicy::Foreground),
        grace_period_seconds: Some(0),
    };
    let outcome = execute(&server, Step::Delete(options)).await.unwrap();
    assert_eq!(outcome.written(), Written::Gone);
    let seen = server.only();
    assert_eq!(line(&seen), "DELETE /api/v1/namespaces/ns/pods/p");
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(
        seen.text,
        r#"{"apiVersion":"v1","gracePeriodSeconds":0,"kind":"DeleteOptions","preconditions":{"resourceVersion":"11","uid":"u-1"},"propagationPolicy":"Foreground"}"#
    );
    execute(&server, Step::Delete(DeleteOptions::default()))
        .await
        .unwrap();
    assert_eq!(
        server.seen()[1].text,
        r#"{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u-1"}}"#
    );
}

#[tokio::test]
async fn a_deleted_object_is_gone_or_only_marked() {
    for (metadata, gone) in [
        (json!({"deletionGracePeriodSeconds": 0}), true),
        (json!({}), true),
        (json!({"deletionGracePeriodSeconds": 30}), false),
        (
            json!({"deletionGracePeriodSeconds": 0, "finalizers": ["a/b"]}),
            false,
        ),
        (json!({"finalizers": ["foregroundDeletion"]}), false),
    ] {
        let mut body = patched();
        let fields = body["metadata"].as_object_mut().unwrap();
        fields.extend(metadata.as_object().unwrap().clone());
        let server = Server::always(200, body);
        let step = Step::Delete(DeleteOptions::default());
        let outcome = execute(&server, step).await.unwrap();
        assert_eq!(outcome.gone, gone, "{metadata}");
        assert_eq!(outcome.uid, "u-1");
    }
}

#[tokio::test]
async fn a_deleted_namespace_goes_on_terminating() {
    let body = json!({"kind": "Namespace", "metadata": {"name": "ns", "uid": "u-1"}});
    let server = Server::always(200, body);
    let namespace = ObjectRef {
        kind: "Namespace".into(),
        namespace: String::new(),
        ..pod()
    };
    let step = Step::Delete(DeleteOptions::default());
    let (writer, mapping, decision) = (writer(&server), mapping(), decision());
    let mut course = Course::default();
    let outcome = writer.execute(&mapping, &namespace, &step, &decision, &mut course);
    assert!(!outcome.await.unwrap().gone);
}

/// The status of a custom resource is patched whatever uid the patch names.
#[tokio::test]
async fn a_merge_patch_of_a_status_proves_the_uid_by_the_version() {
    let step = || {
        let body = json!({"status": {"ready": true}});
        patch(PatchKind::Merge, "status", &body)
    };
    let server = Server::always(200, patched());
    execute(&server, step()).await.unwrap();
    let [read, written] = &server.seen()[..] else {
        panic!("{:?}", server.seen());
    };
    assert_eq!(line(read), "GET /api/v1/namespaces/ns/pods/p");
    assert_eq!(
        written.text,
        r#"{"metadata":{"resourceVersion":"12","uid":"u-1"},"status":{"ready":true}}"#
    );
    let other = json!({"kind": "Pod", "metadata": {"uid": "u-2", "resourceVersion": "30"}});
    let server = Server::always(200, other);
    let failure = execute(&server, step()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::UidMismatch);
    assert_eq!(server.seen().len(), 1, "nothing is written");
}

/// The guest's own version is the precondition: no read, and no permission to
/// read, is needed.
#[tokio::test]
async fn a_merge_patch_of_a_status_at_a_version_needs_no_read() {
    let step = |version: &str| {
        let body = json!({"metadata": {"resourceVersion": version}, "status": {"ready": true}});
        patch(PatchKind::Merge, "status", &body)
    };
    let server = Server::always(200, patched());
    execute(&server, step("7")).await.unwrap();
    assert_eq!(
        server.only().text,
        r#"{"metadata":{"resourceVersion":"7","uid":"u-1"},"status":{"ready":true}}"#
    );
    // These would overwrite whatever is there.
    for nothing in ["", "0", "any"] {
        let server = Server::always(200, patched());
        execute(&server, step(nothing)).await.unwrap();
        let [_, written] = &server.seen()[..] else {
            panic!("{:?}", server.seen());
        };
        assert_eq!(
            written.text,
            r#"{"metadata":{"resourceVersion":"12","uid":"u-1"},"status":{"ready":true}}"#
        );
    }
}

#[tokio::test]
async fn an_eviction_is_a_post_with_preconditions() {
    let server = Server::always(201, json!({"kind": "Status", "status": "Success"}));
    let options = DeleteOptions {
        grace_period_seconds: Some(5),
        ..DeleteOptions::default()
    };
    let outcome = execute(&server, Step::Evict(options)).await.unwrap();
    assert_eq!(outcome.written(), Written::Unknown);
    let seen = server.only();
    assert_eq!(
        line(&seen),
        "POST /api/v1/namespaces/ns/pods/p/eviction?fieldManager=davit%2Fpodgc"
    );
    assert_eq!(
        seen.json(),
        json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p", "namespace": "ns"},
            "deleteOptions": {
                "apiVersion": "v1", "kind": "DeleteOptions",
                "gracePeriodSeconds": 5, "preconditions": {"uid": "u-1"},
            },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_disruption_budget_that_refuses_holds_nobody_up() {
    let causes = json!([{"reason": "DisruptionBudget", "message": "still being processed"}]);
    let details = json!({"causes": causes, "retryAfterSeconds": 10});
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let server = Server::always(429, status(429, "TooManyRequests", message, details));
    let start = tokio::time::Instant::now();
    let step = Step::Evict(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(10)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    server.only();
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
    let outcome = execute(&server, step).await.unwrap();
    assert_eq!(outcome.uid, "u-9");
    let seen = server.only();
    assert_eq!(
        line(&seen),
        "POST /api/v1/namespaces/ns/pods?fieldManager=davit%2Fpodgc"
    );
    assert_eq!(seen.json(), body);
}

/// The target of the plan may live on.
#[tokio::test]
async fn a_namespace_that_is_not_there_is_no_target_that_is_gone() {
    let details = json!({"kind": "namespaces", "name": "ns"});
    let message = "namespaces \"ns\" not found";
    let server = Server::always(404, status(404, "NotFound", message, details));
    let step = Step::Create(Create {
        object: pod(),
        body: messagepack(&json!({"metadata": {"name": "p"}})),
    });
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Invalid);
    assert!(failure.message.contains(message), "{failure}");
}

#[tokio::test]
async fn failures_are_classed_by_what_the_server_said() {
    use FailureClass as Class;
    let named = || json!({"kind": "pods", "name": "p"});
    let uid_cause = json!({"kind": "Pod", "name": "p", "causes": [{
        "field": "metadata.uid", "reason": "FieldValueInvalid",
        "message": "Invalid value: \"u-1\": field is immutable",
    }]});
    let other_cause = json!({"causes": [{"field": "spec", "message": "field is immutable"}]});
    let precondition = |what: &str| {
        format!(
            "Operation cannot be fulfilled on Pod \"p\": the {what} in the precondition (1) does not match the {what} in record (2)."
        )
    };
    for (code, reason, message, details, class) in [
        (
            404,
            "NotFound",
            "pods \"p\" not found",
            named(),
            Class::NotFound,
        ),
        (410, "Gone", "gone", json!({}), Class::NotFound),
        (
            404,
            "NotFound",
            "the server could not find the requested resource",
            json!({}),
            Class::Unmappable,
        ),
        (
            409,
            "Conflict",
            &precondition("UID"),
            named(),
            Class::UidMismatch,
        ),
        (
            409,
            "Conflict",
            "Precondition failed: UID in precondition: u-1, UID in object meta: u-2",
            named(),
            Class::UidMismatch,
        ),
        (
            409,
            "Conflict",
            &precondition("ResourceVersion"),
            named(),
            Class::Conflict,
        ),
        (
            409,
            "AlreadyExists",
            "pods \"p\" already exists",
            named(),
            Class::Conflict,
        ),
        (422, "Invalid", "is invalid", uid_cause, Class::UidMismatch),
        (422, "Invalid", "is invalid", other_cause, Class::Invalid),
        (
            415,
            "UnsupportedMediaType",
            "415",
            json!({}),
            Class::UnsupportedMedia,
        ),
        (400, "BadRequest", "no", json!({}), Class::Invalid),
        (405, "MethodNotAllowed", "no", json!({}), Class::Invalid),
        (401, "Unauthorized", "who", json!({}), Class::Forbidden),
        (403, "Forbidden", "no", json!({}), Class::Forbidden),
        (429, "TooManyRequests", "slow", json!({}), Class::Throttled),
        (500, "InternalError", "oh", json!({}), Class::Server),
        (503, "ServiceUnavailable", "oh", json!({}), Class::Server),
    ] {
        let server = Server::always(code, status(code, reason, message, details));
        let step = Step::Delete(DeleteOptions::default());
        let failure = execute(&server, step).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure}");
        assert_eq!(
            failure.message,
            format!("delete v1 Pod ns/p (u-1): the server answered {code} {reason}: {message}")
        );
        server.only();
    }
    let server = Server::new(|_, _| Reply::Text(404, "404 page not found\n".into()));
    let step = Step::Delete(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.class, Class::Unmappable, "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_happened_is_not_repeated() {
    let server = Server::new(|_, _| Reply::Silence);
    let step = || Step::Delete(DeleteOptions::default());
    let failure = execute(&server, step()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Timeout);
    assert_eq!(
        failure.message,
        "delete v1 Pod ns/p (u-1): timed out: no answer within 30s"
    );
    server.only();

    let server = Server::new(|_, _| Reply::Break);
    let failure = execute(&server, step()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Timeout);
    assert!(failure.message.contains("connection reset"), "{failure}");
    server.only();

    let timeout = || status(504, "Timeout", "slow", json!({"retryAfterSeconds": 2}));
    let server = Server::new(move |_, _| Reply::Json(504, timeout()));
    let failure = execute(&server, step()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Server);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(2)));
    server.only();

    let server = Server::new(|_, _| Reply::Later(503, "3", json!({})));
    let failure = execute(&server, step()).await.unwrap_err();
    assert_eq!(failure.retry_after, Some(Duration::from_secs(3)));
    server.only();
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_turned_away_is_sent_again_when_the_server_says() {
    let server = Server::new(|_, before| match before {
        0 | 1 => Reply::Later(429, "2", json!({})),
        _ => Reply::Json(200, patched()),
    });
    let start = tokio::time::Instant::now();
    let writer = writer(&server);
    let step = Step::Delete(DeleteOptions::default());
    let (mapping, pod) = (mapping(), pod());
    writer
        .execute(&mapping, &pod, &step, &decision(), &mut Course::default())
        .await
        .unwrap();
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_turns_everything_away_is_given_up() {
    let server = Server::new(|_, _| Reply::Later(429, "1", json!({})));
    let step = Step::Delete(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled);
    assert_eq!(server.seen().len(), 6);
    // Nobody waits for hours.
    let server = Server::new(|_, _| Reply::Later(429, "3600", json!({})));
    let step = Step::Delete(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.retry_after, Some(Duration::from_hours(1)));
    server.only();
}

/// One group answers that it has too much to do for half a minute. Requests to it
/// are not sent meanwhile, nor waited for; those to the other group go at once.
#[tokio::test(start_paused = true)]
async fn a_pause_belongs_to_the_group_that_asked_for_it() {
    let server = Server::new(|seen, _| {
        if seen.uri.contains("/apis/example.com/") {
            Reply::Later(429, "30", json!({}))
        } else {
            Reply::Json(200, patched())
        }
    });
    let (writer, mapping) = (writer(&server), mapping());
    let widget = ObjectRef {
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        ..pod()
    };
    let plan = |target: &ObjectRef| Plan {
        target: target.clone(),
        reason: "orphaned".into(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: Vec::new(),
        when_cancelled: None,
    };
    let (step, decision) = (Step::Delete(DeleteOptions::default()), decision());
    let start = tokio::time::Instant::now();
    let mut course = writer.begin(&plan(&widget)).await.unwrap();
    let sent = writer.execute(&mapping, &widget, &step, &decision, &mut course);
    let failure = sent.await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(30)));

    let pod = pod();
    let mut course = writer.begin(&plan(&pod)).await.unwrap();
    let sent = writer.execute(&mapping, &pod, &step, &decision, &mut course);
    sent.await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(server.seen().len(), 2);

    tokio::time::sleep(Duration::from_secs(10)).await;
    let (position, failure) = writer.begin(&plan(&widget)).await.unwrap_err();
    assert_eq!((position, failure.class), (0, FailureClass::Throttled));
    assert_eq!(failure.retry_after, Some(Duration::from_secs(20)));
    assert!(failure.message.contains("not sent"), "{failure}");
    assert_eq!(server.seen().len(), 2);
    // Reads of the group were not refused.
    tokio::time::sleep(Duration::from_secs(20)).await;
    writer.begin(&plan(&widget)).await.unwrap();
}

#[tokio::test]
async fn a_json_patch_refused_without_a_reason_is_looked_into() {
    let unexplained = || {
        let message = "the server rejected our request due to an error in our request";
        Reply::Json(422, status(422, "Invalid", message, json!({})))
    };
    let found = |uid| Reply::Json(200, json!({"metadata": {"name": "p", "uid": uid}}));
    let missing = || {
        let details = json!({"kind": "pods", "name": "p"});
        Reply::Json(404, status(404, "NotFound", "not found", details))
    };
    for (second, class) in [
        (0, FailureClass::Invalid),
        (1, FailureClass::UidMismatch),
        (2, FailureClass::NotFound),
    ] {
        let server = Server::new(move |_, before| match (before, second) {
            (0, _) => unexplained(),
            (_, 0) => found("u-1"),
            (_, 1) => found("u-2"),
            _ => missing(),
        });
        let step = patch(PatchKind::Json, "", &json!([]));
        let failure = execute(&server, step).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure}");
        assert_eq!(line(&server.seen()[1]), "GET /api/v1/namespaces/ns/pods/p");
    }
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
    let (mapping, pod) = (mapping(), pod());
    let outcome = writer
        .execute(&mapping, &pod, &step, &decision(), &mut Course::default())
        .await;
    assert_eq!(outcome, Ok(Outcome::default()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(line(&server.only()), "POST /api/v1/namespaces/ns/events");
}
