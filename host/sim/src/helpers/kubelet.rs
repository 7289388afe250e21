//! A stand-in for the kubelets of all nodes: it starts the pods that are bound
//! to existing nodes, ends those that terminate after their grace period, and
//! posts heartbeats. A node can be told to go silent: by the program, or by the
//! label [`KUBELET_LABEL`] on the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::encode::Form;
use crate::front::Sim;
use crate::model::{Body, DeleteOptions, ListOptions, Model, Target, Watch, WriteOptions};
use crate::object::{Object, Stored};
use crate::patch::PatchType;
use crate::status::{Result, Status};
use crate::time::Time;

/// A node that carries this label with the value `silent` has a kubelet that
/// does nothing until the label goes.
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
    /// Starts kubelets for the nodes of `sim`, those to come included.
    #[must_use]
    pub fn start(sim: &Sim, options: KubeletOptions) -> Self {
        let silent = Arc::new(Mutex::new(BTreeSet::new()));
        let changed = Arc::new(Notify::new());
        let work = Work {
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

    /// The node's kubelet does nothing any more: no heartbeats, no pods.
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

struct Work {
    sim: Sim,
    options: KubeletOptions,
    silent: Arc<Mutex<BTreeSet<String>>>,
    /// When a pod, by its uid and its name, is to be looked at. One that is
    /// listed too often is found in order and left alone.
    due: BTreeMap<(Instant, String), (String, String)>,
}

impl Work {
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

    /// Looks at all pods, and begins to watch them.
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

    /// Looks at the pods that changed. False if some changes were missed.
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

    fn note(&mut self, stored: &Stored) {
        let Ok(pod) = stored.object() else {
            return;
        };
        if let Some(wait) = to_do(&pod, self.sim.now(), self.options.start) {
            let metadata = pod.metadata;
            let due = (Instant::now() + wait, metadata.uid);
            self.due.insert(due, (metadata.namespace, metadata.name));
        }
    }

    /// Renews the leases of these nodes, unless they are silent. A node that has
    /// never said how it is, or that a controller has given up, says that it is
    /// ready.
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
            // What fails is looked at again with the pod's next change.
            let _ = self.sim.with_model(|model, now| {
                let pod = model
                    .get(&target(model, "pods", &namespace, &name)?, "")?
                    .object()?;
                let node = pod.text(&["spec", "nodeName"]);
                let node = model
                    .get(&target(model, "nodes", "", node)?, "")?
                    .object()?;
                if pod.metadata.uid == uid && !is_silent(&silent, &node) {
                    act(model, now, &pod)?;
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

/// `Unknown` is what others say of a node.
fn says_how_it_is(node: &Object) -> bool {
    let conditions = node.at(&["status", "conditions"]).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        let is = |field: &str, text: &str| condition.get(field).is_some_and(|value| value == text);
        is("type", "Ready") && !is("status", "Unknown")
    })
}

/// How long until something is to be done to a bound pod: it starts, or it
/// ends.
fn to_do(pod: &Object, now: Time, start: Duration) -> Option<Duration> {
    if pod.text(&["spec", "nodeName"]).is_empty() {
        return None;
    }
    if let Some(deadline) = pod.metadata.deletion_timestamp {
        if pod.metadata.deletion_grace_period_seconds == Some(0) {
            return None;
        }
        let left = deadline.unix().saturating_sub(now.unix());
        return Some(Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
    (pod.text(&["status", "phase"]) == "Pending").then_some(start)
}

fn act(model: &mut Model, now: Time, pod: &Object) -> Result<()> {
    if to_do(pod, now, Duration::ZERO) != Some(Duration::ZERO) {
        return Ok(());
    }
    let mut target = target(model, "pods", &pod.metadata.namespace, &pod.metadata.name)?;
    if pod.metadata.deletion_timestamp.is_some() {
        let body = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.metadata.uid}});
        let options = DeleteOptions::parse(&crate::request::Query::default(), Some(body))?;
        return model.delete(now, &target, &options).map(drop);
    }
    "status".clone_into(&mut target.subresource);
    let body =
        Body::Json(json!({"metadata": {"uid": pod.metadata.uid}, "status": running(pod, now)}));
    model
        .patch(
            now,
            &target,
            PatchType::Strategic,
            body,
            &WriteOptions::default(),
        )
        .map(drop)
}

fn running(pod: &Object, now: Time) -> Value {
    let containers = pod.at(&["spec", "containers"]).and_then(Value::as_array);
    let statuses: Vec<Value> = containers
        .into_iter()
        .flatten()
        .map(|container| {
            json!({
                "name": container.get("name"), "image": container.get("image"), "imageID": "",
                "ready": true, "started": true, "restartCount": 0,
                "state": {"running": {"startedAt": now}},
            })
        })
        .collect();
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}))
        .collect();
    json!({
        "phase": "Running", "startTime": now, "containerStatuses": statuses,
        "conditions": conditions, "observedGeneration": pod.metadata.generation,
    })
}

fn renew_lease(model: &mut Model, now: Time, node: &Object) -> Result<()> {
    let name = &node.metadata.name;
    let namespace = "kube-node-lease";
    let target = target(model, "leases", namespace, name)?;
    let renewed = now.to_string().replace('Z', ".000000Z");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": namespace,
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid,
            }],
        },
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    });
    match model.get(&target, "") {
        Err(status) if status.code == 404 => {
            let target = Target::new(&target.resource, namespace, "");
            model
                .create(now, &target, Body::Json(lease), &WriteOptions::default())
                .map(drop)
        }
        _ => {
            let body = Body::Json(json!({"spec": {"renewTime": renewed}}));
            model
                .patch(
                    now,
                    &target,
                    PatchType::Merge,
                    body,
                    &WriteOptions::default(),
                )
                .map(drop)
        }
    }
}

fn report_ready(model: &mut Model, now: Time, node: &str) -> Result<()> {
    let mut target = target(model, "nodes", "", node)?;
    "status".clone_into(&mut target.subresource);
    let body = Body::Json(json!({"status": {"conditions": [{
        "type": "Ready", "status": "True", "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    }]}}));
    model
        .patch(
            now,
            &target,
            PatchType::Strategic,
            body,
            &WriteOptions::default(),
        )
        .map(drop)
}

fn all(model: &Model, plural: &str) -> Result<Vec<Object>> {
    let target = target(model, plural, "", "")?;
    let page = model.list(&target, &ListOptions::default())?;
    page.items.iter().map(Stored::object).collect()
}

fn target(model: &Model, plural: &str, namespace: &str, name: &str) -> Result<Target> {
    let group = if plural == "leases" {
        "coordination.k8s.io"
    } else {
        ""
    };
    let resource = model
        .resource(group, "v1", plural)
        .ok_or_else(|| Status::internal(format!("no resource {plural}")))?;
    Ok(Target::new(resource, namespace, name))
}
