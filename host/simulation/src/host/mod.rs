//! The core's host, and a driver that runs it in the world.

mod calls;
mod control;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use davit_core::control::{
    Change, ChangeError, ChangeId, ControlInput, Declaration, FileController, HostIdentity, Load,
    Requests,
};
use davit_core::controller::CallId;
use davit_core::election::LeaseTiming;
use davit_core::host::{Effect, HostSettings, Input, LeaseSettings};
use davit_core::machine::{self, Execute, ReadId, Report};
use davit_core::time::{Instant, Now};
use davit_core::trust::{TrustPolicy, UnsignedPolicy};
use serde_json::{Value, json};

use crate::modules::{Describe, Modules};
use crate::watchdog::Watchdog;
use crate::world::{Notice, World};
use calls::CallInFlight;
pub use calls::{Guest, NativeGuest, Reconciliation};

/// How often the driver polls the host at one point in time before the host counts as
/// spinning.
const MOST_ROUNDS: u32 = 20_000;

/// The namespace of the host and of the accounts of its controllers.
pub const NAMESPACE: &str = "davit";

/// The host in its world.
pub struct Host {
    /// Everything outside of the host.
    pub world: World,
    /// The sources of its modules.
    pub modules: Modules,
    core: Option<davit_core::host::Host<Guest>>,
    /// When the host's monotonic clock was at zero.
    boot: Instant,
    calls: BTreeMap<CallId, CallInFlight>,
    /// The purpose of each reminder.
    reminders: BTreeMap<u64, Reminder>,
    /// The calls that wait for live reads.
    reads: BTreeMap<ReadId, CallId>,
    /// How likely a call traps.
    pub trap: f64,
    /// How likely the host crashes after an effect.
    pub crash: f64,
    /// Whether the host crashed and the owner does not know yet.
    crashed: bool,
    /// The machine's reports since the owner last took them.
    reports: Vec<Report>,
    /// The answers to changes that the owner has not taken yet.
    answers: VecDeque<(ChangeId, Result<Value, ChangeError>)>,
    /// The last change of each controller of a file that pauses its rollout (true) or
    /// continues it.
    pauses: BTreeMap<String, (ChangeId, bool)>,
    /// Every executed plan.
    executed: Vec<ExecutedPlan>,
    watchdog: Watchdog,
    leading: bool,
    /// Whether the host takes part in leader election.
    pub leases: bool,
    starts: u64,
    last_id: u64,
}

/// A plan that the machine admitted.
#[derive(Clone, Debug)]
pub struct ExecutedPlan {
    /// When the machine admitted it.
    pub at: Instant,
    /// The name of the controller.
    pub controller: String,
    /// The name of the revision.
    pub revision: Arc<str>,
    /// The plan.
    pub plan: Arc<davit_core::plan::Plan>,
}

/// The purpose of a reminder.
#[derive(Debug)]
enum Reminder {
    /// A guest's call ends.
    Computed(CallId),
    /// A load ends.
    Loaded(Box<Load>),
}

impl fmt::Display for ExecutedPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (controller, revision, plan) = (&self.controller, &self.revision, &self.plan);
        let (reason, target, message) = (&plan.reason, &plan.target, &plan.message);
        write!(
            f,
            "{controller} ({revision}) executes {reason} {target}: {message}"
        )
    }
}

/// Why [`Host::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The time is over.
    Time,
    /// A reminder of the owner.
    Reminder(u64),
    /// The host crashed.
    Crashed,
}

impl Host {
    /// A world without a host.
    #[must_use]
    pub fn new(world: World, describe: Describe) -> Self {
        Self {
            world,
            modules: Modules::new(describe),
            core: None,
            boot: Instant::ZERO,
            calls: BTreeMap::new(),
            reminders: BTreeMap::new(),
            reads: BTreeMap::new(),
            trap: 0.0,
            crash: 0.0,
            crashed: false,
            reports: Vec::new(),
            answers: VecDeque::new(),
            pauses: BTreeMap::new(),
            executed: Vec::new(),
            watchdog: Watchdog::default(),
            leading: true,
            leases: false,
            starts: 0,
            last_id: 1 << 32,
        }
    }

    /// Starts the host. It knows nothing but the records.
    pub fn start(&mut self) {
        self.starts += 1;
        self.watchdog.restarted();
        let identity = HostIdentity {
            id: self.starts.to_string(),
            name: "simulated".to_owned(),
        };
        let settings = HostSettings {
            run: format!("run{}", self.starts),
            namespace: NAMESPACE.to_owned(),
            identity: self.world.records().are_shared.then_some(identity),
            trust: TrustPolicy {
                unsigned: UnsignedPolicy::Allow,
                ..TrustPolicy::default()
            },
            leases: self.leases.then(|| LeaseSettings {
                identity: format!("run{}", self.starts),
                timing: LeaseTiming::default(),
            }),
        };
        self.world.note(format_args!("the host starts"));
        let now = self.now();
        self.core = Some(davit_core::host::Host::new(now, settings));
        if !self.leading {
            self.handle(machine::Input::Leadership { held: false });
        }
    }

