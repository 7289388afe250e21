use std::collections::BTreeMap;

use crate::path::{FieldPath, FieldTree};
use crate::watch::{Event, Refusal};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn tree(paths: &[&str]) -> FieldTree {
    let paths: Vec<FieldPath> = paths.iter().map(|path| path.parse().unwrap()).collect();
    paths.iter().collect()
}

fn decode(messagepack: &[u8]) -> Value {
    rmp_serde::from_slice(messagepack).unwrap()
}

fn project(paths: &[&str], object: &Value) -> ProjectedObject {
    let json = serde_json::to_vec(object).unwrap();
    Projector::new(tree(paths)).object(&json).unwrap()
}

/// What is kept of an object: the same rules, on a tree.
fn prune_object(object: &Value, keep: &FieldTree) -> Value {
    let nothing = FieldTree::default();
    let mut kept = match prune(object, keep) {
        Some(Value::Object(kept)) => kept,
        _ => Map::new(),
    };
    let mut below = keep.field("metadata").unwrap_or(&nothing).clone();
    let mut metadata = object["metadata"].clone();
    if let Value::Object(metadata) = &mut metadata {
        metadata.remove("resourceVersion");
        if below == FieldTree::All {
            metadata.remove("managedFields");
        }
    }
    below.merge(&tree(&["name", "namespace", "uid"]));
    kept.insert("metadata".into(), prune(&metadata, &below).unwrap());
    Value::Object(kept)
}

fn prune(value: &Value, keep: &FieldTree) -> Option<Value> {
    match (value, keep) {
        (Value::Null, _) => None,
        (Value::Object(fields), keep) => {
            let kept: Map<_, _> = fields
                .iter()
                .filter_map(|(name, value)| {
                    let value = prune(value, keep.field(name)?)?;
                    let is_emptied = value == json!({}) && keep.field(name)? != &FieldTree::All;
                    (!is_emptied).then(|| (name.clone(), value))
                })
                .collect();
            Some(Value::Object(kept))
        }
        (Value::Array(elements), keep) => {
            let each = keep.each()?;
            let prune = |element| prune(element, each).unwrap_or(Value::Null);
            Some(elements.iter().map(prune).collect())
        }
        (scalar, FieldTree::All) => Some(scalar.clone()),
        _ => None,
    }
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        (-1e9..1e9).prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ]
}

fn name() -> impl Strategy<Value = String> {
    // Few names, so that trees and values meet; some of them special.
    prop_oneof![
        "[a-d]",
        "metadata|name|namespace|uid|resourceVersion|managedFields|\"\\\\",
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(5, 64, 20, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
            prop::collection::btree_map(name(), inner.clone(), 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            prop::collection::btree_map("[a-z]{1,3}", inner, 10..25)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn object() -> impl Strategy<Value = Value> {
    let fields = || prop::collection::btree_map(name(), value(), 0..8);
    let identity = ("[a-z]{1,8}", prop::option::of("[a-z]{1,8}"), "[0-9a-f]{8}");
    (fields(), fields(), identity).prop_map(|(mut object, mut metadata, identity)| {
        let (name, namespace, uid) = identity;
        metadata.remove("namespace");
        metadata.insert("name".into(), name.into());
        metadata.insert("uid".into(), uid.into());
        metadata.insert("resourceVersion".into(), "7".into());
        if let Some(namespace) = namespace {
            metadata.insert("namespace".into(), namespace.into());
        }
        object.insert("metadata".into(), to_object(metadata));
        to_object(object)
    })
}

fn to_object(fields: BTreeMap<String, Value>) -> Value {
    Value::Object(fields.into_iter().collect())
}

fn fields() -> impl Strategy<Value = FieldTree> {
    let leaf = prop_oneof![Just(FieldTree::All), Just(FieldTree::default())];
    leaf.prop_recursive(5, 32, 6, |inner| {
        let fields = prop::collection::btree_map(name(), inner.clone(), 0..6);
        (fields, prop::option::of(inner)).prop_map(|(fields, each)| FieldTree::Some {
            fields: fields
                .into_iter()
                .map(|(name, tree)| (name.into(), tree))
                .collect(),
            each: each.map(Box::new),
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn projecting_is_pruning(object in object(), keep in fields()) {
        let json = serde_json::to_vec(&object).unwrap();
        let projected = Projector::new(keep.clone()).object(&json).unwrap();
        prop_assert_eq!(decode(&projected.data), prune_object(&object, &keep));
        prop_assert_eq!(&*projected.name, object["metadata"]["name"].as_str().unwrap());
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        prop_assert_eq!(&*projected.namespace, namespace);
        prop_assert_eq!(&*projected.resource_version, "7");
        prop_assert_eq!(projected.uid.to_string(), object["metadata"]["uid"].as_str().unwrap());
    }

    #[test]
    fn no_text_is_too_broken_for_an_error(
        parts in prop::collection::vec(
            prop_oneof![
                r#"[{}\[\]:,"\\u1]{1,3}"#.prop_map(String::into_bytes),
                r#""(metadata|name|uid|object|type)":"#.prop_map(String::into_bytes),
                prop::collection::vec(any::<u8>(), 0..4),
                Just(br#"{"metadata":{"name":"a""#.to_vec()),
            ],
            0..20,
        ),
        keep in fields(),
    ) {
        let json = parts.concat();
        let mut projector = Projector::new(keep);
        let _ = projector.object(&json);
        let _ = projector.event(&json);
        prop_assert!(projector.list(&json).is_err());
    }
}

#[test]
fn the_rules_by_example() {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5",
            "labels": {"app": "a", "zone": "z"},
            "creationTimestamp": null,
            "managedFields": [{"manager": "kubelet"}],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i"}, {"image": "j"}],
            "volumes": [{"emptyDir": {}, "x": null}],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}, null]},
    });
    let projected = project(
        &[
            "metadata.labels[\"app\"]",
            "metadata.creationTimestamp",
            "metadata.annotations",
            "spec.containers[*].name",
            "spec.volumes",
            "spec.securityContext.runAsUser",
            "status.conditions[*].type",
        ],
        &pod,
    );
    assert_eq!(
        decode(&projected.data),
        json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"app": "a"}},
            "spec": {
                "containers": [{"name": "c"}, {}],
                "volumes": [{"emptyDir": {}}],
            },
            "status": {"conditions": [{"type": "Ready"}, null]},
        })
    );
    assert_eq!(projected.key(), "ns/p");
}

