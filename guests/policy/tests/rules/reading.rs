//! How much a rule reads from the API server.

use serde_json::json;

use crate::support::{refusal, rules};

/// The host fails a call with more than 10,000 live reads.
#[test]
fn what_is_read_of_the_kept_in_one_call_is_bounded() {
    let rule = |count: u32, proof: Option<&str>| {
        let mut rule = json!({
            "name": "keep", "match": {"resource": "pods"}, "when": "true",
            "keep": {"newest": count, "per": "namespace"}, "do": {"delete": {}},
        });
        if let Some(proof) = proof {
            rule["proof"] = json!(proof);
        }
        json!([rule])
    };
    let batch = |count: u32, proof: Option<&str>| {
        let harness = rules(rule(count, proof));
        let queues = harness.manifest().queues.iter();
        let mut groups = queues.filter(|it| it.name == "groups");
        groups.next().unwrap().batch
    };
    assert_eq!(batch(3, None), 1);
    assert_eq!(batch(500, None), 1);
    assert_eq!(batch(500, Some("live")), 1);
    assert_eq!(batch(50_000, Some("cache")), 8);
    let (field, message) = refusal(rule(2001, None));
    assert_eq!(field, "rules[0].keep");
    assert!(
        message.contains("keep 2000 at most, or write proof: cache"),
        "{message}"
    );
    // Each of them with three others.
    let mut reading = rule(1700, None);
    reading[0]["related"] = json!({
        "a": {"resource": "nodes", "by": "metadata.name", "is": "object.spec.nodeName"},
        "b": {"resource": "jobs.batch", "by": "metadata.name", "is": "object.metadata.name"},
        "c": {"resource": "secrets", "by": "metadata.name", "is": "object.metadata.name"},
    });
    reading[0]["when"] = json!("size(a) + size(b) + size(c) == 0");
    let (field, message) = refusal(reading);
    assert_eq!(field, "rules[0].keep");
    assert!(message.contains("keep 1687 at most"), "{message}");
}
