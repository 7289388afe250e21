//! Values of the wrong type: what is compared, what is looked for, what is written, and booleans that
//! an object lacks.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, failed, refusal, refusal_of, rules};

fn node_rule(when: &str) -> Value {
    json!([{
        "name": "a", "match": {"resource": "nodes"}, "when": when,
        "do": {"taint": {"key": "lost", "effect": "NoSchedule"}},
    }])
}

fn pod_rule(when: &str) -> Value {
    json!([{
        "name": "a", "match": {"resource": "pods"}, "when": when, "do": {"delete": {}},
    }])
}

fn assert_refused(rules: Value, column: usize, words: &str) {
    let when = rules[0]["when"].to_string();
    let (field, message) = refusal(rules);
    assert_eq!(field, "rules[0].when", "{when}");
    let start = format!("rule a: column {column}: ");
    assert!(message.starts_with(&start), "{when}: {message}");
    assert!(message.contains(words), "{when}: {message}");
}

/// A condition is a map, and no text is equal to one: the rule would act on every node.
#[test]
fn a_condition_is_not_compared_with_a_text() {
    let words = "compares a map with a text";
    for (when, column, words) in [
        ("condition(object, 'Ready') != 'True'", 28, words),
        ("!(condition(object, 'Ready') in ['True'])", 34, words),
        (
            "condition(object, 'Ready') == true",
            28,
            "a map with a boolean",
        ),
        ("condition(object, 'Ready')", 1, "a map"),
    ] {
        assert_refused(node_rule(when), column, words);
    }
    rules(node_rule("condition(object, 'Ready') == null"));
    rules(node_rule("condition(object, 'Ready').status != 'True'"));
}

#[test]
fn an_element_has_the_type_of_the_elements() {
    for (when, column, words) in [
        (
            "object.metadata.finalizers.first() != 5",
            36,
            "a text with a number",
        ),
        (
            "object.metadata.finalizers.last() == true",
            35,
            "a text with a boolean",
        ),
        (
            "object.metadata.name.split('-')[0] != 5",
            36,
            "a text with a number",
        ),
        ("['a', 'b'][0] == 1", 15, "a text with a number"),
        (
            "object.status.containerStatuses.first() != 'x'",
            41,
            "a map with a text",
        ),
        (
            "object.metadata.finalizers.sort().first() != 5",
            43,
            "a text with a number",
        ),
        (
            "object.metadata.finalizers.reverse()[0] != 5",
            41,
            "a text with a number",
        ),
        (
            "object.status.containerStatuses.slice(0, 1).last().restartCont > 3",
            52,
            "did you mean \"restartCount\"?",
        ),
        (
            "(object.spec.nodeName == null ? null : condition(object, 'Ready')) != 'True'",
            68,
            "a map with a text",
        ),
        (
            "object.status.containerStatuses.first().restartCont > 3",
            41,
            "did you mean \"restartCount\"?",
        ),
    ] {
        assert_refused(pod_rule(when), column, words);
    }
}

#[test]
fn a_field_of_an_element_is_read() {
    let kept = |when: &str| {
        let mut harness = rules(pod_rule(when));
        let mut pod = failed("ci", "a");
        pod["status"]["containerStatuses"] = json!([
            {"name": "first"},
            {"name": "second", "containerID": "x"},
        ]);
        harness.put(pod);
        harness.advance(HOUR);
        !harness.keys("Pod").is_empty()
    };
    let statuses = "object.status.containerStatuses";
    for element in [".last()", "[1]"] {
        assert!(!kept(&format!("{statuses}{element}.containerID == 'x'")));
        assert!(kept(&format!("{statuses}{element}.containerID == 'y'")));
        assert!(!kept(&format!("{statuses}{element} != null")));
    }
    for element in [".first()", "[0]"] {
        assert!(kept(&format!("{statuses}{element}.containerID == 'x'")));
        assert!(!kept(&format!("{statuses}{element}.containerID == null")));
        assert!(!kept(&format!("{statuses}{element}.name == 'first'")));
    }
}

/// The rule would act on every pod.
#[test]
fn a_key_that_objects_do_not_have_is_not_looked_for() {
    let meant = "did you mean \"nodeName\"?";
    assert_refused(pod_rule("!('nodeNam' in object.spec)"), 3, meant);
    let unknown = "object.metadata has no field \"keep\"";
    assert_refused(pod_rule("!('keep' in object.metadata)"), 3, unknown);
    for when in [
        "'nodeName' in object.spec",
        "'keep' in object.metadata.annotations",
        "'example.com/a' in object.metadata.finalizers",
    ] {
        rules(pod_rule(when));
    }
}

