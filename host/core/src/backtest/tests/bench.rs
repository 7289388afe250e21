//! A machine that records, and policies that are functions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

pub(super) use super::guests::{
    EAGER, ENDED, FAILED, Guest, IDLE, PATIENT, SECOND, delete, nothing, plan,
};
use crate::backtest::{
    Against, AskedSpan, Backtest, BacktestSettings, Refusal, Report, drop_unread,
};
use crate::budget::Guardrails;
use crate::controller::{Outcome, Settings};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::expectation::WriteResult;
use crate::failure::{Failure, FailureClass};
use crate::gate::Mode;
use crate::journal::{AnswerCopy, JournalItem, Record, SnapshotReads};
use crate::machine::{Call, Effect, Execute, Input, Machine};
use crate::manifest::{Manifest, Permission, QueueSpec, Source, Trigger, TriggerKey, WatchSpec};
use crate::mapping::{Discovery, Mapping, ServedResource};
use crate::object::{ApiResource, ProjectedObject, Uid};
use crate::path::FieldPath;
use crate::plan::Decision;
use crate::revision::{CallLimits, LoadedRevision, RevisionIdentity};
use crate::stream::{Batch, StreamId, StreamSpec, Update};
use crate::time::{Instant, Now, Wall};
use crate::watch::Condition;

/// A resource that is served and that nobody watches.
const CLAIMS: &str = "persistentvolumeclaims";
/// The time of the recording host at its start.
pub(super) const START: i64 = 1_795_176_000_000;

fn resource(plural: &str) -> ApiResource {
    ApiResource::new("", "v1", plural)
}

fn served(plural: &str, kind: &str) -> ServedResource {
    ServedResource {
        resource: resource(plural),
        kind: kind.into(),
        namespaced: plural != "nodes",
        verbs: ["list", "watch", "delete"].map(str::to_owned).into(),
        preferred: true,
    }
}

fn watch(plural: &str, fields: &[&str]) -> WatchSpec {
    let fields = fields.iter().map(|path| path.parse::<FieldPath>().unwrap());
    WatchSpec {
        fields: fields.collect(),
        ..WatchSpec::new(plural, Source::One(resource(plural)))
    }
}

/// A guest that watches these fields of pods, and nodes.
pub(super) fn manifest(fields: &[&str]) -> Manifest {
    let permission = |verb: &str, resource: &str| Permission::new(verb, "", resource);
    Manifest {
        name: "test".into(),
        version: "1".into(),
        watches: vec![watch("pods", fields), watch("nodes", &NODE_FIELDS)],
        triggers: vec![Trigger::new("pods", "pods", TriggerKey::OwnKey)],
        queues: vec![QueueSpec {
            workers: 10,
            retry_max: 8 * SECOND,
            ..QueueSpec::new("pods")
        }],
        permissions: vec![
            permission("delete", "pods"),
            permission("delete", CLAIMS),
            permission("patch", CLAIMS),
            permission("patch", "pods"),
            permission("patch", "pods/status"),
        ],
        ..Manifest::default()
    }
}

/// The fields that the recorded guest watches.
pub(super) const FIELDS: [&str; 3] = ["status.phase", "spec.nodeName", "metadata.ownerReferences"];

/// The fields of nodes that it watches.
const NODE_FIELDS: [&str; 1] = ["spec.taints"];

/// The guest watches these fields of nodes; without any, it does not watch nodes.
pub(super) fn watch_nodes(desired: &mut DesiredController<Guest>, fields: &[&str]) {
    let mut manifest = (*desired.stable.manifest).clone();
    manifest.watches.retain(|watch| watch.name != "nodes");
    if !fields.is_empty() {
        manifest.watches.push(watch("nodes", fields));
    }
    desired.stable.manifest = manifest.into();
}

pub(super) fn desired(guest: Guest, fields: &[&str]) -> DesiredController<Guest> {
    let limits = CallLimits {
        memory_mib: 64,
        call_millis: 1000,
        instances: 4,
    };
    let digest = ModuleDigest::of(guest.name.as_bytes());
    DesiredController::new(
        "test",
        Settings {
            mode: Mode::Enforce,
            ..Settings::default()
        },
        LoadedRevision::shipped(
            guest,
            Arc::new(manifest(fields)),
            RevisionIdentity::new(digest, [0x80].into(), limits),
        ),
    )
}

pub(super) fn decide(call: &Call<Guest>) -> Vec<Decision> {
    let items = call.items.iter();
    let decisions = items.map(|item| {
        let view = call.snapshot.view(call.views["pods"]).unwrap();
        let Some(pod) = view.get(&item.key) else {
            return nothing();
        };
        let pod: Value = rmp_serde::from_slice(&pod.data()).unwrap();
        (call.guest.policy)(&item.key, &pod, call)
    });
    decisions.collect()
}

/// How the requests of a recording host end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Requests {
    Succeed,
    /// A user deletes each object before the request arrives.
    AreOvertaken,
    /// The API server executes them, and its replies are lost.
    LoseReplies,
    /// The same, and a gateway answers in its place after the watch.
    FailLate,
    /// The API server executes them, and has not answered yet.
    Hang,
}

