//! Pods that a controller has to delete, and pods that it must not touch.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use davit_guest::testing::Pod;
use davit_sim::Sim;
use serde_json::{Value, json};

use super::fleet::{Fleet, ReplicaRequest, deletions};

/// Every tenth pod of a wave is gone as soon as it is deleted. The others stay for a grace
/// period, so that a second deletion would succeed.
const GRACE: i64 = 30;

/// A pod of a node. One that `stays` tolerates every taint.
fn pod(name: &str, node: &str, grace: i64, stays: bool) -> Value {
    let pod = Pod::new(name).node(node);
    let pod = pod.set("/spec/terminationGracePeriodSeconds", grace);
    if stays {
        pod.toleration(json!({"operator": "Exists"})).into()
    } else {
        pod.into()
    }
}

fn get(sim: &Sim, pod: &str) -> Option<Value> {
    sim.get("v1", "Pod", "default", pod).ok()
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().unwrap().to_owned()
}

/// Whether the pod of that uid is deleted, or terminating.
fn is_gone_or_going(sim: &Sim, name: &str, uid_of_pod: &str) -> bool {
    get(sim, name).is_none_or(|present| {
        uid(&present) != uid_of_pod || !present["metadata"]["deletionTimestamp"].is_null()
    })
}

/// Gives a node a taint that its pods have to tolerate.
fn taint(sim: &Sim, node: &str) {
    let taints = json!([{"key": "k", "effect": "NoExecute"}]);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "spec": {"taints": taints},
    });
    sim.apply(node).unwrap();
}

/// The pods of one node.
pub(super) struct Wave {
    sim: Sim,
    node: &'static str,
    /// The pods that have to go, by uid.
    names: BTreeMap<String, String>,
    /// The names of pods that are gone as soon as they are deleted, and are not replaced yet.
    brief: Vec<String>,
    /// The pods that nobody may touch, as they are.
    bystanders: Vec<Value>,
}

impl Wave {
    /// Creates a ready node with so many pods that have to leave it once it is tainted, and
    /// some that need not.
    pub(super) fn create(sim: &Sim, node: &'static str, pods: usize) -> Self {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
            "status": {"conditions": ready},
        });
        sim.create(object).unwrap();
        let (mut names, mut brief) = (BTreeMap::new(), Vec::new());
        for number in 0..pods {
            let name = format!("{node}-{number}");
            let is_brief = number % 10 == 0;
            let grace = if is_brief { 0 } else { GRACE };
            brief.extend(is_brief.then(|| name.clone()));
            let created = sim.create(pod(&name, node, grace, false)).unwrap();
            names.insert(uid(&created), name);
        }
        let staying = (0..20).map(|number| format!("{node}-stays-{number}"));
        let bystanders = staying.map(|name| sim.create(pod(&name, node, 0, true)).unwrap());
        Self {
            sim: sim.clone(),
            node,
            names,
            brief,
            bystanders: bystanders.collect(),
        }
    }

    pub(super) fn taint(&self) {
        taint(&self.sim, self.node);
    }

    /// Creates pods under the names of pods that are gone. They tolerate the taint.
    pub(super) fn replace(&mut self) {
        let brief = std::mem::take(&mut self.brief).into_iter();
        let is_gone = |name: &String| get(&self.sim, name).is_none();
        let (gone, present): (Vec<String>, Vec<String>) = brief.partition(is_gone);
        self.brief = present;
        for name in gone {
            let created = self.sim.create(pod(&name, self.node, 0, true)).unwrap();
            self.bystanders.push(created);
        }
    }

    /// Whether every pod that has to go is gone, or terminating.
    pub(super) fn is_done(&self) -> bool {
        let mut all = self.names.iter();
        all.all(|(uid, name)| is_gone_or_going(&self.sim, name, uid))
    }

    /// Checks that each pod that had to go was deleted once, and that nobody has touched
    /// another one. Prints how many deletions had no effect.
    pub(super) fn check(&self, what: &str, writes: &[ReplicaRequest]) {
        assert!(self.is_done(), "{what}");
        let counts = deletions(writes);
        for (uid, name) in &self.names {
            assert_eq!(counts.get(uid), Some(&1), "{what}: deletions of {name}");
        }
        for pod in &self.bystanders {
            let name = pod["metadata"]["name"].as_str().unwrap();
            assert_eq!(get(&self.sim, name).as_ref(), Some(pod), "{what}");
        }
        let replaced = self.bystanders.len() - 20;
        let pods = self.names.len();
        let of_wave = |write: &&ReplicaRequest| self.names.contains_key(&write.uid());
        let deletions = writes.iter().filter(|write| write.is_deletion());
        let vain = deletions.filter(of_wave).filter(|one| !one.is_success());
        let mut answers: BTreeMap<u16, usize> = BTreeMap::new();
        for one in vain {
            *answers.entry(one.request.status).or_default() += 1;
        }
        println!("{what}: {pods} pods deleted once, {replaced} of them replaced under their names");
        println!("{what}: deletions without effect, by status: {answers:?}");
        let harmless = BTreeSet::from([0, 404, 409]);
        assert!(answers.keys().all(|status| harmless.contains(status)));
    }
}

