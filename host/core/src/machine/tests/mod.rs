//! The machine without a driver: no clock, no I/O, and guests that are names.

mod changes;
mod compared;
mod compared_ends;
mod journal;
mod profile;
mod starts;
mod streams;
mod undo;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::*;
use crate::account::Account;
use crate::controller::Settings;
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::failure::{Failure, FailureClass};
use crate::gate::{Mode, Ruling};
use crate::manifest::{Manifest, Permission, QueueSpec, Source, Trigger, TriggerKey, WatchSpec};
use crate::mapping::{Discovery, ServedResource};
use crate::object::{ApiResource, ObjectRef, ProjectedObject, Uid};
use crate::plan::{Command, Decision, DeleteOptions, Plan, Step, Verdict};
use crate::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use crate::rollout::cohort::{CandidateStep, Cohort, Share};
use crate::stream::{Batch, StreamId, StreamSpec, Update};
use crate::time::Wall;
use crate::watch::Condition;

const SECOND: Duration = Duration::from_secs(1);

/// A guest, by its name.
type Guest = &'static str;

/// A machine and its effects.
struct Bench {
    machine: Machine<Guest>,
    now: Now,
    streams: BTreeMap<StreamId, StreamSpec>,
    calls: VecDeque<Call<Guest>>,
    executes: VecDeque<Execute>,
    withdrawn: Vec<ControllerId>,
    released: Vec<Guest>,
    reports: Vec<Report>,
    /// Other effects.
    others: Vec<Effect<Guest>>,
    /// The times at which the machine requested discovery.
    discoveries: Vec<Duration>,
    version: u64,
}

impl Bench {
    fn new() -> Self {
        let now = Now {
            instant: Instant::ZERO,
            wall: Wall(1_795_176_000_000),
        };
        let mut bench = Self {
            machine: Machine::new(now),
            now,
            streams: BTreeMap::new(),
            calls: VecDeque::new(),
            executes: VecDeque::new(),
            withdrawn: vec![],
            released: vec![],
            reports: vec![],
            others: vec![],
            discoveries: vec![],
            version: 0,
        };
        bench.run();
        bench
    }

    /// A machine with a controller that watches pods, all of them listed.
    fn running(pods: &[&str]) -> Self {
        let mut bench = Self::new();
        bench.discover(&["pods", "nodes"]);
        bench.apply(vec![desired("one", enforce())]);
        bench.list("pods", pods);
        bench
    }

    fn run(&mut self) {
        while let Some(effect) = self.machine.poll(self.now) {
            match effect {
                Effect::StartStream { stream, spec } => {
                    let former = self.streams.insert(stream, spec);
                    assert!(former.is_none(), "{stream:?} is started twice");
                }
                Effect::StopStream(stream) => {
                    let running = self.streams.remove(&stream);
                    assert!(running.is_some(), "{stream:?} does not run");
                }
                Effect::Discover => self.discoveries.push(self.elapsed()),
                Effect::Call(call) => self.calls.push_back(*call),
                Effect::Execute(execute) => self.executes.push_back(execute),
                Effect::Withdraw(controller) => self.withdrawn.push(controller),
                Effect::Report(report) => self.reports.push(report),
                Effect::Release(guest) => self.released.push(guest),
                effect @ (Effect::Read { .. } | Effect::Resume { .. }) => self.others.push(effect),
            }
        }
    }

    fn input(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        self.run();
    }

    /// This replica holds the leases of these controllers from now on, and no others.
    fn lead(&mut self, controllers: &[&str]) {
        let terms = controllers
            .iter()
            .map(|name| ((*name).to_owned(), Instant::FAR_FUTURE));
        self.machine.set_terms(self.now, terms.collect());
    }

    fn elapsed(&self) -> Duration {
        self.now.instant.since(Instant::ZERO)
    }

