//! A simulation of the kubelets of all nodes: it starts the pods that are bound to
//! existing nodes, ends terminating pods after their grace period, and posts
//! heartbeats. The program, or the label [`KUBELET_LABEL`] on a node, can silence a
//! kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::node::{act_on_pod, pod_due, renew_lease, report_ready, says_how_it_is, target};
use crate::encode::Form;
use crate::front::Sim;
use crate::model::{ListOptions, Model, Watch};
use crate::object::Object;
use crate::status::{Result, Status};
use crate::stored::StoredObject;

/// While a node has this label with the value `silent`, its kubelet does nothing.
pub const KUBELET_LABEL: &str = "davit-sim/kubelet";

/// How the kubelets behave.
#[derive(Clone, Debug)]
pub struct KubeletOptions {
    /// The time between two heartbeats of a node.
    pub heartbeat: Duration,
    /// How long a pod takes to start.
    pub start: Duration,
}

impl Default for KubeletOptions {
    fn default() -> Self {
        KubeletOptions {
            heartbeat: Duration::from_secs(10),
            start: Duration::from_secs(1),
        }
    }
}

/// Runs until it is dropped.
#[derive(Debug)]
pub struct Kubelet {
    silent: Arc<Mutex<BTreeSet<String>>>,
    changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Kubelet {
    /// Starts kubelets for the present and future nodes of `sim`.
    #[must_use]
    pub fn start(sim: &Sim, options: KubeletOptions) -> Self {
        let silent = Arc::new(Mutex::new(BTreeSet::new()));
        let changed = Arc::new(Notify::new());
        let work = NodeAgent {
            sim: sim.clone(),
            options,
            silent: silent.clone(),
            due: BTreeMap::new(),
        };
        let task = tokio::spawn(work.run(changed.clone()));
        Kubelet {
            silent,
            changed,
            task,
        }
    }

    /// Stops the kubelet of a node: no heartbeats, no pods.
    pub fn silence(&self, node: &str) {
        lock(&self.silent).insert(node.to_owned());
    }

    /// The node's kubelet is back.
    pub fn resume(&self, node: &str) {
        lock(&self.silent).remove(node);
        self.changed.notify_one();
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(silent: &Mutex<BTreeSet<String>>) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
    silent.lock().unwrap_or_else(PoisonError::into_inner)
}

struct NodeAgent {
    sim: Sim,
    options: KubeletOptions,
    silent: Arc<Mutex<BTreeSet<String>>>,
    /// When each pod is reconciled next; the key ends with its uid. A pod that is due
    /// twice is in order the second time.
    due: BTreeMap<(Instant, String), (String, String)>,
}

impl NodeAgent {
    async fn run(mut self, changed: Arc<Notify>) {
        let mut heartbeat = Instant::now();
        let mut pods = self.sim.subscribe(&"pods".into());
        let mut nodes = self.sim.subscribe(&"nodes".into());
        let Some(mut watch) = self.scan() else {
            return;
        };
        loop {
            pods.borrow_and_update();
            if Instant::now() >= heartbeat {
                self.heartbeats(|_| true);
                heartbeat = Instant::now() + self.options.heartbeat;
            }
            if !self.follow(&mut watch) {
                match self.scan() {
                    Some(fresh) => watch = fresh,
                    None => return,
                }
            }
            self.act_on_due();
            let next = self
                .due
                .keys()
                .next()
                .map_or(heartbeat, |(at, _)| (*at).min(heartbeat));
            tokio::select! {
                open = pods.changed() => if open.is_err() { return },
                () = sleep_until(next) => {}
                // Pods may have waited for a node.
                open = nodes.changed() => match (open, self.scan()) {
                    (Ok(()), Some(fresh)) => {
                        watch = fresh;
                        self.heartbeats(|node| !says_how_it_is(node));
                    }
                    _ => return,
                },
                () = changed.notified() => match self.scan() {
                    Some(fresh) => watch = fresh,
                    None => return,
                },
            }
        }
    }

    /// Lists all pods and starts a watch.
    fn scan(&mut self) -> Option<Watch> {
        let start = self.sim.with_model(|model, now| {
            let target = target(model, "pods", "", "")?;
            model.watch(now, &target, &ListOptions::default(), Form::Metadata)
        });
        let start = start.ok()?;
        for pod in &start.initial {
            self.note(pod);
        }
        Some(start.watch)
    }

    /// Reconciles the pods that changed. Returns false if the watch missed changes.
    fn follow(&mut self, watch: &mut Watch) -> bool {
        const BATCH: usize = 1000;
        loop {
            let Ok(events) = self.sim.with_model(|model, _| watch.take(model, BATCH)) else {
                return false;
            };
            for event in events.iter().filter(|event| !event.deleted) {
                self.note(&event.new);
            }
            if events.len() < BATCH {
                return true;
            }
        }
    }

    fn note(&mut self, stored: &StoredObject) {
        let Ok(pod) = stored.object() else {
            return;
        };
        if let Some(wait) = pod_due(&pod, self.sim.now(), self.options.start) {
            let metadata = pod.metadata;
            let due = (Instant::now() + wait, metadata.uid);
            self.due.insert(due, (metadata.namespace, metadata.name));
        }
    }

    /// Renews the leases of these nodes, except silent ones. A node without a Ready
    /// condition, or with an unknown one, reports that it is ready.
    fn heartbeats(&self, of: impl Fn(&Object) -> bool) {
        let nodes = self
            .sim
            .with_model(|model, _| all(model, "nodes"))
            .unwrap_or_default();
        for node in nodes {
            if !of(&node) || is_silent(&self.silent, &node) {
                continue;
            }
            // A heartbeat that fails is followed by another.
            let _ = self.sim.with_model(|model, now| {
                if !says_how_it_is(&node) {
                    report_ready(model, now, &node.metadata.name)?;
                }
                renew_lease(model, now, &node)
            });
        }
    }

    fn act_on_due(&mut self) {
        let now = Instant::now();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                return;
            }
            let ((_, uid), (namespace, name)) = entry.remove_entry();
            let silent = self.silent.clone();
            // After a failure, the pod's next change reconciles it.
            let _ = self.sim.with_model(|model, now| {
                let pod = model
                    .get(&target(model, "pods", &namespace, &name)?, "")?
                    .object()?;
                let node = pod.text(&["spec", "nodeName"]);
                let node = model
                    .get(&target(model, "nodes", "", node)?, "")?
                    .object()?;
                if pod.metadata.uid == uid && !is_silent(&silent, &node) {
                    act_on_pod(model, now, &pod)?;
                }
                Ok::<(), Box<Status>>(())
            });
        }
    }
}

fn is_silent(silent: &Mutex<BTreeSet<String>>, node: &Object) -> bool {
    let label = node.metadata.labels.get(KUBELET_LABEL);
    label.is_some_and(|value| value == "silent") || lock(silent).contains(&node.metadata.name)
}

fn all(model: &Model, plural: &str) -> Result<Vec<Object>> {
    let target = target(model, plural, "", "")?;
    let page = model.list(&target, &ListOptions::default())?;
    page.items.iter().map(StoredObject::object).collect()
}
