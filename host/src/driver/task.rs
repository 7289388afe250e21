//! The driver's task: passes inputs to the machine and executes its effects.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_cluster::api::Api;
use davit_cluster::discovery;
use davit_cluster::reflector::Reflector;
use davit_cluster::tasks::caught;
use davit_core::control::{ControlInput, JournalState};
use davit_core::failure::{Failure, FailureClass};
use davit_core::host::{Effect, Host, HostSettings, Input};
use davit_core::machine::{self, Report};
use davit_core::stream::{Batch, StreamId, StreamSpec};
use davit_core::time::{Instant, Now};
use davit_core::watch::Settings;
use davit_engine::Guest;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::sleep_until;

use super::DriverOptions;
use super::calls::{Caller, Reader};
use super::control::ControlDriver;
use super::decision::DecisionNames;
use super::execute::Executor;
use super::identity;
use super::leases::{LeaseDriver, Terms};
use super::message::Message;
use super::telemetry::Telemetry;
use super::traces::Traces;
use crate::journal::JournalQueue;

/// How many batches of updates the task queues; then the streams wait.
const BATCHES: usize = 64;
/// How many messages are handled before the machine's effects are polled.
const MOST_AT_ONCE: usize = 256;

/// The task.
pub(super) struct Task {
    api: Api,
    host: Host<Arc<Guest>>,
    control: ControlDriver,
    /// None if there are no other replicas.
    leases: Option<LeaseDriver>,
    terms: Terms,
    reflectors: Reflectors,
    caller: Caller,
    executor: Executor,
    telemetry: Telemetry,
    /// None if no traces are sent.
    traces: Option<Traces>,
    /// None if nothing is recorded.
    journal: Option<JournalQueue>,
    /// What the control half last got about it.
    journal_state: Option<JournalState>,
    /// Whether the API server answered when the machine last got this input.
    reachable: bool,
    inbox: mpsc::UnboundedSender<Message>,
    batches: mpsc::Receiver<Batch>,
    /// The callers that wait until their declarations are recorded.
    waiting: Vec<oneshot::Sender<()>>,
}

/// The reflectors that run.
struct Reflectors {
    api: Api,
    seed: u64,
    batches: mpsc::Sender<Batch>,
    running: BTreeMap<StreamId, Reflector>,
}

/// The reasons for the task to wake up.
enum Event {
    Message(Message),
    Batch(Batch),
    Due,
}

impl Task {
    pub(super) fn new(options: DriverOptions, inbox: mpsc::UnboundedSender<Message>) -> Self {
        let (api, recorder) = (options.api, options.recorder);
        let (sender, batches) = mpsc::channel(BATCHES);
        let names = DecisionNames::of_this_run();
        let settings = HostSettings {
            namespace: options.namespace,
            identity: options.records.are_shared().then(identity::new),
            trust: options.trust,
            leases: options.leases.clone(),
        };
        let leases = options.leases.as_ref();
        let terms = Terms::new(api.clock(), leases);
        let namespace = settings.namespace.clone();
        let leases =
            leases.map(|leases| LeaseDriver::new(api.clone(), namespace, leases, inbox.clone()));
        let now = api.clock().now();
        let mut host = Host::new(now, settings);
        let journal = options.journal.map(|journal| {
            host.start_journal(now);
            host.watch_profile(now, journal.profile());
            let inbox = inbox.clone();
            // The task may have ended.
            journal.start(move || drop(inbox.send(Message::Keyframe)))
        });
        let keeper = journal.as_ref().map(JournalQueue::keeper);
        Self {
            leases,
            terms,
            host,
            journal,
            journal_state: None,
            control: ControlDriver {
                api: api.clone(),
                loader: options.loader,
                records: options.records,
                recorder: recorder.clone(),
                metrics: Arc::clone(&options.metrics),
                health: Arc::clone(&options.health),
                inbox: inbox.clone(),
                changes: BTreeMap::new(),
                last_change: 0,
            },
            reflectors: Reflectors {
                api: api.clone(),
                seed: options.seed,
                batches: sender,
                running: BTreeMap::new(),
            },
            caller: Caller::new(api.clone(), names.clone(), inbox.clone()),
            executor: Executor::new(
                api.clone(),
                recorder.clone(),
                names.clone(),
                inbox.clone(),
                keeper,
            ),
            traces: options
                .traces
                .map(|queue| Traces::new(names.clone(), queue)),
            telemetry: Telemetry {
                api: api.clone(),
                recorder,
                names,
                metrics: options.metrics,
                guests: BTreeMap::new(),
                health: options.health,
                listener: options.listener,
            },
            reachable: true,
            api,
            inbox,
            batches,
            waiting: Vec::new(),
        }
    }