    /// Lets time pass, and polls the machine whenever it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now.instant.after(time);
        for _ in 0..10_000 {
            let wake = self.machine.next_wake(self.now).max(self.now.instant);
            if wake > end {
                self.now.instant = end;
                return;
            }
            self.now.instant = wake;
            self.run();
        }
        panic!("the machine does not rest");
    }

    fn apply(&mut self, desired: Vec<DesiredController<Guest>>) {
        self.machine.apply(self.now, desired);
        self.run();
    }

    /// The API server serves these resources and no others.
    fn discover(&mut self, plurals: &[&str]) {
        let discovery = Discovery {
            mapping: Mapping::new(plurals.iter().map(|plural| served(plural))),
            failed: vec![],
        };
        self.input(Input::Discovered(Ok(discovery)));
    }

    fn stream(&self, plural: &str) -> Option<StreamId> {
        let mut streams = self.streams.iter();
        let found = streams.find(|(_, spec)| spec.resource.plural == plural);
        found.map(|(stream, _)| *stream)
    }

    fn update(&mut self, plural: &str, update: Update) {
        let stream = self.stream(plural).expect("a stream of it runs");
        let updates = vec![update];
        self.input(Input::Stream(Batch { stream, updates }));
    }

    /// The stream of a resource lists these objects.
    fn list(&mut self, plural: &str, names: &[&str]) {
        let items = names.iter().map(|name| self.object(name)).collect();
        let resource_version = self.version.to_string().into();
        self.update(
            plural,
            Update::Reset {
                items,
                resource_version,
            },
        );
    }

    fn object(&mut self, name: &str) -> ProjectedObject {
        self.version += 1;
        object(name, self.version)
    }

    /// The keys of the calls that wait for an answer, each with its guest.
    fn called(&self) -> BTreeSet<(Guest, &str)> {
        let calls = self.calls.iter();
        calls
            .flat_map(|call| {
                let items = call.items.iter();
                items.map(|item| (call.guest, item.key.as_str()))
            })
            .collect()
    }

    /// The API server refuses the request of a plan as forbidden.
    fn forbid(&mut self, execute: &Execute, message: &str) {
        let failure = Failure::new(FailureClass::Forbidden, message);
        self.input(Input::Executed {
            plan: execute.id,
            outcome: Outcome {
                written: None,
                failed: Some((0, failure)),
            },
            took: SECOND,
        });
    }

    /// Answers every waiting call: the guest deletes each pod of its items if it
    /// should, and is done.
    fn answer_all(&mut self, deletes: bool) {
        while let Some(call) = self.calls.pop_front() {
            self.answer(&call, deletes);
        }
    }

    fn answer(&mut self, call: &Call<Guest>, deletes: bool) {
        self.input(answered(call, deletes));
    }

    fn executed(&mut self, execute: &Execute) {
        let outcome = Outcome {
            written: Some(crate::expectation::WriteResult::Gone),
            failed: None,
        };
        self.input(Input::Executed {
            plan: execute.id,
            outcome,
            took: Duration::from_millis(1),
        });
    }

    /// The names of the pods whose plans should be executed.
    fn deleting(&self) -> Vec<&str> {
        let executes = self.executes.iter();
        executes.map(|one| one.plan.target.name.as_str()).collect()
    }

    fn has_started(&self) -> bool {
        let mut reports = self.reports.iter();
        reports.any(|report| matches!(report, Report::Started { .. }))
    }

    fn has_started_candidate(&self) -> bool {
        let mut reports = self.reports.iter();
        reports.any(|report| matches!(report, Report::CandidateStarted { .. }))
    }

    /// What keeps the controllers from running, according to the next report.
    fn waiting(&mut self) -> Option<String> {
        self.pass(SECOND);
        self.machine.waiting(|_| true)
    }

    /// An answer is executed, and the driver has not taken the effects yet.
    fn execute(&mut self, answer: Input) {
        self.machine.handle(self.now, answer);
        self.machine.work(self.now);
    }
}

/// The answer to a call: the guest deletes each pod of its items if it should, and is
/// done.
fn answered(call: &Call<Guest>, deletes: bool) -> Input {
    let decisions = call.items.iter().map(|item| Decision {
        plans: deletes.then(|| delete(&item.key)).into_iter().collect(),
        commands: vec![],
        verdict: Verdict::Done,
        parallel: 0,
    });
    Input::Answered {
        call: call.id,
        result: Ok(decisions.collect()),
        logged: 0,
        took: Duration::from_millis(1),
        copy: None,
    }
}

fn resource(plural: &str) -> ApiResource {
    ApiResource::new("", "v1", plural)
}

/// An object of this version, without any of the declared fields. Its uid is its name.
pub(crate) fn object(name: &str, version: u64) -> ProjectedObject {
    ProjectedObject {
        namespace: "ns".into(),
        name: name.into(),
        uid: Uid::new(name),
        resource_version: version.to_string().into(),
        data: [0x80].into(),
    }
}

pub(crate) fn served(plural: &str) -> ServedResource {
    ServedResource {
        resource: resource(plural),
        kind: match plural {
            "pods" => "Pod".into(),
            other => other.into(),
        },
        namespaced: true,
        verbs: ["list", "watch", "delete"].map(str::to_owned).into(),
        preferred: true,
    }
}

fn watch(name: &str, source: Source) -> WatchSpec {
    WatchSpec::new(name, source)
}

/// A watch of pods, whose keys are reconciled one by one.
pub(crate) fn manifest() -> Manifest {
    Manifest {
        name: "test".into(),
        version: "1".into(),
        watches: vec![watch("pods", Source::One(resource("pods")))],
        triggers: vec![Trigger::new("pods", "pods", TriggerKey::OwnKey)],
        queues: vec![QueueSpec {
            workers: 10,
            retry_max: 8 * SECOND,
            ..QueueSpec::new("pods")
        }],
        permissions: vec![Permission::new("delete", "", "pods")],
        ..Manifest::default()
    }
}

/// A revision of that guest with four concurrent calls.
fn revision(guest: Guest, manifest: Manifest) -> LoadedRevision<Guest> {
    let limits = CallLimits {
        memory_mib: 64,
        call_millis: 1000,
        instances: 4,
    };
    let digest = ModuleDigest::of(guest.as_bytes());
    LoadedRevision::shipped(
        guest,
        Arc::new(manifest),
        RevisionIdentity::new(digest, [0x80].into(), limits),
    )
}

fn enforce() -> Settings {
    Settings {
        mode: Mode::Enforce,
        ..Settings::default()
    }
}

fn account(name: &str) -> Account {
    Account {
        namespace: "davit".into(),
        name: name.into(),
    }
}

/// A controller whose stable revision is that guest.
fn desired(guest: Guest, settings: Settings) -> DesiredController<Guest> {
    DesiredController::new("test", settings, revision(guest, manifest()))
}

/// The same with a candidate of this weight.
fn beside(guest: Guest, candidate: Guest, weight: u8) -> DesiredController<Guest> {
    let step = CandidateStep {
        share: Share {
            cohort: Cohort::default(),
            weight,
        },
        number: 1,
        window: None,
    };
    DesiredController {
        candidate: Some((revision(candidate, manifest()), step)),
        ..desired(guest, enforce())
    }
}

pub(crate) fn delete(key: &str) -> Plan {
    let (namespace, name) = key.split_once('/').expect("a pod has a namespace");
    Plan {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: namespace.into(),
            name: name.into(),
            uid: name.into(),
        },
        reason: "test".into(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: vec![],
        when_cancelled: None,
    }
}
