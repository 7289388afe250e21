//! Records hours of a large cluster in a moment, for a backtest to be measured on:
//!
//! ```text
//! cargo xtask guests && cargo build --release -p davit
//! cargo run --release -p davit-stories --example long_journal -- DIR HOURS [PODS] [NODES]
//! time target/release/davit backtest DIR --controller podgc --config FILE
//! ```
//!
//! 150,000 pods on 5,000 nodes change 20 times a second: they are created, scheduled, run,
//! terminate and are gone; one in fifty succeeds and stays. Every ten minutes a node gets a
//! `NoExecute` taint. `PodGC` and taint eviction decide about all of it. The machine is the one
//! that runs in production; the guests are compiled natively, and named by their modules beside
//! the program, so that davit finds these.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "an example that cannot go on is to fail"
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use davit_core::api::encode_config;
use davit_core::controller::{Outcome, Settings};
use davit_core::desired::DesiredController;
use davit_core::digest::ModuleDigest;
use davit_core::expectation::WriteResult;
use davit_core::failure::{Failure, FailureClass};
use davit_core::gate::Mode;
use davit_core::journal::{AnswerCopy, JournalItem, Record, encode};
use davit_core::machine::{Call, Effect, Execute, Input, Machine, ReadAnswer, ReadRequest};
use davit_core::manifest::Manifest;
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::{ApiResource, Kind, ObjectRecord, ObjectRef, ProjectedObject, Uid};
use davit_core::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use davit_core::stream::{Batch, StreamId, Update};
use davit_core::time::{Instant, Now, Wall};
use davit_guest::Controller;
use davit_guest::testing::Native;
use davit_journal::Writer;
use davit_sim::Time;
use davit_simulation::{Guest, Reconciliation};
use serde_json::{Value, json};

const START: i64 = 1_780_000_000_000;
const SECOND: Duration = Duration::from_secs(1);
/// Changes of pods a second.
const RATE: usize = 20;
const SEGMENT: u64 = 6 * 3600;
/// A node is tainted as often, in seconds, and for half of the time.
const TAINTS: u64 = 600;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Absent,
    Pending,
    Scheduled,
    Running,
    Terminating,
    Succeeded,
}

struct Pod {
    life: Life,
    /// How often its name was used.
    generation: usize,
    created: u64,
}

struct Cluster {
    machine: Machine<Guest>,
    now: Now,
    streams: BTreeMap<String, Vec<StreamId>>,
    pods: Vec<Pod>,
    nodes: usize,
    tainted: Option<usize>,
    version: u64,
    writer: Writer,
    calls: u64,
    /// How long the machine took to add each keyframe: its task does nothing else meanwhile.
    added: Vec<Duration>,
    /// How long it took to encode and write each: a host has a thread for it.
    written: Vec<Duration>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default| {
        arguments
            .get(place)
            .map_or(default, |text| text.parse().unwrap())
    };
    let directory = PathBuf::from(arguments.first().expect("DIR HOURS [PODS] [NODES]"));
    let hours: usize = number(1, 1);
    let now = Now {
        instant: Instant::ZERO,
        wall: Wall(START),
    };
    let settings = davit_journal::Settings {
        total_bytes: u64::MAX,
        max_age: Duration::from_hours(24 * 365),
        ..davit_journal::Settings::default()
    };
    let mut cluster = Cluster {
        machine: Machine::new(now),
        now,
        streams: BTreeMap::new(),
        pods: (0..number(2, 150_000)).map(Pod::at_start).collect(),
        nodes: number(3, 5_000),
        tainted: None,
        version: 1,
        writer: Writer::open(&directory, settings, START * 1000).unwrap().0,
        calls: 0,
        added: Vec::new(),
        written: Vec::new(),
    };
    cluster.machine.start_journal(now);
    let controllers = vec![
        desired::<podgc::PodGc>("podgc"),
        desired::<taint_eviction::TaintEviction>("taint-eviction"),
    ];
    cluster.machine.apply(now, controllers);
    cluster.run();
    let mut turn = 0;
    for second in 1..=hours as u64 * 3600 {
        cluster.pass(SECOND);
        if second.is_multiple_of(SEGMENT) {
            cluster.add_keyframe();
        }
        cluster.taint(second);
        for _ in 0..RATE {
            turn += 1;
            cluster.change(turn * 7_919 % cluster.pods.len(), turn);
        }
        cluster.run();
    }
    let Cluster {
        writer,
        calls,
        added,
        written,
        ..
    } = cluster;
    let totals = writer.totals();
    writer.close().unwrap();
    println!(
        "{hours} h: {} entries, {} calls, {} MB in {}",
        totals.entries,
        calls,
        totals.written_bytes / 1_000_000,
        directory.display()
    );
    println!("keyframes: added in {added:.3?}, written in {written:.3?}");
}

