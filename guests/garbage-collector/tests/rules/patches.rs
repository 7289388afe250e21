//! The patches, to the byte where Kubernetes' own tests define them.

use davit_guest::FailureClass;
use garbage_collector::{OBJECTS_QUEUE, OWNERS};
use serde_json::{Value, json};

use crate::common::{
    blocking, collector, object, owner, patch, pod, set, terminating, to_pod, version,
};

/// `TestDeleteOwnerRefPatch`
#[test]
fn gc_11_two_of_three_references_are_removed() {
    let mut harness = collector();
    harness.put(pod("2", &[]));
    let references = [to_pod("1"), to_pod("2"), to_pod("3")];
    harness.put(pod("100", &references));
    let (kind, body) = patch(&harness.decide(OBJECTS_QUEUE, "100"));
    assert_eq!(kind, "strategic-merge");
    // The host adds the uid. The version keeps the last owner from being
    // removed if the others go meanwhile.
    assert_eq!(
        body,
        json!({"metadata": {"resourceVersion": version(&harness, "Pod", "100"), "ownerReferences": [
            {"$patch": "delete", "uid": "1"}, {"$patch": "delete", "uid": "3"},
        ]}})
    );
    harness.run();
    let object = harness.object("Pod", "default/100").unwrap();
    assert_eq!(object["metadata"]["ownerReferences"], json!([to_pod("2")]));
}

/// References to absent owners come before references to waiting ones.
#[test]
fn the_order_is_that_of_kubernetes() {
    let mut harness = collector();
    harness.put(pod("solid", &[]));
    harness.put(terminating(pod("waiting", &[]), &["foregroundDeletion"]));
    let references = [to_pod("waiting"), to_pod("solid"), to_pod("absent")];
    harness.put(pod("child", &references));
    let (_, body) = patch(&harness.decide(OBJECTS_QUEUE, "child"));
    let removals = &body["metadata"]["ownerReferences"];
    let uids: Vec<&Value> = removals
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["uid"])
        .collect();
    assert_eq!(uids, ["absent", "waiting"]);
}

/// `TestUnblockOwnerReference`: references that block are unblocked, others are
/// kept as they are.
#[test]
fn gc_12_only_blocking_references_are_unblocked() {
    let mut harness = collector();
    let mut first = blocking(to_pod("1"), true);
    first["controller"] = json!(true);
    let references = [first, blocking(to_pod("2"), false), to_pod("3")];
    harness.put(pod("100", &references));
    for (name, back) in [
        ("1", vec![blocking(to_pod("100"), true)]),
        ("2", vec![]),
        ("3", vec![]),
    ] {
        harness.put(terminating(pod(name, &back), &["foregroundDeletion"]));
    }
    let (kind, body) = patch(&harness.decide(OBJECTS_QUEUE, "100"));
    assert_eq!(kind, "strategic-merge");
    assert_eq!(
        body,
        json!({"metadata": {"resourceVersion": version(&harness, "Pod", "100"), "ownerReferences": [{
            "apiVersion": "v1", "kind": "Pod", "name": "1", "uid": "1",
            "controller": true, "blockOwnerDeletion": false,
        }]}})
    );
}

/// `TestGeneratePatchBytesForDelete`: the structure, uids that need escaping,
/// several owners, and the removal of a finalizer.
#[test]
fn gc_51_the_bodies_of_patches_match_kubernetes() {
    for uids in [&["simple"][..], &["esca\"ped\\"], &["one", "two", "three"]] {
        let mut harness = collector();
        harness.put(pod("solid", &[]));
        let mut references: Vec<Value> = uids
            .iter()
            .map(|uid| owner("v1", "Pod", "gone", uid))
            .collect();
        references.push(to_pod("solid"));
        let mut dependent = pod("dependent", &references);
        set(&mut dependent, "uid", json!("dependent\"s uid"));
        harness.put(dependent);
        let (_, body) = patch(&harness.decide(OBJECTS_QUEUE, "dependent\"s uid"));
        let removals: Vec<Value> = uids
            .iter()
            .map(|uid| json!({"$patch": "delete", "uid": uid}))
            .collect();
        let version = version(&harness, "Pod", "dependent");
        assert_eq!(
            body,
            json!({"metadata": {"resourceVersion": version, "ownerReferences": removals}})
        );
    }
    for (finalizers, left) in [
        (json!(["orphan"]), json!(null)),
        (json!(["orphan", "x/y"]), json!(["x/y"])),
        (json!(["a", "foregroundDeletion", "b"]), json!(["a", "b"])),
    ] {
        let mut harness = collector();
        let mut owner = terminating(pod("owner", &[]), &[]);
        set(&mut owner, "finalizers", finalizers);
        harness.put(owner);
        let version = version(&harness, "Pod", "owner");
        let (kind, body) = patch(&harness.decide(OWNERS, "owner"));
        assert_eq!(kind, "merge");
        assert_eq!(
            body,
            json!({"metadata": {"resourceVersion": version, "finalizers": left}})
        );
    }
}

/// A resource that refuses strategic merge patches gets the whole list, with
/// the version that it was made from; the next object of its kind gets it
/// immediately.
#[test]
fn an_object_that_refuses_a_strategic_merge_patch_gets_the_whole_list() {
    let mut harness = collector();
    let foo =
        |name: &str, owners: &[Value]| object("example.com/v1", "Foo", "default", name, owners);
    harness.put(pod("solid", &[]));
    let mut kept = blocking(to_pod("solid"), true);
    kept["controller"] = json!(true);
    let references = [kept.clone(), to_pod("gone")];
    harness.put(foo("first", &references));
    harness.run();
    let refused = harness.executions()[0].result.as_ref();
    assert_eq!(refused.unwrap_err().1.class, FailureClass::UnsupportedMedia);
    harness.advance(std::time::Duration::from_secs(1));
    let first = harness.object("Foo", "default/first").unwrap();
    assert_eq!(first["metadata"]["ownerReferences"], json!([kept]));
    harness.put(foo("second", &references));
    let version = version(&harness, "Foo", "second");
    let (kind, body) = patch(&harness.decide(OBJECTS_QUEUE, "second"));
    assert_eq!(kind, "merge");
    assert_eq!(
        body,
        json!({"metadata": {"resourceVersion": version, "ownerReferences": [kept]}})
    );
    // Another kind is unknown.
    harness.put(pod("third", &references));
    assert_eq!(
        patch(&harness.decide(OBJECTS_QUEUE, "third")).0,
        "strategic-merge"
    );
}

/// Of two references with one uid, of which only one is right, only the wrong
/// one is removed: a strategic merge patch would remove both.
#[test]
fn a_right_reference_stays_beside_a_wrong_one_with_its_uid() {
    let mut harness = collector();
    harness.put(pod("solid", &[]));
    let wrong = owner("v1", "Pod", "wrong", "solid");
    harness.put(pod("child", &[wrong, to_pod("solid")]));
    harness.run();
    let child = harness.object("Pod", "default/child").unwrap();
    assert_eq!(
        child["metadata"]["ownerReferences"],
        json!([to_pod("solid")])
    );
}
