//! The operator's configuration, and the manifest that follows from it.

use davit_guest::testing::Harness;
use podgc::PodGc;
use serde_json::{Value, json};

use crate::common::harness;

fn schema() -> Value {
    harness(&Value::Null).config_schema()
}

fn refused(config: &Value) -> Option<(String, String)> {
    Harness::<PodGc>::refused(config)
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    harness(&Value::Null).assert_schema_is_read();
}

#[test]
fn the_schemas_defaults_match_the_configuration() {
    harness(&Value::Null).assert_schema_defaults();
}

#[test]
fn the_schemas_bounds_match_the_configuration() {
    let schema = schema();
    for name in ["terminatedPodThreshold", "maxParallelDeletes"] {
        let bound = |which: &str| schema["properties"][name][which].as_i64().unwrap();
        let (low, high) = (bound("minimum"), bound("maximum"));
        for (number, fits) in [
            (low - 1, false),
            (low, true),
            (high, true),
            (high + 1, false),
        ] {
            let refused = refused(&json!({name: number}));
            assert_eq!(refused.is_none(), fits, "{name}: {number}: {refused:?}");
        }
    }
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    for (config, field, message) in [
        (
            json!({"terminatedPodGCThreshold": 1}),
            "terminatedPodGCThreshold",
            "unknown field",
        ),
        (
            json!({"terminatedPodThreshold": "1"}),
            "terminatedPodThreshold",
            "expected a whole number, found \"1\"",
        ),
        (
            json!({"period": 20}),
            "period",
            "expected a duration such as 30s, 10m or 1h30m, found 20",
        ),
        (
            json!({"period": "20"}),
            "period",
            "expected a duration such as 30s, 10m or 1h30m, found",
        ),
        (json!({"period": "0s"}), "period", "more than 0s"),
        (
            json!({"quarantine": "-1s"}),
            "quarantine",
            "expected a duration such as 30s, 10m or 1h30m, found",
        ),
        (
            json!({"maxParallelDeletes": 0}),
            "maxParallelDeletes",
            "1 or more",
        ),
        (
            json!({"maxParallelDeletes": -1}),
            "maxParallelDeletes",
            "expected a whole number from 0 to 4294967295, found -1",
        ),
        (json!([]), "", "expected a map, found a list"),
    ] {
        Harness::<PodGc>::assert_refused(&config, field, message);
    }
}

#[test]
fn the_configuration_determines_the_manifest() {
    let harness = harness(&json!({"period": "500ms", "quarantine": "1m30s"}));
    let manifest = harness.manifest();
    assert_eq!(manifest.ticks[0].period, 500);
    let retries: Vec<(u64, u64)> = manifest
        .queues
        .iter()
        .map(|queue| (queue.retry_initial, queue.retry_max))
        .collect();
    assert_eq!(retries, [(500, 500), (1_000, 40_000)]);
}

/// The least privilege for the collector's rules: no live read of pods, no
/// write of nodes.
#[test]
fn the_manifest_asks_for_the_least_privilege() {
    let harness = harness(&Value::Null);
    let permissions: Vec<String> = harness
        .manifest()
        .permissions
        .iter()
        .map(|it| format!("{} {}{}", it.verb, it.group, it.resource))
        .collect();
    assert_eq!(
        permissions,
        ["get nodes", "patch pods/status", "delete pods"]
    );
    let fields: Vec<&[String]> = harness
        .manifest()
        .watches
        .iter()
        .map(|watch| watch.fields.as_slice())
        .collect();
    assert_eq!(
        fields,
        [
            &[
                "metadata.creationTimestamp",
                "metadata.deletionTimestamp",
                "metadata.generation",
                "spec.nodeName",
                "status.conditions[*].lastProbeTime",
                "status.conditions[*].lastTransitionTime",
                "status.conditions[*].message",
                "status.conditions[*].observedGeneration",
                "status.conditions[*].reason",
                "status.conditions[*].status",
                "status.conditions[*].type",
                "status.message",
                "status.observedGeneration",
                "status.phase",
                "status.reason",
            ][..],
            &[
                "status.conditions[*].status",
                "status.conditions[*].type",
                "spec.taints[*].key",
            ],
            &[],
        ]
    );
}
