//! How long a backtest takes on the history of a large cluster, and where the time goes: pods and
//! nodes in a keyframe, then changes of pods, of which one in a hundred is a pod that fails. The
//! recorded controller and the policy under test delete those.
//!
//! ```sh
//! cargo run --release -p davit --example backtest_scale -- PODS NODES CHANGES_A_SECOND HOURS
//! ```
//!
//! Without numbers: 150,000 pods, 5,000 nodes, 20 changes a second, 1 hour. Entries are encoded
//! and decoded as in a journal, and no disk and no module is part of the figures: guests are
//! native functions.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a measurement that cannot go on has failed"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use davit_core::backtest::{Against, Backtest, BacktestSettings};
use davit_core::budget::CountedWrites;
use davit_core::controller::{Outcome, Settings};
use davit_core::desired::DesiredController;
use davit_core::digest::ModuleDigest;
use davit_core::expectation::WriteResult;
use davit_core::gate::Mode;
use davit_core::journal::{AnswerCopy, JournalItem, Record, SnapshotReads, decode, encode};
use davit_core::machine::{Call, Effect, Input, Machine};
use davit_core::manifest::{
    Manifest, Permission, QueueSpec, Source, Trigger, TriggerKey, WatchSpec,
};
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::{ApiResource, ObjectRef, ProjectedObject, Uid};
use davit_core::plan::{Decision, DeleteOptions, Plan, Step, Verdict};
use davit_core::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use davit_core::rollout::cohort::Cohort;
use davit_core::stream::{Batch, StreamId, Update};
use davit_core::time::{Instant, Now, Wall};
use serde_json::{Value, json};

const START: i64 = 1_795_176_000_000;

/// The size of a history.
struct Scale {
    pods: u64,
    nodes: u64,
    changes_a_second: u64,
    hours: u64,
}

fn main() {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().unwrap());
    let mut number = |default| numbers.next().unwrap_or(default);
    let scale = Scale {
        pods: number(150_000),
        nodes: number(5_000),
        changes_a_second: number(20),
        hours: number(1),
    };
    let mut recorder = Recorder::start(&scale);
    let mut run = Run::default();
    run.take(&mut recorder);
    println!("keyframe: {}", run.summary());
    let started = Clock::now();
    let changes = scale.hours * 3_600 * scale.changes_a_second;
    let pause = Duration::from_secs(1) / u32::try_from(scale.changes_a_second).unwrap();
    for change in 0..changes {
        let from = Clock::now();
        recorder.change(change, &scale);
        recorder.pass(pause);
        run.recording += from.elapsed();
        run.take(&mut recorder);
    }
    println!("{}", run.summary());
    println!(
        "{} hours of history took {:.1?}",
        scale.hours,
        started.elapsed()
    );
    let from = Clock::now();
    let report = run.backtest.finish().unwrap();
    println!(
        "report in {:.1?}: agree {}, only the candidate {}, only recorded {}",
        from.elapsed(),
        report.agreement.agree,
        report.agreement.only_candidate,
        report.agreement.only_recorded
    );
}

/// A backtest, and where its time goes.
struct Run {
    backtest: Backtest<Native>,
    policy: Option<DesiredController<Native>>,
    entries: u64,
    calls: u64,
    bytes: usize,
    recording: Duration,
    encoding: Duration,
    decoding: Duration,
    guests: Duration,
    machine: Duration,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            backtest: Backtest::new(BacktestSettings {
                controller: "scale".into(),
                open_loop: false,
                keeps: false,
                against: Against::Recorded,
            }),
            policy: Some(desired()),
            entries: 0,
            calls: 0,
            bytes: 0,
            recording: Duration::ZERO,
            encoding: Duration::ZERO,
            decoding: Duration::ZERO,
            guests: Duration::ZERO,
            machine: Duration::ZERO,
        }
    }
}

impl Run {
    /// Tests the policy over what the recorder has recorded.
    fn take(&mut self, recorder: &mut Recorder) {
        for record in recorder.take() {
            let from = Clock::now();
            let payload = encode(&record).payload;
            self.encoding += from.elapsed();
            let from = Clock::now();
            let record = decode(&payload).unwrap();
            self.decoding += from.elapsed();
            self.bytes += payload.len();
            self.entries += 1;
            self.entry(record);
        }
    }

    fn entry(&mut self, record: Record) {
        let from = Clock::now();
        let controller = self.backtest.controller();
        if self.backtest.is_complete()
            && controller.is_some_and(|one| one.stable.is_some())
            && let Some(policy) = self.policy.take()
        {
            self.backtest.start(policy);
        }
        self.backtest.offer(record);
        self.machine += from.elapsed();
        loop {
            let from = Clock::now();
            let call = self.backtest.poll().unwrap();
            self.machine += from.elapsed();
            let Some(call) = call else { return };
            let from = Clock::now();
            let decisions = decide(&call);
            self.guests += from.elapsed();
            self.calls += 1;
            let from = Clock::now();
            self.backtest.answer(call.id, Ok(decisions));
            self.machine += from.elapsed();
        }
    }

