use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::plan::Event;
use crate::refusal::ErrorResponse;
use crate::request::{Cause, Method, NoAnswer};
use crate::time::Wall;

pub(super) fn pod() -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "ns".into(),
        name: "p".into(),
        uid: "u-1".into(),
    }
}

pub(super) fn event(message: &str) -> Event {
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

pub(super) fn refused(code: u16, reason: &str) -> RequestError {
    let status = json!({
        "kind": "Status", "code": code, "reason": reason, "message": "no",
        "details": {"kind": "events", "name": "p.1"},
    });
    let refused = ErrorResponse::read(code, None, status.to_string().as_bytes());
    RequestError::Refused(Box::new(refused))
}

pub(super) fn broken() -> RequestError {
    RequestError::NoAnswer(NoAnswer {
        cause: Cause::Reset,
        unsent: false,
        detail: String::new(),
    })
}

/// A recorder, its clock and its reports. The wall clock starts in November 2023.
struct Fixture {
    recorder: Recorder,
    now: Instant,
    reports: Vec<Report>,
}

/// A request, and the answer that the test gives.
type Answer = Result<(), RequestError>;

impl Fixture {
    fn new() -> Self {
        Self {
            recorder: Recorder::default(),
            now: Instant::ZERO,
            reports: Vec::new(),
        }
    }

    fn record(&mut self, involved: &ObjectRef, message: &str, decision: Option<&Decision>) {
        let occurrence = Occurrence {
            involved: involved.clone(),
            event: event(message),
            decision: decision.cloned(),
        };
        let start = Now {
            instant: Instant::ZERO,
            wall: Wall(1_700_000_000_123),
        };
        let now = Now {
            instant: self.now,
            wall: start.wall_at(self.now),
        };
        self.recorder.record(occurrence, now);
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now.after(Duration::from_secs(seconds));
    }

    /// The requests that can be sent now.
    fn poll(&mut self) -> Vec<(SendId, Request)> {
        let effects = std::iter::from_fn(|| self.recorder.poll(self.now));
        let (mut requests, reports) = (Vec::new(), &mut self.reports);
        for effect in effects {
            match effect {
                Effect::Send { id, request } => requests.push((id, request)),
                Effect::Report(report) => reports.push(report),
            }
        }
        requests
    }

    fn answer(&mut self, id: SendId, answer: &Answer) {
        let answer = answer.as_ref().map(|()| b"{}".as_slice());
        self.recorder.handle(id, answer, self.now);
    }

    /// Answers every request until none is left that can be sent now. Returns them.
    fn exchange(&mut self, answer: impl Fn(&Request) -> Answer) -> Vec<Request> {
        let mut sent = Vec::new();
        loop {
            let requests = self.poll();
            if requests.is_empty() {
                return sent;
            }
            for (id, request) in requests {
                self.answer(id, &answer(&request));
                sent.push(request);
            }
        }
    }
}

fn body(request: &Request) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

fn messages(requests: &[Request]) -> Vec<Value> {
    let bodies = requests.iter().map(body);
    bodies.map(|body| body["message"].clone()).collect()
}

#[test]
fn the_first_is_created_and_its_repetition_patched() {
    let mut fixture = Fixture::new();
    let decision = |id: &str| Decision {
        controller: "podgc".into(),
        revision: "0123456789".into(),
        id: id.into(),
    };
    fixture.record(&pod(), "m", Some(&decision("1-2")));
    let mut seen = fixture.exchange(|_| Ok(()));
    fixture.record(&pod(), "m", Some(&decision("1-3")));
    seen.extend(fixture.exchange(|_| Ok(())));
    let created = body(&seen[0]);
    let name = created["metadata"]["name"].as_str().unwrap().to_owned();
    let time = created["firstTimestamp"].clone();
    assert_eq!(seen[0].method, Method::Post);
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
    assert_eq!(time, "2023-11-14T22:13:20Z");
    let nanos = name.strip_prefix("p.").unwrap();
    assert!(u64::from_str_radix(nanos, 16).is_ok(), "{name}");
    assert_eq!(seen[1].method, Method::Patch);
    assert_eq!(seen[1].uri, format!("/api/v1/namespaces/ns/events/{name}"));
    assert_eq!(
        seen[1].content_type,
        "application/strategic-merge-patch+json"
    );
    assert_eq!(body(&seen[1])["count"], 2);
    let annotations = &body(&seen[1])["metadata"]["annotations"];
    assert_eq!(annotations["davit.dev/decision"], "1-3");
    assert_eq!(seen.len(), 2);
}

#[test]
fn one_that_has_expired_is_created_again() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "m", None);
    let mut seen = fixture.exchange(|_| Ok(()));
    fixture.record(&pod(), "m", None);
    seen.extend(fixture.exchange(|request| match request.method {
        Method::Patch => Err(refused(404, "NotFound")),
        _ => Ok(()),
    }));
    let methods: Vec<_> = seen.iter().map(|seen| seen.method).collect();
    assert_eq!(methods, [Method::Post, Method::Patch, Method::Post]);
    assert_eq!(body(&seen[2])["count"], 2);
    assert_eq!(fixture.recorder.stats().sent, 2);
}

