//! The world: time, the server, and the requests between the server and the host.

mod calls;
mod leases;
mod plans;
mod reads;
mod records;
mod reviews;
mod streams;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use davit_core::api::HostStatus;
use davit_core::control::{RecordId, ReviewId, StoredRecord};
use davit_core::election::{LeaseAnswer, LeaseRequest, LeaseRequestId};
use davit_core::failure::{Failure, FailureClass};
use davit_core::machine::{Effect, Input, ReadId};
use davit_core::manifest::Rate;
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::ApiResource;
use davit_core::request::review::{AccessReview, ReviewAnswer};
use davit_core::stream::StreamId;
use davit_core::time::{Instant, Now, Wall};
use davit_core::traffic::Traffic;
use davit_sim::{Model, RequestInfo, Time};

use crate::dice::Dice;
use crate::records::Records;
use crate::schedule::Schedule;
use crate::server::Server;
use crate::stream::Stream;
use crate::trace::Trace;
use calls::{Call, CallId, Exchange};
use plans::Execution;
use reads::LiveRead;
use records::RecordCall;

/// Identifies a plan in execution. Unlike a [`PlanId`], it is not used again by the next
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExecutionId(u64);

/// Something that reaches the host.
#[derive(Debug)]
pub enum Notice {
    /// An input of the machine: the result of an effect that [`World::perform`] took.
    Machine(Input),
    /// A read of a record ended.
    RecordRead {
        /// Identifies the read.
        id: RecordId,
        /// The name of the controller.
        controller: String,
        /// The record, or errors.
        record: Box<StoredRecord>,
    },
    /// A write to a record ended.
    RecordWritten {
        /// Identifies the write.
        id: RecordId,
        /// The name of the controller.
        controller: String,
        /// Another host that wrote the record, or why the result is unknown.
        result: Result<Option<HostStatus>, String>,
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

/// How well the network, the records and discovery work.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// How long a request takes to the server, and an answer to the host.
    pub latency: Range<Duration>,
    /// How long an event of a watch takes.
    pub lag: Range<Duration>,
    /// How likely an event of a watch takes [`Self::starvation`] instead of [`Self::lag`].
    pub starve: f64,
    /// How long a starved event of a watch takes.
    pub starvation: Range<Duration>,
    /// How likely a request gets no connection to the server.
    pub unreachable: f64,
    /// How likely a request takes [`Self::holdup`] longer to the server.
    pub hold_up: f64,
    /// The additional time of such a request: mostly longer than the host waits.
    pub holdup: Range<Duration>,
    /// How likely discovery fails.
    pub no_discovery: f64,
    /// How likely a write of a record fails.
    pub no_records: f64,
    /// How likely a write of a record succeeds and its answer is lost.
    pub lost_records: f64,
    /// How likely a request for a record, or its answer, takes [`Self::lateness`].
    pub late_records: f64,
    /// How long a late request or answer takes: less than the host waits.
    pub lateness: Range<Duration>,
    /// How likely a read of a record fails.
    pub unreadable_records: f64,
    /// How likely a load of a revision fails for another reason than its source.
    pub no_loads: f64,
    /// Group versions (`apps/v1`) that discovery cannot reach.
    pub unreached: Vec<String>,
    /// Resources (`pods`) that discovery lacks.
    pub unlisted: Vec<String>,
}

impl Default for Conditions {
    /// No faults.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(300)..Duration::from_millis(8),
            lag: Duration::from_micros(200)..Duration::from_millis(30),
            starve: 0.0,
            starvation: Duration::from_secs(1)..Duration::from_secs(40),
            unreachable: 0.0,
            hold_up: 0.0,
            holdup: Duration::from_secs(5)..Duration::from_secs(60),
            no_discovery: 0.0,
            no_records: 0.0,
            lost_records: 0.0,
            late_records: 0.0,
            lateness: Duration::from_millis(100)..Duration::from_secs(4),
            unreadable_records: 0.0,
            no_loads: 0.0,
            unreached: Vec::new(),
            unlisted: Vec::new(),
        }
    }
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

