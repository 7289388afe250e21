//! A native test harness: the host's own machine around one guest, in a small cluster
//! in memory.
//!
//! [`Harness`] runs the state machine of the host (queues, back-off, gate, expectations,
//! the requests of plans) against a model of the API server, on virtual time. The guest
//! reads exactly the fields that its manifest declares. A test puts objects into the
//! cluster, lets time pass, and asserts what the API server holds afterwards:
//!
//! ```text
//! let mut harness = Harness::<PodGc>::new(&json!({"terminatedPodThreshold": 1}))?;
//! harness.put(json!({"apiVersion": "v1", "kind": "Pod", …}));
//! harness.advance(Duration::from_secs(20));
//! assert_eq!(harness.keys("Pod"), ["default/newest"]);
//! ```
//!
//! Nothing takes time and nothing goes wrong, unless the test wants it. Kubelets end a
//! pod as soon as a plan has deleted or evicted it. What a test puts into the cluster is
//! stored as it is, without validation; a kind that the API server does not serve yet
//! becomes a custom resource. One with a status subresource needs its definition first.
//!
//! `put_on_server`, `hide` and `show` let cache and API server differ. `fail_reads` and
//! `fail_writes` let requests fail, `interrupt` breaks the watches of a kind, `unserve` and
//! `silence` take a kind or a group version out of discovery, and `heal` ends all of these.
//! `delay_requests` and `delay_watches` make both slow, `suspend` stops the host for a while,
//! `shift_clock` sets its clock, and `disable` and `dry_run` its mode.
//! `decide` returns a decision without executing it. `call_during` runs other things while
//! a call waits. `objects_read` returns the cost of the calls.
//!
//! What the host answers with a trap or a final refusal (an undeclared name, a write
//! without a permission, too many live reads) panics here. So does a field that a
//! built-in kind does not have, in a watch and in a live read: the host would read it as
//! absent.

#![allow(
    clippy::panic,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "it runs in tests only: an expectation that fails ends the test"
)]

mod cluster;
mod config;
mod driver;
mod faults;
mod in_flight;
mod kinds;
mod lag;
mod metrics;
mod native;
mod pod;
mod schema;

use std::cell::RefCell;
use std::time::Duration;

use davit_core::gate::Mode;
use davit_core::time::Wall;
use serde_json::Value;

use crate::component::Instance;
use crate::decision::report_key;
use crate::{
    ConfigError, Context, Controller, Decision, Failure, Instant, Level, Manifest, ObjectRef,
    PendingItem, Plan, QueueName, Report, msgpack,
};
use cluster::id;
pub use davit_simulation::Dice;
use davit_simulation::HostIndex;
use driver::Driver;
pub use native::Native;
pub use pod::Pod;
pub use schema::assert_config_schema_is_current;

/// The start of a harness's clock: 2023-11-14T22:13:20Z.
pub const START: Instant = Instant::from_millis(1_700_000_000_000);

/// One guest, its cluster and its host.
pub struct Harness<C> {
    manifest: Manifest,
    driver: RefCell<Driver<C>>,
    executions: Vec<Execution>,
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
    /// Loads a guest with an operator's configuration, and starts it. Its ticks are due
    /// immediately.
    ///
    /// # Panics
    ///
    /// If the manifest is not valid, or if a watch of a built-in kind reads a field that
    /// the kind does not have, or has an index over an object or a list.
    pub fn new(config: &Value) -> Result<Self, ConfigError> {
        let instance = Instance::new();
        let manifest = instance.describe(&msgpack::encode(config))?;
        let guest = Native::of(instance, manifest.clone());
        let guest = guest.unwrap_or_else(|problem| panic!("the manifest is not valid: {problem}"));
        let problem = kinds::unknown_field(&manifest).or_else(|| kinds::empty_index(&manifest));
        if let Some(problem) = problem {
            panic!("{problem}");
        }
        Ok(Self {
            manifest,
            driver: RefCell::new(Driver::new(guest)),
            executions: Vec::new(),
        })
    }

