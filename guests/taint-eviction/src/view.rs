//! What the controller reads of pods and nodes.

use davit_guest::pod::PodCondition;
use davit_guest::toleration::{Taint, Toleration};
use davit_guest::{Time, WatchName};
use serde::Deserialize;

/// The fields of a pod that decide whether it may stay: a change of any other
/// field triggers no reconcile.
pub(crate) const PODS: WatchName<Pod> = WatchName::new("pods");
/// Pods by the name of their node.
pub(crate) const BY_NODE: &str = "node";

/// Pods with the further fields that an eviction needs. No trigger uses it.
pub(crate) const PODS_WITH_STATUS: WatchName<PodWithStatus> = WatchName::new("pods-with-status");

pub(crate) const NODES: WatchName<Node> = WatchName::new("nodes");

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) spec: PodSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodWithStatus {
    pub(crate) metadata: PodMetadata,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodConditions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodMetadata {
    pub(crate) creation_timestamp: Option<Time>,
    pub(crate) generation: i64,
    pub(crate) deletion_timestamp: Option<Time>,
}

/// The part of a pod's status that an eviction changes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PodConditions {
    pub(crate) conditions: Vec<PodCondition>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: NodeMetadata,
    pub(crate) spec: NodeSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeMetadata {
    pub(crate) creation_timestamp: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeSpec {
    pub(crate) taints: Vec<Taint>,
}
