//! The whole host on virtual time: a declaration takes effect once it is recorded, a
//! rollback before that.

mod guardrails;
mod leases;
mod recorded;
mod replaced;
mod resting;
mod trust;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::api::{ModuleSource, RolloutConfig, encode_config};
use crate::circuit::{CallFailure, CallFailureKind};
use crate::control::{
    Declaration, DeclaredController, LoadFailure, LoadProblem, LoadResult, LoadTarget, Requests,
    requests,
};
use crate::controller::Outcome;
use crate::digest::ModuleDigest;
use crate::expectation::WriteResult;
use crate::machine::tests::{delete, manifest, object, served};
use crate::machine::{Call, Execute};
use crate::manifest::Source;
use crate::mapping::{Discovery, Mapping};
use crate::object::{ApiResource, ProjectedObject, Uid};
use crate::plan::{Decision, Verdict};
use crate::record::{
    ControllerRecord, Owner, Record, RecordFailure, RecordId, RecordReceipt, StatusConflict,
    StatusVersion, StoredRecord,
};
use crate::revision::{LoadedRevision, RevisionIdentity};
use crate::stream::{Batch, StreamId, Update};
use crate::time::Wall;

const NAME: &str = "podgc";
const NOON: i64 = 1_795_176_000_000;

/// A guest, identified by its configured threshold.
type Guest = u64;

/// A host with drivers in memory: loads and reads of records succeed immediately,
/// writes of records when the test says so.
struct Bench {
    host: Host<Guest>,
    now: Now,
    trust: TrustPolicy,
    recording: bool,
    /// Whether records can be read.
    readable: bool,
    /// Whether modules can be loaded.
    loads: bool,
    writes: VecDeque<(RecordId, Owner, Record)>,
    /// The version that each status was to replace.
    replaced: Vec<Option<StatusVersion>>,
    /// The records by controller; they outlive a host.
    records: BTreeMap<String, ControllerRecord>,
    /// The pods of the API server.
    pods: BTreeSet<String>,
    /// The guest whose calls fail.
    failing: Option<Guest>,
    /// The requests for leases without an answer.
    leases: VecDeque<LeaseRequest>,
    /// Until when requests of a controller may be sent.
    terms: BTreeMap<String, Instant>,
    streams: Vec<StreamId>,
    /// How many of them were listed.
    listed: usize,
    calls: VecDeque<Call<Guest>>,
    executes: VecDeque<Execute>,
    version: u64,
}

fn spec(threshold: u64, steps: &[&str]) -> ControllerSpec {
    let mut spec = ControllerSpec::of(ModuleSource::File("/a.wasm".into()).into());
    spec.mode = crate::gate::Mode::Enforce;
    spec.config = serde_json::json!({ "threshold": threshold });
    spec.rollout = RolloutConfig {
        steps: steps.iter().map(|step| step.parse().unwrap()).collect(),
        ..RolloutConfig::default()
    };
    spec
}

fn loaded(spec: &ControllerSpec) -> LoadedRevision<Guest> {
    let config = encode_config(&spec.config).unwrap();
    let mut manifest = manifest();
    if let Some(plural) = spec.config["watches"].as_str() {
        manifest.watches[0].source = Source::One(ApiResource::new("", "v1", plural));
    }
    LoadedRevision::shipped(
        spec.config["threshold"].as_u64().unwrap(),
        Arc::new(manifest),
        RevisionIdentity::new(ModuleDigest([1; 32]), config.into(), spec.limits),
    )
}

/// The version of a recorded status: every write makes another one.
fn version(record: &ControllerRecord) -> StatusVersion {
    StatusVersion {
        resource: serde_json::to_string(&record.status).unwrap(),
        writer: record.status.host.clone(),
    }
}

fn declaration(name: &str, spec: ControllerSpec) -> Declaration {
    Declaration {
        name: name.into(),
        generation: Some(1),
        object: None,
        status: None,
        spec: Ok(spec),
        requests: Requests::default(),
    }
}

impl Bench {
    fn new() -> Self {
        let trust = TrustPolicy {
            files: true,
            ..TrustPolicy::default()
        };
        Self::trusting(trust)
    }

    fn trusting(trust: TrustPolicy) -> Self {
        Self::start_at(Wall(NOON), BTreeMap::new(), trust, None)
    }

    /// Ends this host. A minute later it starts another one, which lists the remaining
    /// pods.
    fn crash(self, declaration: Declaration) -> Self {
        self.restart_after(Duration::from_mins(1), declaration)
    }

    fn restart_after(self, pause: Duration, declaration: Declaration) -> Self {
        let Self {
            now,
            records,
            pods,
            trust,
            ..
        } = self;
        let pause = i64::try_from(pause.as_millis()).unwrap();
        let mut next = Self::start_at(Wall(now.wall.0 + pause), records, trust, None);
        next.declare_all(vec![declaration]);
        let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
        next.list(&pods);
        next
    }

