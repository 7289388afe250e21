use davit_core::plan::Apply;

use super::*;

/// A widget that is not the target of the plan.
fn widget(uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        name: "j".into(),
        uid: uid.into(),
        ..pod()
    }
}

fn apply(object: ObjectRef, subresource: &str, force: bool, body: &Value) -> Step {
    Step::Apply(Apply {
        object,
        subresource: subresource.into(),
        force,
        body: messagepack(body),
    })
}

#[tokio::test]
async fn an_apply_of_the_target_carries_its_uid_and_the_field_manager() {
    let server = Server::always(200, patched());
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
    let written = execute(&server, apply(pod(), "", false, &body)).await;
    assert_eq!(written, Ok(Some(WriteResult::Version(12))));
    let seen = server.only();
    assert_eq!(
        line(&seen),
        "PATCH /api/v1/namespaces/ns/pods/p?fieldManager=davit%2Fpodgc"
    );
    assert_eq!(seen.header("content-type"), "application/apply-patch+yaml");
    assert_eq!(
        seen.text,
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u-1"}}"#
    );
}

fn widget_body() -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "j"}})
}

/// An API server with this widget; none if there is none. It writes what it is asked to.
fn server_with(widget: Option<Value>) -> Server {
    Server::new(move |request, _| {
        if request.method != http::Method::GET {
            return Reply::Json(200, patched());
        }
        let missing = || {
            let details = json!({"kind": "widgets", "name": "j"});
            Reply::Json(404, status(404, "NotFound", "not found", details))
        };
        widget
            .clone()
            .map_or_else(missing, |found| Reply::Json(200, found))
    })
}

fn owned_by(uid: &str) -> Value {
    json!({"kind": "Widget", "metadata": {"uid": "u-7", "ownerReferences": [
        {"uid": "u-0"}, {"uid": uid},
    ]}})
}

/// The version of the answer is not one of the target.
#[tokio::test]
async fn an_apply_without_a_uid_creates_what_is_not_there() {
    let server = server_with(None);
    let written = execute(&server, apply(widget(""), "", true, &widget_body())).await;
    assert_eq!(written, Ok(None));
    let [read, seen] = &server.seen()[..] else {
        panic!("{:?}", server.seen());
    };
    let path = "/apis/example.com/v1/namespaces/ns/widgets/j";
    assert_eq!(line(read), format!("GET {path}"));
    let query = "fieldManager=davit%2Fpodgc&force=true";
    assert_eq!(line(seen), format!("PATCH {path}?{query}"));
    assert_eq!(seen.json(), widget_body());
}

/// Its cache may lag: the guest has not read it, and the target owns it.
#[tokio::test]
async fn an_apply_without_a_uid_writes_the_object_that_its_target_owns_and_no_other() {
    let server = server_with(Some(owned_by("u-1")));
    let step = || apply(widget(""), "", false, &widget_body());
    assert_eq!(execute(&server, step()).await, Ok(None));
    let written = &server.seen()[1];
    assert_eq!(
        written.json()["metadata"],
        json!({"name": "j", "uid": "u-7"})
    );

    for other in [owned_by("u-2"), json!({"metadata": {"uid": "u-7"}})] {
        let server = server_with(Some(other));
        let failure = execute(&server, step()).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Conflict);
        let text = "none of its owners: an apply writes such an object only if it names the uid";
        assert!(failure.message.ends_with(text), "{failure}");
        assert_eq!(server.seen().len(), 1, "nothing is written");
    }
    let server = Server::always(503, status(503, "", "", json!({})));
    let failure = execute(&server, step()).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Server);
}

/// As for a merge patch of a status: the API server compares no uid there.
#[tokio::test]
async fn an_apply_of_a_status_proves_the_uid_by_the_version() {
    let body = json!({"status": {"ready": true}});
    let server = Server::always(200, patched());
    execute(&server, apply(pod(), "status", false, &body))
        .await
        .unwrap();
    let [read, written] = &server.seen()[..] else {
        panic!("{:?}", server.seen());
    };
    assert_eq!(line(read), "GET /api/v1/namespaces/ns/pods/p");
    assert_eq!(
        written.text,
        r#"{"metadata":{"resourceVersion":"12","uid":"u-1"},"status":{"ready":true}}"#
    );
    let at = json!({"metadata": {"resourceVersion": "7"}});
    let server = Server::always(200, patched());
    execute(&server, apply(pod(), "status", false, &at))
        .await
        .unwrap();
    assert_eq!(
        server.only().text,
        r#"{"metadata":{"resourceVersion":"7","uid":"u-1"}}"#
    );
    let other = json!({"kind": "Pod", "metadata": {"uid": "u-2", "resourceVersion": "30"}});
    let server = Server::always(200, other);
    let failure = execute(&server, apply(pod(), "status", false, &body)).await;
    assert_eq!(failure.unwrap_err().class, FailureClass::UidMismatch);
    assert_eq!(server.seen().len(), 1, "nothing is written");
}

/// A target that is gone is no failure: the plan of an object that another one replaced is
/// decided again, and so is one whose namespace is missing.
#[tokio::test]
async fn another_object_that_is_gone_is_not_the_target_that_is_gone() {
    let mismatch = "Operation cannot be fulfilled on widgets \"j\": uid mismatch: the provided \
                    object specified uid u-5, and no existing object was found";
    let missing = "namespaces \"ns\" not found";
    let details = json!({"kind": "widgets", "name": "j"});
    for (object, code, message, class) in [
        (widget("u-5"), 409, mismatch, FailureClass::Conflict),
        (widget(""), 404, missing, FailureClass::Invalid),
        (pod(), 409, mismatch, FailureClass::UidMismatch),
    ] {
        let server = Server::always(code, status(code, "Conflict", message, details.clone()));
        let body = json!({"metadata": {"name": object.name}});
        let failure = execute(&server, apply(object, "", false, &body)).await;
        assert_eq!(failure.unwrap_err().class, class, "{message}");
    }
}

/// It may have been executed. The item is decided again, and the same apply changes nothing.
#[tokio::test]
async fn an_apply_without_an_answer_is_not_repeated() {
    for (object, requests) in [(widget(""), 2), (pod(), 1)] {
        let server = Server::new(|request, _| {
            if request.method == http::Method::GET {
                let details = json!({"kind": "widgets", "name": "j"});
                return Reply::Json(404, status(404, "NotFound", "not found", details));
            }
            Reply::Break
        });
        let body = json!({"metadata": {"name": object.name}});
        let failure = execute(&server, apply(object, "", false, &body)).await;
        assert_eq!(failure.unwrap_err().class, FailureClass::Timeout);
        assert_eq!(server.seen().len(), requests);
    }
}
