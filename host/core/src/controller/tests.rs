//! The controller driven by hand: what is called, carried out and tried again.

use std::time::Duration;

use super::*;
use crate::gate::Refusal;
use crate::health::CallFailureKind;
use crate::manifest::{IndexSpec, QueueSpec, Source, TickSpec, Trigger, TriggerKey, WatchSpec};
use crate::mapping::Served;
use crate::object::{ApiResource, Kind, ObjectRef, Projected};
use crate::path::FieldTree;
use crate::plan::{Amount, DeleteOptions, Enqueue, PlanMeasure, Step, Verdict};
use crate::store::{SegmentId, SegmentSpec, Store, ViewSpec};

const SECOND: Duration = Duration::from_secs(1);

/// A controller with a watch of pods, whose names come through the queue
/// `pods` and whose nodes come through the queue `nodes`.
struct Bench {
    store: Store,
    segment: SegmentId,
    mapping: Mapping,
    controller: Controller,
    now: Instant,
}

fn pods() -> ApiResource {
    ApiResource::new("", "v1", "pods")
}

fn queue(name: &str, batch: u32) -> QueueSpec {
    QueueSpec {
        name: name.into(),
        workers: 4,
        batch,
        priority: 0,
        retry_initial: SECOND,
        retry_max: 8 * SECOND,
        rate: None,
    }
}