#[test]
fn a_boolean_that_is_not_set_is_false_and_spares() {
    let is_deleted = |rule: Value| {
        let mut harness = rules(json!([rule]));
        harness.put(failed("ci", "a"));
        harness.advance(HOUR);
        assert!(harness.report("a").is_none(), "{rule}");
        harness.keys("Pod").is_empty()
    };
    let rule = |when: &str, unless: &str| {
        let mut rule = pod_rule(when)[0].clone();
        if !unless.is_empty() {
            rule["unless"] = json!(unless);
        }
        rule
    };
    assert!(!is_deleted(rule("object.spec.hostNetwork", "")));
    assert!(!is_deleted(rule(
        "object.spec.hostNetwork || object.spec.hostPID",
        ""
    )));
    assert!(!is_deleted(rule("true", "object.spec.hostNetwork")));
    assert!(is_deleted(rule("true", "object.spec.hostNetwork == true")));
}

/// Davit does not know that the field is a boolean, nor that there is one: a breaker holds.
#[test]
fn a_missing_value_that_is_not_known_to_be_a_boolean_fails() {
    let config = json!({
        "counts": {"broken": {"resource": "widgets.v1.example.com", "when": "object.spec.brokn"}},
        "rules": [{
            "name": "failed", "match": {"resource": "pods"}, "when": "true",
            "hold": "counts.broken > 1", "do": {"delete": {}},
        }],
    });
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    harness.put(json!({"apiVersion": "example.com/v1", "kind": "Widget",
        "metadata": {"namespace": "ci", "name": "a"}, "spec": {"broken": true}}));
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    let message = harness.report("failed").unwrap().message;
    assert!(message.contains("it is no boolean"), "{message}");
}

/// A node without the field is not cordoned.
#[test]
fn an_object_without_a_boolean_does_not_count() {
    let config = json!({
        "counts": {"cordoned": {"resource": "nodes", "when": "object.spec.unschedulable"}},
        "rules": [{
            "name": "failed", "match": {"resource": "pods"}, "when": "true",
            "hold": "counts.cordoned > 1", "do": {"delete": {}},
        }],
    });
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    for (name, spec) in [
        ("a", json!({})),
        ("b", json!({"unschedulable": true})),
        ("c", json!({"unschedulable": true})),
    ] {
        harness.put(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name}, "spec": spec}));
    }
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c"}}));
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert!(harness.report("failed").is_none());
}

#[test]
fn a_value_of_another_type_than_the_field_is_not_written() {
    let quotes = "write it in quotes";
    for (resource, action, field, words) in [
        (
            "nodes",
            json!({"mergePatch": {"spec": {"unschedulable": "yes"}}}),
            "mergePatch",
            "spec.unschedulable is a boolean, not a text",
        ),
        (
            "nodes",
            json!({"jsonPatch": [{"op": "add", "path": "/spec/unschedulable", "value": "yes"}]}),
            "jsonPatch[0].value",
            "spec.unschedulable is a boolean, not a text",
        ),
        (
            "nodes",
            json!({"jsonPatch": [{"op": "test", "path": "/spec/unschedulable", "value": 1}]}),
            "jsonPatch[0].value",
            "spec.unschedulable is a boolean, not a whole number",
        ),
        (
            "jobs.batch",
            json!({"mergePatch": {"spec": {"activeDeadlineSeconds": "x"}}}),
            "mergePatch",
            "spec.activeDeadlineSeconds is a whole number, not a text",
        ),
        (
            "jobs.batch",
            json!({"mergePatch": {"spec": {"activeDeadlineSeconds": 1.5}}}),
            "mergePatch",
            "spec.activeDeadlineSeconds is a whole number, not a fraction",
        ),
        (
            "pods",
            json!({"mergePatch": {"metadata": {"labels": "a"}}}),
            "mergePatch",
            "metadata.labels is a map, not a text",
        ),
        (
            "pods",
            json!({"mergePatch": {"spec": {"tolerations": {"key": "a"}}}}),
            "mergePatch",
            "spec.tolerations is a list, not a map",
        ),
        (
            "pods",
            json!({"mergePatch": {"spec": {"tolerations": [{"tolerationSeconds": "5"}]}}}),
            "mergePatch",
            "spec.tolerations[*].tolerationSeconds is a whole number, not a text",
        ),
        (
            "configmaps",
            json!({"mergePatch": {"data": {"n": 5}}}),
            "mergePatch",
            quotes,
        ),
        (
            "configmaps",
            json!({"mergePatch": {"data": {"n": true}}}),
            "mergePatch",
            quotes,
        ),
        (
            "pods",
            json!({"mergePatch": {}}),
            "mergePatch",
            "it changes nothing",
        ),
        (
            "pods",
            json!({"mergePatch": {"metadata": {"finalizers": [null]}}}),
            "mergePatch",
            "metadata.finalizers[*] is null: leave it out",
        ),
    ] {
        assert_not_written(resource, &action, field, words);
    }
}