/// A cluster with one host that records, and whose plans are executed.
pub(super) struct Recorder {
    machine: Machine<Guest>,
    pub(super) now: Now,
    streams: BTreeMap<StreamId, StreamSpec>,
    objects: BTreeMap<(String, String), Value>,
    version: u64,
    pub(super) records: Vec<Record>,
    /// The controller of the host.
    controller: DesiredController<Guest>,
    /// Whether deletions take effect at once.
    pub(super) deletes: bool,
    /// How the requests of the controller end.
    pub(super) requests: Requests,
    /// Whether the watches are broken: nothing that changes is delivered.
    is_interrupted: bool,
    /// What a host that starts does not list until [`Self::list_again`].
    pub(super) lists_late: Option<&'static str>,
}

impl Recorder {
    /// A host that runs this policy.
    pub(super) fn start(guest: Guest) -> Self {
        Self::start_in(Mode::Enforce, guest)
    }

    /// The same in this mode.
    pub(super) fn start_in(mode: Mode, guest: Guest) -> Self {
        Self::start_with(mode, guest, &NODE_FIELDS)
    }

    /// The same with these fields of nodes.
    pub(super) fn start_with(mode: Mode, guest: Guest, node_fields: &[&str]) -> Self {
        let mut desired = desired(guest, &FIELDS);
        desired.settings.mode = mode;
        watch_nodes(&mut desired, node_fields);
        Self::start_as(desired)
    }

    /// A host that runs this controller.
    pub(super) fn start_as(controller: DesiredController<Guest>) -> Self {
        let mut recorder = Self {
            machine: Machine::new(Now::default()),
            now: Now {
                instant: Instant::ZERO,
                wall: Wall(START),
            },
            streams: BTreeMap::new(),
            objects: BTreeMap::new(),
            version: 0,
            records: vec![],
            controller,
            deletes: true,
            requests: Requests::Succeed,
            is_interrupted: false,
            lists_late: None,
        };
        recorder.restart();
        recorder
    }

    /// The host ends, and starts again; its monotonic clock starts again too.
    pub(super) fn restart(&mut self) {
        self.now.instant = Instant::ZERO;
        self.streams.clear();
        self.machine = Machine::new(self.now);
        self.machine.start_journal(self.now);
        self.machine.apply(self.now, vec![self.controller.clone()]);
        self.run();
        self.pass(SECOND);
    }

