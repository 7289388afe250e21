//! A store for the tests of other modules.

use super::{SegmentId, SegmentSpec, Store, ViewId, ViewSpec};
use crate::object::ApiResource;
use crate::time::Instant;

/// All pods of a cluster, listed, in one view that reads no fields: the store keeps
/// what a test puts into it.
pub(crate) fn pods() -> (Store, ViewId, SegmentId) {
    let view = ViewSpec::default();
    pods_as(view)
}

/// All pods of a cluster, listed; there are none yet.
pub(crate) fn pods_as(view: ViewSpec) -> (Store, ViewId, SegmentId) {
    let mut store = Store::default();
    let view = store.add_view(view);
    let spec = SegmentSpec::new(ApiResource::new("", "v1", "pods"), "Pod", true);
    let segment = store.attach(view, &spec, &mut Vec::new()).unwrap();
    let fields = store.segment_fields(segment).unwrap().clone();
    store
        .replace(segment, fields, [], Instant::ZERO, &mut Vec::new())
        .unwrap();
    (store, view, segment)
}