/// The first attempt was executed, and its answer was lost.
#[test]
fn one_that_was_created_without_an_answer_is_patched() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "m", None);
    let mut seen = fixture.exchange(|_| Err(broken()));
    fixture.record(&pod(), "m", None);
    fixture.wait(10);
    seen.extend(fixture.exchange(|request| match request.method {
        Method::Post => Err(refused(409, "AlreadyExists")),
        _ => Ok(()),
    }));
    let methods: Vec<_> = seen.iter().map(|seen| seen.method).collect();
    assert_eq!(methods, [Method::Post, Method::Post, Method::Patch]);
    assert_eq!(body(&seen[2])["count"], 2);
    let stats = fixture.recorder.stats();
    assert_eq!((stats.sent, stats.failed), (1, 0));
}

#[test]
fn a_server_that_has_the_event_and_has_it_not_gets_two_requests() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "m", None);
    fixture.record(&pod(), "another", None);
    let seen = fixture.exchange(|request| match body(request)["message"].as_str() {
        Some("another") => Ok(()),
        _ if request.method == Method::Patch => Err(refused(404, "NotFound")),
        _ => Err(refused(409, "AlreadyExists")),
    });
    assert_eq!(messages(&seen), ["m", "m", "another"]);
    let stats = fixture.recorder.stats();
    assert_eq!((stats.sent, stats.failed), (1, 1));
}

#[test]
fn events_about_cluster_scoped_objects_live_in_default() {
    let mut fixture = Fixture::new();
    let node = ObjectRef {
        kind: "Node".into(),
        namespace: String::new(),
        ..pod()
    };
    fixture.record(&node, "m", None);
    let seen = fixture.exchange(|_| Ok(()));
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].uri, "/api/v1/namespaces/default/events");
    assert_eq!(body(&seen[0])["metadata"]["namespace"], "default");
    assert_eq!(body(&seen[0])["involvedObject"]["namespace"], "");
}

#[test]
fn an_event_is_retried_while_the_server_is_unreachable_and_not_after_a_refusal() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "first", None);
    fixture.record(&pod(), "second", None);
    let mut seen = fixture.exchange(|_| Err(broken()));
    fixture.wait(11);
    seen.extend(
        fixture.exchange(|request| match body(request)["message"].as_str() {
            Some("first") => Err(refused(403, "Forbidden")),
            _ => Ok(()),
        }),
    );
    assert_eq!(messages(&seen), ["first", "first", "second"]);
    let stats = fixture.recorder.stats();
    assert_eq!((stats.sent, stats.failed, stats.waiting), (1, 1, 0));
    let [
        Report::Retried { message: retried },
        Report::Failed { message, .. },
    ] = &*fixture.reports
    else {
        panic!("{:?}", fixture.reports);
    };
    let subject = "record an event on v1 Pod ns/p (u-1): ";
    assert_eq!(*retried, format!("{subject}connection reset"));
    assert!(message.starts_with(subject), "{message}");
}

/// One event for each object, as long as the queue has room.
#[test]
fn a_full_queue_counts_dropped_events() {
    let mut fixture = Fixture::new();
    for number in 0..CAPACITY + 5 {
        fixture.record(&other(number), "m", None);
    }
    // Of the events of one object, all but 25 are dropped.
    for number in 0..100 {
        fixture.record(&other(0), &number.to_string(), None);
    }
    let sent = fixture.poll();
    let stats = fixture.recorder.stats();
    assert_eq!(stats.waiting, CAPACITY as u64);
    assert_eq!(stats.suppressed, 75);
    assert_eq!(stats.dropped, 5 + 25);
    assert_eq!(sent.len(), MOST_EVENTS);
    assert_eq!(
        fixture.reports,
        [Report::Full {
            object: other(CAPACITY),
            reason: "TaintManagerEviction".into(),
            waiting: CAPACITY,
            suppressed: SuppressedCount(0),
        }]
    );
}