/// Everything outside of the host.
#[derive(Debug)]
pub struct World {
    instant: Instant,
    /// The time of the host's wall clock when the world's clock is at zero.
    wall: Wall,
    /// The server's time when the world's clock is at zero.
    base: Time,
    dice: Dice,
    server: Server,
    /// How well the network, the records and discovery work.
    pub conditions: Conditions,
    /// Everything that happened.
    pub trace: Trace,
    schedule: Schedule<ScheduledEvent>,
    notices: VecDeque<Notice>,
    /// The streams, each with its request that has no answer yet.
    streams: BTreeMap<StreamId, (Stream, Option<CallId>)>,
    exchanges: BTreeMap<CallId, Exchange>,
    /// The client-side rate; most worlds have none.
    rate: Option<Rate>,
    traffic: Traffic,
    waiting: BTreeMap<davit_core::traffic::Ticket, Call>,
    executions: BTreeMap<ExecutionId, Execution>,
    readings: BTreeMap<ReadId, LiveRead>,
    reviews: BTreeMap<ReviewId, AccessReview>,
    lease_requests: BTreeMap<LeaseRequestId, LeaseRequest>,
    /// Until when requests of each controller may be sent; none before the first term.
    terms: Option<BTreeMap<String, Instant>>,
    records: Records,
    record_calls: BTreeMap<u64, RecordCall>,
    writes: Vec<Write>,
    may_write: bool,
    violations: Vec<String>,
    /// The number of crashes. Answers to requests of an earlier host reach nobody.
    incarnation: u64,
    last_id: u64,
}

/// An event of the schedule.
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
    /// A call reaches the records, or its answer the host.
    RecordCall(u64),
    /// A reminder; none for the host's incarnation is one for the owner.
    Remind(u64, Option<u64>),
}

impl World {
    /// A world whose server has these objects. The clocks of server and host show this
    /// time.
    #[must_use]
    pub fn new(model: Model, start: Time, seed: u64, keep_trace: bool) -> Self {
        Self::with(model, start, Dice::new(seed), keep_trace)
    }

    /// A world without faults, delays and random draws.
    #[must_use]
    pub fn calm(model: Model, start: Time) -> Self {
        let mut world = Self::with(model, start, Dice::calm(), false);
        world.conditions.latency = Duration::ZERO..Duration::ZERO;
        world.conditions.lag = Duration::ZERO..Duration::ZERO;
        world
    }

    fn with(model: Model, start: Time, mut dice: Dice, keep_trace: bool) -> Self {
        let rate = dice.chance(0.3).then_some(Rate {
            per_second: 4.0,
            burst: 2,
        });
        Self {
            rate,
            instant: Instant::ZERO,
            wall: Wall(start.unix().saturating_mul(1000)),
            base: start,
            server: Server::new(model, dice.bits()),
            dice,
            conditions: Conditions::default(),
            trace: Trace::new(keep_trace),
            schedule: Schedule::default(),
            notices: VecDeque::new(),
            streams: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            traffic: Traffic::new(rate),
            waiting: BTreeMap::new(),
            executions: BTreeMap::new(),
            readings: BTreeMap::new(),
            reviews: BTreeMap::new(),
            lease_requests: BTreeMap::new(),
            terms: None,
            records: Records::default(),
            record_calls: BTreeMap::new(),
            writes: Vec::new(),
            may_write: true,
            violations: Vec::new(),
            incarnation: 0,
            last_id: 0,
        }
    }