    /// The watches break: what happens until they list again is not delivered.
    pub(super) fn interrupt(&mut self) {
        self.is_interrupted = true;
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            let reason = "connection reset".to_owned();
            let status = Update::Status(Condition::Interrupted { reason });
            self.deliver(stream, status);
        }
        self.run();
    }

    /// They list again.
    pub(super) fn list_again(&mut self) {
        self.is_interrupted = false;
        for (stream, spec) in self.streams.clone() {
            self.list(stream, &spec.resource.plural);
        }
        self.run();
    }

    /// The host ends: nobody records what happens until another one starts.
    pub(super) fn stop(&mut self) {
        self.streams.clear();
    }

    /// The whole state, as at the start of a segment.
    pub(super) fn keyframe(&mut self) {
        self.machine.add_keyframe(self.now);
        self.run();
    }

    /// A pod is created or changed. Its uid is its name, unless there is another one.
    pub(super) fn pod(&mut self, name: &str, uid: &str, phase: &str) {
        let pod = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": uid,
                "ownerReferences": [{"kind": "ReplicaSet", "controller": true}]},
            "spec": {"nodeName": "n1"},
            "status": {"phase": phase},
        });
        self.put("pods", &format!("ns/{name}"), pod);
    }

    pub(super) fn node(&mut self, name: &str, taint: Option<&str>) {
        let taints: Vec<Value> = taint.into_iter().map(|key| json!({"key": key})).collect();
        let node = json!({"metadata": {"name": name, "uid": name}, "spec": {"taints": taints}});
        self.put("nodes", name, node);
    }

    pub(super) fn put(&mut self, plural: &str, key: &str, object: Value) {
        self.version += 1;
        let place = (plural.to_owned(), key.to_owned());
        let update = Update::Apply(projected(&object, self.version));
        self.objects.insert(place, object);
        self.update(plural, update);
    }

    /// A pod of the namespace `ns` goes.
    pub(super) fn remove(&mut self, name: &str) {
        self.take("pods", &format!("ns/{name}"));
    }

    /// The object with this key goes.
    pub(super) fn take(&mut self, plural: &str, key: &str) {
        self.version += 1;
        let place = (plural.to_owned(), key.to_owned());
        if let Some(object) = self.objects.remove(&place) {
            self.update(plural, Update::Delete(projected(&object, self.version)));
        }
    }

    fn update(&mut self, plural: &str, update: Update) {
        let mut streams = self.streams.iter();
        let stream = streams.find(|(_, spec)| spec.resource.plural == plural);
        if let Some((stream, _)) = stream.filter(|_| !self.is_interrupted) {
            self.deliver(*stream, update);
            self.run();
        }
    }

    fn deliver(&mut self, stream: StreamId, update: Update) {
        let updates = vec![update];
        let batch = Batch { stream, updates };
        self.machine.handle(self.now, Input::Stream(batch));
    }

    /// Time passes.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now.instant.after(time);
        loop {
            let wake = self.machine.next_wake(self.now).max(self.now.instant);
            let wake = wake.min(end);
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
                    let served = [
                        served("pods", "Pod"),
                        served("nodes", "Node"),
                        served(CLAIMS, "PersistentVolumeClaim"),
                    ];
                    let discovery = Discovery {
                        mapping: Mapping::new(served),
                        failed: vec![],
                    };
                    let input = Input::Discovered(Ok(discovery));
                    self.machine.handle(self.now, input);
                }
                Effect::StartStream { stream, spec } => {
                    let plural = spec.resource.plural.clone();
                    self.streams.insert(stream, spec);
                    if self.lists_late.is_none_or(|late| late != plural) {
                        self.list(stream, &plural);
                    }
                }
                Effect::StopStream(stream) => {
                    self.streams.remove(&stream);
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
                Effect::Execute(execute) => self.execute(&execute),
                _ => {}
            }
        }
        for item in self.machine.take_journal() {
            match item {
                JournalItem::Released(_) => {}
                JournalItem::Record(record) => self.records.push(record),
                JournalItem::Keyframe(keyframe) => self.records.extend(keyframe.entries()),
            }
        }
    }

    fn list(&mut self, stream: StreamId, plural: &str) {
        let objects = self.objects.iter().filter(|((of, _), _)| of == plural);
        let items = objects.map(|(_, object)| projected(object, self.version));
        let reset = Update::Reset {
            items: items.collect(),
            resource_version: self.version.to_string().into(),
        };
        self.deliver(stream, reset);
    }

    fn execute(&mut self, execute: &Execute) {
        let name = execute.plan.target.name.clone();
        let failure = match self.requests {
            Requests::Succeed => None,
            Requests::AreOvertaken => {
                self.remove(&name);
                Some((FailureClass::NotFound, "it does not exist"))
            }
            Requests::LoseReplies => Some((FailureClass::Timeout, "no answer")),
            Requests::FailLate => {
                self.remove(&name);
                Some((FailureClass::Server, "bad gateway"))
            }
            Requests::Hang => {
                self.remove(&name);
                return;
            }
        };
        let failure = failure.map(|(class, text)| Failure::new(class, text));
        let outcome = Outcome {
            written: failure.is_none().then_some(WriteResult::Gone),
            failed: failure.map(|failure| (0, failure)),
        };
        let executed = Input::Executed {
            plan: execute.id,
            outcome,
            took: Duration::ZERO,
        };
        self.machine.handle(self.now, executed);
        if self.deletes {
            self.remove(&name);
        }
    }
}

/// A pod that has a deletion timestamp, in this phase.
pub(super) fn terminating(name: &str, phase: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name,
            "deletionTimestamp": "2026-11-20T12:00:00Z"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": phase},
    })
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

/// How a policy is tested.
pub(super) struct Trial {
    pub(super) desired: DesiredController<Guest>,
    pub(super) settings: BacktestSettings,
    /// The entries before this one are not a part of the span.
    pub(super) from: usize,
    /// The time that the report is about.
    pub(super) asked: AskedSpan,
}

impl Trial {
    pub(super) fn of(guest: Guest) -> Self {
        Self {
            desired: desired(guest, &FIELDS),
            settings: BacktestSettings {
                controller: "test".into(),
                open_loop: false,
                tolerance: Duration::ZERO,
                against: Against::Recorded,
            },
            from: 0,
            asked: AskedSpan::default(),
        }
    }

    pub(super) fn guardrails(mut self, guardrails: Guardrails) -> Self {
        self.desired.settings.guardrails = guardrails;
        self
    }

    /// Tests the policy over this journal.
    pub(super) fn run(self, records: &[Record]) -> Result<Report, Refusal> {
        self.drive(records)?.finish()
    }

    /// The same without the report.
    pub(super) fn drive(self, records: &[Record]) -> Result<Backtest<Guest>, Refusal> {
        let mut backtest = Backtest::new(self.settings);
        backtest.ask(self.asked);
        let mut desired = Some(self.desired);
        for (position, record) in records.iter().enumerate() {
            let runs = backtest.controller().is_some_and(|it| it.stable.is_some());
            if position >= self.from
                && backtest.is_complete()
                && runs
                && let Some(desired) = desired.take()
            {
                backtest.start(desired);
            }
            let mut record = record.clone();
            drop_unread(&mut record.entry);
            offer(&mut backtest, record)?;
        }
        Ok(backtest)
    }
}

/// Offers an entry, and answers the calls that follow.
pub(super) fn offer(backtest: &mut Backtest<Guest>, record: Record) -> Result<(), Refusal> {
    backtest.offer(record);
    while let Some(call) = backtest.poll()? {
        let decisions = decide(&call);
        backtest.answer(call.id, Ok(decisions));
    }
    Ok(())
}