fn manifest() -> Manifest {
    Manifest {
        name: "test".into(),
        version: "1".into(),
        summary: String::new(),
        watches: vec![WatchSpec {
            name: "pods".into(),
            source: Source::One(pods()),
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields: vec!["spec.nodeName".parse().unwrap()],
            indexes: vec![IndexSpec {
                name: "node".into(),
                path: "spec.nodeName".parse().unwrap(),
                presence: false,
                unset: false,
            }],
            optional: false,
        }],
        triggers: vec![
            Trigger {
                watch: "pods".into(),
                queue: "pods".into(),
                key: TriggerKey::OwnKey,
            },
            Trigger {
                watch: "pods".into(),
                queue: "nodes".into(),
                key: TriggerKey::Index("node".into()),
            },
        ],
        queues: vec![queue("pods", 1), queue("nodes", 10)],
        ticks: vec![],
        permissions: vec![Permission {
            verb: "delete".into(),
            group: String::new(),
            resource: "pods".into(),
        }],
        metrics: vec![],
        config_schema: String::new(),
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
        let mut store = Store::default();
        let view = store.add_view(ViewSpec::from(&manifest.watches[0]));
        let spec = SegmentSpec {
            resource: pods(),
            kind: Kind {
                api_version: "v1".into(),
                kind: "Pod".into(),
            },
            namespaced: true,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
        };
        let segment = store.attach(view, &spec, &mut Vec::new()).unwrap();
        let fields = store.segment_fields(segment).unwrap();
        store
            .replace(segment, fields, [], Instant::ZERO, &mut Vec::new())
            .unwrap();
        let mapping = Mapping::new([Served {
            resource: pods(),
            kind: "Pod".into(),
            namespaced: true,
            verbs: vec![],
            preferred: true,
        }]);
        let controller =
            Controller::new(Instant::ZERO, Arc::new(manifest), settings, &[view]);
        Self {
            store,
            segment,
            mapping,
            controller,
            now: Instant::ZERO,
        }
    }

    fn enforcing() -> Self {
        Self::new(manifest(), enforce())
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// The API server has a pod in this version, on this node.
    fn see(&mut self, name: &str, version: u64, node: &str) {
        let mut data = Vec::new();
        rmp::encode::write_map_len(&mut data, 1).unwrap();
        rmp::encode::write_str(&mut data, "spec").unwrap();
        rmp::encode::write_map_len(&mut data, 1).unwrap();
        rmp::encode::write_str(&mut data, "nodeName").unwrap();
        rmp::encode::write_str(&mut data, node).unwrap();
        let item = Projected {
            namespace: "ns".into(),
            name: name.into(),
            uid: Uid::new(name),
            resource_version: version.to_string().into(),
            data: data.into(),
        };
        let mut changes = Vec::new();
        self.store.apply(self.segment, item, self.now, &mut changes);
        self.tell(&changes);
    }

    fn lose(&mut self, name: &str) {
        let mut changes = Vec::new();
        let uid = Uid::new(name);
        self.store
            .remove(self.segment, "ns", name, &uid, &mut changes);
        self.tell(&changes);
    }

    fn tell(&mut self, changes: &[Change]) {
        let snapshot = self.store.snapshot();
        self.controller
            .handle_changes(self.now, changes, Origin::Fresh, &snapshot);
    }

    fn with_world<T>(&mut self, f: impl FnOnce(&mut Controller, &World<'_>) -> T) -> T {
        let snapshot = self.store.snapshot();
        let world = World {
            now: self.now,
            snapshot: &snapshot,
            mapping: &self.mapping,
        };
        f(&mut self.controller, &world)
    }

    fn call(&mut self) -> Option<CallRequest> {
        self.controller.poll_call(self.now)
    }

    /// The next call, with the keys that it is about.
    fn keys(&mut self) -> Option<(CallId, String, Vec<String>)> {
        let call = self.call()?;
        let queue = call.items[0].queue.clone();
        let keys = call.items.into_iter().map(|item| item.key).collect();
        Some((call.id, queue, keys))
    }

    fn answer(&mut self, id: CallId, decisions: Vec<Decision>) {
        self.with_world(|controller, world| controller.handle_decisions(id, decisions, world));
    }

    fn outcome(&mut self, id: PlanId, outcome: Outcome) {
        self.with_world(|controller, world| controller.handle_outcome(id, outcome, world));
    }

    fn effects(&mut self) -> Vec<Effect> {
        std::iter::from_fn(|| self.controller.poll_effect()).collect()
    }

    /// The plans that are to be carried out now.
    fn carried(&mut self) -> Vec<(PlanId, Arc<Plan>)> {
        let carried = |effect| match effect {
            Effect::Carry { id, plan } => Some((id, plan)),
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

    /// Has everything that is due decided to be done.
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

fn succeeded(written: Written) -> Outcome {
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

/// A pod is seen, the guest wants it deleted, and the deletion is under way.
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
fn a_version_without_a_change_wakes_nobody() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "n1");
    bench.settle();
    bench.see("a", 2, "n1");
    assert!(bench.call().is_none());
    assert_eq!(bench.controller.poll_timeout(bench.now), None);
}

#[test]
fn a_deleted_object_is_not_deleted_again_while_the_cache_lags() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, succeeded(Written::Gone));
    bench.effects();
    // Another change of the same pod arrives before its deletion does.
    bench.see("a", 2, "n1");
    let (call, queue, _) = bench.keys().unwrap();
    assert_eq!(queue, "nodes");
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    let rulings = bench.rulings();
    assert!(
        matches!(rulings[..], [Ruling::Wait(Waiting::Held(Held::NotSeenYet))]),
        "{rulings:?}"
    );
    let (call, ..) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![], Verdict::Done)]);
    // It is looked at again as soon as the deletion is seen.
    assert!(bench.call().is_none());
    bench.lose("a");
    let mut queues = vec![];
    while let Some((id, queue, _)) = bench.keys() {
        queues.push(queue);
        bench.answer(id, vec![decide(vec![], Verdict::Done)]);
    }
    queues.sort();
    assert_eq!(queues, ["nodes", "pods"]);
}

#[test]
fn a_failed_write_is_tried_again_with_its_failure() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, failed(FailureClass::Server));
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let call = bench.call().unwrap();
    let item = &call.items[0];
    assert_eq!((item.key.as_str(), item.attempt), ("ns/a", 1));
    assert_eq!(item.failures[0].failure.class, FailureClass::Server);
    assert_eq!(item.failures[0].uid, "a");
}

#[test]
fn a_target_that_is_gone_is_no_failure() {
    for class in [FailureClass::NotFound, FailureClass::UidMismatch] {
        let mut bench = Bench::enforcing();
        let plan = deleting(&mut bench);
        bench.outcome(plan, failed(class));
        bench.pass(60 * SECOND);
        assert!(bench.call().is_none(), "{class}");
    }
}

#[test]
fn a_forbidden_write_waits_longer_and_an_invalid_one_is_only_reported() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, failed(FailureClass::Forbidden));
    bench.pass(29 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    assert!(bench.call().is_some());

    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    bench.outcome(plan, failed(FailureClass::Invalid));
    bench.pass(1000 * SECOND);
    assert!(bench.call().is_none());
}

