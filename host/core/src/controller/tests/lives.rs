//! Random inputs to a controller, and a model of what it owes: a call about every key that
//! was enqueued, on a snapshot that is not older.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PODS: [&str; 3] = ["a", "b", "c"];
const NODES: [&str; 2] = ["n1", "n2"];
/// More than one slice executes.
const MANY: usize = 300;

#[derive(Clone, Debug)]
enum Input {
    /// The cache observes a pod on a node.
    See(&'static str, &'static str),
    Lose(&'static str),
    Call,
    /// The guest answers one of the open calls.
    Answer(usize, Answer),
    Fail(usize, CallFailureKind),
    Void(usize),
    /// A slice of the answers is executed.
    Work,
    /// One of the plans in flight succeeds, or fails.
    Outcome(usize, bool),
    /// Another revision, with the queue `nodes` or without it.
    Swap(bool),
    Reset,
    Resync,
    /// Whether pods are served.
    Serve(bool),
    Pass(u64),
}

/// What the guest decides about each item of a call.
#[derive(Clone, Debug)]
enum Answer {
    Done,
    Retry,
    RequeueAfter(u64),
    /// Deletes these pods.
    Delete(Vec<&'static str>, Verdict),
    /// Has so many commands that a slice does not execute them all.
    Slow,
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let pod = || prop::sample::select(&PODS[..]);
    let number = || 0..4_usize;
    let failure = prop::sample::select(&CallFailureKind::ALL[..]);
    let input = prop_oneof![
        8 => (pod(), prop::sample::select(&NODES[..])).prop_map(|(pod, node)| Input::See(pod, node)),
        2 => pod().prop_map(Input::Lose),
        12 => Just(Input::Call),
        10 => (number(), answer()).prop_map(|(call, answer)| Input::Answer(call, answer)),
        2 => (number(), failure).prop_map(|(call, kind)| Input::Fail(call, kind)),
        2 => number().prop_map(Input::Void),
        10 => Just(Input::Work),
        8 => (number(), any::<bool>()).prop_map(|(plan, is_ok)| Input::Outcome(plan, is_ok)),
        2 => any::<bool>().prop_map(Input::Swap),
        1 => Just(Input::Reset),
        1 => Just(Input::Resync),
        1 => any::<bool>().prop_map(Input::Serve),
        4 => (0..40_u64).prop_map(Input::Pass),
    ];
    prop::collection::vec(input, 1..120)
}

fn answer() -> impl Strategy<Value = Answer> {
    let verdict = prop_oneof![
        Just(Verdict::Done),
        Just(Verdict::RequeueWhenObserved),
        Just(Verdict::ContinueFrom { cursor: "c".into() }),
    ];
    let pods = prop::sample::subsequence(&PODS[..], 0..=3);
    prop_oneof![
        2 => Just(Answer::Done),
        1 => Just(Answer::Retry),
        1 => (0..20_u64).prop_map(Answer::RequeueAfter),
        6 => (pods, verdict).prop_map(|(pods, verdict)| Answer::Delete(pods, verdict)),
        1 => Just(Answer::Slow),
    ]
}

/// A controller, and what it owes.
struct Obligations {
    bench: Bench,
    /// The node of each pod in the cache.
    pods: BTreeMap<&'static str, &'static str>,
    has_nodes: bool,
    /// Counts what happens.
    clock: u64,
    /// When each key was last enqueued, and when the call was made whose decision about it
    /// ended last.
    enqueued: BTreeMap<QueueKey, u64>,
    decided: BTreeMap<QueueKey, u64>,
    /// The item of each decision, and when its call was made.
    decisions: BTreeMap<DecisionId, (QueueKey, u64)>,
    open: Vec<CallRequest<()>>,
    plans: Vec<PlanId>,
    revisions: u8,
}

impl Obligations {
    fn new() -> Self {
        Self {
            bench: Bench::enforcing(),
            pods: BTreeMap::new(),
            has_nodes: true,
            clock: 0,
            enqueued: BTreeMap::new(),
            decided: BTreeMap::new(),
            decisions: BTreeMap::new(),
            open: Vec::new(),
            plans: Vec::new(),
            revisions: 1,
        }
    }

    fn enqueue(&mut self, queue: &str, key: &str) {
        if queue == "pods" || self.has_nodes {
            self.clock += 1;
            let (queue, key) = (queue.to_owned(), key.to_owned());
            self.enqueued.insert(QueueKey { queue, key }, self.clock);
        }
    }

    fn enqueue_all(&mut self) {
        for (pod, node) in self.pods.clone() {
            self.enqueue("pods", &format!("ns/{pod}"));
            self.enqueue("nodes", node);
        }
    }

