//! The world: time, the server, and what is under way between it and the host.

mod calls;
mod plans;
mod reads;
mod records;
mod streams;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use davit_core::api::HostStatus;
use davit_core::control::{RecordId, StoredRecord};
use davit_core::failure::{Failure, FailureClass};
use davit_core::machine::{Effect, Input, ReadId};
use davit_core::manifest::Rate;
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::ApiResource;
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
use reads::Reading;
use records::RecordCall;

/// Identifies a plan in execution. Unlike a [`PlanId`], it is not used again by the next
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ExecutionId(u64);

/// What the world tells the host.
#[derive(Debug)]
pub enum Notice {
    /// An input of the machine: the result of an effect that [`World::perform`] took.
    Machine(Input),
    /// A record was read, or cannot be.
    Remembered {
        /// Which read.
        id: RecordId,
        /// Whose record.
        controller: String,
        /// What it holds.
        remembered: Box<StoredRecord>,
    },
    /// A write to a record has ended.
    Recorded {
        /// Which write.
        id: RecordId,
        /// Whose record.
        controller: String,
        /// Another host that has written, or why nobody knows whether it was written.
        result: Result<Option<HostStatus>, String>,
        /// How many decisions the record had seen by then, if this was one.
        written: Option<usize>,
    },
    /// Something that the owner had asked to be reminded of.
    Reminder(u64),
}

/// What the network and the server are like at present.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// How long a request takes to reach the server, and an answer to come back.
    pub latency: Range<Duration>,
    /// How long an event of a watch takes.
    pub lag: Range<Duration>,
    /// How likely an event of a watch takes [`Self::starvation`] instead.
    pub starve: f64,
    /// How long it takes then.
    pub starvation: Range<Duration>,
    /// How likely a request never reaches the server: there is no connection.
    pub unreachable: f64,
    /// How likely a request is held up on its way for [`Self::holdup`].
    pub hold_up: f64,
    /// How long it is held up: longer than anybody waits for the answer.
    pub holdup: Range<Duration>,
    /// How likely discovery fails.
    pub no_discovery: f64,
    /// How likely a record is not written.
    pub no_records: f64,
    /// How likely a record is written, and the answer lost.
    pub lost_records: f64,
    /// How likely a record is written late, or read late, or the answer is late: each
    /// by up to [`Self::lateness`].
    pub late_records: f64,
    /// How late: other things happen meanwhile, but the host still waits.
    pub lateness: Range<Duration>,
    /// How likely a record cannot be read.
    pub unreadable_records: f64,
    /// How likely a revision cannot be loaded, whatever its source holds.
    pub no_loads: f64,
    /// Group versions (`apps/v1`) that discovery cannot reach.
    pub unreached: Vec<String>,
    /// Resources (`pods`) that discovery does not have.
    pub unlisted: Vec<String>,
}

impl Default for Conditions {
    /// All is well.
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

/// A write that has reached the server.
#[derive(Clone, Debug)]
pub struct Write {
    /// When.
    pub at: Instant,
    /// The controller it is for.
    pub controller: Arc<str>,
    /// What it asked for.
    pub work: RequestInfo,
    /// The status code of the answer; 0 if the server never read the request.
    pub code: u16,
}

/// Everything outside of the host.
#[derive(Debug)]
pub struct World {
    instant: Instant,
    /// What the host's wall clock shows at the start of the monotonic one.
    wall: Wall,
    /// The server's time at the start of the monotonic clock.
    base: Time,
    dice: Dice,
    server: Server,
    /// What the network is like.
    pub conditions: Conditions,
    /// What happened.
    pub trace: Trace,
    schedule: Schedule<ScheduledEvent>,
    notices: VecDeque<Notice>,
    /// Each with the request that it has under way.
    streams: BTreeMap<StreamId, (Stream, Option<CallId>)>,
    exchanges: BTreeMap<CallId, Exchange>,
    /// The client-side rate; none in most worlds.
    rate: Option<Rate>,
    traffic: Traffic,
    waiting: BTreeMap<davit_core::traffic::Ticket, Call>,
    executions: BTreeMap<ExecutionId, Execution>,
    readings: BTreeMap<ReadId, Reading>,
    records: Records,
    record_calls: BTreeMap<u64, RecordCall>,
    writes: Vec<Write>,
    may_write: bool,
    violations: Vec<String>,
    /// How often the host was started: what was under way for an earlier one
    /// reaches nobody.
    incarnation: u64,
    last_id: u64,
}

/// Something that is due.
#[derive(Clone, Copy, Debug)]
enum ScheduledEvent {
    /// A request reaches the server.
    Arrive(CallId),
    /// An answer reaches the host.
    Answer(CallId),
    /// A stream's time has come.
    StreamTimer(StreamId, u64),
    /// A watch delivers what has changed.
    Deliver(StreamId, u64),
    /// Requests may have their turn.
    Turns,
    /// The answer of discovery reaches the host.
    Discover(u64),
    /// A call reaches the records, or its answer the host.
    RecordCall(u64),
    /// The owner wants to be reminded.
    Remind(u64, Option<u64>),
}

impl World {
    /// A world at its start: the server has these objects, and its clock shows
    /// that time, as the host's does.
    #[must_use]
    pub fn new(model: Model, start: Time, seed: u64, keep_trace: bool) -> Self {
        Self::with(model, start, Dice::new(seed), keep_trace)
    }