#[test]
fn what_the_server_asks_to_wait_is_waited() {
    let mut bench = Bench::enforcing();
    let plan = deleting(&mut bench);
    let mut outcome = failed(FailureClass::Throttled);
    if let Some((_, failure)) = &mut outcome.failed {
        failure.retry_after = Some(20 * SECOND);
    }
    bench.outcome(plan, outcome);
    assert_eq!(
        bench.controller.poll_timeout(bench.now),
        Some(bench.now.after(20 * SECOND))
    );
}

#[test]
fn a_dry_run_carries_nothing_out() {
    let mut bench = Bench::new(manifest(), Settings::default());
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    bench.answer(call, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert_eq!(bench.rulings(), [Ruling::Show]);
    // Once it enforces, everything is looked at again.
    bench.controller.set(enforce());
    let snapshot = bench.store.snapshot();
    bench.controller.look_at_everything(bench.now, &snapshot);
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
    bench.controller.set(Settings::default());
    bench.outcome(carried[0].0, succeeded(Written::Gone));
    assert_eq!(bench.rulings(), [Ruling::Show]);
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
        bench.outcome(id, succeeded(Written::Gone));
        let more = bench.carried();
        total += more.len();
        open.extend(more);
    }
    assert_eq!(total, 5);
}

#[test]
fn a_refused_plan_is_ruled_out_and_not_tried_again() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let mut plan = delete("a");
    plan.target.uid.clear();
    bench.answer(call, vec![decide(vec![plan], Verdict::Done)]);
    assert_eq!(bench.rulings(), [Ruling::Refuse(Refusal::NoUid)]);
    bench.pass(1000 * SECOND);
    assert!(bench.call().is_none());
}

#[test]
fn a_spent_budget_makes_plans_wait() {
    let settings = Settings {
        guardrails: Guardrails {
            deletes_per_minute: Some(1),
            writes_per_minute: None,
        },
        ..enforce()
    };
    let mut bench = Bench::new(manifest(), settings);
    for name in ["a", "b"] {
        bench.see(name, 1, "");
    }
    let mut carried = vec![];
    while let Some((call, _, keys)) = bench.keys() {
        let name = keys[0].trim_start_matches("ns/").to_owned();
        bench.answer(call, vec![decide(vec![delete(&name)], Verdict::Done)]);
        carried.extend(bench.carried());
    }
    assert_eq!(carried.len(), 1);
    bench.outcome(carried[0].0, succeeded(Written::Gone));
    bench.pass(59 * SECOND);
    assert!(bench.call().is_none());
    bench.pass(SECOND);
    let (call, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/b"]);
    bench.answer(call, vec![decide(vec![delete("b")], Verdict::Done)]);
    assert_eq!(bench.carried().len(), 1);
}

#[test]
fn again_when_written_waits_for_the_cache() {
    let mut bench = Bench::enforcing();
    for name in ["a", "b"] {
        bench.see(name, 1, "n1");
    }
    let (call, queue, _) = bench.keys().unwrap();
    assert_eq!(queue, "nodes");
    let plans = vec![delete("a"), delete("b")];
    bench.answer(call, vec![decide(plans, Verdict::AgainWhenWritten)]);
    for (id, _) in bench.carried() {
        bench.outcome(id, succeeded(Written::Version(5)));
    }
    bench.settle();
    bench.see("a", 5, "n1-gone");
    // The change itself adds the node's key; take that out of the way.
    bench.settle();
    bench.see("b", 5, "n1");
    assert!(bench.call().is_none(), "no declared field has changed");
    // The version is seen when everything is tidied up.
    let snapshot = bench.store.snapshot();
    bench.controller.tidy(bench.now, &snapshot);
    let (_, queue, keys) = bench.keys().unwrap();
    assert_eq!((queue.as_str(), keys), ("nodes", vec!["n1".to_owned()]));
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
            bench.outcome(id, succeeded(Written::Gone));
        }
        bench.settle();
    }
}

