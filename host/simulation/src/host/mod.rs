//! One of the core's hosts, and a driver that runs it in the world.

mod calls;
mod control;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use davit_core::api::ControllerSpec;
use davit_core::control::{
    Change, ChangeError, ChangeId, ControlInput, Declaration, DeclaredController, FileController,
    HostIdentity, Load, Requests,
};
use davit_core::controller::CallId;
use davit_core::election::LeaseTiming;
use davit_core::host::{Effect, HostSettings, Input, LeaseSettings};
use davit_core::machine::{self, Execute, ReadId, Report};
use davit_core::revision::LoadedRevision;
use davit_core::time::{Instant, Now};
use davit_core::trust::{TrustPolicy, UnsignedPolicy};
use serde_json::{Value, json};

use crate::execution::ExecutedPlan;
use crate::fault::FaultKind;
use crate::guest::Guest;
use crate::modules::{ModuleCache, Modules};
use crate::namespace::NAMESPACE;
use crate::recording::Recording;
use crate::watchdog::Watchdog;
use crate::world::{HostIndex, Link, Notice, World};
use calls::CallInFlight;

/// A host: the core's, and what its driver has under way.
pub struct Host {
    index: HostIndex,
    core: Option<davit_core::host::Host<Guest>>,
    cache: ModuleCache,
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
    has_crashed: bool,
    /// The machine's reports since the owner last took them.
    reports: Vec<Report>,
    /// The answers to changes that the owner has not taken yet.
    answers: VecDeque<(ChangeId, Result<Value, ChangeError>)>,
    /// The last change of each controller of a file that pauses its rollout (true) or
    /// continues it.
    pauses: BTreeMap<String, (ChangeId, bool)>,
    watchdog: Watchdog,
    /// Whether the core's host knows that the API server answers.
    reachable: bool,
    /// When the core's host is polled again, on the world's clock; none if it had an input
    /// since the last poll, and is polled immediately.
    wake: Option<Instant>,
    last_id: u64,
    /// The journal of all its runs; none if nobody asked for it.
    recording: Option<Recording>,
}

/// The purpose of a reminder.
#[derive(Debug)]
enum Reminder {
    /// A guest's call ends.
    Computed(CallId),
    /// A load ends.
    Loaded(Box<Load>),
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.index).finish()
    }
}

impl Host {
    pub(crate) fn new(index: HostIndex) -> Self {
        Self {
            index,
            core: None,
            cache: ModuleCache::default(),
            calls: BTreeMap::new(),
            reminders: BTreeMap::new(),
            reads: BTreeMap::new(),
            trap: 0.0,
            crash: 0.0,
            has_crashed: false,
            reports: Vec::new(),
            answers: VecDeque::new(),
            pauses: BTreeMap::new(),
            watchdog: Watchdog::default(),
            reachable: true,
            wake: None,
            last_id: 1 << 32,
            recording: None,
        }
    }

    /// Records the journal of the host from its next start on.
    pub fn record(&mut self) {
        self.recording.get_or_insert_default();
    }

    /// The journal, if it is recorded.
    #[must_use]
    pub const fn recording(&self) -> Option<&Recording> {
        self.recording.as_ref()
    }

    /// Whether the host runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.core.is_some()
    }

    /// Whether the host has stopped, and its process would end.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        self.core
            .as_ref()
            .is_none_or(davit_core::host::Host::is_stopped)
    }

    /// The core's host; none while it does not run.
    #[must_use]
    pub fn core(&self) -> Option<&davit_core::host::Host<Guest>> {
        self.core.as_ref()
    }

    /// Takes the machine's reports.
    pub fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    /// Takes the next answer to a change.
    pub fn take_answer(&mut self) -> Option<(ChangeId, Result<Value, ChangeError>)> {
        self.answers.pop_front()
    }

    /// The module cache is empty: the host runs on another machine.
    pub fn forget_modules(&mut self) {
        self.cache.clear();
    }

    /// The wall clock jumps: recorded times mean nothing any more.
    pub(crate) fn watch_clock_jump(&mut self) {
        self.watchdog.clock_jumped();
    }

    /// The module of a source changed: a spec may describe another revision.
    pub(crate) fn watch_modules(&mut self) {
        self.watchdog.modules_changed();
    }

    /// Whether the host crashed since this was last asked.
    pub(crate) fn take_crash(&mut self) -> bool {
        std::mem::take(&mut self.has_crashed)
    }
}

/// The driver of one host: it executes the host's effects in the world.
pub struct Driver<'a> {
    pub(crate) host: &'a mut Host,
    pub(crate) world: &'a mut World,
    pub(crate) modules: &'a mut Modules,
    /// Every plan that a machine admitted.
    pub(crate) executed: &'a mut Vec<ExecutedPlan>,
}