    /// The guest's manifest.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::from_millis(self.driver.borrow().now().wall.0)
    }

    /// Reconciles every item that is due now.
    pub fn run(&mut self) {
        self.advance(Duration::ZERO);
    }

    /// Advances the clock, and reconciles every item when it is due.
    pub fn advance(&mut self, duration: Duration) {
        let driver = self.driver.get_mut();
        let until = driver.world.instant().after(duration);
        driver.run(until);
        let executions = std::mem::take(&mut driver.executions);
        self.executions.extend(executions.into_values());
    }

    /// The guest's decision about a fresh item now. Nothing is executed.
    #[must_use]
    pub fn decide(&self, queue: QueueName, key: &str) -> Decision {
        self.decide_page(queue, key, "")
    }

    /// The page of the guest's decision that starts at this cursor. Nothing is
    /// executed.
    #[must_use]
    pub fn decide_page(&self, queue: QueueName, key: &str, cursor: &str) -> Decision {
        let mut driver = self.driver.borrow_mut();
        driver.decide(queue.as_str(), key, cursor)
    }

    /// Reads from the controller, with the context that a call would have now. Nothing is
    /// executed. A live read is answered, and `observe` called again.
    #[must_use]
    pub fn observe<R>(&self, observe: impl Fn(&C, &Context<'_>) -> R) -> R {
        self.driver.borrow_mut().observe(observe)
    }

    /// A call that takes a while: the guest decides about an item from the present
    /// state, and the host takes the decision after `meanwhile`.
    pub fn call_during(&mut self, queue: QueueName, key: &str, meanwhile: impl FnOnce(&mut Self)) {
        self.driver.get_mut().hold(queue.as_str(), key);
        meanwhile(self);
        self.driver.get_mut().release();
        self.run();
    }

    /// Enqueues an item, due now.
    pub fn enqueue(&mut self, queue: QueueName, key: &str) {
        self.enqueue_after(queue, key, Duration::ZERO);
    }

    /// Enqueues an item that is due after that time.
    pub fn enqueue_after(&mut self, queue: QueueName, key: &str, after: Duration) {
        self.driver.get_mut().enqueue(queue.as_str(), key, after);
    }

    /// The item with this key, if it is pending.
    #[must_use]
    pub fn pending(&self, queue: QueueName, key: &str) -> Option<PendingItem> {
        let queue = queue.as_str();
        let call = self.driver.borrow_mut().preview(queue, key, "");
        let pending = call.pending.get(queue, key)?;
        let time = |at| {
            let Wall(millis) = call.now.wall_at(at);
            Instant::from_millis(millis)
        };
        Some(PendingItem {
            created_at: time(pending.created_at),
            due_at: time(pending.due_at),
        })
    }

    /// The executed plans, the oldest first.
    #[must_use]
    pub fn executions(&self) -> &[Execution] {
        &self.executions
    }

    /// The targets of the plans of dry runs so far, in order.
    #[must_use]
    pub fn dry_runs(&self) -> Vec<ObjectRef> {
        self.driver.borrow().dry_runs.clone()
    }

    /// Forgets the executed plans.
    pub fn clear_executions(&mut self) {
        self.executions.clear();
    }

    /// The live reads of single objects so far: the time and the object.
    #[must_use]
    pub fn live_reads(&self) -> Vec<(Instant, ObjectRef)> {
        self.driver.borrow().reads.clone()
    }

    /// The number of objects that the guest has read from the cache so far: the
    /// cost of its calls.
    #[must_use]
    pub fn objects_read(&self) -> u64 {
        self.driver.borrow().probe.objects_read.get()
    }

    /// The names of the notes that the host keeps for the guest.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let call = self.driver.borrow_mut().preview("", "", "");
        call.notes.keys().cloned().collect()
    }

    /// What operators see under this name in the status of the controller.
    #[must_use]
    pub fn report(&self, name: &str) -> Option<Report> {
        let call = self.driver.borrow_mut().preview("", "", "");
        let note = call.notes.get(&report_key(name))?;
        msgpack::decode(note).ok()
    }

    /// The log so far.
    #[must_use]
    pub fn logged(&self) -> Vec<(Level, String)> {
        self.driver.borrow().probe.logged.borrow().clone()
    }

    /// A counter or a gauge by the values of its labels; 0 if it was never
    /// recorded.
    #[must_use]
    pub fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.driver.borrow().metrics.count(name, labels)
    }

    /// The observations of a histogram, in order.
    #[must_use]
    pub fn observed(&self, name: &str, labels: &[&str]) -> Vec<f64> {
        self.driver.borrow().metrics.observed(name, labels)
    }

    /// Puts an object into the cluster, or replaces the one with the same kind,
    /// namespace and name. Without a `metadata.uid` its uid is `KIND/NAMESPACE/NAME`.
    /// Without a `metadata.creationTimestamp` it is created now; with one that is null it
    /// stays without.
    pub fn put(&mut self, object: Value) {
        let driver = self.driver.get_mut();
        driver.serve(&object);
        // What the cache has missed of it is past.
        driver.lag.end(&cluster::id_of(&object));
        let is_definition = cluster::is_definition(&object);
        cluster::put(&mut driver.world, object);
        if is_definition {
            driver.discover();
        }
    }

    /// Puts an object on the API server; the cache lags behind.
    pub fn put_on_server(&mut self, object: Value) {
        let driver = self.driver.get_mut();
        driver.follow();
        driver.lag.start(cluster::id_of(&object));
        driver.serve(&object);
        cluster::put(&mut driver.world, object);
        driver.follow();
    }

    /// The cache follows an object again: it shows the state on the API server.
    pub fn show(&mut self, kind: &str, key: &str) {
        let driver = self.driver.get_mut();
        driver.follow();
        let missed = driver.lag.end(&id(kind, key));
        driver.deliver(missed);
    }

    /// Removes an object from the cache only.
    pub fn hide(&mut self, kind: &str, key: &str) {
        if let Some(object) = self.object(kind, key) {
            self.remove(kind, key);
            self.put_on_server(object);
        }
    }

    /// Removes an object from the cluster.
    pub fn remove(&mut self, kind: &str, key: &str) {
        let driver = self.driver.get_mut();
        cluster::expel(&mut driver.world, kind, key);
        if driver.lag.contains(&id(kind, key)) {
            self.show(kind, key);
        }
    }

    /// Removes an object from the API server; the cache lags behind.
    pub fn remove_from_server(&mut self, kind: &str, key: &str) {
        let driver = self.driver.get_mut();
        driver.follow();
        driver.lag.start(id(kind, key));
        cluster::expel(&mut driver.world, kind, key);
        driver.follow();
    }

    /// An object on the API server.
    #[must_use]
    pub fn object(&self, kind: &str, key: &str) -> Option<Value> {
        cluster::object_of(&self.driver.borrow().world, kind, key)
    }

    /// The keys of the objects of a kind on the API server, in order.
    #[must_use]
    pub fn keys(&self, kind: &str) -> Vec<String> {
        cluster::keys(&self.driver.borrow().world, kind)
    }

    /// Fails every live read of an object with this class. A class that no answer of the
    /// API server has (`unmappable`, or one of a later host) reaches the guest in
    /// place of the answer.
    pub fn fail_reads(&mut self, kind: &str, key: &str, class: &str) {
        let driver = self.driver.get_mut();
        if !faults::fail(&mut driver.world, "get", kind, key, class) {
            let (namespace, name) = key.split_once('/').unwrap_or(("", key));
            let object = [kind, namespace, name].map(str::to_owned);
            driver.probe.failures.insert(object, class.to_owned());
        }
    }

    /// Fails every write to an object with this class.
    pub fn fail_writes(&mut self, kind: &str, key: &str, class: &str) {
        let world = &mut self.driver.get_mut().world;
        for verb in ["patch", "delete", "create"] {
            let fails = faults::fail(world, verb, kind, key, class);
            assert!(fails, "the API server fails no write with {class:?}");
        }
    }

    /// From now on each request is so long on its way to the API server, and so is its answer.
    pub fn delay_requests(&mut self, delay: Duration) {
        let world = &mut self.driver.get_mut().world;
        world.conditions_mut().latency = delay..delay;
    }

    /// From now on the cache lags so far behind the API server.
    pub fn delay_watches(&mut self, delay: Duration) {
        let world = &mut self.driver.get_mut().world;
        world.conditions_mut().lag = delay..delay;
    }

    /// Advances the clock while the host's process is stopped.
    pub fn suspend(&mut self, duration: Duration) {
        let driver = self.driver.get_mut();
        let until = driver.world.instant().after(duration);
        driver.sleep(until);
    }

    /// The host's wall clock jumps by so many milliseconds, back if they are negative.
    pub fn shift_clock(&mut self, millis: i64) {
        let driver = self.driver.get_mut();
        driver.world.shift_wall_clock(HostIndex::FIRST, millis);
    }

    /// From now on the host only records what the guest decides, or executes it again: the
    /// modes `DryRun` and `Enforce`.
    pub fn dry_run(&mut self, is_dry_run: bool) {
        self.set_mode(if is_dry_run {
            Mode::DryRun
        } else {
            Mode::Enforce
        });
    }

    /// From now on the host does not run the guest, or runs it again: the modes `Disabled` and
    /// `Enforce`.
    pub fn disable(&mut self, is_disabled: bool) {
        self.set_mode(if is_disabled {
            Mode::Disabled
        } else {
            Mode::Enforce
        });
    }

    fn set_mode(&mut self, mode: Mode) {
        let driver = self.driver.get_mut();
        driver.settings.mode = mode;
        driver.configure();
    }

    /// From now on the operator grants these rules and no others: `spec.permissions` of a
    /// Controller. Without this call, the guest may do what it declares.
    ///
    /// # Panics
    ///
    /// If the rules are not valid, or if the guest declares more than they grant: a host does
    /// not run it.
    pub fn grant(&mut self, permissions: &Value) {
        self.driver.get_mut().grant(permissions);
    }

    /// Breaks the watches of a kind: the cache may lack its objects. They cannot be
    /// opened again.
    pub fn interrupt(&mut self, kind: &str) {
        let driver = self.driver.get_mut();
        faults::interrupt(&mut driver.world, kind);
        driver.follow();
    }

    /// From now on discovery lacks a kind, as while an aggregated API server is away.
    pub fn unserve(&mut self, kind: &str) {
        let driver = self.driver.get_mut();
        faults::unserve(&mut driver.world, kind);
        driver.follow();
    }

    /// From now on discovery does not reach a group version (`metrics.k8s.io/v1`).
    pub fn silence(&mut self, group_version: &str) {
        let driver = self.driver.get_mut();
        faults::silence(&mut driver.world, group_version);
        driver.follow();
    }

    /// Lets everything succeed again. A watch is opened again after its back-off.
    pub fn heal(&mut self) {
        let driver = self.driver.get_mut();
        driver.probe.failures.clear();
        faults::heal(&mut driver.world);
        driver.follow();
    }
}

#[cfg(test)]
mod tests;
