//! What would act on more objects than its author expects is refused.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, failed, refusal, refusal_of, rules};

fn rule(changes: Value) -> Value {
    let mut rule = json!({
        "name": "a",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "do": {"delete": {}},
    });
    let fields = rule.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    rule
}

/// Folded lines are one line, so that the comment has what stands on the next one.
#[test]
fn a_comment_that_swallows_the_next_clause_is_refused() {
    let words = "ends with its line: write it above the field, behind a #";
    for (changes, field, column) in [
        (
            json!({"when": "object.spec.hostNetwork // what shares it && now > now"}),
            "when",
            25,
        ),
        // `>` ends the text with a line break, and a blank line in it is one.
        (json!({"when": "true // all && false\n"}), "when", 6),
        (
            json!({"when": "true // all && false\n&& true\n"}),
            "when",
            6,
        ),
        (
            json!({"when": "true // all || false\n|| true\n"}),
            "when",
            6,
        ),
        (json!({"unless": "false // never || true"}), "unless", 7),
        (json!({"hold": "now > now // none || true"}), "hold", 11),
        (
            json!({"variables": {"b": "true // b"}, "when": "variables.b"}),
            "variables.b",
            6,
        ),
        (
            json!({"keep": {"newest": 1, "by": "now // b"}}),
            "keep.by",
            5,
        ),
    ] {
        let (found, message) = refusal(json!([rule(changes.clone())]));
        assert_eq!(found, format!("rules[0].{field}"), "{changes}: {message}");
        let start = format!("rule a: column {column}: a comment");
        assert!(message.starts_with(&start), "{changes}: {message}");
        assert!(message.contains(words), "{changes}: {message}");
    }
    let config = json!({
        "counts": {"pods": {"resource": "pods", "when": "true // pods && false"}},
        "rules": [rule(json!({}))],
    });
    let (field, message) = refusal_of(&config);
    assert_eq!(field, "counts.pods.when", "{message}");
    assert!(message.contains(words), "{message}");
    for accepted in [
        "object.status.phase == 'Failed' // what has failed\n&& object.spec.hostNetwork\n",
        "// what has failed\nobject.status.phase == 'Failed'",
        "object.metadata.annotations['url'] == 'https://a.b'",
        "object.status.phase == 'Failed'\n&& object.spec.hostNetwork // the node's\n",
    ] {
        rules(json!([rule(json!({"when": accepted}))]));
    }
}

/// A rule with each of these changes is refused: its field, and how the message starts.
fn refuses(cases: &[(Value, &str, &str)]) {
    for (changes, field, words) in cases {
        let (found, message) = refusal(json!([rule(changes.clone())]));
        assert_eq!(found, format!("rules[0].{field}"), "{changes}: {message}");
        let start = format!("rule a: {words}");
        assert!(message.starts_with(&start), "{changes}: {message}");
    }
}

#[test]
fn an_empty_part_of_a_match_is_refused_by_name() {
    let of_match = |name: &str, value: Value| json!({"match": {"resource": "pods", name: value}});
    refuses(&[
        (
            of_match("namespaces", json!([])),
            "match.namespaces",
            "it is empty: leave it out for all namespaces",
        ),
        (
            of_match("namespaces", json!(["ci", " "])),
            "match.namespaces[1]",
            "it is empty",
        ),
        (
            of_match("namespaces", json!(null)),
            "match.namespaces",
            "it is null: leave it out for all namespaces",
        ),
        (
            of_match("namespaceSelector", json!(null)),
            "match.namespaceSelector",
            "it is null: leave it out for all namespaces",
        ),
        (
            of_match("namespaceSelector", json!({})),
            "match.namespaceSelector",
            "it is empty: leave it out for all namespaces",
        ),
        (
            of_match("namespaceSelector", json!({"matchLabels": null})),
            "match.namespaceSelector.matchLabels",
            "it is null",
        ),
        (
            of_match("labelSelector", json!("  ")),
            "match.labelSelector",
            "it is empty: leave it out for all objects",
        ),
        (
            of_match("labelSelector", json!(null)),
            "match.labelSelector",
            "it is null: leave it out for all objects",
        ),
        (
            of_match("fieldSelector", json!("")),
            "match.fieldSelector",
            "it is empty: leave it out for all objects",
        ),
        (
            json!({"match": null}),
            "match",
            "it is null: say which objects",
        ),
    ]);
}