#[test]
fn notes_are_kept_for_the_next_call_and_over_a_swap() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (call, ..) = bench.keys().unwrap();
    let mut decision = decide(vec![], Verdict::AgainAfter(SECOND));
    decision.commands = vec![Command::SetNote {
        key: "k".into(),
        value: Some(vec![1]),
    }];
    bench.answer(call, vec![decision]);
    bench.pass(SECOND);
    let views: Vec<ViewId> = bench.controller.views().map(|(_, view)| view).collect();
    bench
        .controller
        .reconfigure(bench.now, Arc::new(manifest()), &views);
    let call = bench.call().unwrap();
    assert_eq!(call.items[0].created_at, Instant::ZERO);
    assert_eq!(call.notes.get("k").map(|value| &**value), Some(&[1][..]));
}

#[test]
fn an_answer_of_a_replaced_revision_is_void() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let (old, ..) = bench.keys().unwrap();
    let views: Vec<ViewId> = bench.controller.views().map(|(_, view)| view).collect();
    bench
        .controller
        .reconfigure(bench.now, Arc::new(manifest()), &views);
    let (new, _, keys) = bench.keys().unwrap();
    assert_eq!(keys, ["ns/a"]);
    bench.answer(old, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert!(bench.carried().is_empty());
    bench.answer(new, vec![decide(vec![delete("a")], Verdict::Done)]);
    assert_eq!(bench.carried().len(), 1);
}

#[test]
fn measures_count_what_became_of_a_plan() {
    for (outcome, expected) in [
        (succeeded(Written::Gone), vec!["attempted", "succeeded"]),
        (failed(FailureClass::NotFound), vec!["attempted", "succeeded"]),
        (failed(FailureClass::Server), vec!["attempted", "failed"]),
    ] {
        let mut bench = Bench::enforcing();
        bench.see("a", 1, "");
        let (call, ..) = bench.keys().unwrap();
        let mut plan = delete("a");
        let measure = |when, name: &str| PlanMeasure {
            when,
            measure: Measure {
                metric: name.into(),
                labels: vec![],
                amount: Amount::Add(1.0),
            },
        };
        plan.measures = vec![
            measure(MeasureWhen::Attempted, "attempted"),
            measure(MeasureWhen::Succeeded, "succeeded"),
            measure(MeasureWhen::Failed, "failed"),
        ];
        bench.answer(call, vec![decide(vec![plan], Verdict::Done)]);
        let (id, _) = bench.carried()[0];
        bench.outcome(id, outcome);
        let counted: Vec<String> = bench
            .effects()
            .into_iter()
            .filter_map(|effect| match effect {
                Effect::Measure(measure) => Some(measure.metric),
                _ => None,
            })
            .collect();
        assert_eq!(counted, expected);
    }
}

#[test]
fn a_guest_that_keeps_failing_is_quarantined_and_its_items_kept() {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "");
    let mut failures = 0;
    while failures < 5 {
        match bench.call() {
            Some(call) => {
                let failure = CallFailure::new(CallFailureKind::Trap, "unreachable");
                let now = bench.now;
                bench.controller.handle_call_failure(now, call.id, failure);
                failures += 1;
            }
            None => bench.pass(SECOND),
        }
    }
    assert!(!matches!(
        bench.controller.health().state(),
        crate::health::State::Healthy
    ));
    bench.see("b", 1, "");
    assert!(bench.call().is_none());
    let opens = bench.controller.poll_timeout(bench.now).unwrap();
    bench.now = opens;
    let (probe, _, keys) = bench.keys().unwrap();
    assert!(bench.call().is_none(), "one probe at a time");
    bench.answer(probe, vec![decide(vec![], Verdict::Done)]);
    let mut seen = keys;
    bench.pass(60 * SECOND);
    while let Some((id, _, keys)) = bench.keys() {
        seen.extend(keys);
        bench.answer(id, vec![decide(vec![], Verdict::Done)]);
    }
    seen.sort();
    assert_eq!(seen, ["ns/a", "ns/b"]);
}

#[test]
fn an_off_controller_is_not_called() {
    let settings = Settings {
        mode: Mode::Off,
        ..Settings::default()
    };
    let mut bench = Bench::new(manifest(), settings);
    bench.see("a", 1, "");
    assert!(bench.call().is_none());
    assert_eq!(bench.controller.poll_timeout(bench.now), None);
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
    bench.outcome(id, succeeded(Written::Gone));
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
    assert_eq!(fields, expected);
}
