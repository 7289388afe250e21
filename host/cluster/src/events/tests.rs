use std::time::Duration;

use http::Method;
use serde_json::json;

use super::*;
use crate::testing::{Reply, Server, pod, status};

pub(super) fn event(message: &str) -> Event {
    Event {
        event_type: "Normal".into(),
        reason: "TaintManagerEviction".into(),
        message: message.into(),
        component: "taint-eviction-controller".into(),
    }
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_is_created_and_its_repetition_patched() {
    let server = Server::always(200, json!({}));
    let recorder = Recorder::start(server.api());
    let decision = |id: &str| Decision {
        controller: "podgc".into(),
        revision: "0123456789".into(),
        id: id.into(),
    };
    recorder.record(&pod(), &event("m"), Some(&decision("1-2")));
    settle().await;
    recorder.record(&pod(), &event("m"), Some(&decision("1-3")));
    settle().await;
    let seen = server.seen();
    let created = seen[0].json();
    let name = created["metadata"]["name"].as_str().unwrap().to_owned();
    let time = created["firstTimestamp"].clone();
    assert_eq!(seen[0].method, Method::POST);
    assert_eq!(seen[0].uri, "/api/v1/namespaces/ns/events");
    assert_eq!(
        created,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": "ns", "annotations": {
                "davit.dev/revision": "0123456789", "davit.dev/decision": "1-2",
            }},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u-1",
            },
            "source": {"component": "taint-eviction-controller"},
            "reportingComponent": "taint-eviction-controller",
            "type": "Normal", "reason": "TaintManagerEviction", "message": "m",
            "count": 1, "firstTimestamp": time, "lastTimestamp": time,
        })
    );
    assert!(!time.as_str().unwrap().contains('.'), "{time}");
    let nanos = name.strip_prefix("p.").unwrap();
    assert!(u64::from_str_radix(nanos, 16).is_ok(), "{name}");
    assert_eq!(seen[1].method, Method::PATCH);
    assert_eq!(seen[1].uri, format!("/api/v1/namespaces/ns/events/{name}"));
    assert_eq!(
        seen[1].header("content-type"),
        "application/strategic-merge-patch+json"
    );
    assert_eq!(seen[1].json()["count"], 2);
    let annotations = &seen[1].json()["metadata"]["annotations"];
    assert_eq!(annotations["davit.dev/decision"], "1-3");
    assert_eq!(seen.len(), 2);
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
    let methods: Vec<_> = server.seen().into_iter().map(|seen| seen.method).collect();
    assert_eq!(methods, [Method::POST, Method::PATCH, Method::POST]);
    assert_eq!(server.seen()[2].json()["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn events_about_cluster_scoped_objects_live_in_default() {
    let server = Server::always(201, json!({}));
    let recorder = Recorder::start(server.api());
    let node = ObjectRef {
        kind: "Node".into(),
        namespace: String::new(),
        ..pod()
    };
    recorder.record(&node, &event("m"), None);
    settle().await;
    let seen = server.only();
    assert_eq!(seen.uri, "/api/v1/namespaces/default/events");
    assert_eq!(seen.json()["metadata"]["namespace"], "default");
    assert_eq!(seen.json()["involvedObject"]["namespace"], "");
}

#[tokio::test(start_paused = true)]
async fn an_event_is_retried_while_the_server_is_unreachable_and_not_after_a_refusal() {
    let server = Server::new(|_, before| match before {
        0 => Reply::Break,
        1 => Reply::Json(403, status(403, "Forbidden", "no", json!({}))),
        _ => Reply::Json(201, json!({})),
    });
    let recorder = Recorder::start(server.api());
    recorder.record(&pod(), &event("first"), None);
    recorder.record(&pod(), &event("second"), None);
    tokio::time::sleep(Duration::from_secs(11)).await;
    let messages: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.json()["message"].clone())
        .collect();
    assert_eq!(messages, ["first", "first", "second"]);
}

/// One event for each object, as long as the queue has room.
#[tokio::test(start_paused = true)]
async fn a_full_queue_delays_no_caller_and_counts_dropped_events() {
    let server = Server::new(|_, _| Reply::Silence);
    let recorder = Recorder::start(server.api());
    for number in 0..CAPACITY + 5 {
        recorder.record(&other(number), &event("m"), None);
    }
    // Of the events of one object, all but 25 are dropped.
    for number in 0..100 {
        recorder.record(&other(0), &event(&number.to_string()), None);
    }
    settle().await;
    let stats = recorder.stats();
    assert_eq!(stats.waiting, CAPACITY as u64);
    assert_eq!(stats.suppressed, 75);
    assert_eq!(stats.dropped, 5 + 25);
    assert_eq!(server.seen().len(), MOST_EVENTS);
}

fn other(number: usize) -> ObjectRef {
    ObjectRef {
        name: format!("other-{number}"),
        uid: format!("other-{number}"),
        ..pod()
    }
}

/// An event that cannot be sent now delays only the events of its own object, and these
/// keep their order.
#[tokio::test(start_paused = true)]
async fn events_of_different_objects_do_not_wait_for_each_other() {
    let server = Server::new(|seen, before| {
        let is_first = before == 0;
        match seen.method {
            Method::POST if is_first => Reply::Break,
            _ => Reply::Json(201, json!({})),
        }
    });
    let recorder = Recorder::start(server.api());
    recorder.record(&pod(), &event("m"), None);
    settle().await;
    recorder.record(&pod(), &event("another"), None);
    for number in 0..50 {
        recorder.record(&other(number), &event("m"), None);
    }
    settle().await;
    assert_eq!(server.seen().len(), 1 + 50);
    tokio::time::sleep(2 * backlog::RETRY_PAUSE).await;
    let seen = server.seen();
    let own: Vec<_> = seen.iter().skip(1 + 50).collect();
    let messages: Vec<_> = own.iter().map(|it| it.json()["message"].clone()).collect();
    assert_eq!(messages, ["m", "another"]);
    assert_eq!(recorder.stats().sent, 52);
}

/// An event that still waits is created with its count at that time.
#[tokio::test(start_paused = true)]
async fn a_repetition_of_an_event_that_waits_takes_no_request() {
    let server = Server::new(|_, before| match before {
        0 => Reply::Break,
        _ => Reply::Json(201, json!({})),
    });
    let recorder = Recorder::start(server.api());
    recorder.record(&pod(), &event("m"), None);
    settle().await;
    for _ in 0..4 {
        recorder.record(&pod(), &event("m"), None);
    }
    tokio::time::sleep(2 * backlog::RETRY_PAUSE).await;
    let seen = server.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].method, Method::POST);
    assert_eq!(seen[1].json()["count"], 5);
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