#[test]
fn an_empty_part_of_a_rule_is_refused_by_name() {
    refuses(&[
        (json!({"when": null}), "when", "it is null: say when"),
        (
            json!({"unless": null}),
            "unless",
            "it is null: leave it out if the rule spares no object",
        ),
        (
            json!({"unless": "\n"}),
            "unless",
            "it is empty: leave it out if the rule spares no object",
        ),
        (
            json!({"hold": ""}),
            "hold",
            "it is empty: leave it out if the rule never waits",
        ),
        (
            json!({"hold": null}),
            "hold",
            "it is null: leave it out if the rule never waits",
        ),
        (
            json!({"keep": null}),
            "keep",
            "it is null: leave it out if the rule spares no object",
        ),
        (
            json!({"keep": {"newest": 1, "per": ""}}),
            "keep.per",
            "it is empty: leave it out to count all objects together",
        ),
        (
            json!({"keep": {"newest": 1, "above": null}}),
            "keep.above",
            "it is null",
        ),
        (
            json!({"do": {"delete": {"propagationPolicy": null}}}),
            "do.delete.propagationPolicy",
            "it is null: leave it out",
        ),
        (
            json!({"do": {"evict": {"thenDeleteAfter": null}}}),
            "do.evict.thenDeleteAfter",
            "it is null: leave it out",
        ),
        (json!({"proof": null}), "proof", "it is null"),
    ]);
}

/// YAML makes a boolean of `true` without quotes.
#[test]
fn a_condition_may_be_a_boolean() {
    let count = |changes: Value| {
        let mut harness = Harness::<Policy>::new(&json!({
            "counts": {"nodes": {"resource": "nodes", "when": true}},
            "rules": [rule(changes)],
        }))
        .unwrap_or_else(|error| panic!("{error:?}"));
        harness.put(failed("ci", "a"));
        harness.advance(HOUR);
        harness.keys("Pod").len()
    };
    assert_eq!(count(json!({"when": true})), 0);
    assert_eq!(count(json!({"when": true, "unless": false})), 0);
    assert_eq!(count(json!({"when": true, "unless": true})), 1);
    assert_eq!(count(json!({"when": false})), 1);
    assert_eq!(count(json!({"hold": true})), 1);
    let (field, message) = refusal(json!([rule(json!({"when": 5}))]));
    assert_eq!(field, "rules[0].when");
    assert_eq!(message, "expected text, found 5");
}

#[test]
fn an_empty_part_of_a_count_is_refused_by_name() {
    for (name, value, words) in [
        ("labelSelector", json!(""), "leave it out for all objects"),
        (
            "when",
            json!(null),
            "leave it out for all objects of the count",
        ),
        (
            "when",
            json!(" "),
            "leave it out for all objects of the count",
        ),
    ] {
        let (found, message) = refusal_of(&json!({
            "counts": {"nodes": {"resource": "nodes", name: value}},
            "rules": [rule(json!({}))],
        }));
        assert_eq!(found, format!("counts.nodes.{name}"), "{message}");
        assert!(message.contains(words), "{name}: {message}");
    }
    let nothing = json!({"counts": null, "rules": [rule(json!({}))]});
    assert_eq!(refusal_of(&nothing).0, "counts");
}

/// What takes something away is no empty part.
#[test]
fn a_null_in_what_is_written_takes_a_field_away() {
    for action in [
        json!({"label": {"a": null, "b": ""}}),
        json!({"annotate": {"a": null}}),
        json!({"mergePatch": {"metadata": {"labels": null}, "spec": {"nodeSelector": {}}}}),
        json!({"jsonPatch": [
            {"op": "test", "path": "/metadata/labels", "value": null},
            {"op": "add", "path": "/metadata/labels", "value": {"a": ""}},
        ]}),
    ] {
        rules(json!([rule(json!({"do": action}))]));
    }
}

