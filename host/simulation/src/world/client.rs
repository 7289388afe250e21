//! One host's side of the network: its clocks, its streams, and its requests.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use davit_core::control::ReviewId;
use davit_core::election::{LeaseRequest, LeaseRequestId};
use davit_core::machine::{Effect, Input, ReadId};
use davit_core::manifest::Rate;
use davit_core::reach::Reachability;
use davit_core::request::Request;
use davit_core::request::review::AccessReview;
use davit_core::stream::StreamId;
use davit_core::time::{Instant, Now, Wall};
use davit_core::traffic::{Ticket, Traffic};

use super::event_ledger::HostEvents;
use super::in_flight::{
    CallId, Exchange, Execution, ExecutionId, LiveRead, RecordCall, RecordWork, RecordWorkId,
    Waiter,
};
use super::shared::SharedWorld;
use super::{HostIndex, Notice, ScheduledEvent, WorldEvent};
use crate::stream::Stream;

/// What one host has under way, and what keeps it from the server.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) clocks: Clocks,
    /// The directions in which the network loses everything.
    pub(super) cut: Cut,
    /// Until when the host's process is suspended.
    pub(super) suspended_until: Instant,
    pub(super) notices: VecDeque<Notice>,
    /// The streams, each with its request that has no answer yet.
    pub(super) streams: BTreeMap<StreamId, (Stream, Option<CallId>)>,
    pub(super) exchanges: BTreeMap<CallId, Exchange>,
    /// The client-side rate; most worlds have none.
    pub(super) rate: Option<Rate>,
    pub(super) traffic: Traffic,
    pub(super) waiting: BTreeMap<Ticket, Waiter>,
    pub(super) events: HostEvents,
    pub(super) executions: BTreeMap<ExecutionId, Execution>,
    pub(super) readings: BTreeMap<ReadId, LiveRead>,
    pub(super) reviews: BTreeMap<ReviewId, AccessReview>,
    pub(super) lease_requests: BTreeMap<LeaseRequestId, LeaseRequest>,
    /// The identity of this run of the host in leases; none without leader election.
    pub(super) identity: Option<String>,
    /// Until when requests of each controller may be sent, on the host's clock.
    pub(super) terms: BTreeMap<String, Instant>,
    pub(super) record_calls: BTreeMap<u64, RecordCall>,
    pub(super) record_work: BTreeMap<RecordWorkId, RecordWork>,
    /// Requests for records that reach the server after the host has stopped waiting, each with
    /// the time at which it was sent.
    pub(super) late_records: BTreeMap<CallId, (Request, Instant)>,
    /// Whether the server answers.
    pub(super) reach: Reachability,
    /// The number of crashes. Answers to requests of an earlier run reach nobody.
    pub(super) incarnation: u64,
}

/// The clocks of a host's machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// When the monotonic clock was at zero, on the world's clock.
    pub(super) boot: Instant,
    /// By how many parts per million the monotonic clock is too fast.
    pub(super) drift: i32,
    /// The time of the wall clock when the world's clock is at zero.
    pub(super) wall: Wall,
}

/// The directions in which the network loses everything, until the partition ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Requests to the server.
    pub requests: bool,
    /// Answers and watches.
    pub answers: bool,
}

/// The link of one host with the rest of the world.
pub struct Link<'a> {
    pub(super) host: HostIndex,
    pub(super) shared: &'a mut SharedWorld,
    pub(super) client: &'a mut Client,
}

impl fmt::Debug for Link<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Link").field(&self.host).finish()
    }
}

impl Cut {
    /// Everything is lost.
    pub const BOTH: Self = Self {
        requests: true,
        answers: true,
    };

    pub(super) fn is_any(self) -> bool {
        self.requests || self.answers
    }
}

const MILLION: u32 = 1_000_000;

impl Clocks {
    /// The rate of the monotonic clock, in parts per million.
    fn rate(self) -> u128 {
        u128::from(MILLION.saturating_add_signed(self.drift).max(1))
    }

    /// The clocks at a time of the world.
    pub(super) fn at(self, world: Instant) -> Now {
        let since = world.as_nanos().saturating_sub(self.boot.as_nanos());
        let shown = u128::from(since) * self.rate() / u128::from(MILLION);
        let millis = i64::try_from(world.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        Now {
            instant: Instant::from_nanos(u64::try_from(shown).unwrap_or(u64::MAX)),
            wall: Wall(self.wall.0.saturating_add(millis)),
        }
    }

    /// The first time of the world at which the monotonic clock shows at least this.
    pub(super) fn world(self, shown: Instant) -> Instant {
        let since = (u128::from(shown.as_nanos()) * u128::from(MILLION)).div_ceil(self.rate());
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        Instant::from_nanos(self.boot.as_nanos().saturating_add(since))
    }
}

impl Client {
    pub(super) fn new(wall: Wall, rate: Option<Rate>) -> Self {
        Self {
            clocks: Clocks {
                boot: Instant::ZERO,
                drift: 0,
                wall,
            },
            cut: Cut::default(),
            suspended_until: Instant::ZERO,
            notices: VecDeque::new(),
            streams: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            rate,
            traffic: Traffic::new(rate),
            waiting: BTreeMap::new(),
            events: HostEvents::default(),
            executions: BTreeMap::new(),
            readings: BTreeMap::new(),
            reviews: BTreeMap::new(),
            lease_requests: BTreeMap::new(),
            identity: None,
            terms: BTreeMap::new(),
            record_calls: BTreeMap::new(),
            record_work: BTreeMap::new(),
            late_records: BTreeMap::new(),
            reach: Reachability::default(),
            incarnation: 0,
        }
    }

