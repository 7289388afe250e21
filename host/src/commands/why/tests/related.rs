//! What an object depends on, as the guest saw it.

use davit_core::journal::SnapshotReads;
use serde_json::{Value, json};

use super::*;
use crate::commands::journal::testing::keyframe;

/// The pod `web` in this cache, and what a guest saw that decided about it.
fn decided(objects: &[Value]) -> Vec<ObjectStory> {
    let mut answer = answer(7, vec![]);
    if let Entry::Answer(answer) = &mut answer {
        answer.reads = Some(SnapshotReads::default());
    }
    let call = call(7, "podgc", "pods", "default/web");
    let entries = keyframe(objects)
        .into_iter()
        .chain([(2, call), (3, answer)]);
    stories("pod", "default/web", entries)
}

/// A pod of this spec with two owners. No watch has the second one.
fn web(spec: &Value) -> Value {
    let owner = |kind: &str, name: &str, uid: &str| json!({"kind": kind, "name": name, "uid": uid});
    json!({
        "kind": "Pod",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "u",
            "ownerReferences": [owner("ReplicaSet", "web", "u-web"), owner("Job", "web", "u-job")],
        },
        "spec": spec,
    })
}

#[test]
fn a_decision_has_what_the_guest_saw_of_the_objects_owners_and_of_its_node() {
    let metadata = json!({"name": "web", "namespace": "default", "uid": "u-web"});
    let spec = json!({"replicas": 3});
    let owner = json!({"metadata": metadata, "spec": spec});
    let node = json!({
        "metadata": {"name": "n1", "uid": "u-n1"}, "spec": {"taints": [{"key": "gone"}]},
    });
    let with_kind = |object: &Value, kind: &str| {
        let mut object = object.clone();
        object["kind"] = kind.into();
        object
    };
    let stories = decided(&[
        web(&json!({"nodeName": "n1"})),
        with_kind(&owner, "ReplicaSet"),
        with_kind(&node, "Node"),
    ]);
    let page = serde_json::to_value(&stories).unwrap();
    let saw = &page[0]["decisions"][0]["saw"];
    assert_eq!(
        saw["related"],
        json!([
            {"relation": "owner", "kind": "ReplicaSet", "name": "web", "fields": owner},
            {"relation": "owner", "kind": "Job", "name": "web", "fields": null},
            {"relation": "node", "kind": "Node", "name": "n1", "fields": node},
        ]),
        "{page:#}"
    );
    let said = text::text(&stories);
    for line in [
        format!("\n  owner ReplicaSet web: {owner}\n"),
        "\n  owner Job web: not in its watches\n".to_owned(),
        format!("\n  node Node n1: {node}\n"),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
}

/// An orphan has a node that is gone, and a pending pod has none.
#[test]
fn a_node_that_is_gone_is_named_without_fields_and_a_pending_pod_has_none() {
    for (spec, node) in [
        (
            json!({"nodeName": "n2"}),
            Some(json!({"relation": "node", "kind": "Node", "name": "n2", "fields": null})),
        ),
        (json!({}), None),
    ] {
        let page = serde_json::to_value(decided(&[web(&spec)])).unwrap();
        let related = page[0]["decisions"][0]["saw"]["related"].as_array();
        let related = related.unwrap().iter();
        let mut nodes = related.filter(|one| one["relation"] == "node");
        assert_eq!(nodes.next(), node.as_ref(), "{page:#}");
    }
}
