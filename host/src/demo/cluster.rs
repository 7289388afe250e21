//! The demo's cluster: what it does to the API server, and what it expects to
//! find there in the end.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use davit_sim::Sim;
use davit_sim::model::DeleteOptions;
use serde_json::{Value, json};

const NAMESPACE: &str = "demo";
const NODES: u32 = 6;
const PODS_OF_A_NODE: u32 = 4;
const BATCH_PODS: u32 = 18;

/// The API server, and the pods that should be there.
pub(super) struct Cluster {
    sim: Sim,
    expected: BTreeSet<String>,
    /// The pod that a finalizer holds: it is deleted until that is taken off.
    held: String,
}

impl Cluster {
    pub(super) fn new(sim: Sim) -> Self {
        Self {
            sim,
            expected: BTreeSet::new(),
            held: String::new(),
        }
    }

    pub(super) fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Nodes that are ready, with pods that run.
    pub(super) fn populate(&mut self) -> Result<()> {
        for node in 1..=NODES {
            let name = format!("node-{node}");
            self.create(json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }))?;
            for pod in 1..=PODS_OF_A_NODE {
                let status = json!({"phase": "Running"});
                self.create_pod(&format!("web-{node}{pod}"), Some(&name), &[], &status)?;
            }
        }
        Ok(())
    }

    /// Removes a node; returns the pods that are bound to it.
    pub(super) fn remove_node(&self, node: &str) -> Result<BTreeSet<String>> {
        let pods = self.pods_of(node)?;
        let now = DeleteOptions::default();
        self.sim
            .delete("v1", "Node", "", node, &now)
            .with_context(|| format!("deleting {node}"))?;
        Ok(pods)
    }

    /// Pods that have come to their end, one way or another.
    pub(super) fn finish_pods(&mut self) -> Result<()> {
        for number in 1..=BATCH_PODS {
            let status = match number {
                1..=12 => json!({"phase": "Succeeded"}),
                13..=16 => json!({"phase": "Failed"}),
                _ => json!({"phase": "Failed", "reason": "Evicted"}),
            };
            self.create_pod(&format!("batch-{number:02}"), Some("node-1"), &[], &status)?;
        }
        Ok(())
    }

    /// A node stops answering while its pods are being deleted; returns them.
    pub(super) fn hang_node(&self, node: &str) -> Result<BTreeSet<String>> {
        self.sim
            .apply(json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": node},
                "spec": {"taints": [{
                    "key": "node.kubernetes.io/out-of-service",
                    "value": "nodeshutdown",
                    "effect": "NoExecute",
                }]},
                "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
            }))
            .with_context(|| format!("tainting {node}"))?;
        let pods = self.pods_of(node)?;
        for pod in &pods {
            self.delete_pod(pod)?;
        }
        Ok(pods)
    }

    /// A pod without a node, deleted but held by a finalizer; returns its name.
    pub(super) fn strand_a_pod(&mut self) -> Result<String> {
        let name = "waiting".to_owned();
        self.create_pod(
            &name,
            None,
            &["example.com/hold"],
            &json!({"phase": "Pending"}),
        )?;
        self.delete_pod(&name)?;
        self.held.clone_from(&name);
        Ok(name)
    }

    /// Whether a pod was marked as failed.
    pub(super) fn is_failed(&self, pod: &str) -> Result<bool> {
        let pod = self.sim.get("v1", "Pod", NAMESPACE, pod)?;
        Ok(pod.pointer("/status/phase") == Some(&json!("Failed")))
    }

    /// Takes a pod's finalizers off.
    pub(super) fn release(&self, pod: &str) -> Result<()> {
        self.sim.apply(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": NAMESPACE, "finalizers": null},
        }))?;
        Ok(())
    }

    /// The names of the pods that the API server holds.
    pub(super) fn pods(&self) -> Result<BTreeSet<String>> {
        let pods = self.sim.list("v1", "Pod", NAMESPACE)?;
        Ok(pods.iter().filter_map(name).collect())
    }

    /// These pods should be gone from now on.
    pub(super) fn expect_gone(&mut self, pods: &BTreeSet<String>) {
        self.expected.retain(|name| !pods.contains(name));
    }

    /// Everything in which the API server differs from what it should hold.
    pub(super) fn problems(&self) -> Result<Vec<String>> {
        let pods = self.pods()?;
        let missing = self.expected.difference(&pods);
        let missing = missing.map(|pod| format!("{pod} was deleted and should not have been"));
        let left = pods.difference(&self.expected);
        let left = left.map(|pod| format!("{pod} is there and should have been deleted"));
        let mut problems: Vec<String> = missing.chain(left).collect();
        let deleted = self
            .sim
            .log()
            .into_iter()
            .filter(|served| served.method == "DELETE" && (200..300).contains(&served.status));
        let mut seen = BTreeSet::new();
        for served in deleted {
            if served.work.name != self.held && !seen.insert(served.work.name.clone()) {
                problems.push(format!("{} was deleted twice", served.work.name));
            }
        }
        Ok(problems)
    }

    fn pods_of(&self, node: &str) -> Result<BTreeSet<String>> {
        let pods = self.sim.list("v1", "Pod", NAMESPACE)?;
        let node = json!(node);
        let bound = pods
            .iter()
            .filter(|pod| pod.pointer("/spec/nodeName") == Some(&node));
        Ok(bound.filter_map(name).collect())
    }

    fn create_pod(
        &mut self,
        pod: &str,
        node: Option<&str>,
        finalizers: &[&str],
        status: &Value,
    ) -> Result<()> {
        self.create(json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": pod, "namespace": NAMESPACE, "finalizers": finalizers},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "image": "example.com/main"}],
            },
            "status": status,
        }))?;
        self.expected.insert(pod.to_owned());
        Ok(())
    }

    fn create(&self, object: Value) -> Result<()> {
        let what = name(&object).unwrap_or_default();
        self.sim
            .create(object)
            .with_context(|| format!("creating {what}"))?;
        Ok(())
    }

    /// As an impatient user does, with the pod's own grace period.
    fn delete_pod(&self, pod: &str) -> Result<()> {
        let options = DeleteOptions::default();
        self.sim
            .delete("v1", "Pod", NAMESPACE, pod, &options)
            .with_context(|| format!("deleting {pod}"))
    }
}

fn name(object: &Value) -> Option<String> {
    let name = object.pointer("/metadata/name")?;
    Some(name.as_str()?.to_owned())
}
