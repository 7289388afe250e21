//! The operator's configuration, and the manifest that follows from it.

use davit_guest::testing::Harness;
use serde_json::{Value, json};
use taint_eviction::TaintEviction;

use crate::common::{defaults, harness};

fn schema() -> Value {
    defaults().config_schema()
}

fn refused(config: &Value) -> Option<(String, String)> {
    Harness::<TaintEviction>::refused(config)
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    defaults().assert_schema_is_read();
}

#[test]
fn the_schemas_defaults_match_the_configuration() {
    defaults().assert_schema_defaults();
}

#[test]
fn the_schemas_words_match_the_configuration() {
    let schema = schema();
    for name in ["reschedule", "countFrom", "deletion"] {
        let words = schema["properties"][name]["enum"].as_array().unwrap();
        for word in words {
            assert_eq!(refused(&json!({name: word})), None);
        }
        // The error for an unknown word lists the known ones.
        let (field, message) = refused(&json!({name: "other"})).unwrap();
        assert_eq!(field, name);
        for word in words {
            let word = word.as_str().unwrap();
            assert!(message.contains(word), "{word}: {message}");
        }
    }
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    for (config, field, message) in [
        (json!({"policy": "keep"}), "policy", "unknown field"),
        (json!({"reschedule": "Keep"}), "reschedule", "Keep"),
        (json!({"reschedule": 1}), "reschedule", ""),
        (json!({"deletion": true}), "deletion", ""),
        (json!({"countFrom": "timeAdded"}), "countFrom", "TimeAdded"),
        (
            json!({"tolerationComparisonOperators": "yes"}),
            "tolerationComparisonOperators",
            "expected true or false, found \"yes\"",
        ),
        (
            json!({"maxParallelEvictions": 0}),
            "maxParallelEvictions",
            "1 or more",
        ),
        (
            json!({"maxParallelEvictions": -1}),
            "maxParallelEvictions",
            "expected a whole number from 0 to 4294967295, found -1",
        ),
        (json!([]), "", "expected a map, found a list"),
    ] {
        Harness::<TaintEviction>::assert_refused(&config, field, message);
    }
}

/// The least privilege for each kind of deletion: only nodes are read live.
#[test]
fn the_manifest_asks_for_the_least_privilege() {
    for (deletion, expected) in [
        (
            "delete",
            &[
                "get nodes",
                "create events",
                "patch pods/status",
                "delete pods",
            ][..],
        ),
        (
            "evict",
            &["get nodes", "create events", "create pods/eviction"],
        ),
    ] {
        let harness = harness(&json!({"deletion": deletion}));
        let permissions: Vec<String> = harness
            .manifest()
            .permissions
            .iter()
            .map(|it| format!("{} {}{}", it.verb, it.group, it.resource))
            .collect();
        assert_eq!(permissions, expected);
    }
    let harness = defaults();
    let watches = harness.manifest().watches.iter();
    let fields: Vec<&[String]> = watches.map(|watch| watch.fields.as_slice()).collect();
    let placed = [
        "spec.nodeName",
        "spec.tolerations[*].effect",
        "spec.tolerations[*].key",
        "spec.tolerations[*].operator",
        "spec.tolerations[*].tolerationSeconds",
        "spec.tolerations[*].value",
    ];
    let mut with_status = vec![
        "metadata.creationTimestamp",
        "metadata.deletionTimestamp",
        "metadata.generation",
    ];
    with_status.extend(placed);
    with_status.extend([
        "status.conditions[*].lastProbeTime",
        "status.conditions[*].lastTransitionTime",
        "status.conditions[*].message",
        "status.conditions[*].observedGeneration",
        "status.conditions[*].reason",
        "status.conditions[*].status",
        "status.conditions[*].type",
    ]);
    let taints = [
        "metadata.creationTimestamp",
        "spec.taints[*].effect",
        "spec.taints[*].key",
        "spec.taints[*].timeAdded",
        "spec.taints[*].value",
    ];
    assert_eq!(fields, [&placed[..], &with_status[..], &taints[..]]);
}

/// Changes of nodes overtake timers and changes of pods; evictions overtake all.
#[test]
fn nodes_go_before_pods() {
    let harness = harness(&json!({"maxParallelEvictions": 7}));
    let mut queues: Vec<_> = harness.manifest().queues.iter().collect();
    queues.sort_by_key(|queue| -queue.priority);
    let names: Vec<&str> = queues.iter().map(|queue| queue.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "noexec_taint_eviction",
            "noexec_taint_node",
            "noexec_taint_proven_node",
            "noexec_taint_doubtful_node",
            "noexec_taint_timer",
            "noexec_taint_pod",
            "noexec_taint_ended"
        ]
    );
    assert_eq!(queues[0].workers, 7);
}