    fn summary(&self) -> String {
        let Self {
            entries,
            calls,
            bytes,
            recording,
            encoding,
            decoding,
            guests,
            machine,
            ..
        } = self;
        let tested = *decoding + *guests + *machine;
        let each = |count: u64| {
            Duration::from_nanos(u64::try_from(tested.as_nanos()).unwrap() / count.max(1))
        };
        format!(
            "{entries} entries of {} bytes, {calls} calls; tested in {tested:.2?}: {:.2?} an entry, \
             {:.2?} a call; decoding {decoding:.2?}, machine and cluster {machine:.2?}, guests \
             {guests:.2?} (recording {recording:.2?}, encoding {encoding:.2?})",
            bytes / usize::try_from((*entries).max(1)).unwrap(),
            each(*entries),
            each(*calls),
        )
    }
}

/// A guest, which is a function.
#[derive(Clone, Copy, Debug)]
struct Native;

/// Deletes pods that have failed.
fn decide(call: &Call<Native>) -> Vec<Decision> {
    let items = call.items.iter();
    let decisions = items.map(|item| {
        let view = call.snapshot.view(call.views["pods"]).unwrap();
        let pod = view.get(&item.key);
        let pod: Value = pod.map_or(Value::Null, |pod| {
            rmp_serde::from_slice(&pod.data()).unwrap()
        });
        let has_failed = pod["status"]["phase"] == "Failed";
        Decision {
            plans: has_failed
                .then(|| deletion(&item.key, &pod))
                .into_iter()
                .collect(),
            commands: vec![],
            verdict: Verdict::Done,
            parallel: 0,
        }
    });
    decisions.collect()
}

fn deletion(key: &str, pod: &Value) -> Plan {
    let (namespace, name) = key.split_once('/').unwrap();
    Plan {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: namespace.into(),
            name: name.into(),
            uid: pod["metadata"]["uid"].as_str().unwrap().into(),
        },
        reason: "failed".into(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: vec![],
        when_cancelled: None,
    }
}

fn resource(plural: &str) -> ApiResource {
    ApiResource::new("", "v1", plural)
}

fn watch(plural: &str, fields: &[&str]) -> WatchSpec {
    WatchSpec {
        name: plural.into(),
        source: Source::One(resource(plural)),
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
        fields: fields.iter().map(|path| path.parse().unwrap()).collect(),
        indexes: vec![],
        optional: false,
    }
}

fn desired() -> DesiredController<Native> {
    let limits = CallLimits {
        memory_mib: 64,
        call_millis: 1_000,
        instances: 4,
    };
    let manifest = Manifest {
        name: "scale".into(),
        version: "1".into(),
        summary: String::new(),
        watches: vec![
            watch(
                "pods",
                &["status.phase", "spec.nodeName", "metadata.labels"],
            ),
            watch("nodes", &["spec.taints"]),
        ],
        triggers: vec![Trigger {
            watch: "pods".into(),
            queue: "pods".into(),
            key: TriggerKey::OwnKey,
        }],
        queues: vec![QueueSpec {
            name: "pods".into(),
            workers: 10,
            batch: 100,
            priority: 0,
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_secs(8),
            rate: None,
        }],
        ticks: vec![],
        permissions: vec![Permission {
            verb: "delete".into(),
            group: String::new(),
            resource: "pods".into(),
        }],
        metrics: vec![],
        config_schema: String::new(),
    };
    DesiredController {
        name: "scale".into(),
        leads: true,
        settings: Settings {
            mode: Mode::Enforce,
            ..Settings::default()
        },
        account: None,
        stable: LoadedRevision {
            guest: Native,
            manifest: Arc::new(manifest),
            identity: RevisionIdentity::new(ModuleDigest::of(b"scale"), [0x80].into(), limits),
            away: None,
            is_shipped: true,
        },
        cohort: Cohort::default(),
        candidate: None,
        tripped: vec![],
        recent: CountedWrites::default(),
    }
}

/// A host that records, and whose deletions succeed at once.
struct Recorder {
    machine: Machine<Native>,
    now: Now,
    pods: Option<StreamId>,
    lists: BTreeMap<&'static str, Vec<ProjectedObject>>,
    version: u64,
    records: Vec<Record>,
}

