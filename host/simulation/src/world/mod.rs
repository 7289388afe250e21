//! The world: time, the server, and the requests between the server and its hosts.

mod calls;
mod client;
mod conditions;
mod discovery;
mod event_ledger;
mod events;
mod in_flight;
mod leases;
mod plans;
mod reach;
mod reads;
mod records;
mod reviews;
mod shared;
mod streams;
mod undo;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use davit_core::control::ReviewId;
use davit_core::election::{LeaseAnswer, LeaseRequestId};
use davit_core::events::EventStats;
use davit_core::machine::Input;
use davit_core::manifest::Rate;
use davit_core::record::{RecordFailure, RecordId, RecordReceipt, StoredRecord};
use davit_core::request::RequestError;
use davit_core::request::review::{AccessReview, ReviewAnswer};
use davit_core::stream::StreamId;
use davit_core::time::{Instant, Now, Wall};
use davit_sim::fault::{Faults, WatchFault};
use davit_sim::{Model, RequestInfo, Time};

use crate::dice::Dice;
use crate::fault::FaultKind;
use crate::records::Records;
use crate::schedule::Schedule;
use crate::server::Server;
use crate::trace::Trace;
use client::{Client, Clocks};
pub use client::{Cut, Link};
pub use conditions::Conditions;
pub use in_flight::RecordWorkId;
use in_flight::{CallId, ExecutionId};
use shared::SharedWorld;
pub use shared::UndoneKinds;

/// Identifies a host of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostIndex(usize);

impl HostIndex {
    /// The host that every world has.
    pub const FIRST: Self = Self(0);

    /// So many hosts.
    pub(crate) fn first(count: usize) -> impl Iterator<Item = Self> {
        (0..count).map(Self)
    }

    /// The number of the host, from 0.
    #[must_use]
    pub fn number(self) -> usize {
        self.0
    }
}

/// Something that happens next in a world.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an occurrence is handled immediately, and most are notices"
)]
pub enum Occurrence {
    /// Something reaches a host.
    Notice(HostIndex, Notice),
    /// A reminder of the owner, with the number that the owner gave it.
    Reminder(u64),
}

/// Something that reaches a host.
#[derive(Debug)]
pub enum Notice {
    /// An input of the machine: the result of an effect that [`Link::perform`] took.
    Machine(Input),
    /// A read of a record ended.
    RecordRead {
        /// Identifies the read.
        id: RecordId,
        /// The name of the controller.
        controller: String,
        /// The record, or errors.
        record: Box<StoredRecord>,
        /// The number of decisions in the record when it was read.
        written: usize,
    },
    /// A request for a record was answered, or not. [`Link::record_answered`] takes the answer.
    RecordAnswered {
        /// Identifies the read or write.
        work: RecordWorkId,
        /// The answer.
        answer: Result<Vec<u8>, RequestError>,
    },
    /// A write to a record ended.
    RecordWritten {
        /// Identifies the write.
        id: RecordId,
        /// The name of the controller.
        controller: String,
        /// The result.
        result: Result<RecordReceipt, RecordFailure>,
        /// The number of decisions in the record by then; none if this write was no
        /// decision.
        written: Option<usize>,
    },
    /// A review of what an account may do ended.
    Reviewed {
        /// Identifies the review.
        id: ReviewId,
        /// The question.
        review: AccessReview,
        /// The answer, or why there is none.
        result: Result<ReviewAnswer, String>,
    },
    /// A request for leases ended.
    Lease {
        /// Identifies the request.
        id: LeaseRequestId,
        /// The answer.
        answer: LeaseAnswer,
    },
    /// A reminder, with the number that its owner gave it.
    Reminder(u64),
}

/// A write that reached the server.
#[derive(Clone, Debug)]
pub struct Write {
    /// When it reached the server.
    pub at: Instant,
    /// The name of the controller.
    pub controller: Arc<str>,
    /// The verb and the object.
    pub work: RequestInfo,
    /// The status code of the answer; 0 if the server never read the request.
    pub code: u16,
}

/// Everything outside of the hosts.
#[derive(Debug)]
pub struct World {
    shared: SharedWorld,
    clients: Vec<Client>,
    /// The owner's reminders that are due.
    reminders: VecDeque<u64>,
}

/// An event of the schedule.
#[derive(Clone, Copy, Debug)]
enum WorldEvent {
    Host(HostIndex, ScheduledEvent),
    /// A reminder for the owner.
    Remind(u64),
}

/// An event of one host.
#[derive(Clone, Copy, Debug)]
enum ScheduledEvent {
    /// A request reaches the server.
    Arrive(CallId),
    /// An answer reaches the host.
    Answer(CallId),
    /// The timer of a stream fires.
    StreamTimer(StreamId, u64),
    /// A watch delivers changes.
    Deliver(StreamId, u64),
    /// Waiting requests may have their turn.
    Turns,
    /// The answer of discovery reaches the host.
    Discover(u64),
    /// The recorder of events is due.
    SendEvents(u64),
    /// A call reaches the records of files, or its answer the host.
    RecordCall(u64),
    /// The disk has the copy of a plan's target.
    Copied(ExecutionId),
    /// A reminder of the host.
    Remind(u64, u64),
}

