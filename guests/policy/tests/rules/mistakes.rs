//! Mistakes are refused with the rule, the place and what was meant.

use serde_json::{Value, json};

use crate::support::{refusal, refusal_of, rules};

fn rule(changes: Value) -> Value {
    let mut rule = json!({
        "name": "a",
        "match": {"resource": "pods"},
        "when": "true",
        "do": {"delete": {}},
    });
    let rule_fields = rule.as_object_mut().unwrap();
    rule_fields.extend(changes.as_object().unwrap().clone());
    rule
}

fn with(changes: Value) -> (String, String) {
    refusal(json!([rule(changes)]))
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn mistakes_are_refused_by_name() {
    for (changes, field, words) in [
        (json!({"name": "A b"}), "rules[0].name", "short word"),
        (
            json!({"match": {"resource": "pod"}}),
            "rules[0].match.resource",
            "did you mean \"pods\"?",
        ),
        (
            json!({"match": {"resource": "widgets.example.com"}}),
            "rules[0].match.resource",
            "widgets.v1.example.com",
        ),
        (
            json!({"match": {"resource": "jobs"}}),
            "rules[0].match.resource",
            "\"jobs\" is no built-in resource; did you mean \"jobs.batch\"?",
        ),
        (
            json!({"match": {"resource": "deployment"}}),
            "rules[0].match.resource",
            "did you mean \"deployments.apps\"?",
        ),
        (
            json!({"match": {"resource": "events.apps"}}),
            "rules[0].match.resource",
            "did you mean \"events\" or \"events.events.k8s.io\"?",
        ),
        (
            json!({"match": {"resource": "nodes", "namespaces": ["a"]}}),
            "rules[0].match",
            "in no namespace",
        ),
        (json!({"when": ""}), "rules[0].when", "say when"),
        (
            json!({"when": "object.status.phase"}),
            "rules[0].when",
            "rule a: column 1: it is a text, not a boolean",
        ),
        (
            json!({"when": "true && object.status.fase == 'x'"}),
            "rules[0].when",
            "rule a: column 23: object.status has no field \"fase\"; did you mean \"phase\"?",
        ),
        (
            json!({"when": "node.spec.unschedulabel"}),
            "rules[0].when",
            "did you mean \"unschedulable\"?",
        ),
        (json!({"unless": "1 +"}), "rules[0].unless", "column 4: "),
        (
            json!({"hold": "now > now || counts.nodes > 1"}),
            "rules[0].hold",
            "rule a: column 21: nothing counts \"nodes\"",
        ),
        (
            json!({"variables": {"old": "object.status.fase"}, "when": "variables.old == 'x'"}),
            "rules[0].variables.old",
            "rule a: column 15: object.status has no field \"fase\"; did you mean \"phase\"?",
        ),
        (
            json!({"variables": {"old": "true"}, "when": "variables.odl"}),
            "rules[0].when",
            "rule a: column 11: the rule has no variable \"odl\"; did you mean \"old\"?",
        ),
        (
            json!({"message": "it is ${object.metadata.name} and ${object.metadata.nam}"}),
            "rules[0].message",
            "rule a: in ${object.metadata.nam}: column 17: object.metadata has no field \"nam\"; did you \
             mean \"name\"?",
        ),
        (
            json!({"keep": {"newest": 3, "oldest": 1}}),
            "rules[0].keep",
            "either",
        ),
        (
            json!({"keep": {"newest": 3, "above": 1}}),
            "rules[0].keep.above",
            "less than",
        ),
        (
            json!({"keep": {"newest": 3, "per": "metadata.lables"}}),
            "rules[0].keep.per",
            "rule a: column 10: object.metadata has no field \"lables\"; did you mean \"labels\"?",
        ),
        (
            json!({"keep": {"newest": 3, "per": "owners"}}),
            "rules[0].keep.per",
            "there is no \"owners\"; did you mean \"owner\"?",
        ),
        (json!({"do": {}}), "rules[0].do", "say what is done"),
        (
            json!({"do": {"delete": null}}),
            "rules[0].do.delete",
            "without options, write delete: {}",
        ),
        (
            json!({"do": {"delete": {}, "evict": {}}}),
            "rules[0].do",
            "either",
        ),
        (
            json!({"do": {"delete": {"propagationPolicy": "Later"}}}),
            "rules[0].do.delete.propagationPolicy",
            "Foreground",
        ),
        (
            json!({"do": {"taint": {"key": "a", "effect": "NoExecute"}}}),
            "rules[0].do.taint",
            "only nodes",
        ),
        (
            json!({"do": {"label": {"a": "${object.metadata.nam}"}}}),
            "rules[0].do",
            "did you mean \"name\"?",
        ),
        (
            json!({"do": {"jsonPatch": [{"op": "move", "path": "/a"}]}}),
            "rules[0].do.jsonPatch[0].op",
            "add",
        ),
        (
            json!({"related": {"job": {"resource": "jobs.batch", "by": "spec.nope", "is": "object.metadata.name"}}}),
            "rules[0].related.job.by",
            "rule a: column 6: jobs.batch (v1) has no field \"spec.nope\"",
        ),
        (
            json!({"when": "age(object) > duration('2months')"}),
            "rules[0].when",
            "\"2months\" is no duration",
        ),
        (
            json!({"when": "object.metadata.name.matches('(')"}),
            "rules[0].when",
            "column 22: ",
        ),
        (
            json!({"do": {"label": {"a": "b"}, "delete": {}}}),
            "rules[0].do",
            "two rules",
        ),
        (
            json!({"keep": {"newest": 1}, "do": {"event": {"reason": "A", "message": "b"}}}),
            "rules[0].keep",
            "spares nothing",
        ),
        (
            json!({"match": {"resource": "pods", "namespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "in", "values": ["ci"]}]}}}),
            "rules[0].match.namespaceSelector",
            "\"in\" is no operator",
        ),
        (
            json!({"match": {"resource": "pods", "namespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "Exists", "values": ["ci"]}]}}}),
            "rules[0].match.namespaceSelector",
            "Exists takes no values",
        ),
        (
            json!({"do": {"untaint": {"key": "a"}}}),
            "rules[0].do.untaint",
            "only nodes",
        ),
        (
            json!({"wen": "true"}),
            "rules[0].wen",
            "; did you mean \"when\"?",
        ),
        (
            json!({"match": {"resource": "pods", "namespace": "ci"}}),
            "rules[0].match.namespace",
            "; did you mean \"namespaces\"?",
        ),
        (
            json!({"when": "object.status.phase = 'Failed'"}),
            "rules[0].when",
            "rule a: column 21: \"=\" is no operator; did you mean \"==\"?",
        ),
        (
            json!({"variables": {"old": "age(object) > 24h"}, "when": "variables.old"}),
            "rules[0].variables.old",
            "rule a: column 15: \"24h\" is no number: write duration('24h')",
        ),
        (
            json!({"when": "has(object.metadata.labels['a'])"}),
            "rules[0].when",
            "rule a: column 1: has() takes a field: write object.metadata.labels['a'] != null",
        ),
        (
            json!({"when": "object.spec.containers.image == 'a'"}),
            "rules[0].when",
            "object.spec.containers has no field \"image\": it is a list; for its elements, write \
             exists(it, it.image == …)",
        ),
        (
            json!({"when": "object.metadata.name.toLower() == 'a'"}),
            "rules[0].when",
            "there is no function \"toLower\"; did you mean \"lowerAscii\"?",
        ),
        (
            json!({"match": {"resource": "widgets.v1.example.com"},
                "when": "object.spec.size > 3 && object.metadata.fooo == 'a'"}),
            "rules[0].when",
            "rule a: column 41: object.metadata has no field \"fooo\"",
        ),
        (
            json!({"match": {"resource": "widgets.v1.example.com"},
                "related": {"users": {"resource": "gadgets.v1.example.com",
                    "by": "metadata.lables.widget", "is": "object.metadata.name"}},
                "when": "size(users) == 0"}),
            "rules[0].related.users.by",
            "gadgets.example.com (v1) has no field \"metadata.lables\"; did you mean \
             \"metadata.labels\"?",
        ),
    ] {
        let (found, message) = with(changes.clone());
        assert_eq!(found, field, "{changes}: {message}");
        assert!(message.contains(words), "{changes}: {message}");
    }
}

#[test]
fn rules_have_names_of_their_own() {
    let rule =
        json!({"name": "a", "match": {"resource": "pods"}, "when": "true", "do": {"delete": {}}});
    let (field, message) = refusal(json!([rule, rule]));
    assert_eq!(field, "rules[1].name", "{message}");
    assert_eq!(refusal(json!([])).0, "rules");
}

/// The configuration of a rule that waits by an expression.
fn held(hold: &str, variables: Value) -> Value {
    json!({
        "counts": {"nodes": {"resource": "nodes"}, "lost": {"resource": "nodes"}},
        "rules": [rule(json!({"hold": hold, "variables": variables}))],
    })
}

#[test]
fn arithmetic_of_counts_that_loses_the_fraction_or_fails_is_refused() {
    let quotient = "counts are whole numbers, and so is their quotient: write \
                    counts.a * 10 > counts.b * 3 or double(counts.a) / double(counts.b) > 0.3";
    for (hold, column, words) in [
        ("counts.lost / counts.nodes > 0.3", 13, quotient),
        ("counts.lost * 100 / counts.nodes > 30", 19, quotient),
        ("counts.nodes / 2 < counts.lost", 14, quotient),
        ("now < now || counts['lost'] / 2 > 1", 29, quotient),
        ("(now < now ? counts.lost : 1) / 2 > 1", 31, quotient),
        ("[counts.lost].exists(c, c / 2 > 1)", 27, quotient),
        ("[counts.lost, counts.nodes].max() / 2 > 1", 35, quotient),
        ("int(counts.lost) / 2 > 1", 18, quotient),
        (
            "counts.lost > 0.3 * counts.nodes",
            19,
            "write double(counts.nodes)",
        ),
        ("counts.lost * 0.3 > 1.0", 13, "write double(counts.lost)"),
        ("counts.lost / 0.3 > 1.0", 13, "write double(counts.lost)"),
        ("counts.lost - 0.5 > 1.0", 13, "write double(counts.lost)"),
        (
            "-0.5 + counts['lost'] > 1.0",
            6,
            "write double(counts.lost)",
        ),
        (
            "double(counts.lost) / counts.nodes > 0.3",
            21,
            "write double(counts.nodes)",
        ),
        (
            "double(counts.lost) / double(counts.nodes) * 100 > 30.0",
            44,
            "write 100.0",
        ),
        ("counts.lost == 'many'", 13, "compares a number with a text"),
        ("counts.lost.size() > 1", 1, "size takes"),
    ] {
        let (field, message) = refusal_of(&held(hold, json!({})));
        assert_eq!(field, "rules[0].hold", "{hold}: {message}");
        let start = format!("rule a: column {column}: ");
        assert!(message.starts_with(&start), "{hold}: {message}");
        assert!(message.contains(words), "{hold}: {message}");
    }
    let variables = json!({"ratio": "counts.lost / counts.nodes"});
    let (field, message) = refusal_of(&held("variables.ratio > 0.3", variables));
    assert_eq!(field, "rules[0].variables.ratio", "{message}");
    assert!(message.contains("column 13: counts are"), "{message}");
}

#[test]
fn fields_that_objects_do_not_have_are_not_written() {
    for (resource, action, field, words) in [
        (
            "jobs.batch",
            json!({"mergePatch": {"spec": {"activDeadlineSeconds": 1}}}),
            "mergePatch",
            "jobs.batch (v1) has no field \"spec.activDeadlineSeconds\"; did you mean \
             \"spec.activeDeadlineSeconds\"?",
        ),
        (
            "pods",
            json!({"mergePatch": {"spec": {"tolerations": [{"kye": "a"}]}}}),
            "mergePatch",
            "no field \"spec.tolerations[*].kye\"; did you mean \"spec.tolerations[*].key\"?",
        ),
        (
            "pods",
            json!({"mergePatch": {"metadata": {"lables": null}}}),
            "mergePatch",
            "no field \"metadata.lables\"; did you mean \"metadata.labels\"?",
        ),
        (
            "pods",
            json!({"mergePatch": {"spec": {"zzzzzzzz": 1}}}),
            "mergePatch",
            "no field \"spec.zzzzzzzz\"; Davit knows those of Kubernetes",
        ),
        (
            "widgets.v1.example.com",
            json!({"mergePatch": {"metadata": {"lables": {"a": "b"}}}}),
            "mergePatch",
            "did you mean \"metadata.labels\"?",
        ),
        (
            "deployments.apps",
            json!({"jsonPatch": [{"op": "replace", "path": "/spec/replicaz", "value": 0}]}),
            "jsonPatch[0].path",
            "no field \"spec.replicaz\"; did you mean \"spec.replicas\"?",
        ),
        (
            "deployments.apps",
            json!({"jsonPatch": [{"op": "remove", "path": "/spec/template/spec/containers/0/imag"}]}),
            "jsonPatch[0].path",
            "did you mean \"spec.template.spec.containers[*].image\"?",
        ),
        (
            "deployments.apps",
            json!({"jsonPatch": [{"op": "test", "path": "/spec/paussed", "value": true}]}),
            "jsonPatch[0].path",
            "did you mean \"spec.paused\"?",
        ),
        (
            "deployments.apps",
            json!({"jsonPatch": [
                {"op": "test", "path": "/spec/template/spec/tolerations", "value": []},
                {"op": "add", "path": "/spec/template/spec/tolerations/-", "value": {"kee": "a"}}]}),
            "jsonPatch[1].value",
            "did you mean \"spec.template.spec.tolerations[*].key\"?",
        ),
    ] {
        refused_write(resource, &action, field, words);
    }
}

#[test]
fn what_the_api_server_does_not_let_a_rule_write_is_refused() {
    let pointer = |path: &str| json!({"jsonPatch": [{"op": "add", "path": path, "value": "a"}]});
    for (action, field, words) in [
        (
            json!({"mergePatch": {"status": {"phase": "Failed"}}}),
            "mergePatch",
            "status is a subresource",
        ),
        (
            pointer("/status/phase"),
            "jsonPatch[0].path",
            "status is a subresource",
        ),
        (
            pointer("/metadata/name"),
            "jsonPatch[0].path",
            "metadata.name is fixed",
        ),
        (
            json!({"mergePatch": {"metadata": {"namespace": "other"}}}),
            "mergePatch",
            "metadata.namespace is fixed",
        ),
        (
            json!({"mergePatch": {"metadata": {"uid": "a", "labels": {"a": "b"}}}}),
            "mergePatch",
            "metadata.uid is fixed",
        ),
        (
            json!({"mergePatch": {"metadata": {"deletionTimestamp": "${now}"}}}),
            "mergePatch",
            "metadata.deletionTimestamp is fixed",
        ),
        (
            json!({"mergePatch": {"metadata": null}}),
            "mergePatch",
            "a field below metadata",
        ),
        (
            json!({"jsonPatch": [{"op": "remove", "path": "/metadata"}]}),
            "jsonPatch[0].path",
            "a field below metadata",
        ),
        (
            json!({"mergePatch": {"kind": "Job"}}),
            "mergePatch",
            "kind is fixed",
        ),
        (
            json!({"jsonPatch": [{"op": "replace", "path": "/spec/nodeName"}]}),
            "jsonPatch[0].value",
            "it must be set",
        ),
        (
            json!({"jsonPatch": [{"op": "add", "path": "/spec/nodeName", "value": null}]}),
            "jsonPatch[0].value",
            "\"remove\"",
        ),
        (
            json!({"jsonPatch": [{"op": "replace", "path": "/metadata/labels/a"}]}),
            "jsonPatch[0].value",
            "it must be set",
        ),
    ] {
        refused_write("pods", &action, field, words);
    }
    // A test reads.
    for accepted in [
        json!({"op": "test", "path": "/status/phase", "value": "Failed"}),
        json!({"op": "test", "path": "/metadata/uid", "value": "a"}),
        json!({"op": "test", "path": "/metadata/annotations/keep", "value": null}),
    ] {
        let add = json!({"op": "add", "path": "/metadata/labels/a", "value": "b"});
        rules(json!([rule(json!({"do": {"jsonPatch": [accepted, add]}}))]));
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn keys_and_values_follow_the_rules_of_kubernetes() {
    let long = "a".repeat(64);
    for (resource, action, field, words) in [
        (
            "pods",
            json!({"label": {"a b": "b"}}),
            "label",
            "\"a b\" is no key",
        ),
        (
            "pods",
            json!({"label": {"A.com/a": "b"}}),
            "label",
            "\"A.com/a\" is no key",
        ),
        (
            "pods",
            json!({"label": {"a/b/c": "b"}}),
            "label",
            "is no key",
        ),
        ("pods", json!({"label": {"": "b"}}), "label", "is no key"),
        ("pods", json!({"label": {"-a": null}}), "label", "is no key"),
        (
            "pods",
            json!({ "label": {long.as_str(): "b"} }),
            "label",
            "is no key",
        ),
        (
            "pods",
            json!({"label": {"team": "a b"}}),
            "label",
            "\"a b\" is no value of a label",
        ),
        (
            "pods",
            json!({"label": {"team": "a-"}}),
            "label",
            "is no value of a label",
        ),
        (
            "pods",
            json!({ "label": {"team": long} }),
            "label",
            "is no value of a label",
        ),
        (
            "pods",
            json!({"annotate": {"a b": "c"}}),
            "annotate",
            "\"a b\" is no key",
        ),
        (
            "pods",
            json!({"mergePatch": {"metadata": {"labels": {"team": "a b"}}}}),
            "mergePatch",
            "is no value of a label",
        ),
        (
            "pods",
            json!({"mergePatch": {"metadata": {"labels": {"team": 5}}}}),
            "mergePatch",
            "the value of the label team is a text: write it in quotes",
        ),
        (
            "pods",
            json!({"mergePatch": {"metadata": {"annotations": {"a b": "c"}}}}),
            "mergePatch",
            "is no key",
        ),
        (
            "pods",
            json!({"jsonPatch": [{"op": "add", "path": "/metadata/labels/a b", "value": "c"}]}),
            "jsonPatch[0].path",
            "is no key",
        ),
        (
            "pods",
            json!({"jsonPatch": [{"op": "add", "path": "/metadata/labels/a", "value": "c d"}]}),
            "jsonPatch[0].value",
            "is no value of a label",
        ),
        (
            "pods",
            json!({"jsonPatch": [{"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}}]}),
            "jsonPatch[0].value",
            "is no key",
        ),
        (
            "nodes",
            json!({"taint": {"key": "a b", "effect": "NoSchedule"}}),
            "taint.key",
            "is no key",
        ),
        (
            "nodes",
            json!({"taint": {"key": "a", "value": "b c", "effect": "NoSchedule"}}),
            "taint.value",
            "is no value",
        ),
        (
            "nodes",
            json!({"untaint": {"key": "a b"}}),
            "untaint.key",
            "is no key",
        ),
    ] {
        refused_write(resource, &action, field, words);
    }
    for accepted in [
        json!({"label": {"example.com/a_b.c": "A-b_c.1", "x": "", "y": "${object.metadata.name} z"}}),
        json!({"annotate": {"Example.com/a": "any text, of any length"}}),
        json!({"jsonPatch": [{"op": "add", "path": "/metadata/labels/example.com~1a", "value": "b"}]}),
        json!({"mergePatch": {"metadata": {"labels": {"a": null}, "finalizers": []}}}),
    ] {
        rules(json!([rule(json!({"do": accepted}))]));
    }
}

fn refused_write(resource: &str, action: &Value, field: &str, words: &str) {
    let (found, message) = with(json!({"match": {"resource": resource}, "do": action}));
    assert_eq!(found, format!("rules[0].do.{field}"), "{action}: {message}");
    assert!(message.starts_with("rule a: "), "{action}: {message}");
    assert!(message.contains(words), "{action}: {message}");
}
