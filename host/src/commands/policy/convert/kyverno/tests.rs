//! What policies of Kyverno demand, and what is refused.

use serde_json::{Value, json};

use super::super::tests::{config, converted, deleted, object, problems};

fn pod(name: &str, more: &Value) -> Value {
    object("v1", "Pod", name, more)
}

/// A cleanup policy about pods, with other fields of its spec.
fn cleanup(more: &Value) -> String {
    let mut policy = json!({
        "apiVersion": "kyverno.io/v2", "kind": "ClusterCleanupPolicy", "metadata": {"name": "p"},
        "spec": {"schedule": "* * * * *", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]}},
    });
    set(&mut policy, more);
    policy.to_string()
}

/// The same in CEL.
fn deleting(more: &Value) -> String {
    let mut policy = json!({
        "apiVersion": "policies.kyverno.io/v1", "kind": "DeletingPolicy", "metadata": {"name": "p"},
        "spec": {"schedule": "* * * * *", "matchConstraints": {"resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]},
        ]}},
    });
    set(&mut policy, more);
    policy.to_string()
}

/// Sets parts of a spec, by their JSON pointers.
fn set(policy: &mut Value, more: &Value) {
    for (pointer, value) in more.as_object().unwrap() {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let at = policy["spec"].pointer_mut(parent).unwrap();
        at[key] = value.clone();
    }
}

/// Without a part, each of these policies would delete more objects.
fn assert_refused(policy: &str, expected: &str) {
    let found = problems(policy);
    assert_eq!(found.len(), 1, "{policy}: {found:?}");
    assert!(found[0].contains(expected), "{policy}: {found:?}");
    assert!(converted(policy).controllers.is_empty(), "{policy}");
}

#[test]
fn conditions_and_filters_of_the_wrong_shape_are_refused() {
    let condition = json!({"key": "{{ target.status.phase }}", "operator": "Equals", "value": "a"});
    for (pointer, value, expected) in [
        (
            "/conditions",
            json!({"all": condition}),
            "conditions.all: it is no list",
        ),
        (
            "/conditions",
            json!({"any": "a"}),
            "conditions.any: it is no list",
        ),
        (
            "/conditions",
            json!([condition]),
            "conditions: it is no map",
        ),
        (
            "/conditions",
            json!({"all": [{"key": 1}]}),
            "conditions.all[0].key: it is no text",
        ),
        ("/match/all", json!("a"), "match.all: it is no list"),
        (
            "/match/any/0/resources/annotations",
            json!(["a"]),
            ".annotations: it is no map",
        ),
        (
            "/match/any/0/resources/name",
            json!(["a"]),
            ".name: it is no text",
        ),
        (
            "/match/any/0/resources/names",
            json!("a"),
            ".names: it is no list",
        ),
        (
            "/deletionPropagationPolicy",
            json!(["Orphan"]),
            "Policy: it is no text",
        ),
    ] {
        assert_refused(&cleanup(&json!({pointer: value})), expected);
    }
}

#[test]
fn a_selector_of_the_wrong_shape_is_refused() {
    for (selector, expected) in [
        (json!(["a"]), ": it is no map"),
        (json!({"matchLabels": ["a"]}), ".matchLabels: it is no map"),
        (
            json!({"matchLabels": {"a": "b,c"}}),
            ".matchLabels: \"b,c\" is no label",
        ),
        (
            json!({"matchExpressions": {"key": "a"}}),
            ".matchExpressions: it is no list",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": "b"}]}),
            ".matchExpressions.values: it is no list",
        ),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}),
            ".matchExpressions: the operator \"NotIn\" has no values",
        ),
    ] {
        let policy = cleanup(&json!({"/match/any/0/resources/selector": selector}));
        assert_refused(&policy, &format!(".selector{expected}"));
        let policy = deleting(&json!({"/matchConstraints/namespaceSelector": selector}));
        assert_refused(&policy, &format!(".namespaceSelector{expected}"));
    }
}

#[test]
fn a_part_of_a_deleting_policy_that_has_the_wrong_shape_is_refused() {
    let twice = json!([{"name": "a", "expression": "1"}, {"name": "a", "expression": "2"}]);
    for (pointer, value, expected) in [
        (
            "/conditions",
            json!({"a": "b"}),
            "spec.conditions: it is no list",
        ),
        (
            "/conditions",
            json!([{"expression": true}]),
            "spec.conditions[0].expression: it is no text",
        ),
        (
            "/variables",
            twice,
            "spec.variables: two variables have the same name",
        ),
        (
            "/matchConstraints/objectSelector",
            json!("a"),
            ".objectSelector: it is no map",
        ),
        (
            "/matchConstraints/resourceRules",
            json!({"a": "b"}),
            ".resourceRules: it is no list",
        ),
    ] {
        assert_refused(&deleting(&json!({pointer: value})), expected);
    }
    for (name, value, expected) in [
        (
            "apiGroups",
            json!([]),
            ".resourceRules[0]: it names no resources",
        ),
        ("resourceNames", json!("a"), ".resourceNames: it is no list"),
        (
            "scope",
            json!("Cluster"),
            ".scope: pods are not of its scope",
        ),
        (
            "scope",
            json!("Namespace"),
            ".scope: pods are not of its scope",
        ),
    ] {
        let pointer = format!("/matchConstraints/resourceRules/0/{name}");
        assert_refused(&deleting(&json!({pointer: value})), expected);
    }
}

