//! What the collector reads of pods and nodes.

use davit_guest::pod::PodStatus;
use davit_guest::views::ConditionStatus;
use davit_guest::{Identity, IndexName, Time, View, WatchName};

pub(crate) const PODS: WatchName<Pod> = WatchName::new("pods");
/// Pods by the name of their node; pods without one under the empty string.
pub(crate) const BY_NODE: IndexName<Pod> = IndexName::new("node");
/// Pods that have ended, by creation time: pods with a phase under `true`, pods
/// without one under the empty string.
pub(crate) const ENDED: IndexName<Pod> = IndexName::new("ended");
/// Pods with the reason `Evicted`, by creation time.
pub(crate) const EVICTED: IndexName<Pod> = IndexName::new("evicted");
/// Pods that the collector has marked because their node is missing; pods that
/// are not terminating yet come first.
pub(crate) const MARKED: IndexName<Pod> = IndexName::new("marked");
/// Terminating pods, by the name of their node; pods without one come first.
pub(crate) const TERMINATING: IndexName<Pod> = IndexName::new("terminating");

pub(crate) const NODES: WatchName<Node> = WatchName::new("nodes");
/// Nodes by the keys of their taints.
pub(crate) const BY_TAINT: IndexName<Node> = IndexName::new("taint");

/// The nodes that exist. A watch of its own, so that only the creation and the
/// deletion of a node trigger a reconcile.
pub(crate) const NODE_NAMES: WatchName<Identity> = WatchName::new("node-names");
/// Nodes by their names.
pub(crate) const BY_NAME: IndexName<Identity> = IndexName::new("name");

#[derive(Debug, Default, View)]
pub(crate) struct Pod {
    pub(crate) metadata: PodMetadata,
    #[view(path = "spec.nodeName")]
    pub(crate) node_name: String,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Default, View)]
pub(crate) struct PodMetadata {
    pub(crate) generation: i64,
    /// RFC 3339 in UTC and whole seconds: it sorts as text.
    pub(crate) creation_timestamp: Option<String>,
    pub(crate) deletion_timestamp: Option<Time>,
}

#[derive(Debug, Default, View)]
pub(crate) struct Node {
    #[view(path = "status.conditions")]
    pub(crate) conditions: Vec<ConditionStatus>,
}

/// A node as the API server has it.
#[derive(Debug, Default, View)]
pub(crate) struct LiveNode {
    #[view(path = "spec.taints")]
    pub(crate) taints: Vec<TaintKey>,
    #[view(path = "status.conditions")]
    pub(crate) conditions: Vec<ConditionStatus>,
}

#[derive(Debug, Default, View)]
pub(crate) struct TaintKey {
    pub(crate) key: String,
}
