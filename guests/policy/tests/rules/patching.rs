//! Rules that change objects, and what keeps them from doing so again and again.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, refusal, rules};

fn config_map() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": "a"}, "data": {"a": "b"}})
}

fn refused(action: Value) -> (String, String) {
    refusal(json!([{
        "name": "a",
        "match": {"resource": "pods"},
        "when": "true",
        "do": action,
    }]))
}

/// The time is another one at each moment: a difference in it is no reason to patch.
#[test]
fn a_value_with_the_time_is_set_once() {
    for action in [
        json!({"annotate": {"seen": "${now}"}}),
        json!({"annotate": {"seen": "at ${now}"}}),
        json!({"mergePatch": {"metadata": {"annotations": {"seen": "${string(now)}"}}}}),
        json!({"jsonPatch": [{"op": "add", "path": "/metadata/annotations/seen",
                              "value": "${string(now)}"}]}),
    ] {
        let mut harness = rules(json!([{
            "name": "seen",
            "match": {"resource": "configmaps"},
            "when": "object.data.a == 'b' && object.data.c != 'd'",
            "do": action,
        }]));
        let mut object = config_map();
        object["metadata"]["annotations"] = json!({"other": "x"});
        harness.put(object);
        harness.advance(HOUR);
        let mut object = harness.object("ConfigMap", "ci/a").unwrap();
        object["data"]["c"] = json!("judged again");
        harness.put(object);
        harness.advance(HOUR);
        assert_eq!(harness.executions().len(), 1, "{action}");
        let annotations = &harness.object("ConfigMap", "ci/a").unwrap()["metadata"]["annotations"];
        let seen = annotations["seen"].as_str().unwrap();
        assert!(seen.contains("2023-11-14T22:13:20"), "{seen}");
    }
}

#[test]
fn a_patch_that_can_never_come_to_rest_is_refused() {
    let (field, message) = refused(json!({"jsonPatch": [
        {"op": "replace", "path": "/metadata/annotations/seen", "value": "${string(now)}"},
    ]}));
    assert_eq!(field, "do.jsonPatch[0].value".replace("do", "rules[0].do"));
    assert!(message.contains("now"), "{message}");
    let (field, message) = refused(json!({"jsonPatch": [
        {"op": "test", "path": "/metadata/name", "value": "x"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "a/b"},
    ]}));
    assert_eq!(field, "rules[0].do.jsonPatch[1].path");
    assert!(
        message.contains("\"test\" of /metadata/finalizers"),
        "{message}"
    );
    let (field, message) = refused(json!({"jsonPatch": [
        {"op": "test", "path": "/metadata/finalizers/0", "value": "x"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "${string(now)}"},
    ]}));
    assert_eq!(field, "rules[0].do.jsonPatch[1].value", "{message}");
}

/// The cache has an object without a label, and the server has one that somebody set.
#[test]
fn what_somebody_wrote_meanwhile_is_not_overwritten() {
    for action in [
        json!({"label": {"owner": "unknown"}}),
        json!({"mergePatch": {"metadata": {"labels": {"owner": "unknown"}}}}),
        json!({"jsonPatch": [
            {"op": "add", "path": "/metadata/labels/owner", "value": "unknown"},
        ]}),
    ] {
        let mut harness = rules(json!([{
            "name": "owner",
            "match": {"resource": "configmaps"},
            "when": "object.metadata.labels.owner == null",
            "do": action,
        }]));
        let mut object = config_map();
        object["metadata"]["labels"] = json!({"app": "a"});
        harness.put(object.clone());
        object["metadata"]["labels"]["owner"] = json!("payments");
        harness.put_on_server(object.clone());
        harness.run();
        let labels = |harness: &Harness<Policy>| {
            let object = harness.object("ConfigMap", "ci/a").unwrap();
            object["metadata"]["labels"]["owner"].clone()
        };
        assert_eq!(labels(&harness), "payments", "{action}");

        // Whoever takes it away again gets the mark as soon as the cache has seen that.
        object["metadata"]["labels"] = json!({"app": "a"});
        harness.put(object);
        harness.advance(HOUR);
        assert_eq!(labels(&harness), "unknown", "{action}");
    }
}

