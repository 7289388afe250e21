use davit_core::time::Instant;
use tokio::sync::watch;

use super::*;
use crate::clock::Clock;

/// The target of the plan may still exist.
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
async fn failures_are_classified_by_the_servers_answer() {
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
async fn a_throttled_write_is_sent_again_after_the_servers_pause() {
    let server = Server::new(|_, before| match before {
        0 | 1 => Reply::Later(429, "2", json!({})),
        _ => Reply::Json(200, patched()),
    });
    let start = tokio::time::Instant::now();
    let writer = writer(&server);
    let step = Step::Delete(DeleteOptions::default());
    execute_on(&writer, &pod(), step).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 4);
    assert_eq!(server.seen().len(), 3);
}

/// Another replica may lead by then.
#[tokio::test(start_paused = true)]
async fn a_throttled_write_is_not_sent_again_after_the_term() {
    let server = Server::new(|_, _| Reply::Later(429, "2", json!({})));
    let clock = Clock::start();
    let (_sender, until) = watch::channel(Some(Instant::ZERO.after(Duration::from_secs(1))));
    let term = Term::new(clock, until, Duration::from_secs(30));
    let step = Step::Delete(DeleteOptions::default());
    let failure = execute_in_term(&writer(&server), &pod(), step, &term).await;
    let message = failure.unwrap_err().message;
    assert!(message.contains("does not lead"), "{message}");
    server.only();
}

#[tokio::test(start_paused = true)]
async fn a_plan_fails_when_the_server_keeps_throttling() {
    let server = Server::new(|_, _| Reply::Later(429, "1", json!({})));
    let step = Step::Delete(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled);
    assert_eq!(server.seen().len(), 6);
    // The host does not wait for hours.
    let server = Server::new(|_, _| Reply::Later(429, "3600", json!({})));
    let step = Step::Delete(DeleteOptions::default());
    let failure = execute(&server, step).await.unwrap_err();
    assert_eq!(failure.retry_after, Some(Duration::from_mins(5)));
    server.only();
}

/// One group is overloaded for half a minute. Requests to it are neither sent nor
/// waited for meanwhile. Requests to the other group are sent immediately.
#[tokio::test(start_paused = true)]
async fn a_pause_holds_for_the_group_of_the_refused_request() {
    let server = Server::new(|seen, _| {
        if seen.uri.contains("/apis/example.com/") {
            Reply::Later(429, "30", json!({}))
        } else {
            Reply::Json(200, patched())
        }
    });
    let writer = writer(&server);
    let widget = ObjectRef {
        api_version: "example.com/v1".into(),
        kind: "Widget".into(),
        ..pod()
    };
    let delete = || Step::Delete(DeleteOptions::default());
    let start = tokio::time::Instant::now();
    let sent = execute_on(&writer, &widget, delete());
    let failure = sent.await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(30)));

    execute_on(&writer, &pod(), delete()).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(server.seen().len(), 2);

    tokio::time::sleep(Duration::from_secs(10)).await;
    let sent = execute_on(&writer, &widget, delete());
    let failure = sent.await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Throttled);
    assert_eq!(failure.retry_after, Some(Duration::from_secs(20)));
    assert!(failure.message.contains("not sent"), "{failure}");
    assert_eq!(server.seen().len(), 2);
    // The pause is over.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let sent = execute_on(&writer, &widget, delete());
    let failure = sent.await.unwrap_err();
    assert_eq!(failure.retry_after, Some(Duration::from_secs(30)));
    assert_eq!(server.seen().len(), 3);
}
