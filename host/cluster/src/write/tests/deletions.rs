use super::*;

#[tokio::test]
async fn a_deletion_carries_its_preconditions() {
    let server = Server::always(200, status(200, "", "", json!({"uid": "u-1"})));
    let options = DeleteOptions {
        resource_version: "11".into(),
        propagation_policy: Some(PropagationPolicy::Foreground),
        grace_period_seconds: Some(0),
    };
    let written = execute(&server, Step::Delete(options)).await.unwrap();
    assert_eq!(written, Some(WriteResult::Gone));
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
        let written = execute(&server, step).await.unwrap();
        assert_eq!(written == Some(WriteResult::Gone), gone, "{metadata}");
    }
}

#[tokio::test]
async fn a_deleted_namespace_is_still_terminating() {
    let body = json!({"kind": "Namespace", "metadata": {"name": "ns", "uid": "u-1"}});
    let server = Server::always(200, body);
    let namespace = ObjectRef {
        kind: "Namespace".into(),
        namespace: String::new(),
        ..pod()
    };
    let step = Step::Delete(DeleteOptions::default());
    let written = execute_on(&writer(&server), &namespace, step).await;
    assert_eq!(written, Ok(Some(WriteResult::Unknown)));
}

#[tokio::test]
async fn an_eviction_is_a_post_with_preconditions() {
    let server = Server::always(201, json!({"kind": "Status", "status": "Success"}));
    let options = DeleteOptions {
        grace_period_seconds: Some(5),
        ..DeleteOptions::default()
    };
    let written = execute(&server, Step::Evict(options)).await.unwrap();
    assert_eq!(written, Some(WriteResult::Unknown));
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
async fn the_refusal_of_a_disruption_budget_is_not_waited_for() {
    let causes = json!([{"reason": "DisruptionBudget", "message": "still being processed"}]);
    let details = json!({"causes": causes, "retryAfterSeconds": 10});
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let server = Server::always(429, status(429, "TooManyRequests", message, details));
    let start = tokio::time::Instant::now();
    let step = Step::Evict(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::DisruptionBudget);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(10)));
    assert_eq!(start.elapsed(), Duration::ZERO);
    server.only();
}
