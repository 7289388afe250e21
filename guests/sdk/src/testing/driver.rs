//! Drives the host's machine with one guest in a calm world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_core::controller::{Outcome, PlanId, Settings};
use davit_core::desired::DesiredController;
use davit_core::digest::ModuleDigest;
use davit_core::gate::{Mode, Ruling};
use davit_core::grant::{Grant, Permissions};
use davit_core::machine::{
    Call, Effect, Execute, Input, Machine, ReadAnswer, ReadId, ReadRequest, Report,
};
use davit_core::plan::{Plan, Step, WorkItem};
use davit_core::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use davit_core::stream::{Batch, StreamId, Update};
use davit_core::time::{Instant, Now};
use davit_core::{controller, plan};
use davit_sim::{Config, Model, Time};
use davit_simulation::{HostIndex, Notice, Occurrence, World};
use serde::Deserialize;
use serde_json::Value;

use super::cluster::{self, join};
use super::in_flight::InFlight;
use super::lag::Lag;
use super::metrics::Metrics;
use super::native::{self, Interruption, Native, Probe};
use super::{Execution, START};
use crate as sdk;
use crate::{Context, Controller};

/// More calls, requests and updates than any test needs at one point in time.
const MAX_ROUNDS: u32 = 100_000;
/// More calls than any test needs at one point in time.
const MAX_CALLS: u32 = 50_000;

/// How many calls the host makes at once.
const INSTANCES: u32 = 4;

const HOST: HostIndex = HostIndex::FIRST;

/// The machine, its guest, and the world around it.
pub(super) struct Driver<C> {
    pub(super) world: World,
    pub(super) metrics: Metrics,
    pub(super) probe: Probe,
    /// The plans that have ended, in the order of their beginnings.
    pub(super) executions: BTreeMap<PlanId, Execution>,
    /// The live reads of single objects: the time and the object.
    pub(super) reads: Vec<(sdk::Instant, sdk::ObjectRef)>,
    /// The targets of the plans that a dry run has not executed, in order.
    pub(super) dry_runs: Vec<sdk::ObjectRef>,
    pub(super) lag: Lag,
    /// What the operator has set. [`Self::configure`] applies a change.
    pub(super) settings: Settings,
    machine: Machine<()>,
    guest: Native<C>,
    name: String,
    /// The kind of the objects of each stream.
    kinds: BTreeMap<StreamId, String>,
    calls: BTreeMap<controller::CallId, InFlight>,
    readings: BTreeMap<ReadId, controller::CallId>,
    executing: BTreeMap<PlanId, PlanUnderTest>,
    /// Plans that were decided, as the guest and as the host knows them, by the uid of
    /// their target.
    decided: BTreeMap<String, Vec<(sdk::Plan, Plan)>>,
    /// The item whose next call takes until the test says otherwise.
    hold: Option<plan::QueueKey>,
    held: Option<controller::CallId>,
    calls_now: u32,
    moment: Instant,
    last_id: u64,
}

struct PlanUnderTest {
    plan: Arc<Plan>,
    decided: sdk::Plan,
}

impl<C: Controller> Driver<C> {
    pub(super) fn new(guest: Native<C>) -> Self {
        let start = Time::from_unix(START.as_millis() / 1000);
        let config = Config {
            // No test is about watches that expire.
            history_events: usize::MAX,
            ..Config::default()
        };
        let model = Model::new(config, start);
        let model = model.unwrap_or_else(|status| panic!("{}", status.message));
        let world = World::calm(model, start);
        let machine = Machine::new(world.now_of(HOST));
        let mut driver = Self {
            world,
            metrics: Metrics::default(),
            probe: Probe::default(),
            executions: BTreeMap::new(),
            reads: Vec::new(),
            dry_runs: Vec::new(),
            lag: Lag::default(),
            settings: Settings {
                mode: Mode::Enforce,
                ..Settings::default()
            },
            machine,
            name: guest.manifest().name.clone(),
            guest,
            kinds: BTreeMap::new(),
            calls: BTreeMap::new(),
            readings: BTreeMap::new(),
            executing: BTreeMap::new(),
            decided: BTreeMap::new(),
            hold: None,
            held: None,
            calls_now: 0,
            moment: Instant::ZERO,
            last_id: 0,
        };
        driver.configure();
        driver.discover();
        driver
    }

    /// The operator grants these rules alone from now on.
    pub(super) fn grant(&mut self, permissions: &Value) {
        let rules = Permissions::deserialize(permissions);
        let grant = Grant::Rules {
            rules: Arc::new(rules.unwrap_or_else(|error| panic!("the permissions: {error}"))),
            home: Arc::from("davit-system"),
        };
        let missing = grant.missing(self.guest.manifest());
        assert!(missing.is_empty(), "the permissions lack: {missing}");
        self.settings.grant = grant;
        self.configure();
    }

