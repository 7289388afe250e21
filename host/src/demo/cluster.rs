//! The demo's cluster: how it changes the API server, and the state that it expects
//! in the end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result};
use davit_sim::Sim;
use davit_sim::helpers::{Kubelet, KubeletOptions};
use davit_sim::model::DeleteOptions;
use serde_json::{Value, json};

const NAMESPACE: &str = "demo";
const NODES: u32 = 6;
const PODS_OF_A_NODE: u32 = 4;
const BATCH_PODS: u32 = 18;

/// The API server, and the pods that should be there.
pub(super) struct Cluster {
    sim: Sim,
    kubelet: Kubelet,
    expected: BTreeSet<String>,
    /// The pod with a finalizer: it is terminating until the finalizer is removed.
    finalized: String,
}

impl Cluster {
    pub(super) fn new(sim: Sim) -> Self {
        let options = KubeletOptions {
            heartbeat: Duration::from_millis(500),
            ..KubeletOptions::default()
        };
        Self {
            kubelet: Kubelet::start(&sim, options),
            sim,
            expected: BTreeSet::new(),
            finalized: String::new(),
        }
    }

    pub(super) fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Creates ready nodes with running pods.
    pub(super) fn populate(&mut self) -> Result<()> {
        for node in 1..=NODES {
            let name = format!("node-{node}");
            self.create(json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": name,
                    "labels": {"topology.kubernetes.io/zone": if node <= 3 { "a" } else { "b" }},
                },
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

    /// Pods `NAME-01` to `NAME-18` that have come to their end, one way or another.
    pub(super) fn finish_pods(&mut self, name: &str) -> Result<()> {
        for number in 1..=BATCH_PODS {
            let status = match number {
                1..=12 => json!({"phase": "Succeeded"}),
                13..=16 => json!({"phase": "Failed"}),
                _ => json!({"phase": "Failed", "reason": "Evicted"}),
            };
            self.create_pod(&format!("{name}-{number:02}"), Some("node-1"), &[], &status)?;
        }
        Ok(())
    }

    /// Pods that run on a node.
    pub(super) fn create_jobs(&mut self, node: &str, pods: u32) -> Result<()> {
        for number in 1..=pods {
            let status = json!({"phase": "Running"});
            self.create_pod(&format!("job-{number:02}"), Some(node), &[], &status)?;
        }
        Ok(())
    }

    /// How many of these pods are terminating or gone.
    pub(super) fn leaving(&self, pods: &BTreeSet<String>) -> Result<usize> {
        let present = self.sim.list("v1", "Pod", NAMESPACE)?;
        let stays = |pod: &&Value| pod.pointer("/metadata/deletionTimestamp").is_none();
        let staying = present.iter().filter(stays).filter_map(name);
        Ok(pods.len() - staying.filter(|name| pods.contains(name)).count())
    }

    /// A node stops answering while its pods are being deleted; returns them.
    pub(super) fn hang_node(&self, node: &str) -> Result<BTreeSet<String>> {
        self.kubelet.silence(node);
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

    /// A `ReplicaSet` with three pods; returns their names.
    pub(super) fn create_owner(&mut self, owner: &str) -> Result<BTreeSet<String>> {
        let created = self.sim.create(json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": owner, "namespace": NAMESPACE},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": owner}},
                "template": {
                    "metadata": {"labels": {"app": owner}},
                    "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
                },
            },
        }))?;
        let reference = json!([{
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": owner,
            "uid": created.pointer("/metadata/uid"),
            "controller": true,
            "blockOwnerDeletion": true,
        }]);
        let names = ["1", "2", "3"].map(|number| format!("{owner}-{number}"));
        for name in &names {
            let status = json!({"phase": "Running"});
            self.create_pod(name, Some("node-1"), &[], &status)?;
            self.sim.apply(json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": NAMESPACE, "ownerReferences": reference,
                },
            }))?;
        }
        Ok(names.into())
    }

    /// Deletes a `ReplicaSet` with this propagation policy.
    pub(super) fn delete_owner(&self, owner: &str, policy: &str) -> Result<()> {
        let options = DeleteOptions {
            propagation_policy: Some(policy.to_owned()),
            ..DeleteOptions::default()
        };
        self.sim
            .delete("apps/v1", "ReplicaSet", NAMESPACE, owner, &options)
            .with_context(|| format!("deleting {owner}"))
    }

    /// The names of the `ReplicaSet`s that the API server holds.
    pub(super) fn owners(&self) -> Result<BTreeSet<String>> {
        let owners = self.sim.list("apps/v1", "ReplicaSet", NAMESPACE)?;
        Ok(owners.iter().filter_map(name).collect())
    }

    /// Whether none of these pods has an owner.
    pub(super) fn are_free(&self, pods: &BTreeSet<String>) -> Result<bool> {
        for pod in pods {
            let pod = self.sim.get("v1", "Pod", NAMESPACE, pod)?;
            let owners = pod.pointer("/metadata/ownerReferences");
            if owners
                .and_then(Value::as_array)
                .is_some_and(|all| !all.is_empty())
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Taints a node, so that pods have to leave it.
    pub(super) fn taint(&self, node: &str) -> Result<()> {
        self.sim.apply(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node},
            "spec": {"taints": [{"key": "example.com/maintenance", "effect": "NoExecute"}]},
        }))?;
        Ok(())
    }

    /// Two API servers, and what they store; one of them goes.
    pub(super) fn lose_api_server(&self) -> Result<()> {
        for server in ["apiserver-1", "apiserver-2"] {
            self.create(json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": server,
                    "namespace": "kube-system",
                    "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
                },
            }))?;
        }
        let entry = |server: &str, version: &str| {
            json!({
                "apiServerID": server,
                "encodingVersion": version,
                "decodableVersions": [version],
            })
        };
        self.create(json!({
            "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
            "kind": "StorageVersion",
            "metadata": {"name": "apps.deployments"},
            "spec": {},
            "status": {"storageVersions": [
                entry("apiserver-1", "apps/v1"), entry("apiserver-2", "apps/v2"),
            ]},
        }))?;
        let options = DeleteOptions::default();
        self.sim.delete(
            "coordination.k8s.io/v1",
            "Lease",
            "kube-system",
            "apiserver-2",
            &options,
        )?;
        Ok(())
    }

    /// The version that all API servers agree on, if they do.
    pub(super) fn common_version(&self) -> Result<Option<String>> {
        let api_version = "internal.apiserver.k8s.io/v1alpha1";
        let version = self
            .sim
            .get(api_version, "StorageVersion", "", "apps.deployments")?;
        let common = version.pointer("/status/commonEncodingVersion");
        Ok(common.and_then(Value::as_str).map(str::to_owned))
    }

    /// Stops a node's kubelet.
    pub(super) fn silence(&self, node: &str) {
        self.kubelet.silence(node);
    }

    /// Starts a node's kubelet again.
    pub(super) fn resume(&self, node: &str) {
        self.kubelet.resume(node);
    }

    /// Whether all of these pods are being deleted because their node is lost.
    pub(super) fn are_lost(&self, pods: &BTreeSet<String>) -> Result<bool> {
        for pod in pods {
            let pod = self.sim.get("v1", "Pod", NAMESPACE, pod)?;
            let lost = pod.pointer("/status/reason") == Some(&json!("NodeLost"));
            if !lost || pod.pointer("/metadata/deletionTimestamp").is_none() {
                return Ok(false);
            }
        }
        Ok(true)
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
        self.finalized.clone_from(&name);
        Ok(name)
    }

    /// Whether a pod was marked as failed.
    pub(super) fn is_failed(&self, pod: &str) -> Result<bool> {
        let pod = self.sim.get("v1", "Pod", NAMESPACE, pod)?;
        Ok(pod.pointer("/status/phase") == Some(&json!("Failed")))
    }

    /// Removes a pod's finalizers.
    pub(super) fn remove_finalizers(&self, pod: &str) -> Result<()> {
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

    /// The differences between the API server and the expected state.
    pub(super) fn problems(&self) -> Result<Vec<String>> {
        let pods = self.pods()?;
        let missing = self.expected.difference(&pods);
        let missing = missing.map(|pod| format!("{pod} was deleted, and is expected to exist"));
        let left = pods.difference(&self.expected);
        let left = left.map(|pod| format!("{pod} exists, and is expected to be deleted"));
        let mut problems: Vec<String> = missing.chain(left).collect();
        let deleted = self
            .sim
            .log()
            .into_iter()
            .filter(|served| served.method == "DELETE" && (200..300).contains(&served.status));
        let mut seen = BTreeSet::new();
        for served in deleted {
            if served.work.name != self.finalized && !seen.insert(served.work.name.clone()) {
                problems.push(format!("{} was deleted twice", served.work.name));
            }
        }
        Ok(problems)
    }

    /// The names of the pods on a node.
    pub(super) fn pods_of(&self, node: &str) -> Result<BTreeSet<String>> {
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
                "terminationGracePeriodSeconds": 1,
                "tolerations": tolerations(pod),
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

/// One pod tolerates the maintenance taint for a second.
fn tolerations(pod: &str) -> Value {
    match pod {
        "web-44" => json!([{
            "key": "example.com/maintenance", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 1,
        }]),
        _ => json!([]),
    }
}

fn name(object: &Value) -> Option<String> {
    let name = object.pointer("/metadata/name")?;
    Some(name.as_str()?.to_owned())
}
