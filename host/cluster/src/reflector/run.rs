//! The loop of one reflector.

use davit_core::path::FieldTree;
use davit_core::project::Projector;
use davit_core::stream::{Batch, StreamId, StreamSpec, Update};
use davit_core::watch::{Output, Settings, Watch};
use tokio::sync::mpsc;
use tokio::task::consume_budget;
use tokio::time::sleep_until;

use super::exchange::{Answer, Exchange};
use crate::api::Api;
use crate::clock::Clock;

/// The most updates that wait for room in the channel. At this number the reflector
/// stops reading, so that the server slows down.
const LARGEST_BATCH: usize = 2048;

/// One running reflector.
pub(super) struct Run {
    api: Api,
    clock: Clock,
    spec: StreamSpec,
    projector: Projector,
    machine: Watch,
    exchange: Option<Exchange>,
    /// The updates that wait for room in the channel.
    batch: Vec<Update>,
}

impl Run {
    pub(super) fn new(api: &Api, spec: StreamSpec, settings: Settings, seed: u64) -> Self {
        let clock = api.clock();
        Self {
            api: api.clone(),
            clock,
            projector: if spec.fields == FieldTree::All {
                Projector::verbatim()
            } else {
                Projector::new(spec.fields.clone())
            },
            machine: Watch::new(settings, seed, clock.instant()),
            spec,
            exchange: None,
            batch: Vec::new(),
        }
    }

    /// Runs until the receiver is dropped. Cancel-safe at every await.
    pub(super) async fn until_unread(mut self, stream: StreamId, updates: mpsc::Sender<Batch>) {
        loop {
            self.execute_outputs();
            let is_complete = self.batch.len() >= LARGEST_BATCH || self.ends_gap();
            let is_reading = self.exchange.is_some() && !is_complete;
            let deadline = self.clock.deadline(self.machine.poll_timeout());
            // In this order: what has been received is one batch, and has priority over the timer
            // for silence.
            tokio::select! {
                biased;
                answer = next(&mut self.exchange, &mut self.projector), if is_reading => {
                    self.take(answer);
                    // A connection with much to read must not keep others from this thread.
                    consume_budget().await;
                }
                room = updates.reserve(), if !self.batch.is_empty() => match room {
                    Ok(room) => room.send(Batch {
                        stream,
                        updates: std::mem::take(&mut self.batch),
                    }),
                    Err(_) => return,
                },
                () = sleep_until(deadline), if !is_complete => {
                    self.machine.handle_timeout(self.clock.instant());
                }
            }
        }
    }

    /// Whether a batch ends with what says what the cache knows. The host's time for it, which a
    /// journal has, must be before that of the changes that the watch brings.
    fn ends_gap(&self) -> bool {
        let last = self.batch.last();
        last.is_some_and(|last| matches!(last, Update::Status(_) | Update::Reset { .. }))
    }

    /// Executes the outputs of the state machine.
    fn execute_outputs(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                Output::Send(request) => {
                    tracing::debug!(resource = %self.spec.resource, ?request, "watch");
                    self.exchange = Some(Exchange::start(&self.api, &self.spec, &request));
                }
                Output::Abandon => self.exchange = None,
                Output::Update(update) => self.batch.push(update),
            }
        }
    }

    fn take(&mut self, answer: Answer) {
        let now = self.clock.instant();
        match answer {
            Answer::Page(page) => {
                self.exchange = None;
                self.machine.handle_page(page, now);
            }
            Answer::Opened => self.machine.handle_opened(now),
            Answer::Events(events) => {
                self.machine.handle_bytes(now);
                for event in events {
                    self.machine.handle_event(event, now);
                }
            }
            Answer::End => {
                self.exchange = None;
                self.machine.handle_end(now);
            }
            Answer::Interrupted(interruption) => {
                self.exchange = None;
                self.machine.handle_interruption(&interruption, now);
            }
        }
    }
}

async fn next(exchange: &mut Option<Exchange>, projector: &mut Projector) -> Answer {
    match exchange {
        Some(exchange) => exchange.next(projector).await,
        None => std::future::pending().await,
    }
}
