//! Mistakes are refused with the rule, the place and what was meant.

use serde_json::{Value, json};

use crate::support::refusal;

fn with(changes: Value) -> (String, String) {
    let mut rule = json!({
        "name": "a",
        "match": {"resource": "pods"},
        "when": "true",
        "do": {"delete": {}},
    });
    let rule_fields = rule.as_object_mut().unwrap();
    rule_fields.extend(changes.as_object().unwrap().clone());
    refusal(json!([rule]))
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
        (json!({"do": {}}), "rules[0].do", "say what is done"),
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
