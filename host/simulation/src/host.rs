//! The host: the machine, driven in the world.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::controller::{CallId, PlanId};
use davit_core::desired::DesiredController;
use davit_core::machine::{
    Call, Effect, Execute, Input, Machine, MachineSettings, ReadAnswer, ReadId, ReadRequest, Report,
};
use davit_core::plan::Decision;
use davit_core::stream::Batch;
use davit_core::time::Instant;

use crate::watchdog::Watchdog;
use crate::world::{ExecutionId, Notice, World};

/// How often the machine may be asked in one moment, before it counts as
/// spinning.
const MOST_ROUNDS: u32 = 20_000;

/// A guest that runs in the process.
///
/// It decides from the call alone: a live read ends it, and it is asked again
/// with the answers that are known by then. So everything else goes on
/// meanwhile, as it does while a component is suspended.
pub trait NativeGuest: fmt::Debug {
    /// Decides about the items of a call. `answers` are those to the live reads
    /// that it asked for before, in their order.
    fn reconcile(&self, call: &Call<Guest>, answers: &[ReadAnswer]) -> Reconciliation;
}

/// A guest, as the machine holds it.
pub type Guest = Arc<dyn NativeGuest>;

/// What comes of a call.
#[derive(Debug)]
pub enum Reconciliation {
    /// A decision for each item.
    Decided(Vec<Decision>),
    /// It needs a live read first.
    Reads(ReadRequest),
    /// It failed.
    Failed(CallFailure),
}

/// The host in its world.
#[derive(Debug)]
pub struct Host {
    /// Everything outside of the host.
    pub world: World,
    machine: Option<Machine<Guest>>,
    calls: BTreeMap<CallId, InFlight>,
    /// The calls that reminders are for.
    reminders: BTreeMap<u64, CallId>,
    /// The calls that wait for live reads.
    reads: BTreeMap<ReadId, CallId>,
    executions: BTreeMap<ExecutionId, Executing>,
    /// How likely a call traps.
    pub trap: f64,
    /// How likely the host crashes after an effect.
    pub crash: f64,
    /// It crashed after an effect, and the owner does not know yet.
    crashed: bool,
    /// What the machine has reported since this was last taken.
    reports: Vec<Report>,
    /// Every plan that was executed.
    executed: Vec<Executed>,
    watchdog: Watchdog,
    leading: bool,
    starts: u64,
    last_id: u64,
}

/// A plan that the machine admitted.
#[derive(Clone, Debug)]
pub struct Executed {
    /// When.
    pub at: Instant,
    /// The controller.
    pub controller: String,
    /// The name of the revision.
    pub revision: Arc<str>,
    /// The plan.
    pub plan: Arc<davit_core::plan::Plan>,
}

#[derive(Debug)]
struct InFlight {
    call: Box<Call<Guest>>,
    answers: Vec<ReadAnswer>,
    started: Instant,
    next: Option<Reconciliation>,
}

#[derive(Debug)]
struct Executing {
    plan: PlanId,
    controller: String,
    uid: String,
}

/// What stopped [`Host::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The time has come.
    Time,
    /// The owner wanted to be reminded.
    Reminder(u64),
    /// The host crashed.
    Crashed,
}

impl Host {
    /// A world without a host.
    #[must_use]
    pub fn new(world: World) -> Self {
        Self {
            world,
            machine: None,
            calls: BTreeMap::new(),
            reminders: BTreeMap::new(),
            reads: BTreeMap::new(),
            executions: BTreeMap::new(),
            trap: 0.0,
            crash: 0.0,
            crashed: false,
            reports: Vec::new(),
            executed: Vec::new(),
            watchdog: Watchdog::default(),
            leading: true,
            starts: 0,
            last_id: 1 << 32,
        }
    }

    /// Starts the host, with nothing but what was recorded.
    pub fn start(&mut self, desired: Vec<DesiredController<Guest>>) {
        self.starts += 1;
        self.watchdog.forget();
        let settings = MachineSettings {
            run: format!("run{}", self.starts),
        };
        let now = self.world.now();
        self.world.note(format_args!("the host starts"));
        self.machine = Some(Machine::new(now, settings));
        if !self.leading {
            self.handle(Input::Leadership { held: false });
        }
        self.desire(desired);
    }

