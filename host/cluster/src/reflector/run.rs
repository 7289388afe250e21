//! The loop of one reflector.

use std::time::Duration;

use davit_core::project::Projector;
use davit_core::stream::{Batch, StreamId, StreamSpec, Update};
use davit_core::watch::{Output, Settings, Watch};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::exchange::{Answer, Exchange};
use crate::api::Api;
use crate::clock::Clock;

/// The most updates that wait for room in the channel. At this number the reflector
/// stops reading, so that the server slows down.
const LARGEST_BATCH: usize = 2048;

/// How long the changes of Leases wait for others. The kubelet of each node renews one every ten
/// seconds: with 5,000 nodes, the host's loop is woken ten times a second instead of 500. Nobody
/// decides within a tenth of a second that a node is silent. The reflector reads on meanwhile: a
/// connection of HTTP/1 has only one change ready at a time, so that to read all of them in the
/// end would get two.
const LEASES_PAUSE: Duration = Duration::from_millis(100);

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
    /// Until then they wait for others, if there are any. The first update of a batch sets it.
    pause: Option<Instant>,
}

impl Run {
    pub(super) fn new(api: &Api, spec: StreamSpec, settings: Settings, seed: u64) -> Self {
        let clock = api.clock();
        Self {
            api: api.clone(),
            clock,
            projector: Projector::new(spec.fields.clone()),
            machine: Watch::new(settings, seed, clock.instant()),
            spec,
            exchange: None,
            batch: Vec::new(),
            pause: None,
        }
    }

    /// Runs until the receiver is dropped. Cancel-safe at every await.
    pub(super) async fn until_unread(mut self, stream: StreamId, updates: mpsc::Sender<Batch>) {
        loop {
            let before = self.batch.len();
            self.execute_outputs();
            self.pause_for_leases(before);
            let is_full = self.batch.len() >= LARGEST_BATCH;
            let pause = self.pause.filter(|end| !is_full && *end > Instant::now());
            let is_sending = !self.batch.is_empty() && pause.is_none();
            let is_reading = self.exchange.is_some() && !is_full;
            let deadline = self.clock.deadline(self.machine.poll_timeout());
            let wake = pause.map_or(deadline, |end| end.min(deadline));
            // In this order: received data has priority over the timer for silence.
            tokio::select! {
                biased;
                room = updates.reserve(), if is_sending => match room {
                    Ok(room) => room.send(Batch {
                        stream,
                        updates: std::mem::take(&mut self.batch),
                    }),
                    Err(_) => return,
                },
                answer = next(&mut self.exchange, &mut self.projector), if is_reading => {
                    self.take(answer);
                }
                () = sleep_until(wake), if !is_full => {
                    self.machine.handle_timeout(self.clock.instant());
                }
            }
        }
    }

    /// Starts a pause with the first change of a Lease in a batch that had so many updates, and
    /// ends it with anything else.
    fn pause_for_leases(&mut self, before: usize) {
        let added = self.batch.get(before..).unwrap_or_default();
        if added.is_empty() || !self.spec.resource.are_leases() {
            return;
        }
        let is_change = |update: &Update| matches!(update, Update::Apply(_));
        if !added.iter().all(is_change) {
            self.pause = None;
        } else if before == 0 {
            self.pause = Some(Instant::now() + LEASES_PAUSE);
        }
    }

    /// Executes the outputs of the state machine.
    fn execute_outputs(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            let update = match output {
                Output::Send(request) => {
                    tracing::debug!(resource = %self.spec.resource, ?request, "watch");
                    self.exchange = Some(Exchange::start(&self.api, &self.spec, &request));
                    continue;
                }
                Output::Abandon => {
                    self.exchange = None;
                    continue;
                }
                Output::Reset {
                    items,
                    resource_version,
                } => Update::Reset {
                    items,
                    resource_version,
                },
                Output::Apply(object) => Update::Apply(object),
                Output::Delete(object) => Update::Delete(object),
                Output::Condition(condition) => Update::Status(condition),
            };
            self.batch.push(update);
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
