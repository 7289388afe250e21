//! Events: the recorder of a host, and its requests.

use davit_core::events::{Decision, Effect, EventStats, Occurrence, SendId};
use davit_core::object::ObjectRef;
use davit_core::plan::Event;
use davit_core::request::RequestError;
use davit_core::request::call::Sender;
use davit_core::traffic::Urgency;

use super::in_flight::Caller;
use super::{Link, ScheduledEvent, World};

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