    /// The controller runs with the settings from now on.
    pub(super) fn configure(&mut self) {
        let limits = CallLimits {
            memory_mib: 64,
            call_millis: 1000,
            instances: INSTANCES,
        };
        let stable = LoadedRevision::shipped(
            (),
            Arc::new(self.guest.manifest().clone()),
            RevisionIdentity::new(ModuleDigest([0; 32]), Arc::from([]), limits),
        );
        let desired = DesiredController::new(self.name.clone(), self.settings.clone(), stable);
        self.machine.apply(self.now(), vec![desired]);
    }

    /// The clocks of the host.
    pub(super) fn now(&self) -> Now {
        self.world.now_of(HOST)
    }

    /// The next notice; none if there is none until this time.
    fn next(&mut self, until: Instant) -> Option<Notice> {
        match self.world.next(until)? {
            Occurrence::Notice(_, notice) => Some(notice),
            // Nobody sets one.
            Occurrence::Reminder(_) => None,
        }
    }

    /// The host discovers what the API server serves by now.
    pub(super) fn discover(&mut self) {
        self.world.link(HOST).discover();
        self.follow();
    }

    /// The cache follows the API server. No guest is called.
    pub(super) fn follow(&mut self) {
        loop {
            while let Some(effect) = self.machine.poll_inputs() {
                self.effect(effect);
            }
            let now = self.world.instant();
            match self.next(now) {
                Some(notice) => self.notice(notice),
                None => return,
            }
        }
    }

    /// The host does nothing until then.
    pub(super) fn sleep(&mut self, until: Instant) {
        let missed: Vec<Notice> = std::iter::from_fn(|| self.next(until)).collect();
        for notice in missed {
            self.notice(notice);
        }
    }

    /// Does everything that is due by then.
    pub(super) fn run(&mut self, until: Instant) {
        self.follow();
        let mut rounds = 0;
        loop {
            self.poll();
            let now = self.now();
            if now.instant > self.moment {
                (rounds, self.calls_now, self.moment) = (0, 0, now.instant);
            }
            rounds += 1;
            assert!(
                rounds < MAX_ROUNDS,
                "the host does not come to rest at one point in time"
            );
            let wake = self.machine.next_wake(now);
            match self.next(wake.min(until)) {
                Some(notice) => self.notice(notice),
                None if now.instant >= until && wake > until => return,
                None => {}
            }
        }
    }

    /// Takes the machine's effects. An effect that is answered immediately is an input, after
    /// which the machine is asked again.
    fn poll(&mut self) {
        let mut answered = true;
        while std::mem::take(&mut answered) {
            while let Some(effect) = self.machine.poll(self.now()) {
                answered = true;
                self.effect(effect);
            }
        }
    }

    /// Enqueues an item as the guest would.
    pub(super) fn enqueue(&mut self, queue: &str, key: &str, after: Duration) {
        let queues = &mut self.guest.manifest().queues.iter();
        assert!(
            queues.any(|it| it.name == queue),
            "the queue \"{queue}\" is not declared"
        );
        let enqueue = plan::Enqueue {
            item: queue_key(queue, key),
            after,
            created_at: None,
            group: String::new(),
        };
        self.follow();
        let now = self.now();
        self.machine.enqueue(now, &self.name, &enqueue);
    }

    /// The next call about this item takes until [`Self::release`].
    pub(super) fn hold(&mut self, queue: &str, key: &str) {
        self.hold = Some(queue_key(queue, key));
        self.enqueue(queue, key, Duration::ZERO);
        let now = self.world.instant();
        self.run(now);
        assert!(self.held.is_some(), "the host does not call the guest");
    }

    /// The call that was held ends.
    pub(super) fn release(&mut self) {
        if let Some(call) = self.held.take() {
            self.answer(call);
        }
        let now = self.world.instant();
        self.run(now);
    }

    /// What a call about a fresh item would be made with now.
    pub(super) fn preview(&mut self, queue: &str, key: &str, cursor: &str) -> Call<()> {
        self.follow();
        let now = self.now();
        let item = WorkItem {
            cursor: cursor.to_owned(),
            ..WorkItem::new(queue, key, now.instant)
        };
        let call = self.machine.preview(now, &self.name, item);
        call.expect("the controller waits for a resource that is not served: put an object of it")
    }