impl World {
    /// A world with one host, whose server has these objects. The clocks of server and host
    /// show this time.
    #[must_use]
    pub fn new(model: Model, start: Time, seed: u64, keep_trace: bool) -> Self {
        Self::with(model, start, Dice::new(seed), keep_trace)
    }

    /// A world without faults, delays and random draws.
    #[must_use]
    pub fn calm(model: Model, start: Time) -> Self {
        let mut world = Self::with(model, start, Dice::calm(), false);
        world.shared.conditions.latency = Duration::ZERO..Duration::ZERO;
        world.shared.conditions.lag = Duration::ZERO..Duration::ZERO;
        world
    }

    fn with(model: Model, start: Time, mut dice: Dice, keep_trace: bool) -> Self {
        let rate = dice.chance(0.3).then_some(Rate {
            per_second: 4.0,
            burst: 2,
        });
        let wall = Wall(start.unix().saturating_mul(1000));
        Self {
            shared: SharedWorld {
                instant: Instant::ZERO,
                base: start,
                server: Server::new(model, dice.bits()),
                dice,
                conditions: Conditions::default(),
                trace: Trace::new(keep_trace),
                schedule: Schedule::default(),
                records: Records::default(),
                status_reminders: Vec::new(),
                writes: Vec::new(),
                violations: Vec::new(),
                faults: BTreeMap::new(),
                lost_events: EventStats::default(),
                kept: BTreeSet::new(),
                undo: UndoneKinds::default(),
                last_id: 0,
            },
            clients: vec![Client::new(wall, rate)],
            reminders: VecDeque::new(),
        }
    }

