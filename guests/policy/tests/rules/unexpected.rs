//! What would act on more objects than its author expects is refused.

use serde_json::{Value, json};

use crate::support::{refusal, refusal_of, rules};

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
