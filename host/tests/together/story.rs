//! A run: random steps, rest, and the comparison.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::helpers::{Kubelet, KubeletOptions};
use davit_sim::model::{DeleteOptions, DeletionKind, DeletionStep};
use davit_sim::{Rng, Sim};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, text};
use crate::fate::{Fates, left_over, tolerates, uid};

const NODES: u64 = 6;
const NAMES: u64 = 60;
/// Longer than the idle timeout of a watch, so that every cache has caught up.
const CAUGHT_UP: Duration = Duration::from_secs(200);
/// Longer than any timer of any controller.
const AT_REST: Duration = Duration::from_secs(1800);

const CONTROLLERS: &str = "
controllers:
- name: podgc
  module: {builtin: podgc}
  mode: Enforce
  config: {terminatedPodThreshold: 0, period: 5s, quarantine: 10s}
- name: garbage-collector
  module: {builtin: garbage-collector}
  mode: Enforce
- name: taint-eviction
  module: {builtin: taint-eviction}
  mode: Enforce
- name: storage-version-gc
  module: {builtin: storage-version-gc}
  mode: Enforce
- name: node-eviction
  module: {builtin: node-eviction}
  mode: Enforce
  config: {podEvictionTimeout: 60s, nodeEvictionRate: 1}
";

struct Story {
    sim: Sim,
    namespace: String,
    kubelet: Kubelet,
    rng: Rng,
    fates: Fates,
    /// When each node's taint was last removed. Until every cache has observed that, a
    /// new pod may be evicted for it, as in kube-controller-manager.
    lifted: BTreeMap<u64, Instant>,
    /// When each node's kubelet last returned. Until that is observed, the node counts
    /// as unresponsive, for new pods too.
    back: BTreeMap<u64, Instant>,
    /// How often the story deleted each `ConfigMap`.
    deleted: BTreeMap<String, usize>,
}

/// Runs the story of one seed.
pub(crate) async fn run(bench: Bench, seed: u64, steps: u32) {
    let sim = bench.sim().clone();
    let mut story = Story {
        kubelet: Kubelet::start(&sim, KubeletOptions::default()),
        namespace: bench.namespace.clone(),
        rng: Rng::new(seed),
        fates: Fates::default(),
        lifted: BTreeMap::new(),
        back: BTreeMap::new(),
        deleted: BTreeMap::new(),
        sim,
    };
    for node in 0..NODES {
        story.create_node(node);
    }
    story.create_storage_versions();
    let mut host = bench.host(CONTROLLERS).await;
    for _ in 1..5 {
        host.started().await;
    }
    for _ in 0..steps {
        story.step().await;
    }
    story.calm().await;
    let problems = story.problems();
    assert!(problems.is_empty(), "seed {seed}: {problems:#?}");
    host.host.stop().await;
}

impl Story {
    fn pick(&mut self, below: u64) -> u64 {
        self.rng.next_u64() % below
    }

    async fn step(&mut self) {
        match self.pick(100) {
            0..50 => self.create(),
            50..55 => self.delete("Background"),
            55..59 => self.delete("Foreground"),
            59..62 => self.orphan().await,
            62..66 => self.taint(),
            66..68 => self.remove_node(),
            68..70 => self.fall_silent(),
            70..75 => self.resume(),
            75..78 => self.drop_a_lease(),
            78..86 => self.disturb_watches(),
            86..91 => self.break_writes(),
            91..94 => self.sim.heal_all(),
            _ => sleep(Duration::from_secs(self.rng.next_u64() % 30)).await,
        }
        sleep(Duration::from_millis(self.rng.next_u64() % 1500)).await;
    }

