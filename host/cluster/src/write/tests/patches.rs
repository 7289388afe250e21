use super::*;

#[tokio::test]
async fn a_status_patch_carries_the_uid_and_sorted_keys() {
    let server = Server::always(200, patched());
    let body = json!({"status": {"phase": "Failed", "observedGeneration": 1}});
    let written = execute(&server, status_patch(&body)).await.unwrap();
    assert_eq!(written, Some(WriteResult::Version(12)));
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
async fn keys_are_sorted_whatever_the_guests_order() {
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

/// The guest's own version is the precondition: no read is needed, and no permission to
/// read.
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
    // These would overwrite any version.
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
async fn a_json_patch_refused_without_a_reason_is_followed_by_a_read() {
    let unexplained = || {
        let message = "the server rejected our request due to an error in our request";
        Reply::Json(422, status(422, "Invalid", message, json!({})))
    };
    let found = |uid| Reply::Json(200, json!({"metadata": {"name": "p", "uid": uid}}));
    let missing = || {
        let details = json!({"kind": "pods", "name": "p"});
        Reply::Json(404, status(404, "NotFound", "not found", details))
    };
    let tests = json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]);
    let forbidden = || Reply::Json(403, status(403, "Forbidden", "no", json!({})));
    for (second, operations, class) in [
        (0, json!([]), FailureClass::Invalid),
        // The object has changed since the guest read it.
        (0, tests.clone(), FailureClass::Conflict),
        // It may be that, and nobody can see it.
        (3, tests, FailureClass::Conflict),
        (3, json!([]), FailureClass::Invalid),
        (1, json!([]), FailureClass::UidMismatch),
        (2, json!([]), FailureClass::NotFound),
    ] {
        let server = Server::new(move |_, before| match (before, second) {
            (0, _) => unexplained(),
            (_, 0) => found("u-1"),
            (_, 1) => found("u-2"),
            (_, 2) => missing(),
            _ => forbidden(),
        });
        let step = patch(PatchKind::Json, "", &operations);
        let failure = execute(&server, step).await.unwrap_err();
        assert_eq!(failure.class, class, "{failure}");
        assert_eq!(line(&server.seen()[1]), "GET /api/v1/namespaces/ns/pods/p");
    }
}