    /// The link of a host.
    #[expect(clippy::indexing_slicing, reason = "an index comes from this world")]
    pub fn link(&mut self, host: HostIndex) -> Link<'_> {
        Link {
            host,
            client: &mut self.clients[host.0],
            shared: &mut self.shared,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "an index comes from this world")]
    fn client(&self, host: HostIndex) -> &Client {
        &self.clients[host.0]
    }

    /// Adds a host whose monotonic clock is too fast by so many parts per million.
    pub(crate) fn add_host(&mut self, drift: i32) -> HostIndex {
        let first = self.client(HostIndex::FIRST);
        let mut client = Client::new(first.clocks.wall, first.rate);
        client.clocks.drift = drift;
        self.clients.push(client);
        HostIndex(self.clients.len() - 1)
    }

    /// The owner gets these reminders after a change of a recorded status, each after the
    /// time that a watch takes.
    pub fn remind_of_statuses(&mut self, reminders: Vec<u64>) {
        self.shared.status_reminders = reminders;
    }

    /// The clocks of a host's machine.
    #[must_use]
    pub fn now_of(&self, host: HostIndex) -> Now {
        self.client(host).clocks.at(self.shared.instant)
    }

    /// The time since the start of the world when a host's monotonic clock shows this.
    pub(crate) fn world_time(&self, host: HostIndex, shown: Instant) -> Instant {
        self.client(host).clocks.world(shown)
    }

    /// Until when a host's process is suspended.
    pub(crate) fn suspended_until(&self, host: HostIndex) -> Instant {
        self.client(host).suspended_until
    }

    /// Whether a host's process is suspended.
    #[must_use]
    pub fn is_suspended(&self, host: HostIndex) -> bool {
        self.client(host).is_suspended(self.shared.instant)
    }

    /// The clocks of a host's machine, if it had never started again.
    pub(crate) fn steady_now_of(&self, host: HostIndex) -> Now {
        let clocks = self.client(host).clocks;
        let boot = Instant::ZERO;
        Clocks { boot, ..clocks }.at(self.shared.instant)
    }

    /// From now on, the network loses what a host sends or receives.
    pub fn cut(&mut self, host: HostIndex, cut: Cut) {
        let mut link = self.link(host);
        link.note(format_args!("the network: {cut:?}"));
        link.client.cut = cut;
        if cut.answers {
            link.disturb("", WatchFault::Silence);
        }
    }

    /// Whether the network loses anything of a host.
    #[must_use]
    pub fn is_cut(&self, host: HostIndex) -> bool {
        self.client(host).cut.is_any()
    }

    /// The process of a host is suspended: it does nothing until then.
    pub fn suspend(&mut self, host: HostIndex, time: Duration) {
        let until = self.shared.instant.after(time);
        let mut link = self.link(host);
        link.note(format_args!("the process is suspended for {time:?}"));
        link.client.suspended_until = until;
        if !time.is_zero() {
            self.count(FaultKind::Suspension);
        }
    }

    /// The host that leads a controller by its own clock and knowledge; none if none does.
    #[must_use]
    pub fn leader(&self, controller: &str) -> Option<HostIndex> {
        let leads = |client: &Client| {
            let now = client.clocks.at(self.shared.instant).instant;
            let until = client.terms.get(controller);
            until.is_some_and(|until| now < *until)
        };
        self.clients.iter().position(leads).map(HostIndex)
    }

    /// The machine of a host starts: the monotonic clock is at zero.
    pub fn reboot(&mut self, host: HostIndex) {
        let now = self.shared.instant;
        self.link(host).client.clocks.boot = now;
        self.count(FaultKind::Reboot);
    }

    /// The wall clock of a host jumps.
    pub fn shift_wall_clock(&mut self, host: HostIndex, millis: i64) {
        let mut link = self.link(host);
        let wall = &mut link.client.clocks.wall;
        wall.0 = wall.0.saturating_add(millis);
        link.note(format_args!("the wall clock jumps by {millis} ms"));
        self.count(FaultKind::ClockJump);
    }

    /// The time since the start of the world.
    #[must_use]
    pub fn instant(&self) -> Instant {
        self.shared.instant
    }

    /// The time of the server's clock. It never jumps.
    #[must_use]
    pub fn time(&self) -> Time {
        self.shared.time()
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        self.shared.note(what);
    }

    /// Everything that happened.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.shared.trace
    }

    /// The world's random draws.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.shared.dice
    }

    /// How well the network, the records and discovery work.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.shared.conditions
    }

    /// The same, for changes.
    pub fn conditions_mut(&mut self) -> &mut Conditions {
        &mut self.shared.conditions
    }

    /// The server's objects.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.shared.server.model
    }

    /// Changes the server's objects without a request. Watches deliver the changes.
    pub fn with_model<T>(&mut self, work: impl FnOnce(&mut Model, Time) -> T) -> T {
        let time = self.time();
        let result = work(&mut self.shared.server.model, time);
        self.schedule_deliveries();
        result
    }

    /// The records of controllers.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.shared.records
    }

    /// The same, for changes by others than the hosts.
    pub fn records_mut(&mut self) -> &mut Records {
        &mut self.shared.records
    }

    /// The faults of requests.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.shared.server.faults
    }

    /// A fault hits the open watches of a resource; of every resource, if it is empty.
    pub fn disturb(&mut self, plural: &str, fault: WatchFault) {
        let of = if plural.is_empty() {
            "every resource"
        } else {
            plural
        };
        self.note(format_args!("fault of the watches of {of}: {fault:?}"));
        if fault == WatchFault::Expire {
            self.shared.server.model.compact();
        }
        self.each_link(|link| link.disturb(plural, fault));
    }

    fn each_link(&mut self, mut work: impl FnMut(&mut Link<'_>)) {
        for (index, client) in self.clients.iter_mut().enumerate() {
            work(&mut Link {
                host: HostIndex(index),
                shared: &mut self.shared,
                client,
            });
        }
    }

    /// Every write that reached the server so far.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.shared.writes
    }

    /// The rules that the hosts broke.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.shared.violations
    }

    /// How often a fault occurred.
    #[must_use]
    pub fn fault_count(&self, fault: FaultKind) -> usize {
        self.shared.faults.get(&fault).copied().unwrap_or_default()
    }

    /// A fault occurs.
    pub(crate) fn count(&mut self, fault: FaultKind) {
        self.shared.count(fault);
    }

    /// A host broke a rule.
    pub fn violated(&mut self, what: String) {
        self.shared.violated(what);
    }

    /// Sets a reminder for the owner of the world. A crash of a host does not cancel the
    /// reminder.
    pub fn remind_owner(&mut self, at: Instant, what: u64) {
        self.shared.schedule(at, WorldEvent::Remind(what));
    }

    /// Advances time to what happens next; none if nothing does until this time.
    pub fn next(&mut self, until: Instant) -> Option<Occurrence> {
        loop {
            if let Some(occurrence) = self.take() {
                return Some(occurrence);
            }
            let Some((at, due)) = self.shared.schedule.take(until) else {
                self.shared.instant = self.shared.instant.max(until);
                return None;
            };
            self.shared.instant = self.shared.instant.max(at);
            self.handle(due);
        }
    }

    /// What has happened and nobody knows yet.
    fn take(&mut self) -> Option<Occurrence> {
        for (index, client) in self.clients.iter_mut().enumerate() {
            if client.is_suspended(self.shared.instant) {
                continue;
            }
            if let Some(notice) = client.notices.pop_front() {
                return Some(Occurrence::Notice(HostIndex(index), notice));
            }
        }
        self.reminders.pop_front().map(Occurrence::Reminder)
    }

    fn handle(&mut self, due: WorldEvent) {
        match due {
            WorldEvent::Remind(what) => self.reminders.push_back(what),
            WorldEvent::Host(host, event) => {
                self.link(host).handle_or_defer(event);
                self.schedule_deliveries();
            }
        }
    }

    /// Schedules deliveries for the watches of the changed collections.
    fn schedule_deliveries(&mut self) {
        for store in self.shared.server.model.take_touched() {
            self.each_link(|link| link.schedule_deliveries(&store));
        }
    }
}
