//! Steps that change objects and nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::time::Instant;
use davit_sim::direct;
use davit_sim::fault::WatchFault;
use serde_json::{Value, json};

use super::{CAUGHT_UP, Story};
use crate::cluster;
use crate::event::{Create, Kind, Name, NewPod, Toleration};
use crate::fate::{terminates, text, tolerates, uid};

/// How long a story waits for the next plan.
const LONGEST_AMBUSH: Duration = Duration::from_millis(400);

impl Story {
    /// Creates an object, if its name is free.
    pub(super) fn create(&mut self, create: &Create) {
        let owners = create.owners.iter().filter_map(|(name, blocks)| {
            let (_, owner) = cluster::next(&self.simulation.world, *name, |_| true)?;
            Some((owner, *blocks))
        });
        let mut owners: Vec<(Value, bool)> = owners.collect();
        owners.dedup_by(|(one, _), (other, _)| uid(one) == uid(other));
        let object = cluster::object(create, &owners);
        let Some(created) = cluster::put(self.world(), object) else {
            return;
        };
        let created_uid = uid(&created).to_owned();
        if create.pod.is_none() {
            self.deleted.insert(created_uid.clone(), 0);
        }
        let owners = owners.iter().map(|(owner, _)| uid(owner).to_owned());
        let owners: Vec<String> = owners.collect();
        let name = text(&created, "/metadata/name");
        self.fates.created(&created_uid, name, &owners);
        if let Some(pod) = create.pod
            && !self.is_safe(pod.node, &created)
        {
            self.fates.doom(&created_uid);
        }
        if create.pod.is_some() {
            self.pods.insert(created_uid, created.clone());
        }
        self.tolerate(&created);
    }

    /// Whether a pod can stay on a node in its present state.
    fn is_safe(&self, number: u64, pod: &Value) -> bool {
        let Some(node) = cluster::get_node(&self.simulation.world, number) else {
            return false;
        };
        let tainted = node["spec"]["taints"].is_array();
        let recent = |times: &BTreeMap<u64, Instant>| {
            let at = times.get(&number);
            at.is_some_and(|at| self.now().since(*at) < CAUGHT_UP)
        };
        let responsive =
            !self.kubelets.silent.contains(&cluster::node_name(number)) && !recent(&self.back);
        responsive && (tolerates(pod) || !(tainted || recent(&self.lifted)))
    }

    pub(super) fn delete(&mut self, name: Name, policy: &str) {
        let found = cluster::next(&self.simulation.world, name, |object| !is_orphaning(object));
        if let Some((name, object)) = found {
            self.fates.doom(uid(&object));
            self.delete_with(name, &object, policy);
        }
    }

    fn delete_with(&mut self, name: Name, object: &Value, policy: &str) {
        // The deletion of a terminating object may fail.
        if cluster::delete(self.world(), name, policy) {
            self.count_deletion(object);
        }
    }

    fn count_deletion(&mut self, object: &Value) {
        if let Some(count) = self.deleted.get_mut(uid(object)) {
            *count += 1;
        }
    }

    /// Deletes an object without a grace period. Returns the former object.
    fn remove(&mut self, name: Name) -> Option<Value> {
        let object = cluster::get(&self.simulation.world, name);
        let object = object.filter(|object| !is_orphaning(object))?;
        self.fates.doom(uid(&object));
        if cluster::remove_at_once(self.world(), name) {
            self.count_deletion(&object);
        }
        Some(object)
    }

    pub(super) fn replace(&mut self, name: Name) {
        let Some(object) = self.remove(name) else {
            return;
        };
        let node = text(&object, "/spec/nodeName").strip_prefix("node-");
        let node = node.and_then(|node| node.parse().ok());
        self.create(&Create {
            name,
            owners: Vec::new(),
            pod: node.map(|node| NewPod {
                node,
                grace: 5,
                toleration: Toleration::Forever,
            }),
        });
    }

