//! A cluster for the tests: nodes whose kubelets renew leases and post their
//! status, or do not.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a helper of tests"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::testing::{Harness, Pod};
use davit_guest::{Command, Step, Time};
use node_eviction::{MONITOR, NodeEviction, PASS};
use serde_json::{Value, json};

/// How often a kubelet renews its lease, and posts its status if it does.
const HEARTBEAT: Duration = Duration::from_secs(10);

pub(crate) struct Cluster {
    pub(crate) harness: Harness<NodeEviction>,
    /// The nodes that renew their leases.
    renewing: BTreeSet<String>,
    /// The nodes that post their status.
    posting: BTreeSet<String>,
    until_beat: Duration,
}

/// A zone's label on a node.
pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// The zone as metrics name it.
pub(crate) fn zone(name: &str) -> String {
    format!(":\0:{name}")
}

impl Cluster {
    pub(crate) fn new(config: &Value) -> Self {
        Self {
            harness: Harness::new(config).expect("a valid configuration"),
            renewing: BTreeSet::new(),
            posting: BTreeSet::new(),
            until_beat: HEARTBEAT,
        }
    }

    /// A cluster with a healthy node in a zone of its own.
    pub(crate) fn with_witness() -> Self {
        let mut cluster = Self::new(&Value::Null);
        cluster.well("witness", "elsewhere");
        cluster
    }

