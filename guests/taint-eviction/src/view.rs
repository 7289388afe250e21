//! What the controller reads of pods and nodes.

use davit_guest::pod::PodCondition;
use davit_guest::toleration::{Taint, Toleration};
use davit_guest::{IndexName, Time, View, WatchName};

/// The fields of a pod that decide whether it may stay: a change of any other
/// field triggers no reconcile.
pub(crate) const PODS: WatchName<Pod> = WatchName::new("pods");
/// Pods by the name of their node.
pub(crate) const BY_NODE: IndexName<Pod> = IndexName::new("node");

/// Pods with the further fields that an eviction needs. No trigger uses it.
pub(crate) const PODS_WITH_STATUS: WatchName<PodWithStatus> = WatchName::new("pods-with-status");

pub(crate) const NODES: WatchName<Node> = WatchName::new("nodes");
/// The nodes with `NoExecute` taints, under that effect.
pub(crate) const BY_EFFECT: IndexName<Node> = IndexName::new("effect");

#[derive(Debug, Default, View)]
pub(crate) struct Pod {
    pub(crate) spec: PodSpec,
}

#[derive(Debug, Default, View)]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
    pub(crate) tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, View)]
pub(crate) struct PodWithStatus {
    pub(crate) metadata: PodMetadata,
    pub(crate) spec: PodSpec,
    /// The part of a pod's status that an eviction changes.
    #[view(path = "status.conditions")]
    pub(crate) conditions: Vec<PodCondition>,
}

#[derive(Debug, Default, View)]
pub(crate) struct PodMetadata {
    pub(crate) creation_timestamp: Option<Time>,
    pub(crate) generation: i64,
    pub(crate) deletion_timestamp: Option<Time>,
}

#[derive(Debug, Default, View)]
pub(crate) struct Node {
    #[view(path = "metadata.creationTimestamp")]
    pub(crate) creation_timestamp: Option<Time>,
    #[view(path = "spec.taints")]
    pub(crate) taints: Vec<Taint>,
}
