//! What a comparison watches.

use super::*;
use crate::manifest::Permission;
use crate::object::ApiResource;
use crate::path::{FieldPath, FieldTree};
use crate::project::Projector;

#[test]
fn only_what_a_guest_may_delete_is_watched() {
    let one = |name: &str, plural: &str| WatchSpec {
        name: name.into(),
        source: Source::One(ApiResource::new("", "v1", plural)),
        ..every_deletable("x").watches.remove(0)
    };
    let permission = |verb: &str, resource: &str| Permission::new(verb, "", resource);
    let mut guest = manifest("podgc");
    guest.watches = vec![
        one("pods", "pods"),
        one("again", "pods"),
        one("nodes", "nodes"),
    ];
    guest.permissions = vec![permission("create", "pods/eviction")];
    let names = |guest: &Manifest| {
        let watches = actor::watches(guest).into_iter();
        watches.map(|watch| watch.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&guest), ["pods"]);
    guest.permissions = vec![permission("delete", "nodes")];
    assert_eq!(names(&guest), ["nodes"]);
    let fields = &actor::watches(&guest)[0].fields;
    assert!(
        fields.iter().all(FieldPath::is_metadata),
        "of pods alone the status"
    );
}

/// The key of an element has quotation marks in JSON.
#[test]
fn the_watch_of_pods_shows_who_has_set_a_mark() {
    let mut guest = every_deletable("podgc");
    guest.watches[0].source = Source::One(ApiResource::new("", "v1", "pods"));
    guest.permissions = vec![Permission::new("delete", "", "pods")];
    let fields: FieldTree = actor::watches(&guest)[0].fields.iter().collect();
    let json = json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1",
            "managedFields": [{"manager": "davit/podgc", "operation": "Update", "fieldsV1": {
                "f:status": {"f:conditions": {
                    ".": {},
                    "k:{\"type\":\"DisruptionTarget\"}": {".": {}, "f:reason": {}, "f:type": {}},
                    "k:{\"type\":\"Ready\"}": {".": {}, "f:reason": {}},
                }},
            }}],
        },
        "status": {"phase": "Failed"},
    });
    let pod = Projector::new(fields).object(&serde_json::to_vec(&json).unwrap());
    let mut bench = Bench::podgc(&[]);
    let (store, segment) = (&mut bench.store, bench.segment);
    store.apply(segment, pod.unwrap(), bench.now, &mut Vec::new());
    let traces = Traces::of(&bench.cached("a").unwrap());
    assert_eq!(traces.is_marked_by_davit, Some(true));
}