/// The API server adds defaults, and writes quantities in its own form.
#[test]
fn what_the_api_server_completes_comes_to_rest() {
    let mut harness = rules(json!([{
        "name": "limits",
        "match": {"resource": "services"},
        "when": "object.spec.type == 'ClusterIP'",
        "do": {"mergePatch": {"spec": {"ports": [{"port": 80}]}}},
    }, {
        "name": "quota",
        "match": {"resource": "resourcequotas"},
        "when": "true",
        "do": {"mergePatch": {"spec": {"hard": {"cpu": "0.5"}}}},
    }]));
    let completed = [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": "ci", "name": "a"},
            "spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP"}]}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": {"namespace": "ci", "name": "a"}, "spec": {"hard": {"cpu": "500m"}}}),
    ];
    for object in completed {
        harness.put(object);
    }
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 0);
    harness.put(json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"namespace": "ci", "name": "b"}, "spec": {"hard": {"cpu": "501m"}}}));
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 1);
}

#[test]
fn an_element_that_a_list_has_is_not_added_again() {
    let mut harness = rules(json!([{
        "name": "finalizer",
        "match": {"resource": "configmaps"},
        "when": "size(object.metadata.finalizers) > 0",
        "do": {"jsonPatch": [
            {"op": "test", "path": "/metadata/finalizers", "value": "${object.metadata.finalizers}"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"},
        ]},
    }]));
    let mut object = config_map();
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    harness.put(object);
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 1);
    let object = harness.object("ConfigMap", "ci/a").unwrap();
    assert_eq!(
        object["metadata"]["finalizers"],
        json!(["example.com/a", "example.com/b"])
    );
}

/// Only labels and annotations are texts always.
#[test]
fn a_list_in_a_merge_patch_stays_a_list() {
    let mut harness = rules(json!([{
        "name": "release",
        "match": {"resource": "configmaps"},
        "when": "object.data.a == 'b'",
        "do": {"mergePatch": {"metadata": {
            "finalizers": "${object.metadata.finalizers.filter(f, f != 'example.com/a')}",
            "labels": {"count": "${size(object.metadata.finalizers)}"},
        }}},
    }]));
    let mut object = config_map();
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b", "example.com/c"]);
    harness.put(object);
    harness.run();
    let metadata = harness.object("ConfigMap", "ci/a").unwrap()["metadata"].clone();
    assert_eq!(
        metadata["finalizers"],
        json!(["example.com/b", "example.com/c"])
    );
    assert_eq!(metadata["labels"]["count"], "2", "a label is a text");
}

#[test]
fn a_taint_is_taken_away() {
    let mut harness = rules(json!([{
        "name": "well",
        "match": {"resource": "nodes"},
        "when": "object.metadata.labels.well == 'true'",
        "do": {"untaint": {"key": "broken", "effect": "NoSchedule"}},
    }]));
    harness.put(json!({"apiVersion": "v1", "kind": "Node",
    "metadata": {"name": "n1", "labels": {"well": "true"}},
    "spec": {"taints": [
        {"key": "broken", "effect": "NoSchedule"},
        {"key": "broken", "effect": "NoExecute"},
        {"key": "other", "effect": "NoSchedule"},
    ]}}));
    harness.advance(HOUR);
    let node = harness.object("Node", "n1").unwrap();
    assert_eq!(
        node["spec"]["taints"],
        json!([
            {"key": "broken", "effect": "NoExecute"},
            {"key": "other", "effect": "NoSchedule"},
        ])
    );
    assert_eq!(harness.executions().len(), 1);
}

/// In a merge patch, null takes a field away: an object that lacks an annotation would lose all of
/// its finalizers.
#[test]
fn an_expression_that_is_null_takes_nothing_away() {
    for action in [
        json!({"mergePatch": {"metadata": {"finalizers": "${dyn(object.metadata.annotations.keep)}"}}}),
        json!({"mergePatch": {"metadata": {"labels": "${dyn(object.metadata.annotations.keep)}"}}}),
        json!({"mergePatch": {"metadata": {"labels": "${{'app': object.metadata.annotations.keep}}"}}}),
        json!({"label": {"app": "${object.metadata.annotations.keep}"}}),
        json!({"annotate": {"other": "${object.metadata.annotations.keep}"}}),
        json!({"jsonPatch": [
            {"op": "replace", "path": "/data/a", "value": "${object.metadata.annotations.keep}"},
        ]}),
        json!({"jsonPatch": [
            {"op": "test", "path": "/data/none", "value": "${object.metadata.annotations.keep}"},
            {"op": "remove", "path": "/data/a"},
        ]}),
    ] {
        let mut harness = rules(json!([{
            "name": "copy", "match": {"resource": "configmaps"}, "when": "true", "do": action,
        }]));
        let mut object = config_map();
        object["metadata"]["finalizers"] = json!(["example.com/a"]);
        object["metadata"]["labels"] = json!({"app": "a"});
        object["metadata"]["annotations"] = json!({"other": "x"});
        harness.put(object);
        harness.advance(HOUR);
        assert_eq!(harness.executions().len(), 0, "{action}");
    }
    // Who writes null means it.
    let mut harness = rules(json!([{
        "name": "release",
        "match": {"resource": "configmaps"},
        "when": "true",
        "do": {"mergePatch": {"metadata": {"finalizers": null}}},
    }]));
    let mut object = config_map();
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    harness.put(object);
    harness.advance(HOUR);
    let object = harness.object("ConfigMap", "ci/a").unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(null));
}

