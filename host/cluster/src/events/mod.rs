//! The driver of core's recorder of events: it sends the requests that the recorder
//! returns, and polls it at its time.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use davit_core::events::{self, Decision, Effect, EventStats, Occurrence, Report, SendId};
use davit_core::object::ObjectRef;
use davit_core::plan::Event;
use davit_core::request::{Request, RequestError};
use davit_core::time::Instant;
use davit_core::traffic::Urgency;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep_until;

use crate::api::Api;

/// Records events. Clones share one queue. Its worker stops when the last clone is
/// dropped and the queue is empty.
#[derive(Clone)]
pub struct Recorder {
    api: Api,
    shared: Arc<EventQueue>,
    flushes: mpsc::UnboundedSender<FlushEnd>,
}

/// The worker drops it when a flush ends.
type FlushEnd = oneshot::Sender<()>;

#[derive(Debug, Default)]
struct EventQueue {
    recorder: Mutex<events::Recorder>,
    /// Wakes the worker.
    changed: Notify,
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
        let shared = Arc::<EventQueue>::default();
        let (flushes, requested) = mpsc::unbounded_channel();
        tokio::spawn(work(api.clone(), Arc::clone(&shared), requested));
        Self {
            api,
            shared,
            flushes,
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
        let now = self.api.clock().now();
        self.shared.recorder().record(occurrence, now);
        self.shared.changed.notify_one();
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> EventStats {
        self.shared.recorder().stats()
    }

    /// Sends the queued events as fast as the server accepts them, for a host that
    /// stops. After `within`, drops the rest.
    pub async fn flush(&self, within: Duration) {
        self.api.flush_events();
        let now = self.api.clock().instant();
        self.shared.recorder().flush(within, now);
        let (end, ended) = oneshot::channel();
        // Both fail if the worker has ended: then nothing is sent any more.
        let _ = self.flushes.send(end);
        let _ = ended.await;
    }
}

impl EventQueue {
    fn recorder(&self) -> MutexGuard<'_, events::Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Executes the recorder's effects.
async fn work(api: Api, shared: Arc<EventQueue>, mut requested: mpsc::UnboundedReceiver<FlushEnd>) {
    let clock = api.clock();
    let mut under_way = FuturesUnordered::new();
    let mut flushes = Vec::new();
    let mut is_closed = false;
    loop {
        let wake = {
            let mut recorder = shared.recorder();
            while let Some(effect) = recorder.poll(clock.instant()) {
                match effect {
                    Effect::Send { id, request } => under_way.push(send(&api, id, request)),
                    Effect::Report(report) => log(&report),
                }
            }
            if !recorder.is_flushing() {
                flushes.clear();
            }
            if is_closed && recorder.is_empty() {
                return;
            }
            recorder.next_wake()
        };
        let wake = clock.deadline(wake.unwrap_or(Instant::FAR_FUTURE));
        tokio::select! {
            Some((id, answer)) = under_way.next() => {
                shared.recorder().handle(id, answer.as_deref(), clock.instant());
            }
            () = shared.changed.notified() => {}
            () = sleep_until(wake) => {}
            flush = requested.recv(), if !is_closed => {
                is_closed = flush.is_none();
                flushes.extend(flush);
            }
        }
    }
}

async fn send(api: &Api, id: SendId, request: Request) -> (SendId, Result<Bytes, RequestError>) {
    (id, api.send_in_turn(&request, Urgency::Event).await)
}

fn log(report: &Report) {
    match report {
        Report::Full {
            object,
            reason,
            waiting,
            suppressed,
        } => tracing::warn!(
            %object,
            reason,
            "an event was dropped: {waiting} are waiting to be sent{suppressed}"
        ),
        Report::Retried { message } => tracing::debug!("{message}"),
        Report::Failed {
            message,
            suppressed,
        } => tracing::warn!("{message}: the event is dropped{suppressed}"),
        Report::Left { count, within } => {
            tracing::warn!("{count} events were dropped: they could not be sent within {within:?}");
        }
    }
}