    /// A world in which nothing goes wrong, nothing takes time and nothing is by chance.
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

    /// The server's time, which is always right.
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

    /// Draws that belong to the world.
    pub fn dice(&mut self) -> &mut Dice {
        &mut self.dice
    }

    /// The server's objects, to look at.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.server.model
    }

    /// Works on the server's objects directly; watches see what changes.
    pub fn with_model<T>(&mut self, work: impl FnOnce(&mut Model, Time) -> T) -> T {
        let time = self.time();
        let result = work(&mut self.server.model, time);
        self.schedule_deliveries();
        result
    }

    /// What goes wrong with requests.
    pub fn faults(&mut self) -> &mut davit_sim::fault::Faults {
        &mut self.server.faults
    }

    /// Every write that has reached the server so far.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// Whether writes may start from now on: they may not without leadership.
    pub fn allow_writes(&mut self, allowed: bool) {
        self.may_write = allowed;
    }

    /// What must never happen, and did.
    #[must_use]
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Something happened that must never happen.
    pub fn violated(&mut self, what: String) {
        self.note(format_args!("VIOLATION: {what}"));
        self.violations.push(what);
    }

    /// Plans that are being executed, or wait for their turn.
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
                request,
                mapping,
            } => self.read(read, &controller, &mapping, &request),
            Effect::Execute(execute) => self.execute(execute),
            Effect::Withdraw(controller) => self.withdraw(controller),
            effect @ (Effect::Call(_)
            | Effect::Resume { .. }
            | Effect::Report(_)
            | Effect::Release(_)) => return Some(effect),
        }
        None
    }

    /// Asks the server what it serves.
    pub fn discover(&mut self) {
        let latency = self.latency();
        let due = ScheduledEvent::Discover(self.incarnation);
        self.schedule(latency * 2, due);
    }

    /// Comes back with a [`Notice::Reminder`] then. It belongs to the host: a
    /// crash forgets it.
    pub fn remind(&mut self, at: Instant, what: u64) {
        let due = ScheduledEvent::Remind(what, Some(self.incarnation));
        self.schedule.add(at, due, &mut self.dice);
    }

    /// The same for the owner of the world, whatever happens to the host.
    pub fn remind_owner(&mut self, at: Instant, what: u64) {
        let due = ScheduledEvent::Remind(what, None);
        self.schedule.add(at, due, &mut self.dice);
    }

    /// The host is gone, in the middle of whatever it did. Requests that were
    /// sent reach the server; what comes back reaches nobody.
    pub fn crash(&mut self) {
        self.note(format_args!("the host crashes"));
        self.incarnation += 1;
        self.streams.clear();
        self.notices.clear();
        self.waiting.clear();
        self.executions.clear();
        self.readings.clear();
        self.end_record_calls();
        self.traffic = Traffic::new(self.rate);
    }

    /// Moves time on to the next notice; none if there is none until then.
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
            let reason = "ask what is served: connection reset";
            Err(Failure::new(FailureClass::Timeout, reason))
        } else {
            Ok(discovery(&self.server.model, &self.conditions))
        };
        self.note(format_args!("discovery answers: {}", answer.is_ok()));
        self.report_result(Input::Discovered(answer));
    }
}

/// The resources that the server serves. A group version that discovery does not reach
/// is listed as not reached, without resources.
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
    let reason = "the API server cannot reach it";
    Discovery {
        mapping: Mapping::new(served),
        failed: unreached
            .iter()
            .map(|version| (version.clone(), reason.to_owned()))
            .collect(),
    }
}

/// The first version of a group that serves it.
fn is_preferred(model: &Model, resource: &davit_sim::resource::Resource) -> bool {
    let mut same = model
        .resources()
        .iter()
        .filter(|other| other.group == resource.group && other.plural == resource.plural);
    same.next()
        .is_some_and(|first| first.version == resource.version)
}