#[test]
fn an_element_is_changed_only_behind_a_test() {
    for (op, path, list) in [
        ("replace", "/metadata/finalizers/0", "/metadata/finalizers"),
        (
            "replace",
            "/metadata/ownerReferences/1/name",
            "/metadata/ownerReferences",
        ),
        (
            "add",
            "/metadata/ownerReferences/0/kind",
            "/metadata/ownerReferences",
        ),
        (
            "remove",
            "/metadata/ownerReferences/0/kind",
            "/metadata/ownerReferences",
        ),
    ] {
        let change = json!({"op": op, "path": path, "value": "a"});
        let (field, message) = refused(json!({"jsonPatch": [change]}));
        assert_eq!(field, "rules[0].do.jsonPatch[0].path", "{path}");
        let expected = format!("put a \"test\" of {list}, ");
        assert!(message.contains(&expected), "{path}: {message}");
    }
    let test = json!({"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/a"});
    let change =
        json!({"op": "replace", "path": "/metadata/finalizers/0", "value": "example.com/c"});
    let mut harness = rules(json!([{
        "name": "rename",
        "match": {"resource": "configmaps"},
        "when": "object.metadata.finalizers.exists(it, it == 'example.com/a')",
        "do": {"jsonPatch": [test, change]},
    }]));
    let mut object = config_map();
    object["metadata"]["finalizers"] = json!(["example.com/a"]);
    harness.put(object);
    harness.advance(HOUR);
    let object = harness.object("ConfigMap", "ci/a").unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/c"]));
}

/// The next element has the place of one that was removed.
#[test]
fn an_element_is_removed_only_behind_a_test() {
    let remove = json!({"op": "remove", "path": "/metadata/finalizers/0"});
    let (field, message) = refused(json!({"jsonPatch": [remove]}));
    assert_eq!(field, "rules[0].do.jsonPatch[0].path");
    assert!(
        message
            .contains("another element could be removed: put a \"test\" of /metadata/finalizers"),
        "{message}"
    );
    let test = json!({"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/a"});
    let mut harness = rules(json!([{
        "name": "release",
        "match": {"resource": "configmaps"},
        "when": "object.metadata.finalizers.exists(it, it == 'example.com/a')",
        "do": {"jsonPatch": [test, remove]},
    }]));
    let mut object = config_map();
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/b"]);
    harness.put(object);
    harness.advance(HOUR);
    let object = harness.object("ConfigMap", "ci/a").unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["example.com/b"]));
    assert_eq!(harness.executions().len(), 1);
}

/// Somebody could write between them, and the second one would overwrite that.
#[test]
fn two_kinds_of_patches_in_one_rule_are_refused() {
    let operation = json!([{"op": "add", "path": "/spec/unschedulable", "value": true}]);
    for action in [
        json!({"label": {"a": "b"}, "jsonPatch": operation}),
        json!({"annotate": {"a": "b"}, "jsonPatch": operation}),
        json!({"mergePatch": {"spec": {"podCIDR": "x"}}, "jsonPatch": operation}),
        json!({"taint": {"key": "a", "effect": "NoExecute"}, "jsonPatch": operation}),
    ] {
        let (field, message) = refusal(json!([{
            "name": "a",
            "match": {"resource": "nodes"},
            "when": "true",
            "do": action,
        }]));
        assert_eq!(field, "rules[0].do.jsonPatch", "{action}");
        assert!(
            message.contains("write all changes as jsonPatch"),
            "{message}"
        );
    }
}