fn with_condition(expression: &str) -> String {
    deleting(&json!({"/conditions": [{"name": "a", "expression": expression}]}))
}

/// Which of four pods a condition deletes: without labels, without the label, and with it.
fn assert_deletes_of_labelled(cases: &[(&str, &[&str])]) {
    let keep = |value: &str| json!({"metadata.labels.keep": value});
    let objects = json!([
        pod("bare", &json!({})),
        pod("labelled", &json!({"metadata.labels.other": "a"})),
        pod("keep", &keep("yes")),
        pod("lose", &keep("no")),
    ]);
    for (expression, expected) in cases {
        let config = config(&with_condition(expression));
        assert_eq!(deleted(&config, &objects), *expected, "{expression}");
    }
}

/// The API server's CEL fails for a field or a key that is missing.
#[test]
fn a_has_guards_only_what_is_read_beside_it() {
    assert_deletes_of_labelled(&[
        ("!has(object.metadata.labels.keep)", &["labelled"][..]),
        (
            "!has(object.metadata.labels.keep) && object.metadata.labels.keep != 'yes'",
            &[],
        ),
        (
            "has(object.metadata.labels.keep) && object.metadata.labels.keep != 'yes'",
            &["lose"],
        ),
        (
            "!(has(object.metadata.labels.keep) && object.metadata.labels.keep == 'yes')",
            &["labelled", "lose"],
        ),
        ("object.metadata.labels.keep != 'yes'", &["lose"]),
        // A key with a dash is no difference.
        ("object.metadata.labels['other-name'] != 'yes'", &[]),
    ]);
}

/// Where the labels are missing, `in` fails. Where the key is, an `&&` with it is false.
#[test]
fn an_in_guards_the_key_that_is_read_beside_it() {
    assert_deletes_of_labelled(&[
        (
            "!('keep' in object.metadata.labels && object.metadata.labels['keep'] == 'yes')",
            &["labelled", "lose"][..],
        ),
        (
            "!(object.metadata.labels.keep == 'yes' && 'keep' in object.metadata.labels)",
            &["labelled", "lose"],
        ),
        (
            "'keep' in object.metadata.labels && object.metadata.labels['keep'] != 'yes'",
            &["lose"],
        ),
        (
            "!('keep' in object.metadata.labels) && object.metadata.labels['keep'] != 'yes'",
            &[],
        ),
        (
            "!('other' in object.metadata.labels && object.metadata.labels['keep'] == 'yes')",
            &["keep", "lose"],
        ),
        (
            "!(has(object.metadata.labels) && 'keep' in object.metadata.labels && \
             object.metadata.labels['keep'] == 'yes')",
            &["bare", "labelled", "lose"],
        ),
    ]);
}

/// The key may be missing, which is an error there, and `null` here.
#[test]
fn a_key_that_is_computed_has_no_translation() {
    for expression in [
        "object.metadata.annotations[object.metadata.name] != 'keep'",
        "object.metadata.annotations['a/' + object.metadata.name] != 'keep'",
        "object.spec.tolerations[0]['key'] != 'keep'",
    ] {
        let found = problems(&with_condition(expression));
        assert_eq!(found.len(), 1, "{expression}: {found:?}");
        assert!(found[0].contains("of a key that is computed"), "{found:?}");
        assert!(
            converted(&with_condition(expression))
                .controllers
                .is_empty()
        );
    }
}

/// Kyverno's objects have texts where Davit's have times, and CEL compares no time with a text.
#[test]
fn a_time_without_timestamp_has_no_translation() {
    let created = "object.metadata.creationTimestamp is a text in Kyverno";
    let text = "it compares now with a text: write timestamp(…)";
    for (expression, expected) in [
        (
            "time.now() - object.metadata.creationTimestamp > duration('24h')",
            created,
        ),
        ("object.metadata.creationTimestamp < time.now()", created),
        (
            "object.metadata.creationTimestamp.getFullYear() < 2026",
            created,
        ),
        (
            "timestamp('2026-01-01T00:00:00Z') > object.metadata.creationTimestamp",
            created,
        ),
        (
            "timestamp(object.metadata.creationTimestamp) < time.now() && \
             time.now() > object.status.startTime",
            "object.status.startTime is a text in Kyverno",
        ),
        (
            "time.now() - namespaceObject.metadata.creationTimestamp > duration('24h')",
            "namespaceObject.metadata.creationTimestamp is a text in Kyverno",
        ),
        ("time.now() > object.metadata.annotations['expires']", text),
        ("object.metadata.labels.expires < time.now()", text),
    ] {
        assert_refused(&with_condition(expression), expected);
    }
    let in_variable = json!({
        "/variables": [{"name": "created", "expression": "object.metadata.creationTimestamp"}],
        "/conditions": [
            {"name": "a", "expression": "time.now() - variables.created > duration('24h')"},
        ],
    });
    assert_refused(&deleting(&in_variable), created);
}