/// An event that cannot be sent now delays only the events of its own object, and these
/// keep their order.
#[test]
fn events_of_different_objects_do_not_wait_for_each_other() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "m", None);
    assert_eq!(fixture.exchange(|_| Err(broken())).len(), 1);
    fixture.record(&pod(), "another", None);
    for number in 0..50 {
        fixture.record(&other(number), "m", None);
    }
    assert_eq!(fixture.exchange(|_| Ok(())).len(), 50);
    fixture.wait(20);
    let own = fixture.exchange(|_| Ok(()));
    assert_eq!(messages(&own), ["m", "another"]);
    assert_eq!(fixture.recorder.stats().sent, 52);
}

/// An event that still waits is created with its count at that time.
#[test]
fn a_repetition_of_an_event_that_waits_takes_no_request() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "m", None);
    fixture.exchange(|_| Err(broken()));
    for _ in 0..4 {
        fixture.record(&pod(), "m", None);
    }
    fixture.wait(20);
    let seen = fixture.exchange(|_| Ok(()));
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].method, Method::Post);
    assert_eq!(body(&seen[0])["count"], 5);
    let stats = fixture.recorder.stats();
    assert_eq!((stats.sent, stats.merged), (1, 4));
}

#[test]
fn a_flush_sends_everything_or_gives_up_in_time() {
    let mut fixture = Fixture::new();
    for number in 0..100 {
        fixture.record(&other(number), "m", None);
    }
    fixture.recorder.flush(Duration::from_secs(5), fixture.now);
    let first = fixture.poll();
    assert_eq!(first.len(), MOST_WHILE_FLUSHING);
    for (id, _) in &first {
        fixture.answer(*id, &Ok(()));
    }
    assert_eq!(fixture.exchange(|_| Ok(())).len(), 100 - first.len());
    assert!(!fixture.recorder.is_flushing());
    // Without events it ends immediately.
    fixture.recorder.flush(Duration::from_secs(5), fixture.now);
    assert!(fixture.poll().is_empty());
    assert!(!fixture.recorder.is_flushing());
    assert_eq!(fixture.reports, []);

    for number in 100..200 {
        fixture.record(&other(number), "m", None);
    }
    fixture.recorder.flush(Duration::from_secs(5), fixture.now);
    let silent = fixture.poll();
    fixture.wait(4);
    fixture.poll();
    assert!(fixture.recorder.is_flushing());
    fixture.wait(1);
    assert_eq!(fixture.recorder.next_wake(), Some(fixture.now));
    assert!(fixture.poll().is_empty());
    assert!(!fixture.recorder.is_flushing());
    assert!(fixture.recorder.is_empty());
    let within = Duration::from_secs(5);
    assert_eq!(fixture.reports, [Report::Left { count: 100, within }]);
    // An answer after that changes no count.
    fixture.answer(silent[0].0, &Ok(()));
    let stats = fixture.recorder.stats();
    assert_eq!((stats.sent, stats.dropped, stats.waiting), (100, 100, 0));
}

/// The driver polls at that time: it would poll again and again.
#[test]
fn a_retry_that_cannot_be_sent_yet_is_no_reason_to_wake() {
    let mut fixture = Fixture::new();
    fixture.record(&pod(), "m", None);
    fixture.exchange(|_| Err(broken()));
    assert_eq!(
        fixture.recorder.next_wake(),
        Some(fixture.now.after(Duration::from_secs(10)))
    );
    for number in 0..MOST_EVENTS {
        fixture.record(&other(number), "m", None);
    }
    let silent = fixture.poll();
    assert_eq!(silent.len(), MOST_EVENTS);
    fixture.wait(10);
    assert!(fixture.poll().is_empty());
    assert_eq!(fixture.recorder.next_wake(), None);
    fixture.answer(silent[0].0, &Ok(()));
    assert_eq!(fixture.poll().len(), 1);
}
