use std::time::Duration;

use http::Method;
use serde_json::json;

use super::*;
use crate::testing::{Reply, Server, pod, status};

fn event(message: &str) -> Event {
    Event {
        event_type: "Normal".into(),
        reason: "TaintManagerEviction".into(),
        message: message.into(),
        component: "taint-eviction-controller".into(),
    }
}

fn other(number: usize) -> ObjectRef {
    ObjectRef {
        name: format!("other-{number}"),
        uid: format!("other-{number}"),
        ..pod()
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_has_expired_is_created_again() {
    let server = Server::new(|seen, _| {
        if seen.method == Method::PATCH {
            let details = json!({"kind": "events", "name": "p.1"});
            Reply::Json(404, status(404, "NotFound", "not found", details))
        } else {
            Reply::Json(201, json!({}))
        }
    });
    let recorder = Recorder::start(server.api());
    recorder.record(&pod(), &event("m"), None);
    settle().await;
    recorder.record(&pod(), &event("m"), None);
    settle().await;
    let seen = server.seen();
    let methods: Vec<_> = seen.iter().map(|seen| &seen.method).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST]);
    assert_eq!(
        seen[1].header("content-type"),
        "application/strategic-merge-patch+json"
    );
    assert_eq!(seen[2].json()["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_is_retried_at_its_time() {
    let server = Server::new(|_, before| match before {
        0 => Reply::Break,
        _ => Reply::Json(201, json!({})),
    });
    let recorder = Recorder::start(server.api());
    recorder.record(&pod(), &event("m"), None);
    settle().await;
    assert_eq!(server.seen().len(), 1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(server.seen().len(), 2);
    let stats = recorder.stats();
    assert_eq!((stats.sent, stats.waiting), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_delays_no_caller() {
    let server = Server::new(|_, _| Reply::Silence);
    let recorder = Recorder::start(server.api());
    for number in 0..20_000 {
        recorder.record(&other(number), &event("m"), None);
    }
    settle().await;
    assert_eq!(server.seen().len(), davit_core::traffic::MOST_EVENTS);
    let stats = recorder.stats();
    assert_eq!((stats.waiting, stats.dropped), (10_000, 10_000));
}

#[tokio::test(start_paused = true)]
async fn a_flush_sends_everything_or_gives_up_in_time() {
    let server = Server::always(201, json!({}));
    let recorder = Recorder::start(server.api());
    for number in 0..3_000 {
        recorder.record(&other(number), &event("m"), None);
    }
    recorder.flush(Duration::from_secs(5)).await;
    assert_eq!(server.seen().len(), 3_000);
    assert_eq!(recorder.stats().dropped, 0);
    // Without events it ends immediately.
    recorder.flush(Duration::from_secs(5)).await;

    let server = Server::new(|_, _| Reply::Silence);
    let recorder = Recorder::start(server.api());
    for number in 0..100 {
        recorder.record(&other(number), &event("m"), None);
    }
    let begun = tokio::time::Instant::now();
    recorder.flush(Duration::from_secs(5)).await;
    assert_eq!(begun.elapsed().as_secs(), 5);
    assert_eq!(recorder.stats().dropped, 100);
}