/// The directory of the compiled guests: `cargo xtask guests` builds them.
fn module(name: &str) -> Vec<u8> {
    let guests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/wasm32-wasip2/guest");
    let file = guests.join(format!("{}.wasm", name.replace('-', "_")));
    std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn desired<C: Controller + 'static>(name: &str) -> DesiredController<Guest> {
    let config = encode_config(&json!({})).unwrap();
    let native = Native::<C>::describe(&config).unwrap();
    let manifest: Arc<Manifest> = native.manifest().clone().into();
    let digest = ModuleDigest::of(&module(name));
    let limits = CallLimits {
        memory_mib: 512,
        call_millis: 60_000,
        instances: 4,
    };
    let identity = RevisionIdentity::new(digest, config.into(), limits);
    let guest = Guest {
        revision: identity.name().into(),
        native: Arc::new(native),
        manifest: Arc::clone(&manifest),
    };
    DesiredController::new(
        name,
        Settings {
            mode: Mode::Enforce,
            ..Settings::default()
        },
        LoadedRevision::shipped(guest, manifest, identity),
    )
}

impl Pod {
    fn at_start(number: usize) -> Self {
        let life = if number.is_multiple_of(20) {
            Life::Absent
        } else {
            Life::Running
        };
        Self {
            life,
            generation: 0,
            created: 0,
        }
    }

    /// What happens to it next.
    fn next(&self, number: usize, turn: usize) -> Life {
        match self.life {
            Life::Absent => Life::Pending,
            Life::Pending => Life::Scheduled,
            Life::Scheduled => Life::Running,
            Life::Running if (number + turn).is_multiple_of(50) => Life::Succeeded,
            Life::Running => Life::Terminating,
            Life::Terminating => Life::Absent,
            Life::Succeeded => Life::Succeeded,
        }
    }
}

