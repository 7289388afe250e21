//! The controller without a driver: calls, executions and retries.

mod bounds;
mod candidate;
mod conditions;
mod former;
mod handover;
mod lives;
mod outcomes;
mod pages;
mod resync;
mod returns;
mod slices;

use std::collections::BTreeSet;
use std::time::Duration;

use super::*;
use crate::bounds::Bounds;
use crate::circuit::CallFailureKind;
use crate::digest::ModuleDigest;
use crate::expectation::ExpectationState;
use crate::failure::{Failure, FailureClass};
use crate::gate::{Refusal, Ruling, WaitReason};
use crate::manifest::Manifest;
use crate::manifest::Permission;
use crate::manifest::{IndexSpec, QueueSpec, Source, TickSpec, Trigger, TriggerKey, WatchSpec};
use crate::mapping::Mapping;
use crate::mapping::ServedResource;
use crate::object::{ApiResource, ObjectRef, ProjectedObject};
use crate::path::FieldTree;
use crate::plan::{
    Amount, Command, DeleteOptions, Enqueue, MeasureWhen, Plan, PlanMeasure, QueueKey, Step,
    Verdict,
};
use crate::revision::{CallLimits, RevisionIdentity};
use crate::rollout::cohort::{CandidateStep, Cohort, Share};
use crate::store::{SegmentId, Store, ViewId, ViewSpec, testing};

const SECOND: Duration = Duration::from_secs(1);

/// A controller with a watch of pods: the queue `pods` has their names, the queue
/// `nodes` their nodes.
struct Bench {
    store: Store,
    segment: SegmentId,
    mapping: Arc<Mapping>,
    controller: Controller<()>,
    view: ViewId,
    now: Instant,
    /// Effects that [`Self::effects`] has not returned yet.
    effects: Vec<Effect>,
}

fn pods() -> ApiResource {
    ApiResource::new("", "v1", "pods")
}

fn queue(name: &str, batch: u32) -> QueueSpec {
    QueueSpec {
        workers: 4,
        batch,
        retry_max: 8 * SECOND,
        ..QueueSpec::new(name)
    }
}

fn manifest() -> Manifest {
    Manifest {
        name: "test".into(),
        version: "1".into(),
        watches: vec![WatchSpec {
            fields: vec!["spec.nodeName".parse().unwrap()],
            indexes: vec![IndexSpec::new("node", "spec.nodeName".parse().unwrap())],
            ..WatchSpec::new("pods", Source::One(pods()))
        }],
        triggers: vec![
            Trigger::new("pods", "pods", TriggerKey::OwnKey),
            Trigger::new("pods", "nodes", TriggerKey::Index("node".into())),
        ],
        queues: vec![queue("pods", 1), queue("nodes", 10)],
        permissions: vec![Permission::new("delete", "", "pods")],
        ..Manifest::default()
    }
}

/// A revision with that manifest that takes any number of calls.
fn loaded(manifest: Manifest) -> LoadedRevision<()> {
    let limits = CallLimits {
        memory_mib: 64,
        call_millis: 1000,
        instances: 1_000_000,
    };
    LoadedRevision::shipped(
        (),
        Arc::new(manifest),
        RevisionIdentity::new(ModuleDigest([1; 32]), [0x80].into(), limits),
    )
}

fn views(view: ViewId) -> Views {
    Views {
        ids: vec![view],
        cohort: Cohort::default(),
    }
}

fn enforce() -> Settings {
    Settings {
        mode: Mode::Enforce,
        ..Settings::default()
    }
}

impl Bench {
    fn new(manifest: Manifest, settings: Settings) -> Self {
        manifest.validate().unwrap();
        let view = ViewSpec::from(&manifest.watches[0]);
        let (store, view, segment) = testing::pods_as(view);
        let mapping = Mapping::new([ServedResource {
            resource: pods(),
            kind: "Pod".into(),
            namespaced: true,
            verbs: vec![],
            preferred: true,
        }]);
        let controller = Controller::new(
            Instant::ZERO,
            ControllerId(1),
            loaded(manifest),
            views(view),
            settings,
        );
        Self {
            store,
            segment,
            mapping: Arc::new(mapping),
            controller,
            view,
            now: Instant::ZERO,
            effects: vec![],
        }
    }

