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
use davit_simulation::{NAMESPACE as HOSTS, World};
use serde_json::{Value, json};

use crate::event::{Create, Kind, NAMES, NODES, Name, Toleration};

/// The namespace of the story's objects.
pub(crate) const NAMESPACE: &str = "default";
/// The definition of the widgets.
const DEFINITION: &str = "widgets.example.com";
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
    put(world, definition());
    // The host's own namespace, for its leases.
    put(
        world,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HOSTS}}),
    );
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

/// The definition of the widgets, custom resources that own other objects.
fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version(true)],
        },
    })
}

fn version(served: bool) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "name": "v1",
        "served": served,
        "storage": true,
        "schema": {"openAPIV3Schema": schema},
    })
}

/// The server serves the widgets from now on, or it does not. They stay in its store.
pub(crate) fn serve_widgets(world: &mut World, served: bool) {
    let patch = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": DEFINITION},
        "spec": {"versions": [version(served)]},
    });
    let patched = world.with_model(|model, now| direct::apply(model, now, patch));
    debug_assert!(patched.is_ok(), "{patched:?}");
}

/// Whether the server serves the widgets.
pub(crate) fn serves_widgets(world: &World) -> bool {
    let mut resources = world.model().resources().iter();
    resources.any(|resource| resource.kind == "Widget")
}

/// Creates an object, if its name is free.
pub(crate) fn put(world: &mut World, object: Value) -> Option<Value> {
    world
        .with_model(|model, now| direct::create(model, now, object))
        .ok()
}

/// The objects of a kind of API version `v1`.
pub(crate) fn list(world: &World, kind: &str) -> Vec<Value> {
    list_of(world, "v1", kind)
}

/// Everything that a story creates and deletes, besides nodes.
pub(crate) fn list_all(world: &World) -> Vec<Value> {
    let kinds = Kind::ALL.into_iter();
    let objects = kinds.flat_map(|kind| list_of(world, kind.api_version(), kind.kind()));
    objects.collect()
}

fn list_of(world: &World, api_version: &str, kind: &str) -> Vec<Value> {
    let mut objects = direct::list(world.model(), api_version, kind, "").unwrap_or_default();
    for object in &mut objects {
        object["kind"] = json!(kind);
    }
    objects
}

pub(crate) fn get(world: &World, name: Name) -> Option<Value> {
    let (api_version, kind) = (name.kind.api_version(), name.kind.kind());
    let found = direct::get(
        world.model(),
        api_version,
        kind,
        NAMESPACE,
        &name.to_string(),
    );
    let mut found = found.ok()?;
    found["apiVersion"] = json!(api_version);
    found["kind"] = json!(kind);
    Some(found)
}

/// The object of that name, or else the next one of its kind that this applies to.
pub(crate) fn next(
    world: &World,
    name: Name,
    applies: impl Fn(&Value) -> bool,
) -> Option<(Name, Value)> {
    (0..NAMES).find_map(|skipped| {
        let number = (name.number + skipped) % NAMES;
        let name = Name { number, ..name };
        let object = get(world, name).filter(&applies)?;
        Some((name, object))
    })
}

pub(crate) fn get_node(world: &World, node: u64) -> Option<Value> {
    direct::get(world.model(), "v1", "Node", "", &node_name(node)).ok()
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
    if get_node(world, node).is_none() {
        return false;
    }
    patch["apiVersion"] = json!("v1");
    patch["kind"] = json!("Node");
    patch["metadata"]["name"] = json!(name);
    let patched = world.with_model(|model, now| direct::apply(model, now, patch));
    patched.is_ok()
}

pub(crate) fn delete(world: &mut World, name: Name, policy: &str) -> bool {
    let options = DeleteOptions {
        propagation_policy: Some(policy.to_owned()),
        ..DeleteOptions::default()
    };
    delete_with(world, name, &options)
}

/// Deletes an object without a grace period. Finalizers may hold it still.
pub(crate) fn remove_at_once(world: &mut World, name: Name) -> bool {
    let body = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
    let query = davit_sim::request::Query::default();
    let options = DeleteOptions::parse(&query, Some(body));
    options.is_ok_and(|options| delete_with(world, name, &options))
}

fn delete_with(world: &mut World, name: Name, options: &DeleteOptions) -> bool {
    let kind = (name.kind.api_version(), name.kind.kind());
    let name = name.to_string();
    let deleted =
        world.with_model(|model, now| direct::delete(model, now, kind, NAMESPACE, &name, options));
    deleted.is_ok()
}

/// An object as the story wants it.
pub(crate) fn object(create: &Create, owners: &[(Value, bool)]) -> Value {
    let references = owners.iter();
    let references: Vec<Value> = references
        .map(|(owner, blocks)| reference(owner, *blocks))
        .collect();
    let name = create.name;
    let mut object = json!({
        "apiVersion": name.kind.api_version(),
        "kind": name.kind.kind(),
        "metadata": {
            "name": name.to_string(),
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
        let mut toleration = json!({"operator": "Exists"});
        match pod.toleration {
            Toleration::Never => return object,
            Toleration::For(seconds) => toleration["tolerationSeconds"] = json!(seconds),
            Toleration::Forever => {}
        }
        object["spec"]["tolerations"] = json!([toleration]);
    }
    object
}

/// A reference to an owner, which waits for its dependent or does not.
pub(crate) fn reference(owner: &Value, blocks: bool) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    })
}

/// Merges into an object, if it is there.
pub(crate) fn patch(world: &mut World, name: Name, mut patch: Value) -> bool {
    if get(world, name).is_none() {
        return false;
    }
    patch["apiVersion"] = json!(name.kind.api_version());
    patch["kind"] = json!(name.kind.kind());
    patch["metadata"]["name"] = json!(name.to_string());
    patch["metadata"]["namespace"] = json!(NAMESPACE);
    let patched = world.with_model(|model, now| direct::apply(model, now, patch));
    patched.is_ok()
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