#[test]
fn whether_an_undeclared_part_is_there_makes_no_difference() {
    let metadata = json!({"name": "p", "uid": "u", "labels": {"other": "x"}});
    let with = json!({"metadata": metadata, "status": {"podIP": "1.2.3.4"}});
    let without = json!({"metadata": {"name": "p", "uid": "u"}});
    let paths = ["metadata.labels[\"app\"]", "status.phase", "spec.nodeName"];
    assert_eq!(project(&paths, &with), project(&paths, &without));
}

#[test]
fn all_metadata_is_kept_without_managed_fields_unless_they_are_named() {
    let object = json!({"metadata": {
        "name": "p", "resourceVersion": "5", "generation": 3,
        "managedFields": [{"manager": "kubelet"}],
    }});
    assert_eq!(
        decode(&project(&["metadata"], &object).data),
        json!({"metadata": {"name": "p", "generation": 3}})
    );
    assert_eq!(
        decode(&project(&["metadata.managedFields[*].manager"], &object).data),
        json!({"metadata": {"name": "p", "managedFields": [{"manager": "kubelet"}]}})
    );
}

#[test]
fn the_recorded_lists_are_read_whole() {
    for (file, len) in [
        (&include_bytes!("../../tests/data/podlist.json")[..], 196),
        (
            &include_bytes!("../../tests/data/podlist-metadata.json")[..],
            196,
        ),
    ] {
        let value: Value = serde_json::from_slice(file).unwrap();
        let keep = tree(&["metadata.ownerReferences[*].uid", "metadata.labels", "spec"]);
        let page = Projector::new(keep.clone()).list(file).unwrap();
        assert_eq!(page.items.len(), len);
        assert_eq!(&*page.resource_version, "648");
        assert_eq!(&*page.continue_token, "");
        for (projected, object) in page.items.iter().zip(value["items"].as_array().unwrap()) {
            assert_eq!(decode(&projected.data), prune_object(object, &keep));
        }
    }
}

