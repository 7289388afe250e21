//! A store for the tests of other modules.

use super::{SegmentId, SegmentSpec, Store, ViewId, ViewKey, ViewSpec};
use crate::object::{ApiResource, Kind};
use crate::time::Instant;

/// All pods of a cluster, listed, in one view that reads no fields: the store keeps
/// what a test puts into it.
pub(crate) fn pods() -> (Store, ViewId, SegmentId) {
    let view = ViewSpec {
        fields: [].into_iter().collect(),
        hidden: crate::path::FieldTree::default(),
        indexes: vec![],
        key: ViewKey::Name,
    };
    pods_as(view)
}

/// All pods of a cluster, listed; there are none yet.
pub(crate) fn pods_as(view: ViewSpec) -> (Store, ViewId, SegmentId) {
    let mut store = Store::default();
    let view = store.add_view(view);
    let spec = SegmentSpec {
        resource: ApiResource::new("", "v1", "pods"),
        kind: Kind {
            api_version: "v1".into(),
            kind: "Pod".into(),
        },
        namespaced: true,
        namespace: String::new(),
        label_selector: String::new(),
        field_selector: String::new(),
    };
    let segment = store.attach(view, &spec, &mut Vec::new()).unwrap();
    let fields = store.segment_fields(segment).unwrap().clone();
    store
        .replace(segment, fields, [], Instant::ZERO, &mut Vec::new())
        .unwrap();
    (store, view, segment)
}