#[test]
fn a_selector_that_the_api_server_would_refuse_is_refused() {
    for (selector, column, words) in [
        ("app in web", 8, "values in brackets: app in (web)"),
        ("app in (web", 12, "\",\" or \")\""),
        ("app in (web api)", 13, "\",\" or \")\""),
        ("app = web api", 11, "\",\""),
        ("app,", 5, "a label"),
        ("=web", 1, "a label"),
        ("app ~ web", 5, "in, notin, =, ==, !=, > or <"),
        ("app = a b", 9, "\",\""),
        ("app=-web", 5, "\"-web\" is no value of a label"),
        ("a//b=c", 1, "\"a//b\" is no key"),
        ("generation>many", 12, "a whole number"),
        ("!app=web", 5, "\",\""),
    ] {
        let labels = json!({"match": {"resource": "pods", "labelSelector": selector}});
        let (field, message) = refusal(json!([rule(labels)]));
        assert_eq!(field, "rules[0].match.labelSelector", "{message}");
        let start = format!("rule a: column {column}: ");
        assert!(message.starts_with(&start), "{selector}: {message}");
        assert!(message.contains(words), "{selector}: {message}");
        let config = json!({
            "counts": {"pods": {"resource": "pods", "labelSelector": selector}},
            "rules": [rule(json!({}))],
        });
        assert_eq!(refusal_of(&config).0, "counts.pods.labelSelector");
    }
    for accepted in [
        "app",
        "!app",
        "app=web,tier!=a",
        "app == web",
        "example.com/app in (web, api),tier notin (a,b), x",
        "app=",
        "app in (,a)",
        "generation > 4",
        "in notin (in)",
    ] {
        let labels = json!({"match": {"resource": "pods", "labelSelector": accepted}});
        rules(json!([rule(labels)]));
    }
}

#[test]
fn a_field_selector_names_fields_that_objects_are_selected_by() {
    for (resource, selector, column, words) in [
        (
            "pods",
            "status.reason=Evicted",
            1,
            "pods are not selected by \"status.reason\": write \
             when: object.status.reason == 'Evicted'",
        ),
        (
            "pods",
            "status.phase=Failed,status.fase!=x",
            21,
            "metadata.name, metadata.namespace, spec.nodeName",
        ),
        (
            "configmaps",
            "data.a=b",
            1,
            "configmaps are not selected by \"data.a\"",
        ),
        ("pods", "status.phase", 1, "write status.phase=VALUE"),
        (
            "pods",
            "status.phase in (Failed)",
            1,
            "write status.phase=VALUE",
        ),
        ("pods", "metadata.name=a=b", 16, "write \\= for \"=\""),
        ("widgets.v1.example.com", "spec.size", 1, "=VALUE"),
    ] {
        let fields = json!({
            "match": {"resource": resource, "fieldSelector": selector},
            "when": "true",
        });
        let (field, message) = refusal(json!([rule(fields)]));
        assert_eq!(field, "rules[0].match.fieldSelector", "{message}");
        let start = format!("rule a: column {column}: ");
        assert!(message.starts_with(&start), "{selector}: {message}");
        assert!(message.contains(words), "{selector}: {message}");
    }
    for (resource, accepted) in [
        ("pods", "spec.nodeName=n1,status.phase!=Running"),
        ("pods", "metadata.name==a,"),
        ("configmaps", "metadata.namespace!=a\\,b"),
        ("nodes", "spec.unschedulable=true"),
        ("jobs.batch", "status.successful=1"),
        ("events", "involvedObject.kind=Pod"),
    ] {
        let fields = json!({
            "match": {"resource": resource, "fieldSelector": accepted},
            "when": "true",
        });
        rules(json!([rule(fields)]));
    }
}