    fn enforcing() -> Self {
        Self::new(manifest(), enforce())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// The cache observes a pod in this version, on this node.
    fn see(&mut self, name: &str, version: u64, node: &str) {
        let mut data = Vec::new();
        rmp::encode::write_map_len(&mut data, 1).unwrap();
        rmp::encode::write_str(&mut data, "spec").unwrap();
        rmp::encode::write_map_len(&mut data, 1).unwrap();
        rmp::encode::write_str(&mut data, "nodeName").unwrap();
        rmp::encode::write_str(&mut data, node).unwrap();
        let item = ProjectedObject {
            namespace: "ns".into(),
            name: name.into(),
            uid: Uid::new(name),
            resource_version: version.to_string().into(),
            data: data.into(),
        };
        let mut changes = Vec::new();
        self.store.apply(self.segment, item, self.now, &mut changes);
        self.notify(&changes);
    }

    fn lose(&mut self, name: &str) {
        let mut changes = Vec::new();
        let uid = Uid::new(name);
        self.store
            .remove(self.segment, "ns", name, &uid, &mut changes);
        self.notify(&changes);
    }

    fn notify(&mut self, changes: &[Change]) {
        let snapshot = self.store.snapshot();
        self.controller
            .handle_changes(self.now, changes, Origin::Fresh, &snapshot);
    }

    fn with_world<T>(&mut self, f: impl FnOnce(&mut Controller<()>, &World<'_>) -> T) -> T {
        let snapshot = self.store.snapshot();
        let world = World {
            now: self.now,
            snapshot: &snapshot,
            mapping: &self.mapping,
            leading: true,
        };
        f(&mut self.controller, &world)
    }

    fn call(&mut self) -> Option<CallRequest<()>> {
        self.call_of(Role::Stable)
    }

    fn call_of(&mut self, role: Role) -> Option<CallRequest<()>> {
        let snapshot = self.store.snapshot();
        for _ in 0..100 {
            self.controller.continue_resync(self.now, &snapshot);
        }
        self.controller
            .poll_call(self.now, role, &snapshot, &self.mapping)
    }

    fn timeout(&self) -> Option<Instant> {
        self.controller.poll_timeout(self.now)
    }

    /// The next call, with the keys that it is about.
    fn keys(&mut self) -> Option<(CallId, String, Vec<String>)> {
        self.keys_of(Role::Stable)
    }

    fn keys_of(&mut self, role: Role) -> Option<(CallId, String, Vec<String>)> {
        let call = self.call_of(role)?;
        let queue = call.items[0].queue.clone();
        let keys = call.items.into_iter().map(|item| item.key).collect();
        Some((call.id, queue, keys))
    }

    fn answer(&mut self, id: CallId, decisions: Vec<Decision>) {
        assert_eq!(self.answer_in(Duration::ZERO, id, decisions), None);
    }

    /// Answers a call that took this long. Returns its failure.
    fn answer_in(
        &mut self,
        took: Duration,
        id: CallId,
        decisions: Vec<Decision>,
    ) -> Option<CallFailure> {
        self.controller.handle_decisions(id, decisions, took);
        while self.continue_work() {}
        self.take_effects();
        let mut effects = self.effects.iter().rev();
        effects.find_map(|effect| match effect {
            Effect::Called { failure, .. } => Some(failure.clone()),
            _ => None,
        })?
    }

    /// Executes a slice of the answers. Returns whether more is left.
    fn continue_work(&mut self) -> bool {
        self.with_world(Controller::continue_work)
    }

    fn fail(&mut self, id: CallId, failure: CallFailure) {
        let now = self.now;
        self.controller
            .handle_call_failure(now, id, failure, Duration::ZERO);
    }

    fn take_effects(&mut self) {
        let effects = std::iter::from_fn(|| self.controller.poll_effect());
        self.effects.extend(effects);
    }

    fn outcome(&mut self, id: PlanId, outcome: Outcome) {
        self.with_world(|controller, world| controller.handle_outcome(id, outcome, world));
        while self.continue_work() {}
    }

    fn effects(&mut self) -> Vec<Effect> {
        self.take_effects();
        std::mem::take(&mut self.effects)
    }

    /// The plans to execute now.
    fn carried(&mut self) -> Vec<(PlanId, Arc<Plan>)> {
        let carried = |effect| match effect {
            Effect::Execute { id, plan, .. } => Some((id, plan)),
            _ => None,
        };
        self.effects().into_iter().filter_map(carried).collect()
    }

    fn rulings(&mut self) -> Vec<Ruling> {
        let ruling = |effect| match effect {
            Effect::Ruled { ruling, .. } => Some(ruling),
            _ => None,
        };
        self.effects().into_iter().filter_map(ruling).collect()
    }

    /// Answers every due item with `done`.
    fn settle(&mut self) {
        while let Some(call) = self.call() {
            let done = call.items.iter().map(|_| decide(vec![], Verdict::Done));
            self.answer(call.id, done.collect());
        }
        self.effects();
    }
}

fn decide(plans: Vec<Plan>, verdict: Verdict) -> Decision {
    Decision {
        plans,
        commands: vec![],
        verdict,
        parallel: 0,
    }
}

fn delete(name: &str) -> Plan {
    Plan {
        target: ObjectRef {
            api_version: "v1".into(),
            kind: "Pod".into(),
            namespace: "ns".into(),
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

fn succeeded(written: WriteResult) -> Outcome {
    Outcome {
        written: Some(written),
        failed: None,
    }
}

fn failed(class: FailureClass) -> Outcome {
    Outcome {
        written: None,
        failed: Some((0, Failure::new(class, "test"))),
    }
}

/// The cache observes a pod, the guest deletes it, and the deletion is under way.
fn deleting(bench: &mut Bench) -> PlanId {
    bench.see("a", 1, "");
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/a"]);
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    let carried = bench.carried();
    assert_eq!(carried.len(), 1);
    carried[0].0
}

#[test]
fn a_change_adds_its_keys_once() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "n1");
    bench.see("a", 2, "n2");
    let mut calls = vec![];
    while let Some((id, queue, keys)) = bench.keys() {
        calls.push((queue, keys.clone()));
        let done = keys.iter().map(|_| decide(vec![], Verdict::Done));
        bench.answer(id, done.collect());
    }
    calls.sort();
    let expected: [(&str, &[&str]); 2] = [("nodes", &["n1", "n2"]), ("pods", &["ns/a"])];
    assert_eq!(calls.len(), 2);
    for ((queue, keys), (expected_queue, expected_keys)) in calls.iter().zip(expected) {
        assert_eq!(queue, expected_queue);
        assert_eq!(keys, expected_keys);
    }
}

#[test]
fn a_version_without_a_change_triggers_no_reconcile() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "n1");
    bench.settle();
    bench.see("a", 2, "n1");
    assert!(bench.call().is_none());
    assert_eq!(bench.timeout(), None);
}

#[test]
fn a_dry_run_carries_nothing_out() {
    let mut bench = Bench::new(manifest(), Settings::default());
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert_eq!(bench.rulings(), [Ruling::DryRun]);
    // With the mode Enforce, a resync enqueues every key.
    bench.controller.set(bench.now, enforce());
    let (call, ..) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert_eq!(bench.carried().len(), 1);
}

#[test]
fn a_change_of_mode_stops_the_plans_that_wait() {
    let mut bench = Bench::enforcing();
    for name in ["a", "b"] {
        bench.see(name, 1, "n1");
    }
    let (call, queue, _) = bench.keys().unwrap();
    assert_eq!(queue, "nodes");
    let mut decision = decide(vec![delete("a"), delete("b")], Verdict::Done);
    decision.parallel = 1;
    bench.answer(call, vec![decision]);
    let carried = bench.carried();
    assert_eq!(carried.len(), 1);
    bench.controller.set(bench.now, Settings::default());
    bench.outcome(carried[0].0, succeeded(WriteResult::Gone));
    assert_eq!(bench.rulings(), [Ruling::DryRun]);
}

#[test]
fn a_decision_bounds_how_many_plans_run_at_once() {
    let mut bench = Bench::enforcing();
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        bench.see(name, 1, "n1");
    }
    let (call, ..) = bench.keys().unwrap();
    let mut decision = decide(names.map(delete).into(), Verdict::Done);
    decision.parallel = 2;
    bench.answer(call, vec![decision]);
    let mut open = bench.carried();
    let mut total = open.len();
    while let Some((id, _)) = open.pop() {
        assert!(open.len() < 2);
        bench.outcome(id, succeeded(WriteResult::Gone));
        let more = bench.carried();
        total += more.len();
        open.extend(more);
    }
    assert_eq!(total, 5);
}

