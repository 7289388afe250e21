//! What the guest reads of the cluster.

use std::collections::BTreeMap;

use davit_guest::pod::PodStatus;
use davit_guest::views::ConditionStatus;
use davit_guest::{IndexName, LabelSelector, Time, View, WatchName};

pub(crate) const NODES: WatchName<Node> = WatchName::new("nodes");

/// Nodes again, with the times in their conditions: a watch of its own, so that
/// a heartbeat is not a change of the other watch.
pub(crate) const HEARTBEATS: WatchName<Heartbeats> = WatchName::new("heartbeats");

/// The leases of nodes. The last change of a lease is the last time that its
/// node was known to be alive.
pub(crate) const LEASES: WatchName<Lease> = WatchName::new("leases");
/// The namespace of the nodes' leases.
pub(crate) const LEASE_NAMESPACE: &str = "kube-node-lease";

pub(crate) const PODS: WatchName<Pod> = WatchName::new("pods");
/// Pods by the name of their node.
pub(crate) const BY_NODE: IndexName<Pod> = IndexName::new("node");

pub(crate) const DAEMON_SETS: WatchName<DaemonSet> = WatchName::new("daemonsets");
/// `DaemonSet`s by their namespace.
pub(crate) const BY_NAMESPACE: IndexName<DaemonSet> = IndexName::new("namespace");

#[derive(Debug, Default, View)]
pub(crate) struct Node {
    #[view(path = "metadata.labels")]
    pub(crate) labels: NodeLabels,
    #[view(path = "spec.taints")]
    pub(crate) taints: Vec<Taint>,
    #[view(path = "status.conditions")]
    pub(crate) conditions: Vec<ConditionStatus>,
}

#[derive(Debug, Default, View)]
pub(crate) struct NodeLabels {
    #[view(rename = "failure-domain.beta.kubernetes.io/region")]
    pub(crate) beta_region: String,
    #[view(rename = "failure-domain.beta.kubernetes.io/zone")]
    pub(crate) beta_zone: String,
    #[view(rename = "topology.kubernetes.io/region")]
    pub(crate) region: String,
    #[view(rename = "topology.kubernetes.io/zone")]
    pub(crate) zone: String,
    #[view(rename = "node.kubernetes.io/exclude-disruption")]
    pub(crate) exclude_disruption: Option<String>,
}

#[derive(Debug, Default, View)]
pub(crate) struct Taint {
    pub(crate) key: String,
    pub(crate) effect: String,
}

#[derive(Debug, Default, View)]
pub(crate) struct Heartbeats {
    #[view(path = "status.conditions")]
    pub(crate) conditions: Vec<Heartbeat>,
}

#[derive(Debug, Default, View)]
pub(crate) struct Heartbeat {
    pub(crate) r#type: String,
    pub(crate) last_heartbeat_time: Option<Time>,
    pub(crate) last_transition_time: Option<Time>,
}

#[derive(Debug, Default, View)]
pub(crate) struct Lease {
    #[view(path = "spec.renewTime")]
    pub(crate) renew_time: String,
}

#[derive(Debug, Default, View)]
pub(crate) struct Pod {
    pub(crate) metadata: PodMetadata,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Default, View)]
pub(crate) struct PodMetadata {
    /// Only the API server's copy of a static pod has it.
    #[view(path = "annotations[\"kubernetes.io/config.mirror\"]")]
    pub(crate) mirror: Option<String>,
    pub(crate) deletion_timestamp: Option<Time>,
    pub(crate) generation: i64,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) owner_references: Vec<Owner>,
}

#[derive(Debug, Default, View)]
pub(crate) struct Owner {
    pub(crate) controller: bool,
    pub(crate) kind: String,
}

#[derive(Debug, Default, View)]
pub(crate) struct DaemonSet {
    #[view(path = "spec.selector")]
    pub(crate) selector: LabelSelector,
}
