//! What could never act, or never as it is meant, is refused by name.

use serde_json::{Value, json};

use crate::support::refusal;

fn refused(resource: &str, changes: Value, field: &str, words: &str) {
    let mut rule = json!({
        "name": "a",
        "match": {"resource": resource},
        "when": "true",
        "do": {"delete": {}},
    });
    let described = changes.to_string();
    for (name, value) in changes.as_object().unwrap() {
        match (rule[name.as_str()].as_object_mut(), value.as_object()) {
            (Some(fields), Some(more)) if name == "match" => fields.extend(more.clone()),
            _ => rule[name.as_str()] = value.clone(),
        }
    }
    let (found, message) = refusal(json!([rule]));
    assert_eq!(found, format!("rules[0].{field}"), "{described}: {message}");
    assert!(message.contains(words), "{described}: {message}");
}

#[test]
fn no_namespace_has_a_name_with_a_wildcard() {
    for name in ["team-*", "!kube-system", "CI", "-a", "a.b"] {
        let namespaces = json!({"match": {"namespaces": [name]}});
        refused("pods", namespaces, "match.namespaces", "");
    }
}

#[test]
fn a_group_has_a_name_that_several_objects_have() {
    let per = |per: &str| json!({"keep": {"newest": 1, "per": per}});
    for (resource, field, words) in [
        ("pods", "metadata.labels", "no two objects"),
        ("pods", "metadata.ownerReferences", "no two objects"),
        ("pods", "spec", "no two objects"),
        ("persistentvolumes", "namespace", "in no namespace"),
        ("jobs.batch", "node", "nodeName"),
    ] {
        refused(resource, per(field), "keep.per", words);
    }
}

#[test]
fn nothing_is_found_by_a_map() {
    let related = json!({"related": {
        "others": {"resource": "pods", "by": "metadata.name", "is": "object.metadata.labels"},
    }, "when": "size(others) == 0"});
    refused("pods", related, "related.others.is", "nothing is found");
}

/// Of each object, the version is null for a rule, and of one in a list the kind is.
#[test]
fn nothing_is_found_by_what_objects_in_a_list_do_not_have() {
    for (by, words) in [
        ("metadata.resourceVersion", "changes with each write"),
        ("metadata[\"resourceVersion\"]", "changes with each write"),
        ("kind", "is the same of all of them"),
        ("apiVersion", "is the same of all of them"),
    ] {
        let related = json!({"related": {
            "others": {"resource": "pods", "by": by, "is": "object.metadata.name"},
        }, "when": "size(others) == 0"});
        refused("pods", related, "related.others.by", words);
    }
    for when in [
        "others.exists(o, o.metadata.resourceVersion == null)",
        "others[0].metadata['resourceVersion'] == null",
        "others.first().metadata.resourceVersion == null",
    ] {
        let related = json!({"related": {
            "others": {"resource": "pods", "by": "metadata.name", "is": "object.metadata.name"},
        }, "when": when});
        refused("pods", related, "when", "changes with each write");
    }
}

#[test]
fn a_budget_has_some_time() {
    let evict = json!({"do": {"evict": {"thenDeleteAfter": "0s"}}});
    refused("pods", evict, "do.evict.thenDeleteAfter", "use delete");
}

#[test]
fn a_time_is_not_compared_with_a_duration() {
    let when = json!({"when": "now - duration('1h') > duration('1h')"});
    refused("pods", when, "when", "compares a time with a duration");
}

#[test]
fn a_variable_that_nothing_uses_is_checked() {
    let variables = json!({"variables": {"old": "object.status.phaze == 'Failed'"}});
    refused("pods", variables, "variables.old", "phase");
}