    /// An object of a random name, if the name is free, with up to two owners.
    fn create(&mut self) {
        let is_pod = self.pick(2) == 0;
        let number = self.pick(NAMES);
        let mut owners = Vec::new();
        for _ in 0..self.pick(3) {
            let candidates = self.maps();
            owners.extend(self.choose(&candidates));
        }
        owners.dedup_by(|one, other| uid(one) == uid(other));
        let references: Vec<Value> = owners
            .iter()
            .map(|owner| {
                json!({
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "blockOwnerDeletion": self.rng.chance(0.5),
                })
            })
            .collect();
        let (kind, name) = if is_pod {
            ("Pod", format!("pod-{number}"))
        } else {
            ("ConfigMap", format!("map-{number}"))
        };
        let mut object = json!({
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "ownerReferences": references,
            },
        });
        let mut node = None;
        if is_pod {
            let bound = self.pick(NODES);
            node = Some(bound);
            object["spec"] = json!({
                "nodeName": format!("node-{bound}"),
                "terminationGracePeriodSeconds": self.pick(20),
                "containers": [{"name": "main", "image": "example.com/main"}],
            });
            if self.pick(3) == 0 {
                object["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
            }
        }
        // A name in use makes this no step.
        let Ok(created) = self.sim.create(object) else {
            return;
        };
        let created_uid = uid(&created);
        if !is_pod {
            self.deleted.insert(created_uid.to_owned(), 0);
        }
        let owners: Vec<String> = owners.iter().map(|owner| uid(owner).to_owned()).collect();
        self.fates.created(created_uid, &name, &owners);
        if let Some(node) = node
            && !self.is_safe(node, &created)
        {
            self.fates.doom(created_uid);
        }
    }

    /// Whether a pod can stay on a node in its present state.
    fn is_safe(&self, number: u64, pod: &Value) -> bool {
        let Ok(node) = self.sim.get("v1", "Node", "", &format!("node-{number}")) else {
            return false;
        };
        let silent = node["metadata"]["annotations"]["silent"].is_string();
        let tainted = node["spec"]["taints"].is_array();
        let recent = |times: &BTreeMap<u64, Instant>| {
            let at = times.get(&number);
            at.is_some_and(|at| at.elapsed() < CAUGHT_UP)
        };
        let responsive = !silent && !recent(&self.back);
        responsive && (tolerates(pod) || !(tainted || recent(&self.lifted)))
    }

    fn maps(&self) -> Vec<Value> {
        self.objects("ConfigMap")
    }

    fn objects(&self, kind: &str) -> Vec<Value> {
        let mut objects = self.sim.list("v1", kind, &self.namespace).unwrap();
        for object in &mut objects {
            object["kind"] = json!(kind);
        }
        objects
    }

    fn pods_on(&self, node: u64) -> Vec<Value> {
        let name = json!(format!("node-{node}"));
        let mut pods = self.objects("Pod");
        pods.retain(|pod| pod["spec"]["nodeName"] == name);
        pods
    }

    fn delete(&mut self, policy: &str) {
        let kind = if self.pick(3) == 0 {
            "Pod"
        } else {
            "ConfigMap"
        };
        let Some(object) = self.any(kind) else {
            return;
        };
        self.fates.doom(uid(&object));
        self.delete_with(&object, policy);
    }

    /// Dependents that a cache has not observed cannot be orphaned: everything catches
    /// up first, as a careful operator would wait.
    async fn orphan(&mut self) {
        let Some(object) = self.any("ConfigMap") else {
            return;
        };
        if object["metadata"]["deletionTimestamp"].is_string()
            || !self.fates.has_dependents(uid(&object))
        {
            return;
        }
        self.sim.heal_all();
        sleep(CAUGHT_UP).await;
        let name = text(&object, "/metadata/name");
        let now = self.sim.get("v1", "ConfigMap", &self.namespace, &name);
        let still = now.is_ok_and(|now| {
            uid(&now) == uid(&object) && now["metadata"]["deletionTimestamp"].is_null()
        });
        if still {
            self.fates.orphan(uid(&object));
            self.delete_with(&object, "Orphan");
            sleep(CAUGHT_UP).await;
        }
    }

    fn any(&mut self, kind: &str) -> Option<Value> {
        let objects = self.objects(kind);
        self.choose(&objects)
    }

