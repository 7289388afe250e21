//! A cluster for the collector's tests.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a helper of tests"
)]

use davit_guest::testing::{Harness, Pod};
use davit_guest::{Decision, Step};
use garbage_collector::GarbageCollector;
use serde_json::{Value, json};

pub(crate) type Gc = Harness<GarbageCollector>;

pub(crate) fn harness(config: &Value) -> Gc {
    Harness::new(config).expect("a valid configuration")
}

/// A collector with its defaults.
pub(crate) fn collector() -> Gc {
    harness(&json!({}))
}

/// An object of the namespace `default`, or cluster-scoped with an empty one.
/// Its uid is its name.
pub(crate) fn object(
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    owners: &[Value],
) -> Value {
    let mut object = match kind {
        "Pod" => Pod::new(name).into(),
        _ => json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}),
    };
    set(&mut object, "uid", json!(name));
    set(&mut object, "ownerReferences", json!(owners));
    if !namespace.is_empty() {
        set(&mut object, "namespace", json!(namespace));
    }
    object
}

pub(crate) fn pod(name: &str, owners: &[Value]) -> Value {
    object("v1", "Pod", "default", name, owners)
}

/// A reference by coordinates and uid.
pub(crate) fn owner(api_version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid})
}

/// A reference to a pod with that name. Its uid is its name.
pub(crate) fn to_pod(name: &str) -> Value {
    owner("v1", "Pod", name, name)
}

/// The same reference, blocking or not.
pub(crate) fn blocking(mut reference: Value, blocks: bool) -> Value {
    reference["blockOwnerDeletion"] = json!(blocks);
    reference
}

/// A terminating object with its finalizers.
pub(crate) fn terminating(mut object: Value, finalizers: &[&str]) -> Value {
    set(
        &mut object,
        "deletionTimestamp",
        json!("2026-11-20T10:00:00Z"),
    );
    set(&mut object, "finalizers", json!(finalizers));
    object
}

/// A custom resource `Foo`, whose watch is interrupted from now on.
pub(crate) fn interrupt_foos(harness: &mut Gc) {
    harness.put(object("example.com/v1", "Foo", "default", "witness", &[]));
    harness.interrupt("Foo");
}

/// The API server stops serving a version of the custom resource `Foo`. Its objects stay.
pub(crate) fn stop_serving_foos(harness: &mut Gc, version: &str) {
    let definition = harness.object("CustomResourceDefinition", "foos.example.com");
    let mut definition = definition.expect("the definition");
    let versions = definition["spec"]["versions"].as_array_mut();
    for served in versions.expect("versions") {
        if served["name"] == version {
            served["served"] = json!(false);
        }
    }
    harness.put(definition);
}

pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    object["metadata"][field] = value;
}

/// The version of an object of the namespace `default`.
pub(crate) fn version(harness: &Gc, kind: &str, name: &str) -> Value {
    let object = harness.object(kind, &format!("default/{name}"));
    object.expect("the object")["metadata"]["resourceVersion"].clone()
}

/// The body of a decision's only patch, with its kind.
#[track_caller]
pub(crate) fn patch(decision: &Decision) -> (String, Value) {
    let [plan] = &decision.plans[..] else {
        panic!("{decision:?}");
    };
    let mut patches = plan.steps.iter().filter_map(|step| match step {
        Step::Patch(patch) => Some(patch),
        _ => None,
    });
    let patch = patches.next().expect("a patch");
    let body = rmp_serde::from_slice(&patch.body).expect("MessagePack");
    (patch.kind.clone(), body)
}