    /// Replaces the target of the next plan that the machine admits.
    pub(super) fn ambush(&mut self, delay: Duration) {
        let mut count = self.simulation.executed().len();
        let until = self.now().after(LONGEST_AMBUSH);
        while self.now() < until {
            self.pass(Duration::from_millis(1));
            let executed = self.simulation.executed();
            let new = executed.get(count..).unwrap_or_default();
            let target = new
                .iter()
                .find_map(|one| Name::parse(&one.plan.target.name));
            if let Some(target) = target {
                self.pass(delay);
                return self.replace(target);
            }
            count = executed.len();
        }
    }

    /// Breaks the watches of the story's objects, removes objects, and compacts the history.
    pub(super) fn gap(&mut self, names: &[Name]) {
        for kind in Kind::ALL {
            self.world().disturb(kind.plural(), WatchFault::Abort);
        }
        for name in names {
            self.remove(*name);
        }
        self.world().with_model(|model, _| model.compact());
    }

    pub(super) fn orphan(&mut self, name: Name) {
        let can_be = |it: &Value| !terminates(it) && self.fates.has_dependents(uid(it));
        let Some((name, object)) = cluster::next(&self.simulation.world, name, can_be) else {
            return;
        };
        self.heal();
        self.pass(self.catches_up);
        let still = cluster::get(&self.simulation.world, name);
        if still.is_some_and(|now| uid(&now) == uid(&object) && !terminates(&now)) {
            self.fates.orphan(uid(&object));
            self.delete_with(name, &object, "Orphan");
            self.pass(self.catches_up);
        }
    }

    pub(super) fn pods_on(&self, node: u64) -> Vec<Value> {
        let name = cluster::node_name(node);
        let mut pods = cluster::list(&self.simulation.world, "Pod");
        pods.retain(|pod| pod["spec"]["nodeName"] == name.as_str());
        pods
    }

    pub(super) fn doom_pods_on(&mut self, node: u64, which: impl Fn(&Value) -> bool) {
        for pod in self.pods_on(node).iter().filter(|pod| which(pod)) {
            self.fates.doom(uid(pod));
        }
    }

    pub(super) fn taint(&mut self, node: u64) {
        let taints = json!([{"key": "example.com/maintenance", "effect": "NoExecute"}]);
        if cluster::patch_node(self.world(), node, json!({"spec": {"taints": taints}})) {
            self.doom_pods_on(node, |pod| !tolerates(pod));
            self.tolerate_on(node);
        }
    }

    pub(super) fn untaint(&mut self, node: u64) {
        self.lifted.insert(node, self.now());
        cluster::patch_node(self.world(), node, json!({"spec": {"taints": null}}));
    }

    pub(super) fn remove_node(&mut self, node: u64) {
        if cluster::remove_node(self.world(), node) {
            // Its taints go with it.
            self.lifted.insert(node, self.now());
            self.doom_pods_on(node, |_| true);
        }
    }

    pub(super) fn create_node(&mut self, node: u64) {
        if cluster::create_node(self.world(), node) {
            self.kubelets.silent.remove(&cluster::node_name(node));
            self.back.insert(node, self.now());
            self.lifted.insert(node, self.now());
        }
    }

    pub(super) fn silence(&mut self, node: u64) {
        self.kubelets.silent.insert(cluster::node_name(node));
        self.doom_pods_on(node, |_| true);
    }

    pub(super) fn resume(&mut self, node: u64) {
        if self.kubelets.silent.remove(&cluster::node_name(node)) {
            self.back.insert(node, self.now());
        }
    }

    /// Deletes the lease of an API server. The first API server keeps its lease.
    pub(super) fn drop_lease(&mut self, server: u64) {
        let kind = ("coordination.k8s.io/v1", "Lease");
        let name = format!("server-{server}");
        let options = davit_sim::model::DeleteOptions::default();
        self.world().with_model(|model, now| {
            // The lease may not exist any more.
            let _ = direct::delete(model, now, kind, "kube-system", &name, &options);
        });
    }
}

/// Whether an object waits for the garbage collector to orphan its dependents. Another
/// deletion would end the wait, and the garbage collector might delete the dependents: a
/// story cannot know which.
pub(super) fn is_orphaning(object: &Value) -> bool {
    let finalizers = object["metadata"]["finalizers"].as_array();
    let mut finalizers = finalizers.into_iter().flatten();
    finalizers.any(|finalizer| finalizer == "orphan")
}