#[test]
fn a_plan_can_depend_on_a_cancel() {
    let mut bench = Bench::enforcing();
    let timer = QueueKey {
        queue: "nodes".into(),
        key: "later".into(),
    };
    let with = |commands, plans| Decision {
        commands,
        ..decide(plans, Verdict::Done)
    };
    let conditional = |name| Plan {
        when_cancelled: Some(timer.clone()),
        ..delete(name)
    };
    for (waiting, carried) in [(true, 1), (false, 0)] {
        bench.see("a", if waiting { 1 } else { 3 }, "");
        if !waiting {
            bench.lose("a");
        }
        let (call, ..) = bench.keys().unwrap();
        let mut commands = vec![];
        if waiting {
            commands.push(Command::Enqueue(Enqueue {
                item: timer.clone(),
                after: 10 * SECOND,
                created_at: None,
                group: String::new(),
            }));
        }
        commands.push(Command::Cancel(timer.clone()));
        bench.answer(call, vec![with(commands, vec![conditional("a")])]);
        let plans = bench.carried();
        assert_eq!(plans.len(), carried);
        for (id, _) in plans {
            bench.outcome(id, succeeded(WriteResult::Gone));
        }
        bench.settle();
    }
}

#[test]
fn notes_are_kept_for_the_next_call_and_over_a_swap() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let mut decision = decide(vec![], Verdict::RequeueAfter(SECOND));
    let note = |key: &str| Command::SetNote {
        key: key.into(),
        value: Some(vec![1]),
    };
    decision.commands = vec![note("k"), note("status/k")];
    bench.answer(call, vec![decision]);
    bench.pass(SECOND);
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest()), views(bench.view));
    let call = bench.call().unwrap();
    assert_eq!(call.items[0].created_at, Instant::ZERO);
    let kept: Vec<&String> = call.notes.keys().collect();
    assert_eq!(kept, ["k"], "a report is about the former revision");
    assert_eq!(call.notes.get("k").map(|value| &**value), Some(&[1][..]));
}