    fn start_at(
        wall: Wall,
        records: BTreeMap<String, ControllerRecord>,
        trust: TrustPolicy,
        leases: Option<LeaseSettings>,
    ) -> Self {
        let now = Now {
            instant: Instant::ZERO,
            wall,
        };
        let settings = HostSettings {
            namespace: "davit".into(),
            identity: Some(HostIdentity {
                id: leases
                    .as_ref()
                    .map_or("1", |leases| &leases.identity)
                    .to_owned(),
                name: "here".into(),
            }),
            trust,
            leases,
        };
        let mut bench = Self {
            host: Host::new(now, settings),
            now,
            trust,
            recording: true,
            readable: true,
            loads: true,
            writes: VecDeque::new(),
            replaced: Vec::new(),
            records,
            pods: BTreeSet::new(),
            failing: None,
            leases: VecDeque::new(),
            terms: BTreeMap::new(),
            streams: Vec::new(),
            listed: 0,
            calls: VecDeque::new(),
            executes: VecDeque::new(),
            version: 0,
        };
        bench.run();
        bench
    }

    /// A host that enforces a revision with this threshold, and one pod.
    fn running(spec: ControllerSpec) -> Self {
        let mut bench = Self::new();
        bench.declare(spec, Requests::default());
        bench.list(&["a"]);
        bench
    }

    fn input(&mut self, input: Input<Guest>) {
        self.host.handle(self.now, input);
        self.run();
    }

    fn run(&mut self) {
        while let Some(effect) = self.host.poll(self.now) {
            match effect {
                Effect::Control(effect) => self.control(effect),
                Effect::Machine(effect) => self.machine(effect),
                Effect::Lease(request) => self.leases.push_back(request),
                Effect::Term { controller, until } => {
                    self.terms.remove(&controller);
                    self.terms
                        .extend(until.map(|until| (controller.clone(), until)));
                }
            }
        }
    }

    fn control(&mut self, effect: ControlEffect) {
        let input = match effect {
            ControlEffect::Load(load) if !self.loads => ControlInput::Loaded {
                id: load.id,
                result: Err(LoadProblem::new(LoadFailure::NotFound, "no answer")),
            },
            ControlEffect::Load(load) => {
                let spec = match load.target {
                    LoadTarget::Desired { spec, .. } => spec,
                    LoadTarget::Stable { revision } | LoadTarget::Candidate { revision } => {
                        let record = self.records.get(&load.owner.name);
                        match record.and_then(|record| record.spec(&revision)) {
                            Some(spec) => Box::new(spec),
                            None => return,
                        }
                    }
                };
                let result = Ok(LoadResult::Loaded {
                    revision: loaded(&spec),
                    spec,
                    version: None,
                });
                ControlInput::Loaded {
                    id: load.id,
                    result,
                }
            }
            ControlEffect::ReadRecord { id, owner } => ControlInput::RecordRead {
                id,
                record: Box::new(StoredRecord {
                    status: if self.readable {
                        let record = self.records.get(&owner.name);
                        Ok(record.map_or_else(ControllerStatus::default, |one| one.status.clone()))
                    } else {
                        Err("no answer".into())
                    },
                    version: self.records.get(&owner.name).map(version),
                    paused: None,
                }),
            },
            ControlEffect::Record { id, owner, record } if self.recording => {
                let result = self.write(&owner, record);
                ControlInput::Recorded { id, result }
            }
            ControlEffect::Record { id, owner, record } => {
                return self.writes.push_back((id, owner, record));
            }
            _ => return,
        };
        self.host.handle(self.now, Input::Control(input));
    }

    /// Writes a record, as the API server does: a leader's status replaces only the version
    /// that it continues from.
    fn write(&mut self, owner: &Owner, record: Record) -> Result<RecordReceipt, RecordFailure> {
        let stored = self.records.entry(owner.name.clone()).or_default();
        let mut receipt = RecordReceipt::default();
        if let Record::Status(write) = &record {
            self.replaced.push(write.replaces.clone());
            let mut replaces = write.replaces.iter();
            let is_stale = replaces.any(|replaces| *replaces != version(stored));
            if is_stale && write.conflict == StatusConflict::Fail {
                return Err(RecordFailure::Overtaken {
                    controller: owner.name.clone(),
                    by: stored.status.host.clone(),
                });
            }
        }
        let is_status = matches!(record, Record::Status(_));
        stored.write(record);
        receipt.version = is_status.then(|| version(stored));
        Ok(receipt)
    }