/// Creates pods of a tainted node until it ends.
pub(super) struct Arrivals {
    ends: Arc<AtomicBool>,
    /// Returns the pods, by uid.
    thread: JoinHandle<BTreeMap<String, Arrival>>,
}

/// A pod that has arrived.
struct Arrival {
    name: String,
    /// When it was created, in the server's time.
    at: Duration,
}

/// How long a pod that had to go was left.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) waited: Duration,
    /// When the pod was created, in the server's time.
    pub(super) at: Duration,
    pub(super) name: String,
    /// The replica that deleted it.
    pub(super) by: String,
}

impl Arrivals {
    /// Creates a pod in every period.
    pub(super) fn start(sim: &Sim, node: &'static str, period: Duration) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (server, has_ended) = (sim.clone(), Arc::clone(&ends));
        let thread = std::thread::spawn(move || {
            let mut all = BTreeMap::new();
            while !has_ended.load(Ordering::Relaxed) {
                let name = format!("{node}-arrival-{}", all.len());
                let at = server.uptime();
                let created = server.create(pod(&name, node, GRACE, false)).unwrap();
                all.insert(uid(&created), Arrival { name, at });
                std::thread::sleep(period);
            }
            all
        });
        Self { ends, thread }
    }

    /// Creates no more pods, and waits until those that were created are deleted. Checks
    /// that each was deleted once. Returns how long each had to wait, the longest wait first.
    pub(super) fn end(self, fleet: &Fleet<'_>) -> Vec<Wait> {
        self.ends.store(true, Ordering::Relaxed);
        let all = self.thread.join().unwrap();
        fleet.until("every pod is deleted", |sim| {
            let mut pods = all.iter();
            pods.all(|(uid, Arrival { name, .. })| is_gone_or_going(sim, name, uid))
        });
        let writes = fleet.writes();
        let counts = deletions(&writes);
        let is_success = |write: &&ReplicaRequest| write.is_deletion() && write.is_success();
        let successes = writes.iter().filter(is_success);
        let evictions = successes.map(|write| (write.uid(), write));
        let evictions: BTreeMap<String, &ReplicaRequest> = evictions.collect();
        let waits = all.into_iter().map(|(uid, Arrival { name, at })| {
            assert_eq!(counts.get(&uid), Some(&1), "deletions of {name}");
            let eviction = evictions[&uid];
            Wait {
                waited: eviction.request.uptime.saturating_sub(at),
                at,
                by: eviction.by.clone(),
                name,
            }
        });
        let mut waits: Vec<Wait> = waits.collect();
        waits.sort_by_key(|wait| Reverse(wait.waited));
        waits
    }
}