    /// Adds a node, by its zone and the status of its condition `Ready`, if it
    /// has one. It sends no heartbeat by itself.
    pub(crate) fn node(&mut self, name: &str, zone: &str, ready: Option<&str>) {
        let conditions: Vec<Value> = ready
            .map(|status| json!({"type": "Ready", "status": status, "lastHeartbeatTime": self.now()}))
            .into_iter()
            .collect();
        self.harness.put(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {ZONE: zone}},
            "status": {"conditions": conditions},
        }));
    }

    /// Adds a node that is ready and renews its lease.
    pub(crate) fn well(&mut self, name: &str, zone: &str) {
        self.node(name, zone, Some("True"));
        self.renew(name);
    }

    /// From now on, the node renews its lease.
    pub(crate) fn renew(&mut self, name: &str) {
        self.renewing.insert(name.to_owned());
        self.put_lease(name);
    }

    /// From now on, the node does not renew its lease.
    pub(crate) fn stop_renewing(&mut self, name: &str) {
        self.renewing.remove(name);
    }

    /// From now on, the node posts its status.
    pub(crate) fn post(&mut self, name: &str) {
        self.posting.insert(name.to_owned());
    }

    /// The kubelet stops just after a heartbeat.
    pub(crate) fn silence(&mut self, name: &str) {
        if self.renewing.remove(name) {
            self.put_lease(name);
        }
        if self.posting.remove(name) {
            self.put_status(name);
        }
    }

    /// Changes the node, as another client does.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.harness.object("Node", name).expect("the node");
        change(&mut node);
        self.harness.put(node);
    }

    /// Sets the condition `Ready`, as the kubelet does.
    pub(crate) fn set_ready(&mut self, name: &str, status: &str) {
        let now = self.now();
        self.change(name, |node| {
            node["status"]["conditions"] =
                json!([{"type": "Ready", "status": status, "lastHeartbeatTime": now}]);
        });
    }

    /// Sets the condition `Ready`, as node-lifecycle does: without a heartbeat.
    pub(crate) fn declare(&mut self, name: &str, status: &str) {
        self.change(name, |node| {
            node["status"]["conditions"][0]["status"] = json!(status);
        });
    }

    pub(crate) fn put_lease(&mut self, name: &str) {
        let now = self.now();
        self.harness.put(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "namespace": "kube-node-lease"},
            "spec": {"renewTime": now.replace('Z', ".000000Z")},
        }));
    }

    fn put_status(&mut self, name: &str) {
        let now = self.now();
        self.change(name, |node| {
            let conditions = node["status"]["conditions"].as_array_mut();
            for condition in conditions.into_iter().flatten() {
                condition["lastHeartbeatTime"] = json!(now);
            }
        });
    }

    /// Advances by that many seconds, with heartbeats.
    pub(crate) fn pass(&mut self, seconds: u64) {
        let mut left = Duration::from_secs(seconds);
        while !left.is_zero() {
            let step = left.min(self.until_beat);
            self.harness.advance(step);
            left -= step;
            self.until_beat -= step;
            if self.until_beat.is_zero() {
                self.until_beat = HEARTBEAT;
                self.beat();
            }
        }
    }

    fn beat(&mut self) {
        for name in self.renewing.clone() {
            self.put_lease(&name);
        }
        for name in self.posting.clone() {
            self.put_status(&name);
        }
    }

    /// Adds a pod that stays until a kubelet reports its end.
    pub(crate) fn pod(&mut self, name: &str, node: &str) {
        self.pod_with(name, node, |_| {});
    }

    pub(crate) fn pod_with(&mut self, name: &str, node: &str, change: impl FnOnce(&mut Value)) {
        let pod = Pod::new(name)
            .node(node)
            .set("/metadata/finalizers", json!(["test/kubelet"]))
            .conditions(json!([{"type": "Ready", "status": "True"}]));
        let mut pod = Value::from(pod);
        change(&mut pod);
        self.harness.put(pod);
    }

    pub(crate) fn get(&self, name: &str) -> Value {
        let pod = self.harness.object("Pod", &format!("default/{name}"));
        pod.unwrap_or_else(|| panic!("the pod {name} is gone"))
    }

    pub(crate) fn is_evicted(&self, name: &str) -> bool {
        let metadata = &self.get(name)["metadata"];
        metadata.get("deletionTimestamp").is_some()
    }

    /// The evicted pods in the namespace `default`.
    pub(crate) fn evicted(&self) -> Vec<String> {
        let pods = self.harness.keys("Pod").into_iter();
        pods.filter_map(|key| Some(key.strip_prefix("default/")?.to_owned()))
            .filter(|name| self.is_evicted(name))
            .collect()
    }

    /// Asserts that the pod is evicted after that many seconds, and not before.
    #[track_caller]
    pub(crate) fn assert_evicted_after(&mut self, pod: &str, seconds: u64) {
        self.pass(seconds - 1);
        assert!(!self.is_evicted(pod), "{pod} is evicted before {seconds} s");
        self.pass(1);
        assert!(
            self.is_evicted(pod),
            "{pod} is not evicted after {seconds} s"
        );
    }

    /// Asserts that nothing is written for that many seconds.
    #[track_caller]
    pub(crate) fn assert_quiet(&mut self, seconds: u64) {
        self.pass(seconds);
        let done: Vec<_> = self.harness.executions().iter().collect();
        assert!(done.is_empty(), "{done:?}");
    }

    /// The rates that a pass sets, by zone.
    pub(crate) fn rates(&self) -> BTreeMap<String, f64> {
        let commands = self.harness.decide(MONITOR, PASS).commands.into_iter();
        commands
            .filter_map(|command| match command {
                Command::SetRate(it) => Some((it.group.replace(":\0:", ""), it.per_second)),
                _ => None,
            })
            .collect()
    }

    /// Asserts a zone's rate and its metrics.
    #[track_caller]
    pub(crate) fn assert_zone(&self, name: &str, rate: f64, size: f64, unhealthy: f64) {
        let found = self
            .rates()
            .get(name)
            .copied()
            .expect("the zone has a rate");
        assert!(
            (found - rate).abs() < 1e-9,
            "{name}: the rate is {found}, not {rate}"
        );
        let label = zone(name);
        let health = 100.0 * (size - unhealthy) / size;
        for (metric, expected) in [
            ("node_collector_zone_size", size),
            ("node_collector_unhealthy_nodes_in_zone", unhealthy),
            ("node_collector_zone_health", health),
        ] {
            let found = self.harness.metric(metric, &[&label]);
            assert!(
                (found - expected).abs() < 1e-9,
                "{name}: {metric} is {found}, not {expected}"
            );
        }
    }

    pub(crate) fn evictions(&self, name: &str) -> f64 {
        self.harness
            .metric("node_collector_evictions_total", &[&zone(name)])
    }

    /// The events on objects of a kind: the object's name, the event's type,
    /// reason and message.
    pub(crate) fn events(&self, kind: &str) -> Vec<(String, String, String, String)> {
        let plans = self.harness.executions().iter();
        plans
            .filter(|done| done.result.is_ok() && done.plan.target.kind == kind)
            .flat_map(|done| {
                let name = done.plan.target.name.clone();
                done.plan.steps.iter().filter_map(move |step| match step {
                    Step::Event(it) => Some((
                        name.clone(),
                        it.event_type.clone(),
                        it.reason.clone(),
                        it.message.clone(),
                    )),
                    _ => None,
                })
            })
            .collect()
    }

    pub(crate) fn now(&self) -> String {
        Time::from(self.harness.now()).to_string()
    }
}
