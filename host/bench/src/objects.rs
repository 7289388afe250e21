//! The objects of a large cluster, by number.

use davit_core::object::ApiResource;
use serde_json::{Value, json};

use crate::machine::Objects;

/// What Kubernetes itself supports at most.
pub(crate) const PODS: usize = 150_000;
pub(crate) const NODES: usize = 5_000;
pub(crate) const PODS_OF_A_NODE: usize = PODS / NODES;
/// How many pods a `ReplicaSet` has.
pub(crate) const REPLICAS: usize = 10;
const NAMESPACES: usize = 50;
const SINCE: &str = "2026-11-20T09:52:15Z";

pub(crate) fn pods(count: usize, object: impl Fn(usize) -> Value + 'static) -> Objects {
    Objects {
        resource: ApiResource::new("", "v1", "pods"),
        kind: "Pod",
        namespaced: true,
        count,
        object: Box::new(object),
    }
}

pub(crate) fn nodes(count: usize) -> Objects {
    Objects {
        resource: ApiResource::new("", "v1", "nodes"),
        kind: "Node",
        namespaced: false,
        count,
        object: Box::new(node),
    }
}

/// Nodes with a taint that their pods tolerate for a time.
pub(crate) fn tainted_nodes(count: usize) -> Objects {
    let tainted = |number| {
        let mut node = node(number);
        if let Some(node) = node.as_object_mut() {
            let key = "node.kubernetes.io/unreachable";
            let taints = json!([{"key": key, "effect": "NoExecute"}]);
            node.insert("spec".to_owned(), json!({"taints": taints}));
        }
        node
    };
    Objects {
        object: Box::new(tainted),
        ..nodes(count)
    }
}

pub(crate) fn leases() -> Objects {
    Objects {
        resource: ApiResource::new("coordination.k8s.io", "v1", "leases"),
        kind: "Lease",
        namespaced: true,
        count: NODES,
        object: Box::new(lease),
    }
}

/// The storage versions of a cluster with three API servers, of which the last is gone.
pub(crate) fn storage_versions() -> Objects {
    Objects {
        resource: ApiResource::new("internal.apiserver.k8s.io", "v1alpha1", "storageversions"),
        kind: "StorageVersion",
        namespaced: false,
        count: 100,
        object: Box::new(storage_version),
    }
}

/// The leases of the API servers that exist.
pub(crate) fn api_servers() -> Objects {
    Objects {
        count: 2,
        object: Box::new(|number| {
            let mut lease = lease(number);
            if let Some(metadata) = lease.get_mut("metadata") {
                *metadata = json!({
                    "name": api_server(number), "namespace": "kube-system", "uid": uid(4, number),
                    "resourceVersion": (number + 1).to_string(), "creationTimestamp": SINCE,
                    "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
                });
            }
            lease
        }),
        ..leases()
    }
}

/// No object of a resource that a controller watches.
pub(crate) fn none_of(group: &str, version: &str, plural: &str, kind: &'static str) -> Objects {
    Objects {
        resource: ApiResource::new(group, version, plural),
        kind,
        namespaced: true,
        count: 0,
        object: Box::new(node),
    }
}

/// The namespace and name of a pod. Pods of a namespace follow each other.
pub(crate) fn pod_name(number: usize) -> (String, String) {
    let owner = number / REPLICAS;
    let name = format!("{}-{number:06}", set_name(owner));
    (
        namespace(owner * NAMESPACES * REPLICAS / PODS % NAMESPACES),
        name,
    )
}

pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number:04}")
}

/// The namespaces of the pods.
pub(crate) fn namespaces() -> impl Iterator<Item = String> {
    (0..NAMESPACES).map(namespace)
}

fn namespace(number: usize) -> String {
    format!("team-{number:02}")
}

/// A pod that runs on one of 5,000 nodes; one in twenty has succeeded.
pub(crate) fn pod(number: usize) -> Value {
    pod_on(number, NODES)
}

/// The same on one of so many nodes.
pub(crate) fn pod_on(number: usize, nodes: usize) -> Value {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let conditions =
        conditions.map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": SINCE}));
    let phase = if number.is_multiple_of(20) {
        "Succeeded"
    } else {
        "Running"
    };
    let status = json!({
        "phase": phase, "conditions": conditions, "podIP": "10.244.1.9", "startTime": SINCE,
        "qosClass": "Burstable", "hostIP": "192.0.2.7",
    });
    pod_of(number, SINCE, &node_name(number % nodes), &status)
}

/// The same pod after its change of this number: a condition that controllers read.
pub(crate) fn changed(number: usize, change: usize) -> Value {
    let (namespace, name) = pod_name(number);
    let (hour, minute, second) = (change / 3600 % 24, change / 60 % 60, change % 60);
    let at = format!("2026-11-20T{hour:02}:{minute:02}:{second:02}Z");
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": at});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "status": {"conditions": [ready]},
    })
}