impl Recorder {
    fn start(scale: &Scale) -> Self {
        let now = Now {
            instant: Instant::ZERO,
            wall: Wall(START),
        };
        let pods = (0..scale.pods).map(|number| pod(number, scale, "Running", 1));
        let nodes = (0..scale.nodes).map(|number| {
            let name = format!("node-{number}");
            let node = json!({"metadata": {"name": name, "uid": uid(1 << 40 | number)}});
            projected(&node, 1)
        });
        let lists = BTreeMap::from([("pods", pods.collect()), ("nodes", nodes.collect())]);
        let mut recorder = Self {
            machine: Machine::new(now),
            now,
            pods: None,
            lists,
            version: 1,
            records: vec![],
        };
        recorder.machine.start_journal(now);
        recorder.machine.apply(now, vec![desired()]);
        recorder.run();
        recorder.pass(Duration::from_secs(1));
        recorder
    }

    /// A pod changes: one in a hundred has failed.
    fn change(&mut self, change: u64, scale: &Scale) {
        let phase = match change % 100 {
            0 => "Failed",
            odd if odd % 2 == 1 => "Pending",
            _ => "Running",
        };
        self.version += 1;
        let pod = pod(change * 7_919 % scale.pods, scale, phase, self.version);
        self.update(Update::Apply(pod));
    }

    fn update(&mut self, update: Update) {
        let Some(stream) = self.pods else { return };
        let updates = vec![update];
        self.machine
            .handle(self.now, Input::Stream(Batch { stream, updates }));
        self.run();
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
        let mut gone = Vec::new();
        while let Some(effect) = self.machine.poll(self.now) {
            match effect {
                Effect::Discover => {
                    let served = [("pods", "Pod"), ("nodes", "Node")];
                    let served = served.map(|(plural, kind)| ServedResource {
                        resource: resource(plural),
                        kind: kind.into(),
                        namespaced: plural == "pods",
                        verbs: ["list", "watch", "delete"].map(str::to_owned).into(),
                        preferred: true,
                    });
                    let discovery = Discovery {
                        mapping: Mapping::new(served),
                        failed: vec![],
                    };
                    self.machine
                        .handle(self.now, Input::Discovered(Ok(discovery)));
                }
                Effect::StartStream { stream, spec } => {
                    let plural = spec.resource.plural.as_str();
                    if plural == "pods" {
                        self.pods = Some(stream);
                    }
                    let reset = Update::Reset {
                        items: self.lists.remove(plural).unwrap_or_default(),
                        resource_version: "1".into(),
                    };
                    let updates = vec![reset];
                    self.machine
                        .handle(self.now, Input::Stream(Batch { stream, updates }));
                }
                Effect::Call(call) => {
                    let result = Ok(decide(&call));
                    let copy = AnswerCopy::of(&result, SnapshotReads::default());
                    let answer = Input::Answered {
                        call: call.id,
                        result,
                        logged: 0,
                        took: Duration::ZERO,
                        copy: Some(copy.into()),
                    };
                    self.machine.handle(self.now, answer);
                }
                Effect::Execute(execute) => {
                    let target = &execute.plan.target;
                    self.version += 1;
                    let object = json!({"metadata": {
                        "name": target.name, "namespace": target.namespace, "uid": target.uid,
                    }});
                    gone.push(projected(&object, self.version));
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
                }
                _ => {}
            }
        }
        for item in self.machine.take_journal() {
            match item {
                JournalItem::Record(record) => self.records.push(record),
                JournalItem::Keyframe(keyframe) => self.records.extend(keyframe.entries()),
            }
        }
        for object in gone {
            self.update(Update::Delete(object));
        }
    }

    fn take(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}

fn pod(number: u64, scale: &Scale, phase: &str, version: u64) -> ProjectedObject {
    // A pod that was deleted has another uid when it comes again.
    let life = version / scale.pods.max(1);
    let pod = json!({
        "metadata": {
            "name": format!("web-{number}"), "namespace": format!("team-{}", number % 100),
            "uid": uid(number | life << 48),
            "labels": {"app": format!("web-{}", number % 1_000), "tier": "front"},
        },
        "spec": {"nodeName": format!("node-{}", number % scale.nodes.max(1))},
        "status": {"phase": phase},
    });
    projected(&pod, version)
}

fn uid(number: u64) -> String {
    let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!(
        "{:08x}-{:04x}-4000-8000-{number:012x}",
        hash >> 32,
        hash & 0xffff
    )
}

fn projected(object: &Value, version: u64) -> ProjectedObject {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    ProjectedObject {
        namespace: text("/metadata/namespace").unwrap_or_default().into(),
        name: text("/metadata/name").unwrap().into(),
        uid: Uid::new(text("/metadata/uid").unwrap()),
        resource_version: version.to_string().into(),
        data: rmp_serde::to_vec_named(object).unwrap().into(),
    }
}