    fn machine(&mut self, effect: machine::Effect<Guest>) {
        match effect {
            machine::Effect::Discover => {
                let discovery = Discovery {
                    mapping: Mapping::new([served("pods")]),
                    failed: vec![],
                };
                let input = machine::Input::Discovered(Ok(discovery));
                self.host.handle(self.now, Input::Machine(input));
            }
            machine::Effect::StartStream { stream, .. } => self.streams.push(stream),
            machine::Effect::Call(call) => self.calls.push_back(*call),
            machine::Effect::Execute(execute) => self.executes.push_back(execute),
            _ => {}
        }
    }

    fn declare(&mut self, spec: ControllerSpec, requests: Requests) {
        let declaration = Declaration {
            requests,
            ..declaration(NAME, spec)
        };
        self.declare_all(vec![declaration]);
    }

    fn declare_all(&mut self, all: Vec<Declaration>) {
        let declared = all.into_iter().map(|declaration| DeclaredController {
            declaration,
            loaded: None,
        });
        let declared = ControlInput::Declared(declared.collect());
        self.input(Input::Control(declared));
    }

    /// The stream lists these pods.
    fn list(&mut self, names: &[&str]) {
        self.pods = names.iter().copied().map(str::to_owned).collect();
        let items = names.iter().map(|name| self.object(name)).collect();
        let resource_version = self.version.to_string().into();
        self.update(Update::Reset {
            items,
            resource_version,
        });
    }

    fn object(&mut self, name: &str) -> ProjectedObject {
        self.version += 1;
        object(name, self.version)
    }

    fn update(&mut self, update: Update) {
        let stream = *self.streams.last().expect("a stream of pods runs");
        let updates = vec![update];
        let input = machine::Input::Stream(Batch { stream, updates });
        self.input(Input::Machine(input));
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.instant.after(time);
        for _ in 0..10_000 {
            let wake = self.host.next_wake(self.now).max(self.now.instant);
            self.advance(wake.min(end));
            if wake > end {
                return;
            }
            self.run();
        }
        panic!("the host does not rest");
    }

    fn advance(&mut self, to: Instant) {
        let passed = to.since(self.now.instant).as_millis();
        self.now.wall.0 += i64::try_from(passed).unwrap();
        self.now.instant = to;
    }

    /// Lets time pass, a second at a time. Calls are answered and plans executed in the
    /// second in which they start.
    fn work(&mut self, time: Duration) {
        for _ in 0..time.as_secs() {
            self.pass(Duration::from_secs(1));
            while !self.calls.is_empty() || !self.executes.is_empty() {
                self.answer();
                while let Some(execute) = self.executes.pop_front() {
                    let name = &execute.plan.target.name;
                    assert!(self.pods.remove(name), "{name} is deleted twice");
                    self.executed(&execute);
                    let pod = self.object(name);
                    self.update(Update::Delete(pod));
                }
            }
        }
    }

    /// Lets the writes of records under way and later ones succeed.
    fn record(&mut self) {
        self.recording = true;
        while let Some((id, owner, record)) = self.writes.pop_front() {
            let result = self.write(&owner, record);
            self.input(Input::Control(ControlInput::Recorded { id, result }));
        }
    }

    /// Answers every call under way with the deletion of its pod, if the cache has it;
    /// returns the guests that were called.
    fn answer(&mut self) -> Vec<Guest> {
        let mut called = Vec::new();
        while let Some(call) = self.calls.pop_front() {
            called.push(call.guest);
            let result = if self.failing == Some(call.guest) {
                Err(CallFailure::new(CallFailureKind::Trap, "unreachable"))
            } else {
                Ok(deletions(&call))
            };
            let input = machine::Input::Answered {
                call: call.id,
                result,
                logged: 0,
                took: Duration::from_millis(1),
                copy: None,
            };
            self.input(Input::Machine(input));
        }
        called
    }

    fn executed(&mut self, execute: &Execute) {
        let input = machine::Input::Executed {
            plan: execute.id,
            outcome: Outcome {
                written: Some(WriteResult::Gone),
                failed: None,
            },
            took: Duration::from_millis(1),
        };
        self.input(Input::Machine(input));
    }

    fn status(&self) -> &ControllerStatus {
        let mut statuses = self.host.statuses();
        statuses.next().expect("its record was read").1
    }
}

/// The decisions of a guest that deletes every pod.
fn deletions(call: &Call<Guest>) -> Vec<Decision> {
    let decisions = call.items.iter().map(|item| {
        let plan = delete(&item.key);
        let is_there = call.snapshot.find(&Uid::new(&plan.target.uid)).is_some();
        Decision {
            plans: is_there.then_some(plan).into_iter().collect(),
            commands: vec![],
            verdict: Verdict::Done,
            parallel: 0,
        }
    });
    decisions.collect()
}

/// The name of the revision of a spec.
fn name(spec: &ControllerSpec) -> String {
    loaded(spec).identity.to_string()
}