/// A pod that has ended: one in 30 was evicted, and no two are of one age.
pub(crate) fn terminated(number: usize) -> Value {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let conditions =
        conditions.map(|kind| json!({"type": kind, "status": "False", "reason": "PodCompleted"}));
    let status = if number.is_multiple_of(30) {
        json!({"phase": "Failed", "reason": "Evicted", "conditions": conditions})
    } else {
        json!({"phase": "Succeeded", "conditions": conditions})
    };
    pod_of(number, &second(number), &node_of(number), &status)
}

/// A pod that the collector has marked and could not delete, of a node that is missing: none of
/// them counts.
pub(crate) fn marked(number: usize) -> Value {
    let marked = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
        "message": "PodGC: node no longer exists",
    });
    let node = format!("missing-{}", number % 100);
    let status = json!({"phase": "Failed", "conditions": [marked]});
    pod_of(number, &second(number), &node, &status)
}

fn node_of(number: usize) -> String {
    node_name(number % NODES)
}

/// A second of its own for each number, in no order.
fn second(number: usize) -> String {
    let seconds = number * 7_919 % PODS;
    let (minute, hour) = (seconds / 60 % 60, seconds / 3_600);
    let (day, hour, second) = (10 + hour / 24, hour % 24, seconds % 60);
    format!("2026-11-{day}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A pod of some 1.4 kB, with the uid, version and times that a server would set.
fn pod_of(number: usize, created: &str, node: &str, status: &Value) -> Value {
    let (namespace, name) = pod_name(number);
    let owner = number / REPLICAS;
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid(1, number),
            "resourceVersion": (number + 1).to_string(),
            "generation": 1,
            "creationTimestamp": created,
            "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": set_name(owner),
                "uid": uid(3, owner), "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "containers": [{
                "name": "main", "image": "registry.example.com/shop/app:1.26.2",
                "env": [{"name": "LOG_LEVEL", "value": "info"}],
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                 "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists",
                 "effect": "NoExecute", "tolerationSeconds": 300},
            ],
        },
        "status": status,
    })
}

pub(crate) fn node(number: usize) -> Value {
    let condition = |kind, status| {
        json!({
            "type": kind, "status": status, "lastHeartbeatTime": SINCE, "lastTransitionTime": SINCE,
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node_name(number),
            "uid": uid(2, number),
            "resourceVersion": (number + 1).to_string(),
            "creationTimestamp": SINCE,
            "labels": {"topology.kubernetes.io/zone": format!("zone-{}", number % 3)},
        },
        "status": {"conditions": [
            condition("MemoryPressure", "False"), condition("DiskPressure", "False"),
            condition("PIDPressure", "False"), condition("Ready", "True"),
        ]},
    })
}

pub(crate) fn lease(number: usize) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": node_name(number), "namespace": "kube-node-lease", "uid": uid(4, number),
            "resourceVersion": (number + 1).to_string(), "creationTimestamp": SINCE,
        },
        "spec": {
            "holderIdentity": node_name(number), "leaseDurationSeconds": 40,
            "renewTime": "2026-11-20T09:52:15.000000Z",
        },
    })
}

pub(crate) fn replica_set(number: usize) -> Value {
    let (namespace, _) = pod_name(number * REPLICAS);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": set_name(number), "namespace": namespace, "uid": uid(3, number),
            "resourceVersion": (number + 1).to_string(), "creationTimestamp": SINCE,
        },
        "spec": {"replicas": REPLICAS},
    })
}

fn storage_version(number: usize) -> Value {
    let versions = (0..3).map(|server| {
        json!({
            "apiServerID": api_server(server), "encodingVersion": "v1",
            "decodableVersions": ["v1"], "servedVersions": ["v1"],
        })
    });
    let versions: Vec<Value> = versions.collect();
    json!({
        "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
        "kind": "StorageVersion",
        "metadata": {
            "name": format!("example{number:03}.com.things"), "uid": uid(5, number),
            "resourceVersion": (number + 1).to_string(), "creationTimestamp": SINCE,
        },
        "spec": {},
        "status": {
            "storageVersions": versions, "commonEncodingVersion": "v1",
            "conditions": [{
                "type": "AllEncodingVersionsEqual", "status": "True", "observedGeneration": 1,
                "lastTransitionTime": SINCE, "reason": "CommonEncodingVersionSet",
                "message": "Common encoding version set",
            }],
        },
    })
}

fn api_server(number: usize) -> String {
    format!("apiserver-{number:026}")
}

fn set_name(number: usize) -> String {
    format!("web-{number:05}")
}

fn uid(kind: usize, number: usize) -> String {
    let scattered = (number * 0x9e37_79b9) & 0xffff_ffff;
    format!("{scattered:08x}-{kind:04x}-4000-8000-{number:012x}")
}
