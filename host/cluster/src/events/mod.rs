//! The recorder of core/v1 `Event`s about the targets of plans.
//!
//! Events have the lowest priority: no plan waits for an event, and no plan fails
//! because an event fails. Metrics count the events that are not sent.

mod backlog;
mod correlate;
mod lru;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use davit_core::failure::FailureClass;
use davit_core::object::{ApiResource, ObjectRef};
use davit_core::plan::Event;
use davit_core::request::{Attempt, JSON, Method, Request, RequestError, path};
use davit_core::throttle::Throttle;
use davit_core::traffic::MOST_EVENTS;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep_until, timeout};

pub use correlate::{CorrelatedEvent, Correlator, Occurrence};

use crate::api::{Api, Course};
use backlog::{Backlog, CAPACITY, QueuedEvent};

/// How many events are sent at once during a flush.
const MOST_WHILE_FLUSHING: usize = 64;

/// Records events. Clones share one queue. Its worker stops when the last clone is
/// dropped and the queue is empty.
#[derive(Clone)]
pub struct Recorder {
    api: Api,
    shared: Arc<Shared>,
    _open: mpsc::Sender<()>,
}

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

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventStats {
    /// Sent.
    pub sent: u64,
    /// Dropped by the spam filter, or because a controller sends too many.
    pub suppressed: u64,
    /// Refused by the API server, or dropped because it could not be reached.
    pub failed: u64,
    /// Dropped because the queue was full, or because the host stopped.
    pub dropped: u64,
    /// Not sent yet.
    pub waiting: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the worker.
    changed: Notify,
    /// The queue is empty.
    emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    correlator: Correlator,
    backlog: Backlog,
    stats: EventStats,
    troubles: Throttle<&'static str>,
    flushing: bool,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorder").field(&self.stats()).finish()
    }
}

impl Recorder {
    /// Starts the worker that sends events, in a task of tokio's.
    #[must_use]
    pub fn start(api: Api) -> Self {
        let shared = Arc::<Shared>::default();
        let (open, closed) = mpsc::channel(1);
        tokio::spawn(work(api.clone(), Arc::clone(&shared), closed));
        Self {
            api,
            shared,
            _open: open,
        }
    }

    /// Records an event about an object. Never waits: if the queue is full, the event
    /// is dropped. The event's annotations name the decision.
    pub fn record(&self, involved: &ObjectRef, event: &Event, decision: Option<&Decision>) {
        let occurrence = Occurrence {
            involved: involved.clone(),
            event: event.clone(),
            decision: decision.cloned(),
        };
        let now = self.api.clock().instant();
        let mut state = self.shared.state();
        let Some(correlated) = state
            .correlator
            .correlate(occurrence, Timestamp::now(), now)
        else {
            state.stats.suppressed += 1;
            return;
        };
        if state.backlog.push(correlated).is_ok() {
            drop(state);
            self.shared.changed.notify_one();
            return;
        }
        state.stats.dropped += 1;
        if let Some(left_out) = state.troubles.admit("full", now) {
            tracing::warn!(
                object = %involved,
                reason = event.reason,
                "an event was dropped: {CAPACITY} are waiting to be sent{left_out}"
            );
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> EventStats {
        let state = self.shared.state();
        EventStats {
            waiting: state.backlog.len() as u64,
            ..state.stats
        }
    }

    /// Sends the queued events as fast as the server accepts them, for a host that
    /// stops. After `within`, drops the rest.
    pub async fn flush(&self, within: Duration) {
        self.shared.state().flushing = true;
        self.api.flush_events();
        self.shared.changed.notify_one();
        let emptied = async {
            while self.shared.state().backlog.len() > 0 {
                self.shared.emptied.notified().await;
            }
        };
        if timeout(within, emptied).await.is_ok() {
            return;
        }
        let mut state = self.shared.state();
        let left = state.backlog.len();
        state.stats.dropped += left as u64;
        tracing::warn!("{left} events were dropped: they could not be sent within {within:?}");
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends queued events, a few at once.
async fn work(api: Api, shared: Arc<Shared>, mut closed: mpsc::Receiver<()>) {
    let mut under_way = FuturesUnordered::new();
    let mut is_closed = false;
    let clock = api.clock();
    loop {
        let again = {
            let mut state = shared.state();
            let most = if state.flushing {
                MOST_WHILE_FLUSHING
            } else {
                MOST_EVENTS
            };
            while state.backlog.sending() < most
                && let Some(event) = state.backlog.take(clock.instant())
            {
                under_way.push(send(&api, event));
            }
            if state.backlog.len() == 0 {
                shared.emptied.notify_one();
                if is_closed {
                    return;
                }
            }
            state.backlog.poll_timeout()
        };
        let again = clock.deadline(again.unwrap_or(davit_core::time::Instant::FAR_FUTURE));
        tokio::select! {
            Some((event, sent)) = under_way.next() => shared.state().take_end(&api, event, sent),
            () = shared.changed.notified() => {}
            () = sleep_until(again) => {}
            _ = closed.recv(), if !is_closed => is_closed = true,
        }
    }
}

/// Sends one event: patches the event of its name, if the API server has one.
async fn send(api: &Api, waiting: QueuedEvent) -> (QueuedEvent, Result<Bytes, RequestError>) {
    let event = &waiting.event;
    let mut course = Course::of_events();
    let sent = if waiting.is_known {
        let patched = api.call(&patch(event), &mut course).await;
        if is_not_found(&patched) {
            api.call(&create(event), &mut course).await
        } else {
            patched
        }
    } else {
        api.call(&create(event), &mut course).await
    };
    (waiting, sent)
}

impl State {
    fn take_end(&mut self, api: &Api, waiting: QueuedEvent, sent: Result<Bytes, RequestError>) {
        let now = api.clock().instant();
        let involved = waiting.event.involved.clone();
        let attempt = Attempt {
            verb: "record an event on",
            object: &involved,
        };
        let failure = match sent {
            Ok(_) => {
                self.stats.sent += 1;
                self.backlog.done(&involved);
                return;
            }
            Err(error) => error.failure(&attempt),
        };
        let can_be_mended = [FailureClass::Timeout, FailureClass::Throttled];
        if can_be_mended.contains(&failure.class) {
            tracing::debug!("{}", failure.message);
            if self.backlog.retry(waiting, now).is_none() {
                return;
            }
        } else {
            self.backlog.done(&involved);
        }
        self.stats.failed += 1;
        if let Some(left_out) = self.troubles.admit(failure.class.as_str(), now) {
            tracing::warn!("{}: the event is dropped{left_out}", failure.message);
        }
    }
}

fn is_not_found(sent: &Result<Bytes, RequestError>) -> bool {
    matches!(sent, Err(RequestError::Refused(refused)) if refused.class() == FailureClass::NotFound)
}

fn create(event: &CorrelatedEvent) -> Request {
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
        "firstTimestamp": seconds(event.first),
        "lastTimestamp": seconds(event.last),
    });
    request(Method::Post, event, "", JSON, &body)
}

fn patch(event: &CorrelatedEvent) -> Request {
    let body = json!({
        "metadata": {"annotations": annotations(event)},
        "count": event.count,
        "lastTimestamp": seconds(event.last),
        "message": event.event.message,
    });
    let media_type = "application/strategic-merge-patch+json";
    request(Method::Patch, event, &event.name, media_type, &body)
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
        body: body.to_string().into(),
    }
}

/// Kubernetes' `Time` has no fractions of a second.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}