    /// The guest's decision about a fresh item. Nothing is executed.
    pub(super) fn decide(&mut self, queue: &str, key: &str, cursor: &str) -> sdk::Decision {
        let call = self.preview(queue, key, cursor);
        let mut answers = Vec::new();
        loop {
            match self.reconcile(&call, &answers) {
                Ok(mut decisions) => {
                    self.read_decisions(&call, decisions.clone());
                    return decisions.pop().expect("one decision");
                }
                Err(request) => answers.push(self.read(&call, &request)),
            }
        }
    }

    /// What a controller would decide now, as it reads it itself. Nothing is executed.
    pub(super) fn observe<R>(&mut self, observe: impl Fn(&C, &Context<'_>) -> R) -> R {
        let call = self.preview("", "", "");
        let mut answers = Vec::new();
        loop {
            match self.guest.observe(&call, &answers, &observe) {
                Ok(observed) => return observed.expect("a controller"),
                Err(Interruption::Reads(request)) => answers.push(self.read(&call, &request)),
                Err(Interruption::Failed(failure)) => panic!("{failure}"),
            }
        }
    }

    /// Lets the guest decide; it may need a live read first.
    fn reconcile(
        &mut self,
        call: &Call<()>,
        answers: &[ReadAnswer],
    ) -> Result<Vec<sdk::Decision>, Box<ReadRequest>> {
        let mark = self.probe.mark();
        match self.guest.decide(call, answers, Some(&self.probe), None) {
            Ok(decisions) => Ok(decisions),
            Err(Interruption::Reads(request)) => {
                // An attempt that ends at a live read leaves no trace.
                self.probe.rewind(mark);
                if let ReadRequest::Get(requests) = &*request {
                    let at = sdk::Instant::from_millis(call.now.wall.0);
                    let read = requests.iter().map(|it| (at, reference(&it.target)));
                    self.reads.extend(read);
                }
                Err(request)
            }
            Err(Interruption::Failed(failure)) => panic!("{failure}"),
        }
    }

    /// The decisions as the host reads them. An answer that it refuses ends the test.
    fn read_decisions(
        &self,
        call: &Call<()>,
        decisions: Vec<sdk::Decision>,
    ) -> Vec<plan::Decision> {
        let read = self.guest.read(call, decisions);
        read.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Reads for a call that nothing else waits for.
    fn read(&mut self, call: &Call<()>, request: &ReadRequest) -> ReadAnswer {
        let id = ReadId(self.fresh_id());
        self.world
            .link(HOST)
            .read(id, &self.name, None, &call.mapping, request, usize::MAX);
        let now = self.world.instant();
        while let Some(notice) = self.next(now) {
            match notice {
                Notice::Machine(Input::ReadDone { read, answer }) if read == id => {
                    return answer;
                }
                notice => self.notice(notice),
            }
        }
        panic!("a live read has no answer");
    }

    fn effect(&mut self, effect: Effect<()>) {
        match &effect {
            Effect::StartStream { stream, spec } => {
                let resource = &spec.resource;
                let (group, version) = (&resource.group, &resource.version);
                let model = self.world.model();
                let served = model.resource(group, version, &resource.plural);
                let kind = served.map(|served| served.kind.clone());
                self.kinds.insert(*stream, kind.unwrap_or_default());
            }
            Effect::Execute(execute) => self.executes(execute),
            _ => {}
        }
        match self.world.link(HOST).perform(effect) {
            Some(Effect::Call(call)) => self.call(call),
            Some(Effect::Resume { read, answer }) => {
                if let Some(call) = self.readings.remove(&read) {
                    if let Some(in_flight) = self.calls.get_mut(&call) {
                        in_flight.add(answer);
                    }
                    self.compute(call);
                }
            }
            Some(Effect::Report(report)) => self.report(report),
            Some(_) | None => {}
        }
    }

    fn notice(&mut self, notice: Notice) {
        // A machine alone has no control half, and records nothing.
        let Notice::Machine(mut input) = notice else {
            return;
        };
        match &mut input {
            Input::Stream(Batch { stream, updates }) => {
                let kind = self.kinds.get(stream).map(String::as_str);
                self.lag.filter(*stream, kind.unwrap_or_default(), updates);
                if updates.is_empty() {
                    return;
                }
            }
            Input::Executed { plan, outcome, .. } => self.executed(*plan, outcome),
            _ => {}
        }
        self.handle(input);
    }

    fn handle(&mut self, input: Input) {
        let now = self.now();
        self.machine.handle(now, input);
    }

    /// Updates of streams that the test made or delayed.
    pub(super) fn deliver(&mut self, updates: BTreeMap<StreamId, Update>) {
        for (stream, update) in updates {
            let updates = vec![update];
            self.handle(Input::Stream(Batch { stream, updates }));
        }
        self.follow();
    }

    fn call(&mut self, call: Box<Call<()>>) {
        self.calls_now += 1;
        assert!(
            self.calls_now < MAX_CALLS,
            "{MAX_CALLS} calls, and there are still items due: does an item add itself?"
        );
        let id = call.id;
        self.calls.insert(id, InFlight::new(call));
        self.compute(id);
    }

    fn compute(&mut self, id: controller::CallId) {
        let Some(mut in_flight) = self.calls.remove(&id) else {
            return;
        };
        match self.reconcile(&in_flight.call, &in_flight.answers) {
            Err(request) => {
                let read = ReadId(self.fresh_id());
                let controller = Arc::clone(&in_flight.call.controller);
                self.calls.insert(id, in_flight);
                self.readings.insert(read, id);
                self.handle(Input::ReadRequested {
                    read,
                    call: id,
                    controller,
                    request: *request,
                });
            }
            Ok(decisions) => {
                let plans = decisions.iter().flat_map(|decision| decision.plans.clone());
                let plans: Vec<sdk::Plan> = plans.collect();
                in_flight.decisions = self.read_decisions(&in_flight.call, decisions);
                let read = in_flight.decisions.iter().flat_map(|one| &one.plans);
                for (plan, read) in plans.into_iter().zip(read) {
                    let of_target = self.decided.entry(read.target.uid.clone()).or_default();
                    of_target.retain(|(_, former)| former != read);
                    of_target.push((plan, read.clone()));
                }
                let is_held = |item: &WorkItem| {
                    let held = self.hold.as_ref();
                    held.is_some_and(|held| held.queue == item.queue && held.key == item.key)
                };
                let holds = in_flight.call.items.iter().any(is_held);
                self.calls.insert(id, in_flight);
                if holds {
                    self.hold = None;
                    self.held = Some(id);
                } else {
                    self.answer(id);
                }
            }
        }
    }

    fn answer(&mut self, id: controller::CallId) {
        if let Some(in_flight) = self.calls.remove(&id) {
            self.handle(Input::Answered {
                call: id,
                result: Ok(in_flight.decisions),
                logged: 0,
                took: Duration::ZERO,
                copy: None,
            });
        }
    }

    fn executes(&mut self, execute: &Execute) {
        let plan = &execute.plan;
        let of_target = self.decided.get(&plan.target.uid);
        let decided = of_target
            .into_iter()
            .flatten()
            .find(|(_, read)| *read == **plan);
        let (decided, _) = decided.cloned().expect("the guest decided the plan");
        let executing = PlanUnderTest {
            plan: Arc::clone(plan),
            decided,
        };
        self.executing.insert(execute.id, executing);
    }

    fn executed(&mut self, id: PlanId, outcome: &Outcome) {
        let Some(PlanUnderTest { plan, decided }) = self.executing.remove(&id) else {
            return;
        };
        let ends = |step: &Step| matches!(step, Step::Delete(_) | Step::Evict(_));
        if plan.target.kind == "Pod" && outcome.failed.is_none() && plan.steps.iter().any(ends) {
            let key = join(&plan.target.namespace, &plan.target.name);
            cluster::end_pod(&mut self.world, &key);
        }
        let result = match &outcome.failed {
            None => Ok(()),
            Some((step, failure)) => Err((*step, native::failure(failure).into())),
        };
        let ended = Execution {
            at: sdk::Instant::from_millis(self.now().wall.0),
            plan: decided,
            result,
        };
        self.executions.insert(id, ended);
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Measured { measure, .. } => {
                self.metrics.record(measure, self.world.instant());
            }
            Report::Ruled {
                plan,
                ruling: Ruling::Refuse(refusal),
                ..
            } => panic!("the plan for {} is {refusal}", plan.target),
            Report::Ruled {
                plan,
                ruling: Ruling::DryRun,
                ..
            } => self.dry_runs.push(reference(&plan.target)),
            _ => {}
        }
    }

    fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// The API server serves the object's kind from now on.
    pub(super) fn serve(&mut self, object: &Value) {
        if cluster::serve(&mut self.world, object) {
            self.discover();
        }
    }
}

fn queue_key(queue: &str, key: &str) -> plan::QueueKey {
    plan::QueueKey {
        queue: queue.to_owned(),
        key: key.to_owned(),
    }
}

fn reference(target: &davit_core::object::ObjectRef) -> sdk::ObjectRef {
    sdk::ObjectRef {
        api_version: target.api_version.clone(),
        kind: target.kind.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        uid: target.uid.clone(),
    }
}
