//! Events for people: core/v1 `Event`s about the targets of plans.
//!
//! They are sent as well as can be, after everything else: nobody waits for
//! them, and none of their failures is anybody's failure.

mod correlate;
mod lru;

#[cfg(test)]
mod tests;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use bytes::Bytes;
use davit_core::failure::FailureClass;
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::plan::Event;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::sleep;

pub use correlate::{Correlated, Correlator, Occurrence};

use crate::api::{Api, Attempt, Course, JSON, NoSuccess, Request};
use crate::url::path;
use crate::write::Decision;

/// How many events may wait to be sent.
const MOST_WAITING: usize = 10_000;
/// How many events are sent at once. Those of one object are sent one after the
/// other: a repetition patches the event that came before.
const LANES: u64 = 8;
/// How many events may wait in one lane before they hold up the others.
const MOST_IN_LANE: usize = 1_000;
/// How often an event is tried again when the server cannot be reached.
const MOST_TRIES: u32 = 12;
/// The pause in between.
const RETRY_PAUSE: Duration = Duration::from_secs(10);

/// Takes events. Copies share one queue, whose worker ends with the last copy.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<(Occurrence, Timestamp)>,
}

impl Recorder {
    /// Starts the worker that sends events, in a task of tokio's.
    #[must_use]
    pub fn start(api: Api) -> Self {
        let (queue, events) = mpsc::channel(MOST_WAITING);
        tokio::spawn(work(api, events));
        Self { queue }
    }

    /// Tells people something about an object. Never waits: with too many
    /// events in the queue already, this one is dropped.
    /// What decided on it, if anything did, is told in annotations.
    pub fn record(&self, involved: &ObjectRef, event: &Event, decision: Option<&Decision>) {
        let occurrence = Occurrence {
            involved: involved.clone(),
            event: event.clone(),
            decision: decision.cloned(),
        };
        if self.queue.try_send((occurrence, Timestamp::now())).is_err() {
            tracing::warn!(
                object = %involved,
                reason = event.reason,
                "an event was dropped: too many are waiting to be sent"
            );
        }
    }
}

/// Correlates events in their order, and hands them to the lanes.
async fn work(api: Api, mut events: mpsc::Receiver<(Occurrence, Timestamp)>) {
    let lanes: Vec<mpsc::Sender<Correlated>> = (0..LANES)
        .map(|_| {
            let (lane, events) = mpsc::channel(MOST_IN_LANE);
            tokio::spawn(send(api.clone(), events));
            lane
        })
        .collect();
    let mut correlator = Correlator::default();
    while let Some((occurrence, at)) = events.recv().await {
        let Some(correlated) = correlator.correlate(occurrence, at) else {
            continue;
        };
        let lane = usize::try_from(lane(&correlated.involved)).unwrap_or_default();
        if let Some(lane) = lanes.get(lane) {
            // It ends after this task does.
            let _ = lane.send(correlated).await;
        }
    }
}

/// The lane of an object, always the same.
fn lane(involved: &ObjectRef) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&involved.namespace, &involved.name, &involved.uid).hash(&mut hasher);
    hasher.finish() % LANES
}

async fn send(api: Api, mut events: mpsc::Receiver<Correlated>) {
    while let Some(event) = events.recv().await {
        deliver(&api, &event).await;
    }
}

/// Sends one event: by patching the one that was sent before, if there is one.
async fn deliver(api: &Api, event: &Correlated) {
    let attempt = Attempt {
        verb: "record an event on",
        object: &event.involved,
    };
    for _ in 0..MOST_TRIES {
        let mut course = Course::of_events();
        let mut sent = if event.count > 1 {
            api.call(&patch(event), &mut course).await
        } else {
            api.call(&create(event), &mut course).await
        };
        if event.count > 1 && is_not_found(&sent) {
            sent = api.call(&create(event), &mut course).await;
        }
        match sent {
            Ok(_) => return,
            Err(NoSuccess::NoAnswer(reason)) => {
                tracing::debug!("{attempt}: {reason}");
                sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                tracing::warn!("{}", error.failure(&attempt));
                return;
            }
        }
    }
    tracing::warn!("{attempt}: given up after {MOST_TRIES} tries");
}

fn is_not_found(sent: &Result<Bytes, NoSuccess>) -> bool {
    matches!(sent, Err(NoSuccess::Refused(refused)) if refused.class() == FailureClass::NotFound)
}

fn create(event: &Correlated) -> Request {
    let involved = &event.involved;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event.name,
            "namespace": namespace(involved),
            "annotations": annotations(event),
        },
        "involvedObject": {
            "apiVersion": involved.api_version,
            "kind": involved.kind,
            "name": involved.name,
            "namespace": involved.namespace,
            "uid": involved.uid,
        },
        "source": {"component": event.event.component},
        "reportingComponent": event.event.component,
        "type": event.event.event_type,
        "reason": event.event.reason,
        "message": event.event.message,
        "count": event.count,
        "firstTimestamp": seconds(event.first),
        "lastTimestamp": seconds(event.last),
    });
    request(Method::POST, event, "", JSON, &body)
}

fn patch(event: &Correlated) -> Request {
    let body = json!({
        "metadata": {"annotations": annotations(event)},
        "count": event.count,
        "lastTimestamp": seconds(event.last),
        "message": event.event.message,
    });
    let media_type = "application/strategic-merge-patch+json";
    request(Method::PATCH, event, &event.name, media_type, &body)
}

/// What decided on it last.
fn annotations(event: &Correlated) -> Value {
    match &event.decision {
        None => json!({}),
        Some(Decision { revision, id }) => json!({
            "davit.dev/revision": revision,
            "davit.dev/decision": id,
        }),
    }
}

fn request(
    method: Method,
    event: &Correlated,
    name: &str,
    content_type: &'static str,
    body: &Value,
) -> Request {
    let events = ApiResource::new("", "v1", "events");
    Request {
        method,
        uri: path(&events, namespace(&event.involved), name, ""),
        accept: JSON,
        content_type,
        body: body.to_string().into(),
    }
}

/// Events about cluster-scoped objects live in `default`.
fn namespace(involved: &ObjectRef) -> &str {
    match involved.namespace.as_str() {
        "" => "default",
        namespace => namespace,
    }
}

/// Kubernetes' `Time` has no fractions of a second.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}