    /// The host's machine starts: the monotonic clock is at zero.
    pub fn reboot(&mut self) {
        self.boot = self.world.now().instant;
    }

    /// The clocks of the host's machine.
    fn now(&self) -> Now {
        let now = self.world.now();
        let since = now.instant.as_nanos().saturating_sub(self.boot.as_nanos());
        Now {
            instant: Instant::from_nanos(since),
            ..now
        }
    }

    /// Whether the host runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.core.is_some()
    }

    /// The core's host; none while it does not run.
    #[must_use]
    pub fn core(&self) -> Option<&davit_core::host::Host<Guest>> {
        self.core.as_ref()
    }

    /// Every plan that the machine admitted, in order.
    #[must_use]
    pub fn executed(&self) -> &[ExecutedPlan] {
        &self.executed
    }

    /// Takes the machine's reports.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// Takes the next answer to a change.
    pub fn take_answer(&mut self) -> Option<(ChangeId, Result<Value, ChangeError>)> {
        self.answers.pop_front()
    }

    /// The host receives the declarations of all controllers.
    pub fn declare(&mut self, declarations: Vec<Declaration>) {
        self.watchdog.declared(&declarations, self.world.now());
        let declared = declarations.into_iter();
        let declared = declared.map(|declaration| davit_core::control::DeclaredController {
            declaration,
            loaded: None,
        });
        self.control(ControlInput::Declared(declared.collect()));
    }

    /// The host applies a configuration file.
    pub fn apply_file(&mut self, controllers: Vec<FileController<Guest>>) {
        self.watchdog.applied(&controllers, self.world.now());
        self.control(ControlInput::File(controllers));
    }

    /// An operator changes a controller of the file; `requests` are all its requests by
    /// then. [`Self::take_answer`] returns the answer.
    pub fn change(&mut self, id: ChangeId, controller: &str, change: Change, requests: &Requests) {
        self.watchdog
            .changed(controller, requests, self.world.now());
        let controller = controller.to_owned();
        self.control(ControlInput::Change {
            id,
            controller,
            change,
        });
    }

    /// An operator pauses the rollout of a controller of the file, or continues it.
    pub fn pause(&mut self, id: ChangeId, controller: &str, paused: bool) {
        let patch = json!({"spec": {"rollout": {"paused": paused}}});
        let Ok(change) = Change::read(&patch) else {
            return;
        };
        self.pauses.insert(controller.to_owned(), (id, paused));
        self.world.records_mut().confirm_pause(controller, false);
        let controller = controller.to_owned();
        self.control(ControlInput::Change {
            id,
            controller,
            change,
        });
    }

    /// The host's wall clock jumps.
    pub fn shift_wall_clock(&mut self, millis: i64) {
        self.watchdog.clock_jumped();
        self.world.shift_wall_clock(millis);
    }

    /// The module of a source changed: a spec may describe another revision.
    pub fn modules_changed(&mut self) {
        self.watchdog.modules_changed();
    }

    /// The host gains or loses leadership.
    pub fn lead(&mut self, held: bool) {
        self.leading = held;
        self.watchdog.leads(held);
        let change = if held { "gains" } else { "loses" };
        self.world
            .note(format_args!("the host {change} leadership"));
        self.handle(machine::Input::Leadership { held });
        self.pump();
        self.world.allow_writes(held);
    }

    /// The host crashes.
    pub fn crash(&mut self) {
        self.core = None;
        self.calls.clear();
        self.reminders.clear();
        self.reads.clear();
        self.answers.clear();
        self.pauses.clear();
        self.world.crash();
    }

    /// Runs the host until this time, a reminder of the owner, or a crash.
    pub fn run(&mut self, until: Instant) -> StopReason {
        let (mut rounds, mut moment) = (0, self.world.now().instant);
        loop {
            self.pump();
            if std::mem::take(&mut self.crashed) {
                return StopReason::Crashed;
            }
            let now = self.world.now().instant;
            if now > moment {
                (rounds, moment) = (0, now);
            }
            rounds += 1;
            if rounds > MOST_ROUNDS {
                self.world
                    .violated("the host spins: it never waits for time to pass".to_owned());
                return StopReason::Time;
            }
            let next = self.next_wake().unwrap_or(until).min(until);
            match self.world.next(next) {
                Some(notice) => {
                    if let Some(reminder) = self.notice(notice) {
                        return StopReason::Reminder(reminder);
                    }
                    // The host may receive several inputs before the next poll.
                    while self.world.dice().chance(0.3)
                        && let Some(notice) = self.world.next(self.world.now().instant)
                    {
                        if let Some(reminder) = self.notice(notice) {
                            return StopReason::Reminder(reminder);
                        }
                    }
                }
                None if self.world.now().instant >= until => return StopReason::Time,
                None => {}
            }
        }
    }

    /// When to poll the host again, on the world's clock.
    fn next_wake(&self) -> Option<Instant> {
        let wake = self.core.as_ref()?.next_wake(self.now());
        let nanos = wake.as_nanos().saturating_add(self.boot.as_nanos());
        Some(Instant::from_nanos(nanos))
    }

    /// Takes the host's effects. The host may crash after each of them.
    fn pump(&mut self) {
        loop {
            let now = self.now();
            let Some(effect) = self.core.as_mut().and_then(|core| core.poll(now)) else {
                break;
            };
            let counts = !matches!(
                effect,
                Effect::Machine(machine::Effect::Report(_) | machine::Effect::Release(_))
            );
            match effect {
                Effect::Control(effect) => self.control_effect(effect),
                Effect::Machine(effect) => self.machine_effect(effect),
                Effect::Lease(request) => self.world.lease(request),
                Effect::Term { controller, until } => {
                    let until = until.map(|until| self.boot.after(until.since(Instant::ZERO)));
                    self.world.set_term(controller, until);
                }
            }
            if counts && self.crash > 0.0 && self.world.dice().chance(self.crash) {
                self.crash();
                self.crashed = true;
                break;
            }
        }
        self.watchdog.settle();
    }

    fn handle(&mut self, input: machine::Input) {
        let now = self.now();
        if let Some(core) = &mut self.core {
            core.handle(now, Input::Machine(input));
        }
    }

    fn control(&mut self, input: ControlInput<Guest>) {
        let now = self.now();
        if let Some(core) = &mut self.core {
            core.handle(now, Input::Control(input));
        }
    }

    fn machine_effect(&mut self, effect: machine::Effect<Guest>) {
        use machine::Effect;
        if let Effect::Execute(execute) = &effect {
            self.check_plan(execute);
        }
        match self.world.perform(effect) {
            Some(Effect::Call(call)) => self.call(call),
            Some(Effect::Resume { read, answer }) => self.resume(read, answer),
            Some(Effect::Report(report)) => {
                self.watchdog.reported(&report);
                self.reports.push(report);
            }
            Some(_) | None => {}
        }
    }

    /// Checks a plan that is about to be executed.
    fn check_plan(&mut self, execute: &Execute) {
        let executed = ExecutedPlan {
            at: self.world.now().instant,
            controller: execute.controller.clone(),
            revision: Arc::clone(&execute.revision),
            plan: Arc::clone(&execute.plan),
        };
        self.world.note(format_args!("{executed}"));
        let records = self.world.records();
        for problem in self.watchdog.executes(execute.id, &executed, records) {
            self.world.violated(problem);
        }
        self.executed.push(executed);
    }

    /// Passes a notice to the host. Returns a reminder of the owner.
    fn notice(&mut self, notice: Notice) -> Option<u64> {
        match notice {
            Notice::Machine(input) => {
                self.watchdog.receives(&input, self.world.now().instant);
                self.handle(input);
            }
            Notice::RecordRead {
                id,
                controller,
                record,
            } => self.record_read(id, &controller, record),
            Notice::RecordWritten {
                id,
                controller,
                result,
                written,
            } => self.record_written(id, &controller, result, written),
            Notice::Lease { id, answer } => {
                let now = self.now();
                if let Some(core) = &mut self.core {
                    core.handle(now, Input::Lease(id, answer));
                }
            }
            Notice::Reviewed { id, review, result } => {
                self.watchdog.reviewed(&review, &result);
                self.control(ControlInput::Reviewed { id, result });
            }
            Notice::Reminder(reminder) => match self.reminders.remove(&reminder) {
                Some(Reminder::Computed(call)) => self.computed(call),
                Some(Reminder::Loaded(load)) => self.loaded(&load),
                None => return Some(reminder),
            },
        }
        None
    }

    /// Sets a reminder for the driver. A crash of the host cancels the reminder.
    fn remind(&mut self, after: std::time::Duration, what: Reminder) {
        self.last_id += 1;
        self.reminders.insert(self.last_id, what);
        let at = self.world.now().instant.after(after);
        self.world.remind(at, self.last_id);
    }
}
