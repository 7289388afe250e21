//! A native test harness: a small Kubernetes around one guest.
//!
//! [`Harness`] holds the objects of an API server and of the host's cache. The
//! guest reads exactly the fields that its manifest declares. The harness runs
//! the guest's queues on a virtual clock and executes its plans, so that a test
//! asserts what the API server holds afterwards:
//!
//! ```text
//! let mut harness = Harness::<PodGc>::new(json!({"terminatedPodThreshold": 1}))?;
//! harness.put(json!({"apiVersion": "v1", "kind": "Pod", …}));
//! harness.advance(Duration::from_secs(20));
//! assert_eq!(harness.keys("Pod"), ["default/newest"]);
//! ```
//!
//! What the host answers with a trap or a final refusal (an undeclared name, a
//! write without a permission) panics here. Not simulated: rates, label and field
//! selectors, several calls at once (except with [`Harness::call_during`]), JSON
//! patches, a kubelet (a pod that is deleted with a grace period is gone).

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "it runs in tests only: an expectation that fails ends the test"
)]

mod config;
mod execute;
mod host;
mod members;
mod native;
mod objects;
mod patch;
mod pod;
mod project;
mod queues;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use crate::component::Instance;
use crate::manifest::milliseconds;
use crate::{
    Amount, Command, ConfigError, Controller, Decision, Failure, Instant, Level, Manifest, Measure,
    ObjectRef, PendingItem, Plan, PlanFailure, UnlistedResource, Verdict, WorkItem, msgpack,
};
use host::State;
pub use native::Native;
pub use pod::Pod;
use queues::Outcome;

/// The start of a harness's clock: 2023-11-14T22:13:20Z.
pub const START: Instant = 1_700_000_000_000;

/// More calls than any test needs at one point in time.
const MAX_CALLS: usize = 10_000;

/// How long the host waits after a forbidden write.
const FORBIDDEN_PAUSE: u64 = 30_000;

/// One guest, its cluster and its host.
pub struct Harness<C> {
    instance: Instance<C>,
    state: State,
    executions: Vec<Execution>,
    counts: BTreeMap<(String, Vec<String>), f64>,
    observations: BTreeMap<(String, Vec<String>), Vec<f64>>,
}

/// An executed plan and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// The time.
    pub at: Instant,
    /// The plan.
    pub plan: Plan,
    /// The failed step, and why. A target that is gone is here too, although
    /// the host does not count it as a failure.
    pub result: Result<(), (u32, Failure)>,
}

impl<C: Controller> Harness<C> {
    /// Loads a guest with an operator's configuration. Its ticks are due
    /// immediately.
    pub fn new(config: &Value) -> Result<Self, ConfigError> {
        let instance = Instance::new();
        let manifest = instance.describe(&msgpack::encode(config))?;
        Ok(Self {
            instance,
            state: State::new(manifest),
            executions: Vec::new(),
            counts: BTreeMap::new(),
            observations: BTreeMap::new(),
        })
    }