    /// Whether the host runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.machine.is_some()
    }

    /// The machine, if the host runs.
    #[must_use]
    pub fn machine(&self) -> Option<&Machine<Guest>> {
        self.machine.as_ref()
    }

    /// Every plan that the machine has admitted, in order.
    #[must_use]
    pub fn executed(&self) -> &[Executed] {
        &self.executed
    }

    /// What the machine has reported since this was last asked.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// These controllers should run, and no others. What was decided before has
    /// begun by then.
    pub fn desire(&mut self, desired: Vec<DesiredController<Guest>>) {
        self.pump();
        let now = self.world.now().instant;
        self.watchdog.desired(&desired, now);
        let now = self.world.now();
        if let Some(machine) = &mut self.machine {
            machine.apply(now, desired);
        }
    }

    /// An operator resets a controller's tripped guardrails.
    pub fn reset(&mut self, controller: &str) {
        self.watchdog.reset(controller, self.world.now().instant);
        let now = self.world.now().instant;
        if let Some(machine) = &mut self.machine {
            machine.reset(now, controller);
        }
    }

    /// This replica gains or loses leadership.
    pub fn lead(&mut self, held: bool) {
        self.leading = held;
        self.world.note(format_args!("leadership: {held}"));
        self.handle(Input::Leadership { held });
        self.pump();
        self.world.allow_writes(held);
    }

    /// The host is gone, at once.
    pub fn crash(&mut self) {
        self.machine = None;
        self.calls.clear();
        self.reminders.clear();
        self.reads.clear();
        self.executions.clear();
        self.world.crash();
    }

    /// Runs until then, until a reminder of the owner, or until it crashes.
    pub fn run(&mut self, until: Instant) -> Stopped {
        let (mut rounds, mut moment) = (0, self.world.now().instant);
        loop {
            self.pump();
            if std::mem::take(&mut self.crashed) {
                return Stopped::Crashed;
            }
            let now = self.world.now();
            if now.instant > moment {
                (rounds, moment) = (0, now.instant);
            }
            rounds += 1;
            if rounds > MOST_ROUNDS {
                self.world
                    .violated("the machine does not come to rest".to_owned());
                return Stopped::Time;
            }
            let wake = self.machine.as_ref().map(|machine| machine.next_wake(now));
            let next = wake.unwrap_or(until).min(until);
            match self.world.next(next) {
                Some(notice) => {
                    if let Some(reminder) = self.notice(notice) {
                        return Stopped::Reminder(reminder);
                    }
                    // Several things may happen before the machine is asked.
                    while self.world.dice().chance(0.3)
                        && let Some(notice) = self.world.next(self.world.now().instant)
                    {
                        if let Some(reminder) = self.notice(notice) {
                            return Stopped::Reminder(reminder);
                        }
                    }
                }
                None if self.world.now().instant >= until => return Stopped::Time,
                None => {}
            }
        }
    }

    /// Takes the machine's effects. The host may crash after any of them.
    fn pump(&mut self) {
        loop {
            let now = self.world.now();
            let Some(effect) = self.machine.as_mut().and_then(|machine| machine.poll(now)) else {
                return;
            };
            let counts = !matches!(effect, Effect::Report(_) | Effect::Release(_));
            self.effect(effect);
            if counts && self.crash > 0.0 && self.world.dice().chance(self.crash) {
                self.crash();
                self.crashed = true;
                return;
            }
        }
    }

    fn handle(&mut self, input: Input) {
        let now = self.world.now();
        if let Some(machine) = &mut self.machine {
            machine.handle(now, input);
        }
    }

    fn effect(&mut self, effect: Effect<Guest>) {
        match effect {
            Effect::StartStream { stream, spec } => self.world.start_stream(stream, spec),
            Effect::StopStream(stream) => self.world.stop_stream(stream),
            Effect::Discover => self.world.discover(),
            Effect::Call(call) => self.call(call),
            Effect::Read {
                read,
                controller,
                request,
                mapping,
            } => self.world.read(read, &controller, &mapping, &request),
            Effect::Resume { read, answer } => self.resume(read, answer),
            Effect::Execute(execute) => self.execute(execute),
            Effect::Withdraw(controller) => {
                let of_controller = self
                    .executions
                    .iter()
                    .filter(|(_, executing)| executing.plan.controller == controller);
                let ids: Vec<ExecutionId> = of_controller.map(|(id, _)| *id).collect();
                self.world.withdraw(&ids);
            }
            Effect::Report(report) => {
                self.watchdog.reported(&report);
                self.reports.push(report);
            }
            Effect::Release(_) => {}
        }
    }

    fn execute(&mut self, execute: Execute) {
        let Execute {
            id,
            controller,
            revision,
            plan,
            mapping,
            ..
        } = execute;
        self.world.note(format_args!(
            "{controller} ({revision}) executes {} {}: {}",
            plan.reason, plan.target, plan.message
        ));
        let uid = plan.target.uid.clone();
        let same = |other: &Executing| other.controller == controller && other.uid == uid;
        if self.executions.values().any(same) {
            let what = format!("{controller} executes two plans on {}", plan.target);
            self.world.violated(what);
        }
        if !self.leading {
            let what = format!("{controller} executes without leadership: {}", plan.target);
            self.world.violated(what);
        }
        let execution = self.world.execute(&controller, &plan, &mapping);
        let executed = Executed {
            at: self.world.now().instant,
            controller: controller.clone(),
            revision,
            plan,
        };
        for problem in self.watchdog.executes(&executed) {
            self.world.violated(problem);
        }
        self.executed.push(executed);
        let executing = Executing {
            plan: id,
            controller,
            uid,
        };
        self.executions.insert(execution, executing);
    }

    fn call(&mut self, call: Box<Call<Guest>>) {
        let id = call.id;
        let in_flight = InFlight {
            call,
            answers: Vec::new(),
            started: self.world.now().instant,
            next: None,
        };
        self.calls.insert(id, in_flight);
        self.compute(id);
    }

    /// The guest computes, for a while.
    fn compute(&mut self, id: CallId) {
        let traps = self.trap > 0.0 && self.world.dice().chance(self.trap);
        let Some(in_flight) = self.calls.get_mut(&id) else {
            return;
        };
        in_flight.next = Some(if traps {
            let trap = CallFailure::new(CallFailureKind::Trap, "the story traps it");
            Reconciliation::Failed(trap)
        } else {
            in_flight
                .call
                .guest
                .reconcile(&in_flight.call, &in_flight.answers)
        });
        // Some calls are still under way when the next thing happens.
        let longest = if self.world.dice().chance(0.1) {
            Duration::from_secs(2)
        } else {
            Duration::from_millis(5)
        };
        let range = Duration::from_micros(50)..longest;
        let took = self.world.dice().duration(&range);
        self.last_id += 1;
        self.reminders.insert(self.last_id, id);
        let at = self.world.now().instant.after(took);
        self.world.remind(at, self.last_id);
    }

    fn resume(&mut self, read: ReadId, answer: ReadAnswer) {
        if let Some(id) = self.reads.remove(&read)
            && let Some(in_flight) = self.calls.get_mut(&id)
        {
            in_flight.answers.push(answer);
            self.compute(id);
        }
    }

    /// Hands a notice to the machine. A reminder of the owner is returned.
    fn notice(&mut self, notice: Notice) -> Option<u64> {
        match notice {
            Notice::Stream { stream, updates } => {
                self.handle(Input::Stream(Batch { stream, updates }));
            }
            Notice::Discovered(result) => self.handle(Input::Discovered(result)),
            Notice::Executed {
                execution,
                outcome,
                took,
            } => {
                if let Some(executing) = self.executions.remove(&execution) {
                    let plan = executing.plan;
                    self.handle(Input::Executed {
                        plan,
                        outcome,
                        took,
                    });
                }
            }
            Notice::Read { read, answer } => self.handle(Input::ReadDone { read, answer }),
            Notice::Reminder(reminder) => match self.reminders.remove(&reminder) {
                Some(call) => self.computed(call),
                None => return Some(reminder),
            },
        }
        None
    }

    /// The guest has computed.
    fn computed(&mut self, id: CallId) {
        let now = self.world.now().instant;
        let Some(in_flight) = self.calls.get_mut(&id) else {
            return;
        };
        let took = now.since(in_flight.started);
        let result = match in_flight.next.take() {
            Some(Reconciliation::Reads(request)) => {
                self.last_id += 1;
                let read = ReadId(self.last_id);
                let controller = Arc::clone(&in_flight.call.controller);
                self.reads.insert(read, id);
                self.handle(Input::ReadRequested {
                    read,
                    call: id,
                    controller,
                    request,
                });
                return;
            }
            Some(Reconciliation::Decided(decisions)) => Ok(decisions),
            Some(Reconciliation::Failed(failure)) => Err(failure),
            None => return,
        };
        self.calls.remove(&id);
        self.handle(Input::Answered {
            call: id,
            result,
            took,
        });
    }
}