    fn choose<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        let count = u64::try_from(all.len()).unwrap();
        if count == 0 {
            return None;
        }
        let chosen = usize::try_from(self.pick(count)).unwrap();
        Some(all[chosen].clone())
    }

    fn delete_with(&mut self, object: &Value, policy: &str) {
        let options = DeleteOptions {
            propagation_policy: Some(policy.to_owned()),
            ..DeleteOptions::default()
        };
        let kind = text(object, "/kind");
        let name = text(object, "/metadata/name");
        // It may be terminating already.
        let deleted = self
            .sim
            .delete("v1", &kind, &self.namespace, &name, &options);
        if let Some(count) = self.deleted.get_mut(uid(object))
            && deleted.is_ok()
        {
            *count += 1;
        }
    }

    /// A new machine of that name, with a kubelet.
    fn create_node(&mut self, node: u64) {
        // An existing one stays as it is.
        let _ = self.sim.create(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": format!("node-{node}"),
                "labels": {"topology.kubernetes.io/zone": format!("zone-{}", node % 2)},
            },
        }));
    }

    fn taint(&mut self) {
        let node = self.pick(NODES);
        let on = self.pick(2) == 0;
        let taints = if on {
            json!([{"key": "example.com/maintenance", "effect": "NoExecute"}])
        } else {
            Value::Null
        };
        if !on {
            self.lifted.insert(node, Instant::now());
        }
        if self.patch_node(node, &json!({"spec": {"taints": taints}})) && on {
            for pod in self.pods_on(node) {
                if !tolerates(&pod) {
                    self.fates.doom(uid(&pod));
                }
            }
        }
    }

    fn patch_node(&self, node: u64, patch: &Value) -> bool {
        let name = format!("node-{node}");
        if self.sim.get("v1", "Node", "", &name).is_err() {
            return false;
        }
        let mut object = patch.clone();
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("Node");
        object["metadata"]["name"] = json!(name);
        self.sim.apply(object).is_ok()
    }

    fn doom_pods_on(&mut self, node: u64) {
        for pod in self.pods_on(node) {
            self.fates.doom(uid(&pod));
        }
    }

    fn remove_node(&mut self) {
        let node = self.pick(NODES);
        self.doom_pods_on(node);
        let options = DeleteOptions::default();
        // Its taints are deleted with it.
        self.lifted.insert(node, Instant::now());
        let removed = self
            .sim
            .delete("v1", "Node", "", &format!("node-{node}"), &options);
        if removed.is_err() {
            self.kubelet.resume(&format!("node-{node}"));
            self.back.insert(node, Instant::now());
            self.create_node(node);
        }
    }

    fn fall_silent(&mut self) {
        let node = self.pick(NODES);
        let mark = json!({"metadata": {"annotations": {"silent": "yes"}}});
        if self.patch_node(node, &mark) {
            self.kubelet.silence(&format!("node-{node}"));
            self.doom_pods_on(node);
        }
    }

    fn resume(&mut self) {
        let node = self.pick(NODES);
        self.back.insert(node, Instant::now());
        self.kubelet.resume(&format!("node-{node}"));
        self.patch_node(
            node,
            &json!({"metadata": {"annotations": {"silent": null}}}),
        );
    }

    fn create_storage_versions(&self) {
        for server in 0..4 {
            self.sim
                .create(json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {
                        "name": format!("server-{server}"),
                        "namespace": "kube-system",
                        "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
                    },
                }))
                .unwrap();
        }
        for resource in 0..5 {
            let entry = |server: u64| {
                json!({
                    "apiServerID": format!("server-{server}"),
                    "encodingVersion": "v1",
                    "decodableVersions": ["v1"],
                })
            };
            self.sim
                .create(json!({
                    "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
                    "kind": "StorageVersion",
                    "metadata": {"name": format!("example.com.r{resource}")},
                    "spec": {},
                    "status": {
                        "storageVersions": (0..=resource % 4).map(entry).collect::<Vec<_>>(),
                    },
                }))
                .unwrap();
        }
    }

    /// One API server is gone forever. The first stays.
    fn drop_a_lease(&mut self) {
        let name = format!("server-{}", 1 + self.pick(3));
        let options = DeleteOptions::default();
        // It may be gone already.
        let _ = self.sim.delete(
            "coordination.k8s.io/v1",
            "Lease",
            "kube-system",
            &name,
            &options,
        );
    }

    fn disturb_watches(&mut self) {
        let faults = [
            WatchFault::Abort,
            WatchFault::End,
            WatchFault::Expire,
            WatchFault::Silence,
            WatchFault::NoBookmarks,
            WatchFault::Delay(Duration::from_secs(4)),
        ];
        let fault = self.choose(&faults).unwrap();
        let resources = ["pods", "nodes", "configmaps", "leases", ""];
        let resource = self.choose(&resources).unwrap();
        self.sim.disturb(&Match::new("watch", resource), fault);
    }

    fn break_writes(&mut self) {
        let actions = [
            Action::Refuse(Refusal::Conflict),
            Action::Refuse(Refusal::TooManyRequests(1)),
            Action::Refuse(Refusal::InternalError),
            Action::CloseBefore,
            Action::CloseAfter,
            Action::CutBody(10),
        ];
        let action = self.choose(&actions).unwrap();
        let verb = self.choose(&["patch", "delete", "get"]).unwrap();
        self.sim.add_fault(Fault {
            matches: Match::new(verb, ""),
            when: FaultTiming::Chance(0.3),
            action,
        });
    }

    /// Ends all faults and waits until nothing happens any more.
    async fn calm(&mut self) {
        self.sim.heal_all();
        for node in 0..NODES {
            self.kubelet.resume(&format!("node-{node}"));
            self.patch_node(
                node,
                &json!({"metadata": {"annotations": {"silent": null}}}),
            );
        }
        sleep(AT_REST).await;
    }

    fn problems(&self) -> Vec<String> {
        let mut objects = self.objects("Pod");
        objects.extend(self.maps());
        let nodes = self.sim.list("v1", "Node", "").unwrap();
        let mut problems = self.fates.missing(&objects);
        problems.extend(left_over(&objects, &nodes));
        problems.extend(self.stale_versions());
        problems.extend(self.deleted_twice());
        problems
    }

    /// Storage versions that name an API server without a lease, or lack one
    /// that has its lease.
    fn stale_versions(&self) -> Vec<String> {
        let leases = self
            .sim
            .list("coordination.k8s.io/v1", "Lease", "kube-system")
            .unwrap();
        let servers: Vec<String> = leases
            .iter()
            .map(|lease| text(lease, "/metadata/name"))
            .collect();
        let mut problems = Vec::new();
        for resource in 0..5_u64 {
            let name = format!("example.com.r{resource}");
            let kind = "StorageVersion";
            let version = self
                .sim
                .get("internal.apiserver.k8s.io/v1alpha1", kind, "", &name);
            let entries = version.map(|version| version["status"]["storageVersions"].clone());
            let entries = entries.unwrap_or_default();
            let named = entries.as_array().into_iter().flatten();
            let mut named: Vec<String> = named.map(|entry| text(entry, "/apiServerID")).collect();
            named.sort();
            let wanted = (0..=resource % 4).map(|server| format!("server-{server}"));
            let wanted: Vec<String> = wanted.filter(|server| servers.contains(server)).collect();
            if named != wanted {
                problems.push(format!("{name} names {named:?}, not {wanted:?}"));
            }
        }
        problems
    }

    /// `ConfigMaps`, which only the story and the garbage collector delete: each once.
    fn deleted_twice(&self) -> Vec<String> {
        self.sim.with_model(|model, _| {
            let deletions = model.deletions();
            let counts = deletions.filter_map(|(uid, steps)| {
                let requested = |step: &&DeletionStep| step.kind == DeletionKind::Requested;
                let requests = steps.iter().filter(requested).count();
                let own = self.deleted.get(uid)?;
                (requests > own + 1).then(|| format!("{uid} was deleted {requests} times"))
            });
            counts.collect()
        })
    }
}
