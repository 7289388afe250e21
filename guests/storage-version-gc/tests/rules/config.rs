//! The operator's configuration, and the manifest.

use davit_guest::testing::Harness;
use serde_json::{Value, json};
use storage_version_gc::StorageVersionGc;

#[test]
fn there_is_nothing_to_configure() {
    let schema = include_str!("../../config.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema in JSON");
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["properties"], json!({}));
    for config in [json!(null), json!({})] {
        assert!(Harness::<StorageVersionGc>::new(&config).is_ok());
    }
    let refused = Harness::<StorageVersionGc>::new(&json!({"workers": 3}));
    let error = refused.err().expect("an unknown field");
    assert_eq!(error.field, "workers");
}

/// The least privilege for the rules, and no heartbeat among the fields.
#[test]
fn the_manifest_asks_for_the_least_privilege() {
    let harness = Harness::<StorageVersionGc>::new(&Value::Null).expect("no configuration");
    let manifest = harness.manifest();
    let permissions = manifest.permissions.iter();
    let permissions: Vec<String> = permissions
        .map(|it| format!("{} {}/{}", it.verb, it.group, it.resource))
        .collect();
    assert_eq!(
        permissions,
        [
            "get coordination.k8s.io/leases",
            "patch internal.apiserver.k8s.io/storageversions/status",
            "delete internal.apiserver.k8s.io/storageversions",
        ]
    );
    let [leases, versions] = manifest.watches.as_slice() else {
        panic!("two watches, not {:?}", manifest.watches);
    };
    assert_eq!(leases.namespace, "kube-system");
    assert_eq!(
        leases.fields,
        ["metadata.labels[\"apiserver.kubernetes.io/identity\"]"]
    );
    assert!(versions.optional && !leases.optional);
    assert!(manifest.ticks.is_empty());
}