    /// Both of the host's clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        let since = i64::try_from(self.instant.as_nanos() / 1_000_000).unwrap_or(i64::MAX);
        Now {
            instant: self.instant,
            wall: Wall(self.wall.0.saturating_add(since)),
        }
    }

    /// The time of the server's clock. It never jumps.
    #[must_use]
    pub fn time(&self) -> Time {
        let since = i64::try_from(self.instant.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
        self.base.after(since)
    }

    /// The host's wall clock jumps.
    pub fn shift_wall_clock(&mut self, millis: i64) {
        self.wall.0 = self.wall.0.saturating_add(millis);
        self.note(format_args!("the wall clock jumps by {millis} ms"));
    }

    /// Adds a line to the trace.
    pub fn note(&mut self, what: fmt::Arguments<'_>) {
        self.trace.note(self.instant, what);
    }

    /// The world's random draws.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// The server's objects.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.server.model
    }

    /// Changes the server's objects without a request. Watches deliver the changes.
    pub fn with_model<T>(&mut self, work: impl FnOnce(&mut Model, Time) -> T) -> T {
        let time = self.time();
        let result = work(&mut self.server.model, time);
        self.schedule_deliveries();
        result
    }

    /// The faults of requests.
    pub fn faults(&mut self) -> &mut davit_sim::fault::Faults {
        &mut self.server.faults
    }

    /// Every write that reached the server so far.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Whether plans may start from now on: without leadership, they may not.
    pub fn allow_writes(&mut self, allowed: bool) {
        self.may_write = allowed;
    }

    /// The rules that the host broke.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The host broke a rule.
    pub fn violated(&mut self, what: String) {
        self.note(format_args!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// The number of plans in execution, or waiting for their turn.
    #[must_use]
    pub fn executing(&self) -> usize {
        self.executions.len()
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

    /// Requests discovery. The answer is an [`Input::Discovered`].
    pub fn discover(&mut self) {
        let latency = self.latency();
        let due = ScheduledEvent::Discover(self.incarnation);
        self.schedule(latency * 2, due);
    }

    /// Sets a [`Notice::Reminder`] for the host. A crash cancels the reminder.
    pub fn remind(&mut self, at: Instant, what: u64) {
        let due = ScheduledEvent::Remind(what, Some(self.incarnation));
        self.schedule.add(at, due, &mut self.dice);
    }

    /// Sets a reminder for the owner of the world. A crash of the host does not cancel the
    /// reminder.
    pub fn remind_owner(&mut self, at: Instant, what: u64) {
        let due = ScheduledEvent::Remind(what, None);
        self.schedule.add(at, due, &mut self.dice);
    }

    /// The host crashes. Requests that it has sent still reach the server, and their answers
    /// reach nobody.
    pub fn crash(&mut self) {
        self.note(format_args!("the host crashes"));
        self.incarnation += 1;
        self.streams.clear();
        self.notices.clear();
        self.waiting.clear();
        self.executions.clear();
        self.readings.clear();
        self.reviews.clear();
        self.lease_requests.clear();
        self.terms = None;
        self.end_record_calls();
        self.traffic = Traffic::new(self.rate);
    }

    /// Advances time to the next notice; none if there is none until this time.
    pub fn next(&mut self, until: Instant) -> Option<Notice> {
        loop {
            if let Some(notice) = self.notices.pop_front() {
                return Some(notice);
            }
            let Some((at, due)) = self.schedule.take(until) else {
                self.instant = self.instant.max(until);
                return None;
            };
            self.instant = self.instant.max(at);
            self.handle(due);
        }
    }

    fn handle(&mut self, due: ScheduledEvent) {
        match due {
            ScheduledEvent::Arrive(call) => self.arrive(call),
            ScheduledEvent::Answer(call) => self.answer(call),
            ScheduledEvent::StreamTimer(stream, incarnation) if incarnation == self.incarnation => {
                self.stream_timer(stream);
            }
            ScheduledEvent::Deliver(stream, incarnation) if incarnation == self.incarnation => {
                self.deliver(stream);
            }
            ScheduledEvent::Turns => self.give_turns(),
            ScheduledEvent::RecordCall(call) => self.record_due(call),
            ScheduledEvent::Discover(incarnation) if incarnation == self.incarnation => {
                self.discovered();
            }
            ScheduledEvent::Remind(what, incarnation)
                if incarnation.is_none_or(|incarnation| incarnation == self.incarnation) =>
            {
                self.notices.push_back(Notice::Reminder(what));
            }
            ScheduledEvent::StreamTimer(..)
            | ScheduledEvent::Deliver(..)
            | ScheduledEvent::Discover(_)
            | ScheduledEvent::Remind(..) => {}
        }
    }

    /// The host receives the result of an effect.
    fn report_result(&mut self, result: Input) {
        self.notices.push_back(Notice::Machine(result));
    }

    fn schedule(&mut self, after: Duration, due: ScheduledEvent) {
        self.schedule
            .add(self.instant.after(after), due, &mut self.dice);
    }

    fn latency(&mut self) -> Duration {
        self.dice.duration(&self.conditions.latency)
    }

    fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn discovered(&mut self) {
        let fails = self.dice.chance(self.conditions.no_discovery);
        let answer = if fails {
            let reason = "discovery: connection reset";
            Err(Failure::new(FailureClass::Timeout, reason))
        } else {
            Ok(discovery(&self.server.model, &self.conditions))
        };
        let result = if answer.is_ok() { "succeeds" } else { "fails" };
        self.note(format_args!("discovery {result}"));
        self.report_result(Input::Discovered(answer));
    }
}

/// The resources that the server serves. A group version that discovery does not reach
/// has no resources here and is reported as failed.
fn discovery(model: &Model, conditions: &Conditions) -> Discovery {
    let (unreached, unlisted) = (&conditions.unreached, &conditions.unlisted);
    let served = model.resources().iter().filter_map(|resource| {
        let api = ApiResource::new(&resource.group, &resource.version, &resource.plural);
        let is_there =
            !unreached.contains(&api.api_version()) && !unlisted.contains(&resource.plural);
        is_there.then(|| ServedResource {
            resource: api,
            kind: resource.kind.clone(),
            namespaced: resource.namespaced,
            verbs: resource.verbs.iter().map(ToString::to_string).collect(),
            preferred: is_preferred(model, resource),
        })
    });
    let reason = "the API server cannot reach the group version";
    Discovery {
        mapping: Mapping::new(served),
        failed: unreached
            .iter()
            .map(|version| (version.clone(), reason.to_owned()))
            .collect(),
    }
}

/// Whether this is the first version of the group that serves the resource.
fn is_preferred(model: &Model, resource: &davit_sim::resource::Resource) -> bool {
    let mut same = model
        .resources()
        .iter()
        .filter(|other| other.group == resource.group && other.plural == resource.plural);
    same.next()
        .is_some_and(|first| first.version == resource.version)
}