    fn input(&mut self, input: Input) {
        self.clock += 1;
        let (now, version) = (self.bench.now, self.clock);
        match input {
            Input::See(pod, node) => {
                let before = self.pods.insert(pod, node);
                self.bench.see(pod, version, node);
                if before != Some(node) {
                    self.enqueue("pods", &format!("ns/{pod}"));
                    self.enqueue("nodes", node);
                    if let Some(node) = before {
                        self.enqueue("nodes", node);
                    }
                }
            }
            Input::Lose(pod) => {
                if let Some(node) = self.pods.remove(pod) {
                    self.bench.lose(pod);
                    self.enqueue("pods", &format!("ns/{pod}"));
                    self.enqueue("nodes", node);
                }
            }
            Input::Call => _ = self.call(),
            Input::Answer(call, answer) => {
                if let Some(call) = take(&mut self.open, call) {
                    let decisions = call.items.iter().map(|_| answer.decision()).collect();
                    let controller = &mut self.bench.controller;
                    controller.handle_decisions(call.id, decisions, Duration::ZERO);
                }
            }
            Input::Fail(call, kind) => {
                if let Some(call) = take(&mut self.open, call) {
                    self.bench.fail(call.id, CallFailure::new(kind, "test"));
                }
            }
            Input::Void(call) => {
                if let Some(call) = take(&mut self.open, call) {
                    self.bench.controller.handle_call_void(now, call.id);
                }
            }
            Input::Work => _ = self.bench.continue_work(),
            Input::Outcome(plan, is_ok) => {
                if let Some(plan) = take(&mut self.plans, plan) {
                    let outcome = if is_ok {
                        succeeded(WriteResult::Version(version))
                    } else {
                        failed(FailureClass::Server)
                    };
                    let controller = &mut self.bench;
                    controller.with_world(|one, world| one.handle_outcome(plan, outcome, world));
                }
            }
            Input::Swap(has_nodes) => self.swap(has_nodes),
            Input::Reset => {
                self.bench.controller.reset(now);
                self.enqueued.clear();
                self.enqueue_all();
            }
            Input::Resync => {
                self.bench.controller.resync(now);
                self.enqueue_all();
            }
            Input::Serve(is_served) => {
                let served = Bench::enforcing().mapping;
                self.bench.mapping = if is_served { served } else { Arc::default() };
                self.bench.controller.handle_mapping(now);
            }
            Input::Pass(seconds) => {
                self.bench.pass(Duration::from_secs(seconds));
                let snapshot = self.bench.store.snapshot();
                self.bench.controller.housekeep(self.bench.now, &snapshot);
            }
        }
        self.follow();
    }

    fn call(&mut self) -> bool {
        self.clock += 1;
        let Some(call) = self.bench.call() else {
            return false;
        };
        let has_called =
            |other: &&CallRequest<()>| self.bench.controller.caller(other.id).is_some();
        for other in self.open.iter().filter(has_called) {
            let mut items = other.items.iter();
            let is_called =
                |item: &WorkItem| items.any(|it| (&it.queue, &it.key) == (&item.queue, &item.key));
            assert!(!call.items.iter().any(is_called), "two calls for one item");
        }
        for (item, position) in call.items.iter().zip(0..) {
            let id = DecisionId {
                call: call.id,
                position,
            };
            let id = call.continues.unwrap_or(id);
            let item = QueueKey {
                queue: item.queue.clone(),
                key: item.key.clone(),
            };
            self.decisions.entry(id).or_insert((item, self.clock));
        }
        self.open.push(call);
        true
    }

    fn swap(&mut self, has_nodes: bool) {
        self.revisions += 1;
        self.has_nodes = has_nodes;
        let mut manifest = manifest();
        if !has_nodes {
            manifest.triggers.retain(|trigger| trigger.queue != "nodes");
            manifest.queues.retain(|queue| queue.name != "nodes");
            self.enqueued.retain(|item, _| item.queue != "nodes");
        }
        let limits = CallLimits {
            memory_mib: 64,
            call_millis: 1000,
            instances: 4,
        };
        let digest = ModuleDigest([self.revisions; 32]);
        let revision = LoadedRevision {
            identity: RevisionIdentity::new(digest, [0x80].into(), limits),
            ..loaded(manifest)
        };
        let (now, views) = (self.bench.now, views(self.bench.view));
        self.bench.controller.reconfigure(now, revision, views);
        self.enqueue_all();
    }

    /// Takes the effects.
    fn follow(&mut self) {
        self.bench
            .controller
            .stable
            .items
            .assert_consistent(self.bench.now);
        for effect in self.bench.effects() {
            match effect {
                Effect::Execute { id, .. } => self.plans.push(id),
                Effect::Reconciled {
                    decision, finish, ..
                } if finish != "put-back" => {
                    let (item, called) = self.decisions[&decision].clone();
                    if finish != "done" {
                        self.enqueue(&item.queue, &item.key);
                    }
                    let last = self.decided.entry(item).or_default();
                    *last = called.max(*last);
                }
                _ => {}
            }
        }
    }

