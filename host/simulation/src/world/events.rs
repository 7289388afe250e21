//! Events: the recorder of a host, its requests, and what an observer of them checks.

use std::collections::{BTreeMap, BTreeSet};

use davit_core::events::{Decision, Effect, EventStats, Occurrence, Recorder, SendId};
use davit_core::object::ObjectRef;
use davit_core::plan::Event;
use davit_core::request::call::Sender;
use davit_core::request::{Method, Request, RequestError};
use davit_core::time::Instant;
use davit_core::traffic::Urgency;
use serde_json::Value;

use super::in_flight::Caller;
use super::{Link, ScheduledEvent, World};

/// The events of one run of a host.
#[derive(Debug, Default)]
pub(super) struct HostEvents {
    pub(super) recorder: Recorder,
    /// How many events the host has recorded.
    recorded: u64,
    /// When the recorder is polled next, on the world's clock.
    alarm: Option<Instant>,
    ledger: Ledger,
}

/// What the API server has, as far as its answers say.
#[derive(Debug, Default)]
struct Ledger {
    /// The name of each series.
    names: BTreeMap<String, String>,
    /// The names of the events that the API server has.
    there: BTreeSet<String>,
    /// The requests without an answer, each with the name of its event.
    sent: BTreeMap<SendId, (Method, String)>,
}

impl HostEvents {
    /// Every event is counted once.
    fn miscount(&self) -> Option<String> {
        let stats = self.recorder.stats();
        let counted = stats.sent
            + stats.merged
            + stats.suppressed
            + stats.failed
            + stats.dropped
            + stats.waiting;
        let recorded = self.recorded;
        (counted != recorded)
            .then(|| format!("{recorded} events were recorded, and {counted} counted: {stats:?}"))
    }
}

impl Ledger {
    /// A request is sent. Returns a problem if its series has an event already.
    fn sent(&mut self, id: SendId, request: &Request) -> Option<String> {
        if request.method != Method::Post {
            let name = request.uri.rsplit('/').next().unwrap_or_default();
            self.sent.insert(id, (request.method, name.to_owned()));
            return None;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let name = body.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let series = ["involvedObject", "source", "type", "reason", "message"];
        let series = series.iter().filter_map(|field| body.get(*field));
        let series: String = series.map(ToString::to_string).collect();
        let first = self.names.entry(series).or_insert_with(|| name.clone());
        let is_repeated = *first != name || self.there.contains(&name);
        self.sent.insert(id, (request.method, name));
        is_repeated.then(|| format!("the event {first} is created again by {request}: {body}"))
    }

    fn answered(&mut self, id: SendId, result: &Result<Vec<u8>, RequestError>) {
        match (self.sent.remove(&id), result) {
            (Some((_, name)), Ok(_)) => {
                self.there.insert(name);
            }
            // It was deleted with its namespace.
            (Some((Method::Patch, name)), Err(error)) if error.is_not_found() => {
                self.there.remove(&name);
            }
            _ => {}
        }
    }
}

impl World {
    /// The counts of events of all hosts. Those that a crashed host had not sent count as
    /// waiting.
    #[must_use]
    pub fn event_stats(&self) -> EventStats {
        let running = self.clients.iter().map(|one| one.events.recorder.stats());
        running.fold(self.shared.lost_events, sum)
    }

    /// How many events the running hosts have not sent yet.
    #[must_use]
    pub fn waiting_events(&self) -> u64 {
        let running = self.clients.iter();
        running.map(|one| one.events.recorder.stats().waiting).sum()
    }

    /// Checks the counts of the events that the hosts have recorded.
    pub fn check_events(&mut self) {
        let clients = self.clients.iter();
        let problems: Vec<String> = clients
            .filter_map(|client| client.events.miscount())
            .collect();
        for problem in problems {
            self.shared.violated(problem);
        }
    }
}

impl Link<'_> {
    /// Records an event. It is sent when no other request waits.
    pub(crate) fn record(
        &mut self,
        involved: &ObjectRef,
        event: Event,
        decision: Option<&Decision>,
    ) {
        let now = self.now();
        let events = &mut self.client.events;
        events.recorded += 1;
        let occurrence = Occurrence {
            involved: involved.clone(),
            event,
            decision: decision.cloned(),
        };
        events.recorder.record(occurrence, now);
        self.send_events();
    }

    /// The recorder's time has come.
    pub(super) fn events_due(&mut self) {
        self.client.events.alarm = None;
        self.send_events();
    }

    pub(super) fn event_answered(&mut self, id: SendId, result: &Result<Vec<u8>, RequestError>) {
        let now = self.now().instant;
        let events = &mut self.client.events;
        events.ledger.answered(id, result);
        let answer = result.as_ref().map(Vec::as_slice);
        events.recorder.handle(id, answer, now);
        self.send_events();
    }

    /// The events of a host that crashes are lost.
    pub(super) fn lose_events(&mut self) {
        if let Some(problem) = self.client.events.miscount() {
            self.shared.violated(problem);
        }
        let lost = std::mem::take(&mut self.client.events);
        self.shared.lost_events = sum(self.shared.lost_events, lost.recorder.stats());
    }

    fn send_events(&mut self) {
        let now = self.now().instant;
        while let Some(effect) = self.client.events.recorder.poll(now) {
            match effect {
                Effect::Send { id, request } => {
                    if let Some(problem) = self.client.events.ledger.sent(id, &request) {
                        self.shared.violated(problem);
                    }
                    let caller = Caller::Event(id);
                    self.ask(caller, &Sender::default(), Urgency::Event, request);
                }
                Effect::Report(report) => self.note(format_args!("{report:?}")),
            }
        }
        let Some(wake) = self.client.events.recorder.next_wake() else {
            return;
        };
        let at = self.client.clocks.world(wake);
        if self.client.events.alarm.is_none_or(|alarm| at < alarm) {
            self.client.events.alarm = Some(at);
            self.schedule_at(at, ScheduledEvent::SendEvents(self.client.incarnation));
        }
    }
}

fn sum(one: EventStats, other: EventStats) -> EventStats {
    EventStats {
        sent: one.sent + other.sent,
        merged: one.merged + other.merged,
        suppressed: one.suppressed + other.suppressed,
        failed: one.failed + other.failed,
        dropped: one.dropped + other.dropped,
        waiting: one.waiting + other.waiting,
    }
}