fn assert_not_written(resource: &str, action: &Value, field: &str, words: &str) {
    let (at, message) = refusal(json!([{
        "name": "a", "match": {"resource": resource}, "when": "true", "do": action,
    }]));
    assert_eq!(at, format!("rules[0].do.{field}"), "{action}: {message}");
    assert!(message.contains(words), "{action}: {message}");
}

#[test]
fn what_an_expression_writes_has_the_type_of_the_field() {
    for (resource, action, field, words) in [
        (
            "deployments.apps",
            json!({"mergePatch": {"spec": {"paused": "${object.metadata.name}"}}}),
            "mergePatch",
            "spec.paused is a boolean, and the expression is a text",
        ),
        (
            "deployments.apps",
            json!({"mergePatch": {"spec": {"replicas": "1${object.metadata.name}"}}}),
            "mergePatch",
            "spec.replicas is a whole number, and the expression is a text",
        ),
        (
            "pods",
            json!({"mergePatch": {"spec": {"tolerations": "${object.spec.tolerations.first()}"}}}),
            "mergePatch",
            "spec.tolerations is a list, and the expression is a map",
        ),
        (
            "configmaps",
            json!({"jsonPatch": [
                {"op": "add", "path": "/data/n", "value": "${size(object.data)}"},
            ]}),
            "jsonPatch[0].value",
            "data.n is a text, and the expression is a number",
        ),
    ] {
        assert_not_written(resource, &action, field, words);
    }
}

#[test]
fn a_value_of_the_type_of_the_field_is_written() {
    for (resource, patch) in [
        ("nodes", json!({"spec": {"unschedulable": true}})),
        (
            "nodes",
            json!({"spec": {"unschedulable": "${object.spec.unschedulable == null}"}}),
        ),
        ("nodes", json!({"spec": {"taints": null}})),
        (
            "pods",
            json!({"metadata": {"finalizers": ["example.com/a"], "labels": null}}),
        ),
        (
            "resourcequotas",
            json!({"spec": {"hard": {"cpu": "0.5", "pods": 5, "memory": 1.5}}}),
        ),
        (
            "services",
            json!({"spec": {"ports": [{"port": 80, "targetPort": "http"}]}}),
        ),
        (
            "services",
            json!({"spec": {"ports": [{"port": 80, "targetPort": 8080}]}}),
        ),
        ("configmaps", json!({"data": {"a": "5"}})),
        (
            "configmaps",
            json!({"data": {"a": "${string(size(object.data))}"}}),
        ),
        (
            "deployments.apps",
            json!({"spec": {"replicas": "${object.spec.replicas + 1}", "paused": "${true}"}}),
        ),
        (
            "pods",
            json!({"metadata": {"annotations": {"a": "${now}", "b": "${object.spec.priority}"}}}),
        ),
        (
            "widgets.v1.example.com",
            json!({"spec": {"size": 5, "name": {"a": [1, "b"]}}}),
        ),
    ] {
        rules(json!([{
            "name": "a", "match": {"resource": resource}, "when": "true",
            "do": {"mergePatch": patch},
        }]));
    }
}

#[test]
fn a_count_that_was_meant_is_named() {
    let refused = |name: &str| {
        let (field, message) = refusal_of(&json!({
            "counts": {"nodes": {"resource": "nodes"}},
            "rules": [{
                "name": "a", "match": {"resource": "pods"}, "when": "true",
                "hold": format!("counts.{name} > 1"), "do": {"delete": {}},
            }],
        }));
        assert_eq!(field, "rules[0].hold", "{message}");
        message
    };
    assert!(refused("node").ends_with("nothing counts \"node\"; did you mean \"nodes\"?"));
    assert!(refused("other").ends_with("nothing counts \"other\": add it under counts"));
}
