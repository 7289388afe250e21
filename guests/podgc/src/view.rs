//! What the collector reads of pods and nodes.

use davit_guest::node::NodeCondition;
use davit_guest::pod::PodStatus;
use davit_guest::{Identity, Time, WatchName};
use serde::Deserialize;

pub(crate) const PODS: WatchName<Pod> = WatchName::new("pods");
/// Pods under the name of their node; those without one under the empty string.
pub(crate) const BY_NODE: &str = "node";
/// Pods that have ended, in the order of their creation: those with a phase
/// under `true`, those without one under the empty string.
pub(crate) const ENDED: &str = "ended";
/// Pods with the reason `Evicted`, in the order of their creation.
pub(crate) const EVICTED: &str = "evicted";
/// Pods that the collector has marked because their node is missing, those that
/// are not being deleted yet first.
pub(crate) const MARKED: &str = "marked";
/// Pods that are being deleted, in the order of their nodes' names: those
/// without a node first.
pub(crate) const TERMINATING: &str = "terminating";

pub(crate) const NODES: WatchName<Node> = WatchName::new("nodes");
/// Nodes under the keys of their taints.
pub(crate) const BY_TAINT: &str = "taint";

/// Which nodes there are. Its own watch, so that only their coming and going is
/// a change.
pub(crate) const NODE_NAMES: WatchName<Identity> = WatchName::new("node-names");

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pod {
    pub(crate) metadata: PodMetadata,
    pub(crate) spec: PodSpec,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodMetadata {
    pub(crate) generation: i64,
    /// RFC 3339 in UTC and whole seconds: it sorts as text.
    pub(crate) creation_timestamp: Option<String>,
    pub(crate) deletion_timestamp: Option<Time>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodSpec {
    pub(crate) node_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) status: NodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeStatus {
    pub(crate) conditions: Vec<NodeCondition>,
}
