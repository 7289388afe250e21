//! Streams: their requests, their watches and their updates.

use davit_core::machine::Input;
use davit_core::request::RequestError;
use davit_core::stream::{Batch, StreamId, StreamSpec};
use davit_core::watch::Settings;
use davit_sim::fault::WatchFault;
use davit_sim::model::WatchStart;

use super::in_flight::{CallId, Caller};
use super::{Link, ScheduledEvent};
use crate::fault::FaultKind;
use crate::stream::{Stream, StreamEffect};

impl Link<'_> {
    /// Starts a stream. Its updates are [`Input::Stream`].
    pub(super) fn start_stream(&mut self, id: StreamId, spec: StreamSpec) {
        let settings = Settings {
            // The seed draws the kind of list.
            streaming_list: self.shared.dice.chance(0.7),
            page_size: if self.shared.dice.chance(0.3) { 5 } else { 500 },
            ..Settings::default()
        };
        let seed = self.shared.dice.bits();
        self.note(format_args!("stream {} of {} starts", id.0, spec.resource));
        let stream = Stream::new(spec, settings, seed, self.shared.instant);
        self.client.streams.insert(id, (stream, None));
        self.pump(id);
    }

    /// Stops a stream.
    pub(super) fn stop_stream(&mut self, id: StreamId) {
        if self.client.streams.remove(&id).is_some() {
            self.note(format_args!("stream {} stops", id.0));
        }
    }

    /// A fault hits the open watches of a resource; of every resource, if it is empty.
    pub(super) fn disturb(&mut self, plural: &str, fault: WatchFault) {
        let now = self.shared.instant;
        let ids: Vec<StreamId> = self.client.streams.keys().copied().collect();
        for id in ids {
            if let Some((stream, _)) = self.client.streams.get_mut(&id)
                && (plural.is_empty() || stream.spec.resource.plural == plural)
            {
                if stream.disturb(fault, now) {
                    self.shared.count(FaultKind::of_watch(fault));
                }
                self.pump(id);
            }
        }
    }

    pub(super) fn stream_timer(&mut self, id: StreamId) {
        let now = self.shared.instant;
        let interval = self.shared.server.model.config().bookmark_interval;
        if let Some((stream, _)) = self.client.streams.get_mut(&id)
            && stream.timer.take_if(|at| *at <= now).is_some()
        {
            stream.handle_timer(now, interval);
            self.pump(id);
        }
    }

    pub(super) fn deliver(&mut self, id: StreamId) {
        let (now, time) = (self.shared.instant, self.shared.time());
        let Some((stream, _)) = self.client.streams.get_mut(&id) else {
            return;
        };
        if stream.deliver(&self.shared.server.model, time, now) {
            self.schedule_delivery(id);
        }
        self.pump(id);
    }

    /// Schedules deliveries for the watches of a changed collection.
    pub(super) fn schedule_deliveries(&mut self, store: &str) {
        let streams = self.client.streams.iter_mut();
        let due: Vec<StreamId> = streams
            .filter_map(|(id, (stream, _))| stream.wants_delivery(Some(store)).then_some(*id))
            .collect();
        for id in due {
            self.schedule_delivery(id);
        }
    }

    fn schedule_delivery(&mut self, id: StreamId) {
        let starved = self.shared.dice.chance(self.shared.conditions.starve);
        let range = if starved {
            &self.shared.conditions.starvation
        } else {
            &self.shared.conditions.lag
        };
        let lag = self.shared.dice.duration(range);
        if starved {
            self.shared.count(FaultKind::LateEvent);
        }
        self.schedule(lag, ScheduledEvent::Deliver(id, self.client.incarnation));
    }

    pub(super) fn watch_opened(
        &mut self,
        id: StreamId,
        call: CallId,
        start: WatchStart,
        planned: Option<(usize, WatchFault)>,
    ) {
        let now = self.shared.instant;
        let interval = self.shared.server.model.config().bookmark_interval;
        let Some((stream, _)) = self
            .client
            .streams
            .get_mut(&id)
            .filter(|(_, under_way)| *under_way == Some(call))
        else {
            return;
        };
        stream.handle_opened(start, planned, now, interval);
        if stream.wants_delivery(None) {
            self.schedule_delivery(id);
        }
        self.pump(id);
    }

    pub(super) fn stream_answered(
        &mut self,
        id: StreamId,
        call: CallId,
        caller: Caller,
        result: Result<Vec<u8>, RequestError>,
    ) {
        let now = self.shared.instant;
        let Some((stream, under_way)) = self.client.streams.get_mut(&id) else {
            return;
        };
        if under_way.take_if(|it| *it == call).is_none() {
            return;
        }
        match (caller, result) {
            (Caller::Page(_), result) => stream.handle_page(result, now),
            (_, Err(error)) => stream.handle_refused(error, now),
            (_, Ok(_)) => {
                let strange = crate::server::reset("no watch");
                stream.handle_refused(strange, now);
            }
        }
        self.pump(id);
    }

    /// Executes the effects of a stream, passes its updates on, and sets its timer.
    fn pump(&mut self, id: StreamId) {
        loop {
            let Some((stream, under_way)) = self.client.streams.get_mut(&id) else {
                return;
            };
            match stream.poll() {
                None => break,
                Some(StreamEffect::Abandon) => *under_way = None,
                Some(StreamEffect::Send(request, is_page)) => {
                    let caller = if is_page {
                        Caller::Page(id)
                    } else {
                        Caller::Watch(id)
                    };
                    self.send_at_once(caller, request);
                    let call = self.last_call();
                    if let Some((_, under_way)) = self.client.streams.get_mut(&id) {
                        *under_way = Some(call);
                    }
                }
            }
        }
        let Some((stream, _)) = self.client.streams.get_mut(&id) else {
            return;
        };
        let updates = stream.take_updates();
        let next = stream.next_at();
        let set = stream.timer.is_none_or(|at| next < at);
        if set {
            stream.timer = Some(next);
            let due = ScheduledEvent::StreamTimer(id, self.client.incarnation);
            self.schedule_at(next, due);
        }
        if !updates.is_empty() {
            let stream = id;
            self.report_result(Input::Stream(Batch { stream, updates }));
        }
    }
}