impl fmt::Debug for Driver<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)
    }
}

impl Driver<'_> {
    fn link(&mut self) -> Link<'_> {
        self.world.link(self.host.index)
    }

    /// The clocks of the host's machine.
    fn now(&self) -> Now {
        self.world.now_of(self.host.index)
    }

    /// The clocks of the host's machine, if it had never started again.
    fn steady_now(&self) -> Now {
        self.world.steady_now_of(self.host.index)
    }

    /// Starts the host. It knows nothing but the records. `run` distinguishes it from every
    /// other run of a host.
    pub(crate) fn start(&mut self, run: u64, elects: bool) {
        self.host.watchdog.restarted(elects);
        let run = format!("run{run}");
        let identity = HostIdentity {
            id: run.clone(),
            name: "simulated".to_owned(),
        };
        let settings = HostSettings {
            namespace: NAMESPACE.to_owned(),
            identity: self.world.records().are_shared.then_some(identity),
            trust: TrustPolicy {
                unsigned: UnsignedPolicy::Allow,
                ..TrustPolicy::default()
            },
            leases: elects.then(|| LeaseSettings {
                identity: run.clone(),
                timing: LeaseTiming::default(),
            }),
        };
        let mut link = self.link();
        link.note(format_args!("the host starts"));
        link.elect(elects.then_some(run));
        let now = self.now();
        let mut core = davit_core::host::Host::new(now, settings);
        if self.host.recording.is_some() {
            core.start_journal(now);
        }
        self.host.core = Some(core);
        self.host.wake = None;
        self.host.reachable = true;
    }

    /// The host receives the declarations of all controllers.
    pub fn declare(&mut self, declarations: Vec<Declaration>) {
        let now = self.steady_now();
        self.host.watchdog.declared(&declarations, now);
        let declared = declarations.into_iter();
        let declared = declared.map(|declaration| DeclaredController {
            declaration,
            loaded: None,
        });
        self.control(ControlInput::Declared(declared.collect()));
    }

    /// The revision that a spec describes, if the host can load it now.
    pub fn load_now(&mut self, spec: &ControllerSpec) -> Option<LoadedRevision<Guest>> {
        self.modules.load_now(spec, &mut self.host.cache)
    }

    /// The host applies a configuration file.
    pub fn apply_file(&mut self, controllers: Vec<FileController<Guest>>) {
        let now = self.steady_now();
        self.host.watchdog.applied(&controllers, now);
        self.control(ControlInput::File(controllers));
    }

    /// An operator changes a controller of the file; `requests` are all its requests by
    /// then. [`Host::take_answer`] returns the answer.
    pub fn change(&mut self, id: ChangeId, controller: &str, change: Change, requests: &Requests) {
        let now = self.steady_now();
        self.host.watchdog.changed(controller, requests, now);
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
        self.host.pauses.insert(controller.to_owned(), (id, paused));
        self.world.records_mut().confirm_pause(controller, false);
        let controller = controller.to_owned();
        self.control(ControlInput::Change {
            id,
            controller,
            change,
        });
    }

    /// The host stops: it starts no more plans and passes its leases on. It has stopped
    /// once [`Host::has_stopped`] says so.
    pub fn stop(&mut self) {
        self.link().note(format_args!("the host stops"));
        self.world.count(FaultKind::Stop);
        self.handle(machine::Input::Stop);
    }

    /// The host crashes.
    pub fn crash(&mut self) {
        let host = &mut *self.host;
        host.core = None;
        host.calls.clear();
        host.reminders.clear();
        host.reads.clear();
        host.answers.clear();
        host.pauses.clear();
        self.world.count(FaultKind::Crash);
        self.link().crash();
    }

    /// When to poll the host again, on the world's clock; none while it does not run.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let core = self.host.core.as_ref()?;
        Some(self.host.wake.unwrap_or_else(|| {
            let wake = core.next_wake(self.now());
            self.world.world_time(self.host.index, wake)
        }))
    }

    /// Takes the host's effects, if it had an input or is due: the real driver polls at no
    /// other time either. The host may crash after each effect.
    pub(crate) fn pump(&mut self) {
        self.update_reachability();
        let now = self.world.instant();
        if self.host.core.is_none() || self.host.wake.is_some_and(|wake| now < wake) {
            return;
        }
        self.take_effects();
        self.host.wake = None;
        self.host.wake = self.next_wake();
    }

    fn take_effects(&mut self) {
        loop {
            let now = self.now();
            let Some(effect) = self.host.core.as_mut().and_then(|core| core.poll(now)) else {
                break;
            };
            let counts = !matches!(
                effect,
                Effect::Machine(machine::Effect::Report(_) | machine::Effect::Release(_))
            );
            match effect {
                Effect::Control(effect) => self.control_effect(effect),
                Effect::Machine(effect) => self.machine_effect(effect),
                Effect::Lease(request) => self.link().lease(request),
                Effect::Term { controller, until } => {
                    if until.is_some() {
                        self.host.watchdog.elected(&controller);
                    } else {
                        self.host.watchdog.follows(&controller);
                        self.world.count(FaultKind::LostLeadership);
                    }
                    self.link().set_term(controller, until);
                }
            }
            if counts && self.crashes() {
                break;
            }
        }
        self.record();
        self.link().check_withdrawn();
        self.host.watchdog.settle();
    }

    /// Adds a keyframe to the journal.
    pub fn add_keyframe(&mut self) {
        let now = self.now();
        if let Some(core) = &mut self.host.core {
            core.add_keyframe(now);
        }
    }

    fn record(&mut self) {
        if let (Some(recording), Some(core)) = (&mut self.host.recording, &mut self.host.core) {
            recording.add(core.take_journal());
        }
    }

    /// The host may crash after an effect. Returns whether it does.
    fn crashes(&mut self) -> bool {
        if self.host.crash <= 0.0 || !self.world.dice().chance(self.host.crash) {
            return false;
        }
        self.crash();
        self.world.count(FaultKind::CrashAfterEffect);
        self.host.has_crashed = true;
        true
    }

    /// The host learns whether the API server answers, before it learns anything else.
    fn update_reachability(&mut self) {
        let reachable = self.link().is_reachable();
        if self.host.reachable != reachable {
            self.host.reachable = reachable;
            self.handle(machine::Input::Reachable(reachable));
        }
    }

    fn handle(&mut self, input: machine::Input) {
        self.input(Input::Machine(input));
    }

    fn control(&mut self, input: ControlInput<Guest>) {
        self.input(Input::Control(input));
    }

    fn input(&mut self, input: Input<Guest>) {
        let now = self.now();
        self.host.wake = None;
        if let Some(core) = &mut self.host.core {
            core.handle(now, input);
        }
    }

    fn machine_effect(&mut self, effect: machine::Effect<Guest>) {
        use machine::Effect;
        if let Effect::Execute(execute) = &effect {
            self.check_plan(execute);
        }
        match self.link().perform(effect) {
            Some(Effect::Call(call)) => self.call(call),
            Some(Effect::Resume { read, answer }) => self.resume(read, answer),
            Some(Effect::Report(report)) => {
                self.host.watchdog.reported(&report);
                self.host.reports.push(report);
            }
            Some(_) | None => {}
        }
    }

    /// Checks a plan that is about to be executed.
    fn check_plan(&mut self, execute: &Execute) {
        let executed = ExecutedPlan {
            at: self.world.instant(),
            controller: execute.controller.clone(),
            revision: Arc::clone(&execute.revision),
            plan: Arc::clone(&execute.plan),
        };
        self.link().note(format_args!("{executed}"));
        let now = self.steady_now().instant;
        let (watchdog, records) = (&mut self.host.watchdog, self.world.records());
        for problem in watchdog.executes(execute.id, &executed, records, now) {
            self.world.violated(problem);
        }
        self.executed.push(executed);
    }

    /// Passes a notice to the host.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.update_reachability();
        match notice {
            Notice::Machine(input) => {
                let now = self.steady_now().instant;
                self.host.watchdog.receives(&input, now);
                self.handle(input);
            }
            Notice::RecordRead {
                id,
                controller,
                record,
                written,
            } => self.record_read(id, &controller, record, written),
            Notice::RecordAnswered { work, answer } => {
                // Between two requests of one write, too.
                if !self.crashes() {
                    let answer = answer.as_ref().map(Vec::as_slice);
                    self.link().record_answered(work, answer);
                }
            }
            Notice::RecordWritten {
                id,
                controller,
                result,
                written,
            } => self.record_written(id, &controller, result, written),
            Notice::Lease { id, answer } => self.input(Input::Lease(id, answer)),
            Notice::Reviewed { id, review, result } => {
                self.host.watchdog.reviewed(&review, &result);
                self.control(ControlInput::Reviewed { id, result });
            }
            Notice::Reminder(reminder) => match self.host.reminders.remove(&reminder) {
                Some(Reminder::Computed(call)) => self.computed(call),
                Some(Reminder::Loaded(load)) => self.loaded(&load),
                None => {}
            },
        }
    }

    /// Sets a reminder for the driver. A crash of the host cancels the reminder.
    fn remind(&mut self, after: Duration, what: Reminder) {
        self.host.last_id += 1;
        let id = self.host.last_id;
        self.host.reminders.insert(id, what);
        self.link().remind(after, id);
    }
}

#[cfg(test)]
mod tests;