    /// Whether the host's process is suspended.
    pub(super) fn is_suspended(&self, now: Instant) -> bool {
        self.suspended_until > now
    }
}

impl Link<'_> {
    /// The clocks of the host's machine.
    #[must_use]
    pub fn now(&self) -> Now {
        self.client.clocks.at(self.shared.instant)
    }

    /// Performs an effect on the API server; its results are [`Notice::Machine`]. Returns
    /// an effect that concerns only the host: a call, the answer to a guest's live read,
    /// a report or a release.
    pub fn perform<G>(&mut self, effect: Effect<G>) -> Option<Effect<G>> {
        match effect {
            Effect::StartStream { stream, spec } => self.start_stream(stream, spec),
            Effect::StopStream(stream) => self.stop_stream(stream),
            Effect::Discover => self.discover(),
            Effect::Read {
                read,
                controller,
                account,
                request,
                mapping,
                most_bytes,
                ..
            } => self.read(
                read,
                &controller,
                account.as_ref(),
                &mapping,
                &request,
                most_bytes,
            ),
            Effect::Execute(execute) => self.execute(execute),
            Effect::Withdraw(controller) => self.withdraw(controller),
            effect @ (Effect::Call(_)
            | Effect::Resume { .. }
            | Effect::Report(_)
            | Effect::Release(_)) => return Some(effect),
        }
        None
    }

    /// Sets a [`Notice::Reminder`] for the host. A crash cancels the reminder.
    pub fn remind(&mut self, after: Duration, what: u64) {
        let due = ScheduledEvent::Remind(what, self.client.incarnation);
        self.schedule(after, due);
    }

    /// The host crashes. Requests that it has sent still reach the server, and their answers
    /// reach nobody.
    pub fn crash(&mut self) {
        self.note(format_args!("the host crashes"));
        let client = &mut *self.client;
        client.incarnation += 1;
        client.suspended_until = Instant::ZERO;
        client.streams.clear();
        client.notices.clear();
        client.waiting.clear();
        client.executions.clear();
        client.readings.clear();
        client.reviews.clear();
        client.lease_requests.clear();
        client.record_work.clear();
        client.identity = None;
        client.terms.clear();
        client.traffic = Traffic::new(client.rate);
        client.reach = Reachability::default();
        self.end_record_calls();
        self.lose_events();
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        if self.host == HostIndex::FIRST {
            self.shared.note(what);
        } else {
            let host = self.host.number();
            self.shared.note(format_args!("[{host}] {what}"));
        }
    }

    /// The host receives the result of an effect.
    pub(super) fn report_result(&mut self, result: Input) {
        self.client.notices.push_back(Notice::Machine(result));
    }

    pub(super) fn schedule(&mut self, after: Duration, due: ScheduledEvent) {
        self.schedule_at(self.shared.instant.after(after), due);
    }

    pub(super) fn schedule_at(&mut self, at: Instant, due: ScheduledEvent) {
        self.shared.schedule(at, WorldEvent::Host(self.host, due));
    }

    /// An event is due. A suspended process learns of it later.
    pub(super) fn handle_or_defer(&mut self, due: ScheduledEvent) {
        let until = self.client.suspended_until;
        if until > self.shared.instant && self.is_of_process(due) {
            self.schedule_at(until, due);
        } else {
            self.handle(due);
        }
    }

    /// Whether an event happens in the process of the host, not on the way or at the server.
    fn is_of_process(&self, due: ScheduledEvent) -> bool {
        match due {
            ScheduledEvent::Arrive(_) => false,
            ScheduledEvent::RecordCall(call) => {
                let call = self.client.record_calls.get(&call);
                call.is_some_and(RecordCall::is_answered)
            }
            _ => true,
        }
    }

    fn handle(&mut self, due: ScheduledEvent) {
        let incarnation = self.client.incarnation;
        match due {
            ScheduledEvent::Arrive(call) => self.arrive(call),
            ScheduledEvent::Answer(call) => self.answer(call),
            ScheduledEvent::StreamTimer(stream, of) if of == incarnation => {
                self.stream_timer(stream);
            }
            ScheduledEvent::Deliver(stream, of) if of == incarnation => self.deliver(stream),
            ScheduledEvent::Turns => self.give_turns(),
            ScheduledEvent::RecordCall(call) => self.record_due(call),
            ScheduledEvent::Copied(execution) => self.copied(execution),
            ScheduledEvent::Discover(of) if of == incarnation => self.discovered(),
            ScheduledEvent::SendEvents(of) if of == incarnation => self.events_due(),
            ScheduledEvent::Remind(what, of) if of == incarnation => {
                self.client.notices.push_back(Notice::Reminder(what));
            }
            ScheduledEvent::StreamTimer(..)
            | ScheduledEvent::Deliver(..)
            | ScheduledEvent::Discover(_)
            | ScheduledEvent::SendEvents(_)
            | ScheduledEvent::Remind(..) => {}
        }
    }
}