impl Cluster {
    fn pod(&self, number: usize) -> ProjectedObject {
        let pod = &self.pods[number];
        let time = |seconds: u64| {
            let seconds = START / 1000 + i64::try_from(seconds).unwrap();
            Time::from_unix(seconds).to_string()
        };
        let phase = match pod.life {
            Life::Absent | Life::Pending | Life::Scheduled => "Pending",
            Life::Running | Life::Terminating => "Running",
            Life::Succeeded => "Succeeded",
        };
        let mut value = json!({
            "metadata": {"creationTimestamp": time(pod.created)},
            "spec": {"tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            ]},
            "status": {"phase": phase},
        });
        if pod.life != Life::Pending {
            value["spec"]["nodeName"] = json!(format!("node-{:04}", number % self.nodes));
        }
        if pod.life == Life::Terminating {
            value["metadata"]["deletionTimestamp"] = json!(time(pod.created));
        }
        let name = format!("pod-{number:06}-{}", pod.generation);
        self.object(&format!("ns-{}", number % 200), &name, value)
    }

    fn node(&self, number: usize) -> ProjectedObject {
        let mut node = json!({"metadata": {}, "spec": {}, "status": {}});
        if self.tainted == Some(number) {
            node["spec"]["taints"] = json!([{"key": "maintenance", "effect": "NoExecute"}]);
        }
        self.object("", &format!("node-{number:04}"), node)
    }

    fn object(&self, namespace: &str, name: &str, mut value: Value) -> ProjectedObject {
        let uid = format!("uid-of-{name}-0000-000000000000");
        value["metadata"]["name"] = json!(name);
        value["metadata"]["namespace"] = json!(namespace);
        value["metadata"]["uid"] = json!(uid);
        ProjectedObject {
            namespace: namespace.into(),
            name: name.into(),
            uid: Uid::new(&uid),
            resource_version: self.version.to_string().into(),
            data: rmp_serde::to_vec_named(&value).unwrap().into(),
        }
    }

    /// A pod lives on. One that has succeeded stays until somebody deletes it.
    fn change(&mut self, number: usize, turn: usize) {
        let next = self.pods[number].next(number, turn);
        if self.pods[number].life == next {
            return;
        }
        if next == Life::Absent {
            self.remove(number);
            return;
        }
        if next == Life::Pending {
            self.pods[number].created = self.now.instant.since(Instant::ZERO).as_secs();
            self.pods[number].generation += 1;
        }
        self.pods[number].life = next;
        self.version += 1;
        let pod = self.pod(number);
        self.update("pods", &Update::Apply(pod));
    }

    fn remove(&mut self, number: usize) {
        self.version += 1;
        let pod = self.pod(number);
        self.pods[number].life = Life::Absent;
        self.update("pods", &Update::Delete(pod));
    }

    /// A node is tainted for a while, one after the other.
    fn taint(&mut self, second: u64) {
        let turn = usize::try_from(second / TAINTS).unwrap() * 31 % self.nodes;
        let changed = match second % TAINTS {
            1 => {
                self.tainted = Some(turn);
                turn
            }
            301 => {
                self.tainted = None;
                turn
            }
            _ => return,
        };
        self.version += 1;
        let node = self.node(changed);
        self.update("nodes", &Update::Apply(node));
    }

    fn add_keyframe(&mut self) {
        let started = std::time::Instant::now();
        self.machine.add_keyframe(self.now);
        self.added.push(started.elapsed());
    }

    fn update(&mut self, plural: &str, update: &Update) {
        for stream in self.streams.get(plural).into_iter().flatten() {
            let batch = Batch {
                stream: *stream,
                updates: vec![update.clone()],
            };
            self.machine.handle(self.now, Input::Stream(batch));
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.instant.after(time);
        loop {
            let wake = self
                .machine
                .next_wake(self.now)
                .max(self.now.instant)
                .min(end);
            self.now = Now {
                instant: wake,
                wall: self.now.wall_at(wake),
            };
            self.run();
            if wake == end {
                return;
            }
        }
    }

    fn run(&mut self) {
        while let Some(effect) = self.machine.poll(self.now) {
            match effect {
                Effect::Discover => {
                    let served = [served("pods", "Pod"), served("nodes", "Node")];
                    let discovery = Discovery {
                        mapping: Mapping::new(served),
                        failed: Vec::new(),
                    };
                    let input = Input::Discovered(Ok(discovery));
                    self.machine.handle(self.now, input);
                }
                Effect::StartStream { stream, spec } => {
                    let plural = spec.resource.plural.clone();
                    self.list(stream, &plural);
                    self.streams.entry(plural).or_default().push(stream);
                }
                Effect::Call(call) => self.call(&call),
                Effect::Execute(execute) => self.execute(&execute),
                _ => {}
            }
        }
        for item in self.machine.take_journal() {
            match item {
                JournalItem::Released(_) => {}
                JournalItem::Record(record) => self.append(&record),
                JournalItem::Keyframe(keyframe) => {
                    let started = std::time::Instant::now();
                    let metadata = self.metadata();
                    let at = keyframe.now().wall.0 * 1000;
                    self.writer.start_segment(at, metadata).unwrap();
                    for record in keyframe.entries() {
                        self.append(&record);
                    }
                    self.writer.end_keyframe().unwrap();
                    self.written.push(started.elapsed());
                }
            }
        }
    }

    /// Nothing is missing between two segments, as a host says of those that it continues.
    fn metadata(&self) -> &'static [u8] {
        if self.written.is_empty() {
            b"{}"
        } else {
            br#"{"continues":true}"#
        }
    }

    fn append(&mut self, record: &Record) {
        let encoded = encode(record);
        let uids: Vec<String> = encoded.uids.iter().map(ToString::to_string).collect();
        let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
        let at = encoded.now.wall.0 * 1000;
        self.writer.append(at, &uids, &encoded.payload).unwrap();
    }

    fn list(&mut self, stream: StreamId, plural: &str) {
        let items = match plural {
            "pods" => {
                let numbers = 0..self.pods.len();
                let there = numbers.filter(|number| self.pods[*number].life != Life::Absent);
                there.map(|number| self.pod(number)).collect()
            }
            "nodes" => (0..self.nodes).map(|number| self.node(number)).collect(),
            _ => Vec::new(),
        };
        let reset = Update::Reset {
            items,
            resource_version: self.version.to_string().into(),
        };
        let batch = Batch {
            stream,
            updates: vec![reset],
        };
        self.machine.handle(self.now, Input::Stream(batch));
    }

    fn call(&mut self, call: &Call<Guest>) {
        self.calls += 1;
        let mut answers: Vec<ReadAnswer> = Vec::new();
        let (result, reads) = loop {
            let reads = RefCell::default();
            match call.guest.native.reconcile(call, &answers, Some(&reads)) {
                Reconciliation::Decided(decisions) => break (Ok(decisions), reads),
                Reconciliation::Failed(failure) => panic!("{failure}"),
                Reconciliation::Reads(ReadRequest::Get(objects)) => {
                    let found = objects.iter().map(|one| self.read(&one.target));
                    answers.push(ReadAnswer::Get(found.collect()));
                }
                Reconciliation::Reads(request) => panic!("nobody lists live: {request:?}"),
            }
        };
        let copy = AnswerCopy::of(&result, reads.into_inner());
        let answer = Input::Answered {
            call: call.id,
            result,
            logged: 0,
            took: Duration::ZERO,
            copy: Some(copy.into()),
        };
        self.machine.handle(self.now, answer);
    }

    /// A live read, which the journal does not have: a backtest answers it from the state.
    fn read(&self, target: &ObjectRef) -> Result<ObjectRecord, Failure> {
        let number = |range: std::ops::Range<usize>| target.name[range].parse().unwrap();
        let object = match &*target.kind {
            "Node" => self.node(number(5..9)),
            _ => self.pod(number(4..10)),
        };
        if *object.name != *target.name {
            let message = format!("{target} does not exist");
            return Err(Failure::new(FailureClass::NotFound, message));
        }
        Ok(ObjectRecord {
            kind: Kind {
                api_version: target.api_version.as_str().into(),
                kind: target.kind.as_str().into(),
            },
            resource_version: object.resource_version.into(),
            changed_at: self.now.instant,
            data: object.data.into(),
        })
    }

    fn execute(&mut self, execute: &Execute) {
        let outcome = Outcome {
            written: Some(WriteResult::Gone),
            failed: None,
        };
        let executed = Input::Executed {
            plan: execute.id,
            outcome,
            took: Duration::ZERO,
        };
        self.machine.handle(self.now, executed);
        let number: usize = execute.plan.target.name[4..10].parse().unwrap();
        if self.pods[number].life != Life::Absent {
            self.remove(number);
        }
    }
}

fn served(plural: &str, kind: &str) -> ServedResource {
    ServedResource {
        resource: ApiResource::new("", "v1", plural),
        kind: kind.into(),
        namespaced: plural == "pods",
        verbs: ["get", "list", "watch", "delete", "patch", "create"]
            .map(str::to_owned)
            .into(),
        preferred: true,
    }
}