/// The host would use one of two names, and a guest read the other.
#[test]
fn an_object_with_two_names_is_refused() {
    let mut projector = Projector::new(tree(&["metadata"]));
    for (object, field) in [
        (r#"{"metadata":{"name":"a","name":"b"}}"#, "name"),
        (r#"{"metadata":{"name":"a","uid":"1","uid":"2"}}"#, "uid"),
        (r#"{"metadata":{"name":"a","na\u006de":"b"}}"#, "name"),
        // An empty one is one: a guest would read the first.
        (r#"{"metadata":{"name":"","name":"b"}}"#, "name"),
        (
            r#"{"metadata":{"namespace":"","name":"a","namespace":"b"}}"#,
            "namespace",
        ),
        (
            r#"{"metadata":{"name":"a"},"metadata":{"namespace":"b"}}"#,
            "metadata",
        ),
    ] {
        let error = projector.object(object.as_bytes()).unwrap_err();
        let text = crate::failure::chain(&error);
        assert!(
            text.contains(&format!("duplicate field `{field}`")),
            "{text}"
        );
    }
}

#[test]
fn the_name_of_a_field_is_checked_if_it_is_kept() {
    let object =
        b"{\"\xff\":1,\"metadata\":{\"na\\u006de\":\"a\",\"u\xffid\":\"1\"},\"spec\":{\"x\":1}}";
    let kept = Projector::new(tree(&["spec"])).object(object).unwrap();
    assert_eq!(
        decode(&kept.data),
        json!({"metadata": {"name": "a"}, "spec": {"x": 1}})
    );
    let error = Projector::verbatim().object(object).unwrap_err();
    let text = crate::failure::chain(&error);
    assert!(text.contains("invalid utf-8"), "{text}");
}

#[test]
fn nothing_but_a_list_passes_for_a_list() {
    let mut projector = Projector::new(FieldTree::default());
    let mut error = |json: Value| {
        let error = projector.list(json.to_string().as_bytes()).unwrap_err();
        crate::failure::chain(&error)
    };
    let metadata = json!({"resourceVersion": "5"});
    let status = error(json!({"kind": "Status", "metadata": metadata, "items": []}));
    assert!(status.contains("it is a status"), "{status}");
    let no_items = error(json!({"kind": "PodList", "metadata": metadata}));
    assert!(no_items.contains("`items`"), "{no_items}");
    let no_version = error(json!({"kind": "PodList", "metadata": {}, "items": []}));
    assert!(no_version.contains("resourceVersion"), "{no_version}");
    let list = json!({"kind": "PodList", "metadata": metadata, "items": null});
    let page = projector.list(list.to_string().as_bytes()).unwrap();
    assert!(page.items.is_empty());
}

#[test]
fn an_error_names_the_object_as_far_as_it_is_known() {
    let mut projector = Projector::new(tree(&["spec"]));
    let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[
        {"metadata":{"name":"good","namespace":"a"}},
        {"metadata":{"name":"bad","namespace":"b"},"spec":{"x":tru}}]}"#;
    let error = projector.list(list.as_bytes()).unwrap_err();
    assert_eq!(error.object(), "b/bad");
    assert_eq!(error.to_string(), "cannot read a list (b/bad)");
    let error = projector.object(b"{\"metadata\":{}}").unwrap_err();
    assert_eq!(error.object(), "");
    assert!(crate::failure::chain(&error).contains("no metadata.name"));
}

#[test]
fn every_type_of_event() {
    let mut projector = Projector::new(tree(&["spec"]));
    let mut event = |json: Value| projector.event(json.to_string().as_bytes());
    let object = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "5"}});
    let projected = project(&[], &object);
    for (name, wanted) in [
        ("ADDED", Event::Applied(projected.clone())),
        ("MODIFIED", Event::Applied(projected.clone())),
        ("DELETED", Event::Deleted(projected)),
    ] {
        assert_eq!(
            event(json!({"type": name, "object": object})).unwrap(),
            wanted
        );
    }
    let mark = json!({"kind": "Pod", "metadata": {
        "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"},
    }});
    assert_eq!(
        event(json!({"type": "BOOKMARK", "object": mark})).unwrap(),
        Event::Bookmark {
            resource_version: "9".into(),
            initial_events_end: true
        }
    );
    let status = json!({"kind": "Status", "code": 410, "reason": "Expired",
        "message": "too old resource version: 1 (9)"});
    let expired = Event::Error(Refusal {
        code: 410,
        message: "too old resource version: 1 (9)".into(),
        retry_after: None,
    });
    assert_eq!(
        event(json!({"type": "ERROR", "object": status})).unwrap(),
        expired
    );
    assert_eq!(event(status).unwrap(), expired);
    assert!(event(json!({"type": "RENAMED", "object": object})).is_err());
    assert!(event(json!({"kind": "Pod", "metadata": {"name": "p"}})).is_err());
}

/// A watch that starts from such a version starts from any.
#[test]
fn a_bookmark_has_a_version() {
    let mut projector = Projector::new(FieldTree::default());
    for version in [r#""resourceVersion":"""#, r#""name":"""#] {
        let frame = format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{{{version}}}}}}}"#);
        let error = projector.event(frame.as_bytes()).unwrap_err();
        let text = crate::failure::chain(&error);
        assert!(text.contains("resourceVersion"), "{text}");
    }
}

/// Otherwise it would be another event if the object stood elsewhere.
#[test]
fn an_event_with_two_types_is_refused() {
    let object = r#""object":{"metadata":{"name":"p"}}"#;
    let [added, deleted] = ["ADDED", "DELETED"].map(|name| format!(r#""type":"{name}""#));
    for parts in [
        [&*added, object, &deleted],
        [object, &added, &deleted],
        [&added, &deleted, object],
    ] {
        let frame = format!("{{{}}}", parts.join(","));
        let error = Projector::new(FieldTree::default()).event(frame.as_bytes());
        let text = crate::failure::chain(&error.unwrap_err());
        assert!(text.contains("duplicate field `type`"), "{frame}: {text}");
    }
}

#[test]
fn an_event_may_have_its_type_last() {
    let frame = r#"{"object":{"metadata":{"name":"p"}},"type":"DELETED"}"#;
    let event = Projector::new(FieldTree::default()).event(frame.as_bytes());
    assert!(matches!(event.unwrap(), Event::Deleted(object) if &*object.name == "p"));
}