#[test]
fn an_answer_of_a_replaced_revision_is_void() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (old, ..) = bench.keys().unwrap();
    bench
        .controller
        .reconfigure(bench.now, loaded(manifest()), views(bench.view));
    let (new, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/a"]);
    bench.answer(old, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert!(bench.carried().is_empty());
    bench.answer(new, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert_eq!(bench.carried().len(), 1);
}

#[test]
fn a_disabled_controller_is_not_called() {
    let settings = Settings {
        mode: Mode::Disabled,
        ..Settings::default()
    };
    let mut bench = Bench::new(manifest(), settings);
    bench.see("a", 1, "");
    assert!(bench.call().is_none());
    assert_eq!(bench.timeout(), None);
}

#[test]
fn a_tick_slides_from_the_end_of_its_plans() {
    let mut with_tick = manifest();
    with_tick.ticks = vec![TickSpec {
        queue: "nodes".into(),
        key: "tick".into(),
        period: 20 * SECOND,
    }];
    let mut bench = Bench::new(with_tick, enforce());
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["tick"]);
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    let (id, _) = bench.carried()[0];
    bench.pass(30 * SECOND);
    assert!(bench.call().is_none(), "it never overlaps itself");
    bench.outcome(id, succeeded(WriteResult::Gone));
    bench.pass(19 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    assert!(bench.call().is_some());
}

#[test]
fn listed_fields_are_those_of_the_view() {
    let bench = Bench::enforcing();
    let fields = bench.store.segment_fields(bench.segment).unwrap();
    let expected: FieldTree = manifest().watches[0].fields.iter().collect();
    assert_eq!(*fields, expected);
}
