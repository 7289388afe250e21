//! Events of core/v1: the requests that create and patch them, and the meaning of the
//! answers.

use serde_json::{Value, json};

use super::{Attempt, JSON, Method, Request, RequestError, path};
use crate::failure::{Failure, FailureClass};
use crate::object::{ApiResource, ObjectRef};
use crate::plan::Event;
use crate::refusal::ErrorResponse;
use crate::time::Wall;
use crate::times::time;

const STRATEGIC_MERGE_PATCH: &str = "application/strategic-merge-patch+json";

/// The decision behind a plan, as logs and events name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The controller.
    pub controller: String,
    /// The revision of the controller.
    pub revision: String,
    /// The decision's identifier.
    pub id: String,
}

/// An event to send, after correlation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorrelatedEvent {
    /// The name of the Event object, in the involved object's namespace.
    pub name: String,
    /// The object that it is about.
    pub involved: ObjectRef,
    /// The type, the reason and the message; an aggregate's message has a prefix.
    pub event: Event,
    /// The decision that caused its last occurrence, if one did.
    pub decision: Option<Decision>,
    /// The number of occurrences so far.
    pub count: u32,
    /// The time of the first occurrence.
    pub first: Wall,
    /// The time of the last occurrence.
    pub last: Wall,
}

/// What an answer means for its event.
#[derive(Clone, Debug, PartialEq)]
pub enum EventAnswer {
    /// The API server has the event.
    Sent,
    /// The other request fits: there is no event to patch, because it has expired; or the
    /// event to create is there, because an earlier attempt was executed without an answer.
    Mismatch(Failure),
    /// The API server did not answer, or was overloaded. A later attempt may succeed.
    Unavailable(Failure),
    /// It refused the event, and would refuse it again.
    Refused(Failure),
}

/// The request that creates the event.
#[must_use]
pub fn create(event: &CorrelatedEvent) -> Request {
    let involved = &event.involved;
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": event.name,
            "namespace": Event::namespace(involved),
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
        "firstTimestamp": time(event.first),
        "lastTimestamp": time(event.last),
    });
    request(Method::Post, event, "", JSON, &body)
}

/// The answer to [`create`].
#[must_use]
pub fn created(event: &CorrelatedEvent, answer: Result<&[u8], &RequestError>) -> EventAnswer {
    let is_there = matches!(answer, Err(RequestError::Refused(refused)) if already_exists(refused));
    match failure(event, answer) {
        None => EventAnswer::Sent,
        Some(failure) if is_there => EventAnswer::Mismatch(failure),
        Some(failure) => failed(failure),
    }
}

/// The request that patches the event of its name.
#[must_use]
pub fn patch(event: &CorrelatedEvent) -> Request {
    let body = json!({
        "metadata": {"annotations": annotations(event)},
        "count": event.count,
        "lastTimestamp": time(event.last),
        "message": event.event.message,
    });
    let name = &event.name;
    request(Method::Patch, event, name, STRATEGIC_MERGE_PATCH, &body)
}

/// The answer to [`patch`].
#[must_use]
pub fn patched(event: &CorrelatedEvent, answer: Result<&[u8], &RequestError>) -> EventAnswer {
    match failure(event, answer) {
        None => EventAnswer::Sent,
        Some(failure) if failure.class == FailureClass::NotFound => EventAnswer::Mismatch(failure),
        Some(failure) => failed(failure),
    }
}

fn failure(event: &CorrelatedEvent, answer: Result<&[u8], &RequestError>) -> Option<Failure> {
    let attempt = Attempt {
        verb: "record an event on",
        object: &event.involved,
    };
    let error = answer.err()?;
    Some(error.failure(&attempt))
}

/// A conflict with a quota is a 409 too.
fn already_exists(refused: &ErrorResponse) -> bool {
    refused.code == 409 && refused.status.reason == "AlreadyExists"
}

fn failed(failure: Failure) -> EventAnswer {
    match failure.class {
        FailureClass::Timeout | FailureClass::Throttled => EventAnswer::Unavailable(failure),
        _ => EventAnswer::Refused(failure),
    }
}

/// The decision that caused the last occurrence.
fn annotations(event: &CorrelatedEvent) -> Value {
    match &event.decision {
        None => json!({}),
        Some(Decision { revision, id, .. }) => json!({
            "davit.dev/revision": revision,
            "davit.dev/decision": id,
        }),
    }
}

fn request(
    method: Method,
    event: &CorrelatedEvent,
    name: &str,
    content_type: &'static str,
    body: &Value,
) -> Request {
    let events = ApiResource::new("", "v1", "events");
    Request {
        method,
        uri: path(&events, Event::namespace(&event.involved), name, ""),
        accept: JSON,
        content_type,
        body: body.to_string().into_bytes(),
    }
}
