//! What an object depends on, as the guest saw it.

use std::collections::BTreeMap;

use davit_core::journal::SnapshotReads;
use davit_core::mapping::Mapping;
use davit_core::object::{ApiResource, Kind, ProjectedObject, Uid};
use davit_core::path::{FieldPath, FieldTree};
use davit_core::store::{SegmentId, SegmentSpec, Store, ViewId, ViewKey, ViewSpec};
use davit_core::time::Instant;
use serde_json::{Value, json};

use super::*;
use crate::commands::journal::testing::podgc;

/// A resource and its kind.
type ResourceFunction = fn() -> (ApiResource, &'static str);

/// The watches of a guest: their names, resources and fields.
const WATCHES: [(&str, ResourceFunction, &[&str]); 5] = [
    // Like those of PodGC: the first watch of a resource has no fields.
    ("node-names", nodes, &[]),
    ("nodes", nodes, &["spec.taints"]),
    ("owners", replica_sets, &["spec.replicas"]),
    ("pod-names", pods, &[]),
    (
        "pods",
        pods,
        &["spec.nodeName", "metadata.ownerReferences", "status.phase"],
    ),
];

fn nodes() -> (ApiResource, &'static str) {
    (ApiResource::new("", "v1", "nodes"), "Node")
}

fn pods() -> (ApiResource, &'static str) {
    (ApiResource::new("", "v1", "pods"), "Pod")
}

fn replica_sets() -> (ApiResource, &'static str) {
    (ApiResource::new("apps", "v1", "replicasets"), "ReplicaSet")
}

/// The cache of a host with those watches, and with objects.
#[derive(Default)]
struct Cache {
    store: Store,
    views: BTreeMap<String, ViewId>,
    segments: BTreeMap<String, SegmentId>,
}

impl Cache {
    fn of(objects: &[Value]) -> Self {
        let mut cache = Self::default();
        cache.store.start_log();
        for (name, resource, fields) in WATCHES {
            let (resource, kind) = resource();
            cache.watch(name, resource, kind, fields);
        }
        for (kind, segment) in &cache.segments {
            let fields = cache.store.segment_fields(*segment).unwrap().clone();
            let items = objects.iter().filter(|object| object["kind"] == **kind);
            let items = items.map(projected);
            let listed =
                cache
                    .store
                    .replace(*segment, fields, items, Instant::ZERO, &mut Vec::new());
            listed.unwrap();
        }
        cache
    }

    fn watch(&mut self, name: &str, resource: ApiResource, kind: &str, fields: &[&str]) {
        let paths: Vec<FieldPath> = fields.iter().map(|path| path.parse().unwrap()).collect();
        let view = self.store.add_view(ViewSpec {
            fields: paths.iter().collect(),
            hidden: FieldTree::default(),
            indexes: vec![],
            key: ViewKey::Name,
        });
        let spec = SegmentSpec {
            kind: Kind {
                api_version: resource.api_version().into(),
                kind: kind.into(),
            },
            resource,
            namespaced: kind != "Node",
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
        };
        let segment = self.store.attach(view, &spec, &mut Vec::new()).unwrap();
        self.views.insert(name.to_owned(), view);
        self.segments.insert(kind.to_owned(), segment);
    }

    /// The state of the host, as its journal starts with it.
    fn keyframe(mut self) -> Vec<(u32, Entry)> {
        let state = self.store.take_log().into_iter().map(Entry::Cache);
        let before = [Entry::Keyframe { is_start: true }];
        let after = [
            Entry::Mapping(Mapping::default().into()),
            Entry::Controller(podgc(self.views).into()),
            Entry::KeyframeEnd,
        ];
        let entries = before.into_iter().chain(state).chain(after);
        entries.map(|entry| (1, entry)).collect()
    }
}

/// What a list has of an object. The fields of the object are those that are watched.
fn projected(object: &Value) -> ProjectedObject {
    let text = |pointer| crate::commands::print::text_at(object, pointer);
    let mut data = object.clone();
    data.as_object_mut().unwrap().remove("kind");
    ProjectedObject {
        namespace: text("/metadata/namespace").into(),
        name: text("/metadata/name").into(),
        uid: Uid::new(text("/metadata/uid")),
        resource_version: "1".into(),
        data: rmp_serde::to_vec_named(&data).unwrap().into(),
    }
}

/// The pod `web` in this cache, and what a guest saw that decided about it.
fn decided(objects: &[Value]) -> Vec<ObjectStory> {
    let mut answer = answer(7, vec![]);
    if let Entry::Answer(answer) = &mut answer {
        answer.reads = Some(SnapshotReads::default());
    }
    let call = call(7, "podgc", "pods", "default/web");
    let keyframe = Cache::of(objects).keyframe();
    let entries = keyframe.into_iter().chain([(2, call), (3, answer)]);
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
