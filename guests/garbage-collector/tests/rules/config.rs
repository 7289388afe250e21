//! The operator's configuration, and the manifest that follows from it.

use std::collections::BTreeSet;

use davit_guest::{Source, TriggerKey};
use serde_json::json;

use crate::common::{Gc, collector, harness};

#[test]
fn the_schema_names_the_fields_that_are_read() {
    let schema = collector().config_schema();
    for (pointer, wrong) in [
        ("/properties", json!({"": 1})),
        (
            "/properties/ignoredResources/items/properties",
            json!({"ignoredResources": [{"resource": "pods", "": 1}]}),
        ),
    ] {
        let described = schema.pointer(pointer).unwrap().as_object().unwrap();
        let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
        let (_, message) = Gc::refused(&wrong).unwrap();
        let (_, read) = message.split_once("one of ").unwrap();
        assert_eq!(described, read.split(", ").collect());
    }
    assert_eq!(schema["additionalProperties"], false);
}

#[test]
fn the_schemas_defaults_match_the_configuration() {
    collector().assert_schema_defaults();
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    for (config, field, message) in [
        (
            json!({"concurrentGcSyncs": 1}),
            "concurrentGcSyncs",
            "unknown field",
        ),
        (
            json!({"concurrentSyncs": 0}),
            "concurrentSyncs",
            "1 or more",
        ),
        (
            json!({"concurrentSyncs": -1}),
            "concurrentSyncs",
            "expected a whole number from 0 to 4294967295, found -1",
        ),
        (
            json!({"maxParallelOrphans": 0}),
            "maxParallelOrphans",
            "1 or more",
        ),
        (
            json!({"ignoredResources": [{}]}),
            "ignoredResources[0].resource",
            "plural name",
        ),
        (
            json!({"ignoredResources": [{"resource": "pods", "version": "v1"}]}),
            "ignoredResources[0].version",
            "unknown field",
        ),
        (json!({"unlistedTimeout": 6}), "unlistedTimeout", "expected"),
        (
            json!({"unlistedTimeout": "soon"}),
            "unlistedTimeout",
            "expected a duration",
        ),
        (json!([]), "", "expected a map, found a list"),
    ] {
        Gc::assert_refused(&config, field, message);
    }
}

#[test]
fn the_configuration_determines_the_manifest() {
    let harness = harness(&json!({
        "concurrentSyncs": 7,
        "ignoredResources": [{"group": "example.com", "resource": "foos"}],
    }));
    let manifest = harness.manifest();
    assert_eq!(manifest.queues[0].workers, 7);
    let Source::EveryDeletable(ignored) = &manifest.watches[0].source else {
        panic!("{:?}", manifest.watches);
    };
    let ignored: Vec<(&str, &str)> = ignored
        .iter()
        .map(|it| (it.group.as_str(), it.plural.as_str()))
        .collect();
    assert_eq!(
        ignored,
        [
            ("", "events"),
            ("events.k8s.io", "events"),
            ("example.com", "foos")
        ]
    );
}

/// Metadata alone, and the least privilege for the rules.
#[test]
fn the_manifest_asks_for_the_least_privilege() {
    let harness = collector();
    let manifest = harness.manifest();
    let permissions: Vec<String> = manifest
        .permissions
        .iter()
        .map(|it| format!("{} {}.{}", it.verb, it.resource, it.group))
        .collect();
    assert_eq!(
        permissions,
        ["get *.*", "patch *.*", "delete *.*", "create events."]
    );
    assert_eq!(manifest.watches.len(), 1);
    assert_eq!(
        manifest.watches[0].fields,
        [
            "metadata.deletionTimestamp",
            "metadata.finalizers[*]",
            "metadata.ownerReferences[*].apiVersion",
            "metadata.ownerReferences[*].blockOwnerDeletion",
            "metadata.ownerReferences[*].controller",
            "metadata.ownerReferences[*].kind",
            "metadata.ownerReferences[*].name",
            "metadata.ownerReferences[*].uid",
        ]
    );
    let triggers: Vec<(&str, bool)> = manifest
        .triggers
        .iter()
        .map(|it| (it.queue.as_str(), matches!(it.key, TriggerKey::OwnUid)))
        .collect();
    assert_eq!(
        triggers,
        [
            (garbage_collector::OBJECTS_QUEUE.as_str(), true),
            (garbage_collector::OWNERS.as_str(), false)
        ]
    );
}
