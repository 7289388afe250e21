//! What a rule may write.

use serde_json::{Value, json};

use crate::support::{refusal, rules};

/// Refused is what such a rule writes, with these words.
fn refused(resource: &str, action: &Value, field: &str, words: &str) {
    let rule = json!({"name": "a", "match": {"resource": resource}, "when": "true", "do": action});
    let (found, message) = refusal(json!([rule]));
    assert_eq!(found, format!("rules[0].do.{field}"), "{action}: {message}");
    assert!(message.contains(words), "{action}: {message}");
}

/// The API server would take the patch and change nothing, at each pause again.
#[test]
fn what_the_api_server_ignores_is_refused() {
    refused(
        "namespaces",
        &json!({"mergePatch": {"spec": {"finalizers": []}}}),
        "mergePatch",
        "as a subresource",
    );
    refused(
        "secrets",
        &json!({"mergePatch": {"stringData": {"a": "b"}}}),
        "mergePatch",
        "stores it as data",
    );
    let version = json!({"metadata": {"resourceVersion": "${object.metadata.resourceVersion}"}});
    for patch in [version, json!({"metadata": {"resourceVersion": "7"}})] {
        let actions = json!({"mergePatch": patch});
        refused(
            "deployments.apps",
            &actions,
            "mergePatch",
            "metadata.resourceVersion",
        );
    }
    for (resource, patch) in [
        ("deployments.apps", json!({"spec": {"paused": true}})),
        (
            "widgets.v1.example.com",
            json!({"status": {"phase": "Expired"}}),
        ),
        ("persistentvolumes", json!({"spec": {"claimRef": null}})),
    ] {
        rules(json!([{
            "name": "a", "match": {"resource": resource}, "when": "true",
            "do": {"mergePatch": patch},
        }]));
    }
}