#[test]
fn a_time_with_timestamp_is_translated() {
    let old = json!({"metadata.creationTimestamp": "2026-11-20T00:00:00Z"});
    let never = json!({
        "metadata.creationTimestamp": "2026-11-20T00:00:00Z",
        "metadata.annotations.last": "0001-01-01T00:00:00Z",
    });
    let objects = json!([pod("old", &old), pod("never", &never)]);
    let condition = "time.now() - timestamp(object.metadata.creationTimestamp) > duration('24h') && \
                     !has(object.metadata.deletionTimestamp)";
    let found = deleted(&config(&with_condition(condition)), &objects);
    assert_eq!(found, ["never", "old"]);
    // Kyverno's CEL has no duration of 2026 years: an error, and the object stays.
    let condition = "time.now() - timestamp(object.metadata.annotations.last) > duration('24h')";
    let found = deleted(&config(&with_condition(condition)), &objects);
    assert!(found.is_empty(), "{found:?}");
}

/// Whether its objects have a namespace is not known of a custom resource.
#[test]
fn the_namespace_of_a_custom_resource_may_be_missing() {
    let policy = deleting(&json!({
        "/matchConstraints/resourceRules": [
            {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]},
        ],
        "/conditions": [{"name": "a", "expression": "object.metadata.namespace != 'prod'"}],
    }));
    let widget = |metadata: Value| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata});
    let config = config(&policy);
    let of_cluster = json!([widget(json!({"name": "of-cluster"}))]);
    assert!(deleted(&config, &of_cluster).is_empty(), "{config}");
    let in_namespace = json!([widget(json!({"name": "in-namespace", "namespace": "shop"}))]);
    assert_eq!(deleted(&config, &in_namespace), ["in-namespace"]);
}

#[test]
fn a_wildcard_stands_for_line_ends_too() {
    let excluded = json!({"any": [{"resources": {"annotations": {"note": "a*b*c"}}}]});
    let config = config(&cleanup(&json!({"/exclude": excluded})));
    let noted = |name: &str, note: &str| pod(name, &json!({"metadata.annotations.note": note}));
    let objects = json!([
        noted("one-line", "a, b and c"),
        noted("lines", "a\nb\nand c"),
        noted("other", "a\nb\nand d"),
        pod("bare", &json!({})),
    ]);
    assert_eq!(deleted(&config, &objects), ["bare", "other"]);
}

/// Kyverno compares in both directions.
#[test]
fn a_text_with_a_wildcard_is_not_taken_for_one_that_is_not_in_a_list() {
    let noted = |name: &str, note: &str| pod(name, &json!({"metadata.annotations.note": note}));
    let finalized =
        |name: &str, finalizers: Value| pod(name, &json!({"metadata.finalizers": finalizers}));
    let note = "{{ target.metadata.annotations.note }}";
    let finalizers = "{{ target.metadata.finalizers }}";
    let objects = json!([
        noted("other", "*/5 2 * * 1"),
        noted("any", "*"),
        noted("one", "??"),
        noted("plain", "no"),
        noted("value", "ab"),
        finalized("f-plain", json!(["no"])),
        finalized("f-any", json!(["*"])),
        finalized("f-value", json!(["ab"])),
        finalized("f-both", json!(["a*", "no"])),
    ]);
    for (key, operator, values, expected) in [
        (note, "NotIn", json!(["ab"]), &["plain"][..]),
        (note, "AnyNotIn", json!(["ab"]), &["plain"]),
        (note, "AllNotIn", json!(["a*"]), &["plain"]),
        (note, "AnyIn", json!(["ab"]), &["value"]),
        (
            finalizers,
            "AnyNotIn",
            json!(["ab"]),
            &["f-both", "f-plain"],
        ),
        (finalizers, "AllNotIn", json!(["ab"]), &["f-plain"]),
        (finalizers, "AnyIn", json!(["ab"]), &["f-value"]),
    ] {
        let condition = json!({"key": key, "operator": operator, "value": values});
        for block in ["all", "any"] {
            let policy = cleanup(&json!({"/conditions": {block: [condition]}}));
            let config = config(&policy);
            assert_eq!(
                deleted(&config, &objects),
                expected,
                "{key} {operator} {block}"
            );
        }
    }
}

/// The `resourceFilters` that Kyverno ships with have them.
#[test]
fn kinds_that_kyverno_spares_by_default_become_no_rule() {
    for (kind, group, plural) in [
        ("APIService", "apiregistration.k8s.io", "apiservices"),
        ("Node", "", "nodes"),
    ] {
        let expected = format!("spare all {plural} by default");
        let resources = json!({"kinds": [kind]});
        let policy = cleanup(&json!({"/match/any": [{"resources": resources}]}));
        assert_refused(&policy, &expected);
        let rules = json!([{"apiGroups": [group], "apiVersions": ["v1"], "resources": [plural]}]);
        let policy = deleting(&json!({"/matchConstraints/resourceRules": rules}));
        assert_refused(&policy, &expected);
    }
}
