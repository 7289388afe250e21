//! The cluster that a story happens in: its objects, its nodes, and their
//! kubelets.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::direct;
use davit_sim::helpers::{act_on_pod, pod_due, renew_lease, report_ready, says_how_it_is};
use davit_sim::model::{DeleteOptions, ListOptions, Model};
use davit_sim::object::Object;
use davit_sim::stored::StoredObject;
use davit_sim::target::Target;
use davit_sim::{Config, Time};
use davit_simulation::World;
use serde_json::{Value, json};

use crate::step::{Create, NODES};

/// The namespace of the story's objects.
pub(crate) const NAMESPACE: &str = "default";
/// How long a kubelet takes to start a pod.
const POD_START: Duration = Duration::from_secs(1);

/// A server with the nodes, and what the controllers need.
pub(crate) fn model(seed: u64, start: Time) -> Result<Model, String> {
    let config = Config {
        seed,
        ..Config::default()
    };
    Model::new(config, start).map_err(|status| status.to_string())
}

/// The objects that a story starts with.
pub(crate) fn fill(world: &mut World) {
    for node in 0..NODES {
        create_node(world, node);
    }
    for server in 0..4 {
        put(
            world,
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": format!("server-{server}"),
                    "namespace": "kube-system",
                    "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"},
                },
            }),
        );
    }
    for resource in 0..3_u64 {
        let entry = |server: u64| {
            json!({
                "apiServerID": format!("server-{server}"),
                "encodingVersion": "v1",
                "decodableVersions": ["v1"],
            })
        };
        put(
            world,
            json!({
                "apiVersion": "internal.apiserver.k8s.io/v1alpha1",
                "kind": "StorageVersion",
                "metadata": {"name": format!("example.com.r{resource}")},
                "spec": {},
                "status": {
                    "storageVersions": (0..=resource + 1).map(entry).collect::<Vec<_>>(),
                },
            }),
        );
    }
}

/// Creates an object, if its name is free.
pub(crate) fn put(world: &mut World, object: Value) -> Option<Value> {
    world
        .with_model(|model, now| direct::create(model, now, object))
        .ok()
}

/// The objects of a kind.
pub(crate) fn list(world: &World, kind: &str) -> Vec<Value> {
    let mut objects = direct::list(world.model(), "v1", kind, "").unwrap_or_default();
    for object in &mut objects {
        object["kind"] = json!(kind);
    }
    objects
}

pub(crate) fn get(world: &World, kind: &str, name: &str) -> Option<Value> {
    let namespace = if kind == "Node" { "" } else { NAMESPACE };
    let mut found = direct::get(world.model(), "v1", kind, namespace, name).ok()?;
    found["kind"] = json!(kind);
    Some(found)
}

/// A node's name.
pub(crate) fn node_name(node: u64) -> String {
    format!("node-{node}")
}

/// A new machine of that name, whose kubelet speaks.
pub(crate) fn create_node(world: &mut World, node: u64) -> bool {
    let labels = json!({"topology.kubernetes.io/zone": format!("zone-{}", node % 2)});
    let metadata = json!({"name": node_name(node), "labels": labels});
    let created = put(
        world,
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata}),
    );
    created.is_some()
}

pub(crate) fn remove_node(world: &mut World, node: u64) -> bool {
    let options = DeleteOptions::default();
    let name = node_name(node);
    let removed = world
        .with_model(|model, now| direct::delete(model, now, ("v1", "Node"), "", &name, &options));
    removed.is_ok()
}

/// Merges into a node, if it is there.
pub(crate) fn patch_node(world: &mut World, node: u64, mut patch: Value) -> bool {
    let name = node_name(node);
    if get(world, "Node", &name).is_none() {
        return false;
    }
    patch["apiVersion"] = json!("v1");
    patch["kind"] = json!("Node");
    patch["metadata"]["name"] = json!(name);
    let patched = world.with_model(|model, now| direct::apply(model, now, patch));
    patched.is_ok()
}

pub(crate) fn delete(world: &mut World, object: &Value, policy: &str) -> bool {
    let options = DeleteOptions {
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    };
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let of = ("v1", kind);
    let deleted =
        world.with_model(|model, now| direct::delete(model, now, of, NAMESPACE, name, &options));
    deleted.is_ok()
}

/// Deletes an object without a grace period. Finalizers may hold it still.
pub(crate) fn remove_at_once(world: &mut World, object: &Value) -> bool {
    let body = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let query = davit_sim::request::Query::default();
    let Ok(options) = DeleteOptions::parse(&query, Some(body)) else {
        return false;
    };
    let of = ("v1", object["kind"].as_str().unwrap_or_default());
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let deleted =
        world.with_model(|model, now| direct::delete(model, now, of, NAMESPACE, name, &options));
    deleted.is_ok()
}

/// A pod or a map as the story wants it.
pub(crate) fn object(create: &Create, owners: &[Value]) -> Value {
    let references: Vec<Value> = owners
        .iter()
        .zip(&create.owners)
        .map(|(owner, (_, blocks))| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": blocks,
            })
        })
        .collect();
    let (kind, prefix) = match create.pod {
        Some(_) => ("Pod", "pod"),
        None => ("ConfigMap", "map"),
    };
    let mut object = json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": format!("{prefix}-{}", create.number),
            "namespace": NAMESPACE,
            "ownerReferences": references,
        },
    });
    if let Some(pod) = create.pod {
        object["spec"] = json!({
            "nodeName": node_name(pod.node),
            "terminationGracePeriodSeconds": pod.grace,
            "containers": [{"name": "main", "image": "example.com/main"}],
        });
        if pod.tolerates {
            object["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        }
    }
    object
}

/// The kubelets of all nodes.
#[derive(Debug, Default)]
pub(crate) struct Kubelets {
    /// The nodes whose kubelets do nothing.
    pub(crate) silent: BTreeSet<String>,
}

impl Kubelets {
    /// What all kubelets do periodically: they renew their nodes' leases, start
    /// the pods that are bound to them, and end those that terminate.
    pub(crate) fn work(&self, world: &mut World) {
        let nodes = all(world.model(), "nodes");
        let speaks = |node: &&Object| !self.silent.contains(&node.metadata.name);
        for node in nodes.iter().filter(speaks) {
            world.with_model(|model, now| {
                // What fails is done with the next heartbeat.
                if !says_how_it_is(node) {
                    let _ = report_ready(model, now, &node.metadata.name);
                }
                let _ = renew_lease(model, now, node);
            });
        }
        let now = world.time();
        for pod in all(world.model(), "pods") {
            let bound = pod.text(&["spec", "nodeName"]);
            let served = nodes
                .iter()
                .filter(speaks)
                .any(|node| node.metadata.name == bound);
            if served && pod_due(&pod, now, POD_START).is_some() {
                world.with_model(|model, now| {
                    let _ = act_on_pod(model, now, &pod);
                });
            }
        }
    }
}

fn all(model: &Model, plural: &str) -> Vec<Object> {
    let Some(resource) = model.resource("", "v1", plural) else {
        return Vec::new();
    };
    let target = Target::new(resource, "", "");
    let page = model.list(&target, &ListOptions::default());
    let items = page.map(|page| page.items).unwrap_or_default();
    let objects = items.iter().map(StoredObject::object);
    objects.filter_map(Result::ok).collect()
}
