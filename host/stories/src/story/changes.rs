//! What changes objects and nodes, besides that they come and go.

use std::time::Duration;

use davit_core::plan::Step;
use serde_json::{Value, json};

use super::Story;
use super::objects::is_orphaning;
use crate::cluster;
use crate::event::{Kind, Name};
use crate::fate::{text, tolerates, uid};
use crate::guests::MOST_ENDED_PODS;

/// A timer of a guest may be that much early.
const SLACK: Duration = Duration::from_millis(500);

impl Story {
    /// Another owner is added to an object's references.
    pub(super) fn adopt(&mut self, name: Name, owner: Name, blocks: bool) {
        let world = &self.simulation.world;
        let (Some((name, object)), Some((owner, parent))) = (
            cluster::next(world, name, |_| true),
            cluster::next(world, owner, |_| true),
        ) else {
            return;
        };
        let mut references = references(&object);
        let is_named = |reference: &Value| reference["uid"] == uid(&parent);
        // Whether an owner that orphans its dependents still does with a new one is
        // nothing that a story knows.
        if name == owner || is_orphaning(&parent) || references.iter().any(is_named) {
            return;
        }
        references.push(cluster::reference(&parent, blocks));
        let patch = json!({"metadata": {"ownerReferences": references}});
        if cluster::patch(self.world(), name, patch) {
            self.fates.adopt(uid(&object), uid(&parent));
        }
    }

    /// The first owner is removed from an object's references.
    pub(super) fn disown(&mut self, name: Name) {
        let is_owned = |object: &Value| !references(object).is_empty();
        let Some((name, object)) = cluster::next(&self.simulation.world, name, is_owned) else {
            return;
        };
        let mut references = references(&object);
        let former = references.remove(0);
        let patch = json!({"metadata": {"ownerReferences": references}});
        if cluster::patch(self.world(), name, patch) {
            self.fates.disown(uid(&object), text(&former, "/uid"));
        }
    }

    /// The containers of a pod have ended well. It may be deleted as one of too many.
    pub(super) fn finish(&mut self, number: u64) {
        let name = Name {
            kind: Kind::Pod,
            number,
        };
        let runs = |pod: &Value| text(pod, "/status/phase") != "Succeeded";
        let Some((name, pod)) = cluster::next(&self.simulation.world, name, runs) else {
            return;
        };
        let patch = json!({"status": {"phase": "Succeeded"}});
        if cluster::patch(self.world(), name, patch) {
            self.fates.doom(uid(&pod));
        }
    }

    /// A node is silent, known to be, and marked as out of service.
    pub(super) fn take_out(&mut self, node: u64) {
        self.silence(node);
        let key = "node.kubernetes.io/out-of-service";
        let patch = json!({
            "spec": {"taints": [{"key": key, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        });
        if cluster::patch_node(self.world(), node, patch) {
            self.tolerate_on(node);
        }
    }

    /// A node has a taint, which its pods tolerate from now on.
    pub(super) fn tolerate_on(&mut self, node: u64) {
        let name = cluster::node_name(node);
        let pods = self.pods.values();
        let pods = pods.filter(|pod| pod["spec"]["nodeName"] == name.as_str());
        for pod in pods.cloned().collect::<Vec<Value>>() {
            self.tolerate(&pod);
        }
    }

    /// A pod tolerates a taint of its node, if it has one, from now on.
    pub(super) fn tolerate(&mut self, pod: &Value) {
        let bound = text(pod, "/spec/nodeName");
        let nodes = cluster::list(&self.simulation.world, "Node");
        let mut nodes = nodes.iter();
        let node = nodes.find(|node| text(node, "/metadata/name") == bound);
        if !node.is_some_and(|node| node["spec"]["taints"].is_array()) || tolerates(pod) {
            return;
        }
        let seconds = pod.pointer("/spec/tolerations/0/tolerationSeconds");
        let seconds = seconds.and_then(Value::as_u64).unwrap_or(0);
        let mut tolerated = Duration::from_secs(seconds);
        if self.has_replicas() {
            // Their clocks may be too fast.
            tolerated = tolerated * 9 / 10;
        }
        let until = self.now().after(tolerated);
        self.tolerated.entry(uid(pod).to_owned()).or_insert(until);
    }

    /// Pods that were evicted for a taint that they tolerated, or did not have.
    pub(super) fn evicted_early(&self) -> Vec<String> {
        let ends = |step: &Step| matches!(step, Step::Delete(_) | Step::Evict(_));
        let executed = self.simulation.executed().iter();
        let evictions = executed
            .filter(|it| it.controller == "taint-eviction" && it.plan.steps.iter().any(ends));
        let early = evictions.filter(|eviction| {
            let until = self.tolerated.get(&eviction.plan.target.uid);
            until.is_none_or(|until| eviction.at.after(SLACK) < *until)
        });
        early
            .map(|it| format!("{} is evicted although it may stay", it.plan.target))
            .collect()
    }

    /// There are more pods that have ended than the pod garbage collector leaves.
    pub(super) fn ended_pods(&self) -> Option<String> {
        let pods = cluster::list(&self.simulation.world, "Pod");
        let has_ended = |pod: &&Value| matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let count = pods.iter().filter(has_ended).count();
        (count > MOST_ENDED_PODS).then(|| format!("{count} pods have ended and are left"))
    }
}

fn references(object: &Value) -> Vec<Value> {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.cloned().unwrap_or_default()
}
