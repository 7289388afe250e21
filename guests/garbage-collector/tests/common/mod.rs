//! A cluster for the collector's tests.

#![allow(
    dead_code,
    reason = "every test file is a crate that uses only some of this"
)]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a helper of tests"
)]

use davit_guest::testing::Harness;
use davit_guest::{Decision, Instant, Step, UnlistedResource};
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
    let mut object = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "uid": name, "ownerReferences": owners},
    });
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

/// A resource that the cache does not cover since then.
pub(crate) fn unlisted(group: &str, plural: &str, since: Instant) -> UnlistedResource {
    UnlistedResource {
        group: group.to_owned(),
        plural: plural.to_owned(),
        since,
        reason: "it is not served at the moment".to_owned(),
    }
}

pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    object["metadata"][field] = value;
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