    /// Everything ends well. Returns the keys that no call was made about.
    fn lost(&mut self) -> Vec<&QueueKey> {
        self.input(Input::Serve(true));
        for _ in 0..30 {
            loop {
                while !self.plans.is_empty() {
                    self.input(Input::Outcome(0, true));
                }
                while self.bench.continue_work() {}
                self.follow();
                let called = self.call();
                if !called && self.open.is_empty() && self.plans.is_empty() {
                    break;
                }
                self.input(Input::Answer(0, Answer::Done));
                self.input(Input::Work);
            }
            self.input(Input::Pass(60));
        }
        let is_lost =
            |(item, enqueued): &(&QueueKey, &u64)| self.decided.get(item) <= Some(enqueued);
        self.enqueued
            .iter()
            .filter(is_lost)
            .map(|(item, _)| item)
            .collect()
    }
}

impl Answer {
    fn decision(&self) -> Decision {
        match self {
            Self::Done => decide(vec![], Verdict::Done),
            Self::Retry => decide(
                vec![],
                Verdict::Retry {
                    reason: "test".into(),
                },
            ),
            Self::RequeueAfter(seconds) => {
                decide(vec![], Verdict::RequeueAfter(Duration::from_secs(*seconds)))
            }
            Self::Delete(pods, verdict) => Decision {
                parallel: 1,
                ..decide(pods.iter().copied().map(delete).collect(), verdict.clone())
            },
            Self::Slow => {
                let note = Command::SetNote {
                    key: "n".into(),
                    value: Some(vec![1]),
                };
                Decision {
                    commands: vec![note; MANY],
                    ..decide(vec![delete("a")], Verdict::Done)
                }
            }
        }
    }
}

fn take<T>(all: &mut Vec<T>, number: usize) -> Option<T> {
    (!all.is_empty()).then(|| all.remove(number % all.len()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_item_is_lost_or_in_two_states_or_in_two_calls(inputs in inputs()) {
        let mut obligations = Obligations::new();
        for input in inputs {
            obligations.input(input);
        }
        prop_assert_eq!(obligations.lost(), Vec::<&QueueKey>::new());
    }
}

/// It was reconciled on a cache that lags behind, and may have seen nothing of the write.
#[test]
fn an_item_that_is_reconciled_before_its_writes_are_observed_is_enqueued_all_the_same() {
    let mut bench = awaiting();
    // A change enqueues the item before that, and no plan of it waits.
    bench.see("b", 1, "n1");
    bench.settle();
    bench.see("a", 5, "n1");
    observe(&mut bench);
    let (_, queue, keys) = bench.keys().unwrap();
    assert_eq!((queue.as_str(), keys), ("nodes", vec!["n1".to_owned()]));
}

#[test]
fn an_item_that_is_in_a_call_when_its_writes_are_observed_is_reconciled_again() {
    let mut bench = awaiting();
    bench.see("b", 1, "n1");
    let mut calls: Vec<_> = std::iter::from_fn(|| bench.call()).collect();
    calls.retain(|call| call.items[0].queue == "nodes");
    bench.see("a", 5, "n1");
    observe(&mut bench);
    assert!(bench.call().is_none(), "a key is in one call at most");
    bench.answer(calls[0].id, vec![decide(vec![], Verdict::Done)]);
    let (_, queue, keys) = bench.keys().unwrap();
    assert_eq!((queue.as_str(), keys), ("nodes", vec!["n1".to_owned()]));
}

/// The swap takes a queue away that the item had left.
#[test]
fn an_item_whose_queue_is_gone_when_its_writes_are_observed_is_not_enqueued() {
    let mut obligations = Obligations::new();
    obligations.bench = awaiting();
    obligations.bench.see("b", 1, "n1");
    obligations.bench.settle();
    obligations.swap(false);
    obligations.bench.settle();
    obligations.bench.see("a", 5, "n1");
    observe(&mut obligations.bench);
    assert!(obligations.bench.call().is_none());
}

/// The node `n1` waits until the cache has observed version 5 of a pod.
fn awaiting() -> Bench {
    let mut bench = Bench::enforcing();
    bench.see("a", 1, "n1");
    let (call, queue, _) = bench.keys().unwrap();
    assert_eq!(queue, "nodes");
    let verdict = Verdict::RequeueWhenObserved;
    bench.answer(call, vec![decide(vec![delete("a")], verdict)]);
    let (plan, _) = bench.carried()[0];
    bench.outcome(plan, succeeded(WriteResult::Version(5)));
    bench.settle();
    bench
}

/// Housekeeping observes the versions in the cache.
fn observe(bench: &mut Bench) {
    let snapshot = bench.store.snapshot();
    bench.controller.housekeep(bench.now, &snapshot);
}
