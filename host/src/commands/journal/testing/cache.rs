//! The state of a host whose guest watches pods, with their owners and nodes.

use std::collections::BTreeMap;

use davit_core::journal::Entry;
use davit_core::mapping::Mapping;
use davit_core::object::{ApiResource, ProjectedObject, Uid};
use davit_core::path::FieldPath;
use davit_core::store::{SegmentId, SegmentSpec, Store, ViewId, ViewSpec};
use davit_core::time::Instant;
use serde_json::Value;

use super::podgc;
use crate::commands::print::text_at;

/// The state of a host with these objects, as its journal starts with it.
pub(in crate::commands) fn keyframe(objects: &[Value]) -> Vec<(u32, Entry)> {
    Cache::of(objects).keyframe()
}

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
            ..ViewSpec::default()
        });
        let spec = SegmentSpec::new(resource, kind, kind != "Node");
        let segment = self.store.attach(view, &spec, &mut Vec::new()).unwrap();
        self.views.insert(name.to_owned(), view);
        self.segments.insert(kind.to_owned(), segment);
    }

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
    let text = |pointer| text_at(object, pointer);
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
