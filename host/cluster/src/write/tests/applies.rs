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

/// The version of the answer is not one of the target.
#[tokio::test]
async fn the_answer_to_an_apply_of_another_object_has_no_version_of_the_target() {
    let server = Server::always(201, patched());
    let body = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "j"}});
    let written = execute(&server, apply(widget(""), "", true, &body)).await;
    assert_eq!(written, Ok(None));
    let seen = server.only();
    assert_eq!(
        line(&seen),
        "PATCH /apis/example.com/v1/namespaces/ns/widgets/j?fieldManager=davit%2Fpodgc&force=true"
    );
    assert_eq!(seen.json(), body);
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