    /// Runs until the host is stopped.
    pub(super) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        self.run_effects();
        while !self.host.is_stopped() {
            let clock = self.api.clock();
            let wake = clock.deadline(self.host.next_wake(clock.now()));
            // A timer that is due ends with the millisecond. The machine works in slices: each
            // would wait so long.
            let is_due = wake <= tokio::time::Instant::now();
            let event = tokio::select! {
                Some(message) = messages.recv() => Event::Message(message),
                Some(batch) = self.batches.recv() => Event::Batch(batch),
                () = yield_now(), if is_due => Event::Due,
                () = sleep_until(wake), if !is_due => Event::Due,
            };
            self.update_reachability();
            self.update_journal();
            match event {
                Event::Message(message) => {
                    self.handle(message);
                    for _ in 1..MOST_AT_ONCE {
                        let Ok(message) = messages.try_recv() else {
                            break;
                        };
                        self.handle(message);
                    }
                }
                Event::Batch(batch) => self.machine_input(machine::Input::Stream(batch)),
                Event::Due => {}
            }
            self.run_effects();
        }
        if let Some(traces) = &mut self.traces {
            traces.stop(self.api.clock().instant());
        }
        // It can pass objects to the journal's thread, which ends when nobody can.
        drop(self.executor);
        if let Some(journal) = self.journal {
            journal.close().await;
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Input(input) => self.input(input),
            Message::Declared {
                input,
                taken,
                settled,
            } => {
                self.input(Input::Control(input));
                // Whoever declares may be gone.
                let _ = taken.send(());
                self.waiting.push(settled);
            }
            Message::Change {
                controller,
                change,
                answer,
            } => {
                let input = self.control.change(controller, change, answer);
                self.input(Input::Control(input));
            }
            Message::Read(read) => {
                let input = self.caller.request(read);
                self.machine_input(input);
            }
            Message::Query(query) => query(&self.host, self.api.clock().now()),
            Message::Keyframe => self.host.add_keyframe(self.api.clock().now()),
        }
    }

    fn input(&mut self, input: Input<Arc<Guest>>) {
        self.host.handle(self.api.clock().now(), input);
    }

    fn machine_input(&mut self, input: machine::Input) {
        self.input(Input::Machine(input));
    }

    fn update_reachability(&mut self) {
        let reachable = self.api.absence().is_none();
        if self.reachable != reachable {
            self.reachable = reachable;
            self.machine_input(machine::Input::Reachable(reachable));
        }
    }

    fn update_journal(&mut self) {
        let is_stopped = self.control.health.is_journal_stopped();
        let state = self.journal.as_ref().map(|_| {
            if is_stopped {
                JournalState::Stopped
            } else {
                JournalState::Recording
            }
        });
        if self.journal_state != state {
            self.journal_state = state;
            if let Some(state) = state {
                self.input(Input::Control(ControlInput::Journal(state)));
            }
        }
    }

    fn run_effects(&mut self) {
        let now = self.api.clock().now();
        while let Some(effect) = self.host.poll(now) {
            match effect {
                Effect::Control(effect) => self.control.run(effect, &mut self.terms),
                Effect::Machine(effect) => self.run_effect(now, effect),
                Effect::Lease(request) => {
                    if let Some(leases) = &self.leases {
                        leases.run(request);
                    }
                }
                Effect::Term { controller, until } => self.terms.set(&controller, until),
            }
        }
        if let Some(journal) = &self.journal {
            journal.send(self.host.take_journal());
        }
        if !self.waiting.is_empty() && self.host.is_settled(now) {
            // The host is ready from now on, unless a controller waits.
            self.telemetry.heartbeat(self.host.waiting(now));
            for waiting in self.waiting.drain(..) {
                // The caller may be gone.
                let _ = waiting.send(());
            }
        }
    }

    fn run_effect(&mut self, now: Now, effect: machine::Effect<Arc<Guest>>) {
        use machine::Effect;
        match effect {
            Effect::StartStream { stream, spec } => self.reflectors.start(stream, spec),
            Effect::StopStream(stream) => self.reflectors.stop(stream),
            Effect::Discover => self.discover(),
            Effect::Call(call) => {
                if let Some(traces) = &mut self.traces {
                    traces.call(&call, now);
                }
                self.caller.call(*call);
            }
            Effect::Read {
                read,
                call,
                controller,
                account,
                request,
                mapping,
                most_bytes,
            } => {
                let traces = self.traces.as_ref();
                let trace = traces.and_then(|all| all.read(call, &request, now.instant));
                let reader = Reader {
                    controller: &controller,
                    account: account.as_ref(),
                    trace,
                };
                self.caller.read(read, reader, request, mapping, most_bytes);
            }
            Effect::Resume { read, answer } => self.caller.resume(read, answer),
            Effect::Execute(execute) => {
                let term = self.terms.of(&execute.controller);
                let traces = self.traces.as_mut();
                let trace = traces.and_then(|all| all.plan(&execute, now.instant));
                self.executor.execute(execute, term, trace);
            }
            Effect::Withdraw(controller) => self.executor.withdraw(controller),
            Effect::Report(report) => self.report(now.instant, report),
            Effect::Release(guest) => drop(spawn_blocking(move || drop(guest))),
        }
    }

    fn report(&mut self, now: Instant, report: Report) {
        if matches!(report, Report::State(_)) {
            let (statuses, terms) = (self.host.statuses(), &self.terms);
            self.telemetry.controllers(statuses, |one| terms.leads(one));
            let instances = self.control.loader.instances();
            let waiting = self.host.waiting(self.api.clock().now());
            self.telemetry.heartbeat(waiting);
            self.telemetry
                .host(self.reflectors.running.len(), instances);
        }
        if let Some(traces) = &mut self.traces {
            traces.report(&report, now);
        }
        self.telemetry.report(report, now);
    }

    fn discover(&self) {
        let (api, inbox) = (self.api.clone(), self.inbox.clone());
        tokio::spawn(async move {
            let result = caught(discovery::discover(&api)).await;
            let failed = |panic| Err(Failure::new(FailureClass::Server, panic));
            let result = result.unwrap_or_else(failed);
            // The host may have stopped.
            let _ = inbox.send(machine::Input::Discovered(result).into());
        });
    }
}

impl Reflectors {
    fn start(&mut self, stream: StreamId, spec: StreamSpec) {
        let seed = self.seed.wrapping_add(u64::from(stream.0));
        let (settings, batches) = (Settings::default(), self.batches.clone());
        let reflector = Reflector::start(&self.api, spec, settings, seed, stream, batches);
        self.running.insert(stream, reflector);
    }

    fn stop(&mut self, stream: StreamId) {
        self.running.remove(&stream);
    }
}