    /// The guest's manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.state.manifest
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.state.now
    }

    /// Reconciles every item that is due now.
    pub fn run(&mut self) {
        for _ in 0..MAX_CALLS {
            let items = self.state.take_due();
            if items.is_empty() {
                return;
            }
            self.call(&items);
        }
        panic!("{MAX_CALLS} calls, and there are still items due: does an item add itself?");
    }

    /// Advances the clock, and reconciles every item when it is due.
    pub fn advance(&mut self, duration: Duration) {
        let millis = i64::try_from(milliseconds(duration)).expect("a shorter duration");
        let end = self.state.now + millis;
        self.run();
        while let Some(due) = self.state.queues.next_due().filter(|&due| due <= end) {
            self.state.now = due.max(self.state.now);
            self.run();
        }
        self.state.now = end;
    }

    /// The guest's decision about a fresh item now. Nothing is executed.
    #[must_use]
    pub fn decide(&self, queue: &str, key: &str) -> Decision {
        self.decide_page(queue, key, "")
    }

    /// The page of the guest's decision that starts at this cursor. Nothing is
    /// executed.
    #[must_use]
    pub fn decide_page(&self, queue: &str, key: &str, cursor: &str) -> Decision {
        self.decision(&self.fresh_item(queue, key, cursor))
    }

    /// A call that waits for a live read: the guest decides about a fresh item
    /// from the present state, and the decision is executed after `meanwhile`.
    pub fn call_during(&mut self, queue: &str, key: &str, meanwhile: impl FnOnce(&mut Self)) {
        self.state.queues.cancel(queue, key);
        let item = self.fresh_item(queue, key, "");
        let decision = self.decision(&item);
        meanwhile(self);
        self.execute_decision(item, decision);
    }

    /// Enqueues an item, due now.
    pub fn enqueue(&mut self, queue: &str, key: &str) {
        self.enqueue_after(queue, key, Duration::ZERO);
    }

    /// Enqueues an item that is due after that time.
    pub fn enqueue_after(&mut self, queue: &str, key: &str, after: Duration) {
        let after = i64::try_from(milliseconds(after)).expect("a shorter duration");
        let due_at = self.state.now + after;
        self.state.add(queue, key, due_at, None);
    }

    /// The item with this key, if it is pending.
    #[must_use]
    pub fn pending(&self, queue: &str, key: &str) -> Option<PendingItem> {
        self.state.queues.pending(queue, key)
    }

    /// The executed plans, the oldest first.
    #[must_use]
    pub fn executions(&self) -> &[Execution] {
        &self.executions
    }

    /// Forgets the executed plans.
    pub fn clear_executions(&mut self) {
        self.executions.clear();
    }

    /// From now on the cache does not cover these resources.
    pub fn unlist(&mut self, resources: &[UnlistedResource]) {
        self.state.unlisted = resources.to_vec();
    }

    /// The live reads of single objects so far: the time and the object.
    #[must_use]
    pub fn live_reads(&self) -> Vec<(Instant, ObjectRef)> {
        self.state.reads.borrow().clone()
    }

    /// The number of objects that the guest has read from the cache so far: the
    /// cost of its calls.
    #[must_use]
    pub fn objects_read(&self) -> u64 {
        self.state.copied.get()
    }

    /// The names of the notes that the host keeps for the guest.
    #[must_use]
    pub fn notes(&self) -> Vec<&str> {
        self.state.notes.keys().map(String::as_str).collect()
    }

    /// The log so far.
    #[must_use]
    pub fn logged(&self) -> Vec<(Level, String)> {
        self.state.logged.borrow().clone()
    }

    /// A counter or a gauge by the values of its labels; 0 if it was never
    /// recorded.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let count = self.counts.get(&series(name, labels));
        count.copied().unwrap_or_default()
    }

    /// The observations of a histogram, in order.
    #[must_use]
    pub fn observed(&self, name: &str, labels: &[&str]) -> &[f64] {
        let observed = self.observations.get(&series(name, labels));
        observed.map(Vec::as_slice).unwrap_or_default()
    }

    fn fresh_item(&self, queue: &str, key: &str, cursor: &str) -> WorkItem {
        WorkItem {
            queue: queue.to_owned(),
            key: key.to_owned(),
            attempt: 0,
            created_at: self.state.now,
            due_at: self.state.now,
            failures: Vec::new(),
            cursor: cursor.to_owned(),
        }
    }

    fn decision(&self, item: &WorkItem) -> Decision {
        let mut decisions = self.decisions(std::slice::from_ref(item));
        decisions.pop().expect("one decision for each item")
    }

    fn decisions(&self, items: &[WorkItem]) -> Vec<Decision> {
        let state = &self.state;
        let decisions = self.instance.reconcile(state, state.now, items);
        assert_eq!(
            decisions.len(),
            items.len(),
            "there must be one decision for each item"
        );
        decisions
    }

    fn call(&mut self, items: &[WorkItem]) {
        let decisions = self.decisions(items);
        for (item, decision) in items.iter().zip(decisions) {
            self.execute_decision(item.clone(), decision);
        }
    }

    /// Executes a decision, page by page.
    fn execute_decision(&mut self, mut item: WorkItem, mut decision: Decision) {
        let mut failures = self.execute_page(&mut decision);
        for _ in 0..MAX_CALLS {
            let Verdict::ContinueFrom(cursor) = &decision.verdict else {
                return self.finish(&item, &decision.verdict, failures);
            };
            item.cursor.clone_from(cursor);
            decision = self.decision(&item);
            failures.extend(self.execute_page(&mut decision));
        }
        panic!("{MAX_CALLS} pages of one decision, and more follow");
    }

    /// Returns the failures that a retry can fix.
    fn execute_page(&mut self, decision: &mut Decision) -> Vec<PlanFailure> {
        let cancelled = self.command(std::mem::take(&mut decision.commands));
        let mut failures = Vec::new();
        for plan in std::mem::take(&mut decision.plans) {
            let condition = plan.when_cancelled.as_ref();
            if condition.is_some_and(|it| !cancelled.contains(&(it.queue.clone(), it.key.clone())))
            {
                continue;
            }
            failures.extend(self.execute_plan(plan));
        }
        failures
    }

    fn finish(&mut self, item: &WorkItem, verdict: &Verdict, failures: Vec<PlanFailure>) {
        let outcome = if failures.is_empty() {
            match verdict {
                Verdict::Done => Outcome::Done,
                Verdict::Retry(_) => Outcome::Retry(Vec::new(), 0),
                Verdict::RequeueAfter(pause) => Outcome::RequeueAfter(*pause),
                // The cache has observed it already.
                Verdict::RequeueWhenObserved | Verdict::ContinueFrom(_) => Outcome::RequeueAfter(0),
            }
        } else {
            let forbidden = failures.iter().any(|it| it.failure.class == "forbidden");
            let pause = if forbidden { FORBIDDEN_PAUSE } else { 0 };
            Outcome::Retry(failures, pause)
        };
        self.state.finish(item, outcome);
    }

    /// Executes a plan; returns its failure if a retry can fix it.
    fn execute_plan(&mut self, plan: Plan) -> Option<PlanFailure> {
        let result = self.state.execute(&plan);
        let failed = match &result {
            Ok(()) => None,
            Err((_, failure)) if means_gone(failure) => None,
            Err(failed) => Some(failed.clone()),
        };
        let end = match (&result, &failed) {
            (Ok(()), _) => "succeeded",
            (Err(_), None) => "gone",
            (Err(_), Some(_)) => "failed",
        };
        for it in &plan.measures {
            if it.when == "attempted" || it.when == end {
                self.measure(&it.measure);
            }
        }
        let uid = plan.target.uid.clone();
        self.executions.push(Execution {
            at: self.state.now,
            plan,
            result,
        });
        failed
            .filter(|(_, failure)| !matches!(&*failure.class, "invalid" | "refused-by-gate"))
            .map(|(step, failure)| PlanFailure { uid, step, failure })
    }

    /// Executes commands; returns the items that a cancel removed.
    fn command(&mut self, commands: Vec<Command>) -> BTreeSet<(String, String)> {
        let mut cancelled = BTreeSet::new();
        for command in commands {
            match command {
                Command::Enqueue(it) => {
                    let after = i64::try_from(it.after).unwrap_or(i64::MAX);
                    let due = self.state.now.saturating_add(after);
                    self.state.add(&it.queue, &it.key, due, it.created_at);
                }
                Command::Cancel(it) => {
                    if self.state.queues.cancel(&it.queue, &it.key) {
                        cancelled.insert((it.queue, it.key));
                    }
                }
                Command::SetNote(it) => match it.value {
                    Some(value) => drop(self.state.notes.insert(it.key, value)),
                    None => drop(self.state.notes.remove(&it.key)),
                },
                Command::Measure(it) => self.measure(&it),
                Command::SetRate(it) => self.state.queue_exists(&it.queue),
            }
        }
        cancelled
    }

    fn measure(&mut self, measure: &Measure) {
        let metric = self
            .state
            .manifest
            .metrics
            .iter()
            .find(|it| it.name == measure.metric)
            .unwrap_or_else(|| panic!("the metric {} is not declared", measure.metric));
        assert_eq!(
            metric.labels.len(),
            measure.labels.len(),
            "the labels of {} are {:?}",
            metric.name,
            metric.labels
        );
        let series = (measure.metric.clone(), measure.labels.clone());
        match measure.amount {
            Amount::Add(number) => *self.counts.entry(series).or_default() += number,
            Amount::Set(number) => drop(self.counts.insert(series, number)),
            Amount::Observe(number) => self.observations.entry(series).or_default().push(number),
            Amount::SecondsSince(start) => {
                let passed = milliseconds_between(start, self.state.now);
                let seconds = Duration::from_millis(passed).as_secs_f64();
                self.observations.entry(series).or_default().push(seconds);
            }
        }
    }
}

fn milliseconds_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_sub(start)).unwrap_or_default()
}

fn means_gone(failure: &Failure) -> bool {
    matches!(&*failure.class, "not-found" | "uid-mismatch")
}

fn series(name: &str, labels: &[&str]) -> (String, Vec<String>) {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    (name.to_owned(), labels)
}

#[cfg(test)]
mod tests;
