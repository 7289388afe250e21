//! Whole objects of a list under `related`: only the fields of them that a rule names are read.

use serde_json::{Value, json};

use crate::support::{HOUR, failed, refusal, rules};

/// A rule about config maps, which reads the pods that use one.
fn rule(when: &str) -> Value {
    json!([{
        "name": "unused",
        "match": {"resource": "configmaps", "labelSelector": "release"},
        "related": {"users": {"resource": "pods", "by": "spec.volumes[*].configMap.name",
                              "is": "object.metadata.name"}},
        "when": when,
        "do": {"delete": {}},
    }])
}

/// Whether a rule deletes a config map that one pod uses.
fn deletes(when: &str) -> bool {
    let mut harness = rules(rule(when));
    harness.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": "a", "labels": {"release": "1"}}}));
    let mut user = failed("ci", "user");
    user["spec"] = json!({"volumes": [{"name": "v", "configMap": {"name": "a"}}]});
    harness.put(user);
    harness.advance(HOUR);
    harness.keys("ConfigMap").is_empty()
}

/// Otherwise, each of the pods would lack the label.
#[test]
fn a_function_of_a_list_of_objects_reads_their_fields() {
    for list in [
        "users",
        "users.filter(u, true)",
        "users.slice(0, 1)",
        "users.reverse()",
        "users.filter(u, u.status.phase == 'Failed').slice(0, 1).reverse()",
    ] {
        for element in ["first()", "last()", "[0]"] {
            let element = format!("{list}.{element}").replace(".[", "[");
            let is_deleted = deletes(&format!("{element}.metadata.labels['app'] == null"));
            assert!(!is_deleted, "{element}");
            let when = format!("{element}.metadata.labels['app'] == 'build' && {element} != null");
            assert!(deletes(&when), "{element}");
        }
        assert!(deletes(&format!("size({list}) == 1")), "{list}");
        let when = format!("{list}.exists(u, u.metadata.labels['app'] == null)");
        assert!(!deletes(&when), "{list}");
    }
    assert!(deletes("users.filter(u, false).first() == null"));
    assert!(deletes("users.map(u, u.metadata.name).sort() == ['user']"));
}

#[test]
fn a_whole_object_of_a_list_is_no_value() {
    let list =
        "\"users\" is a list of whole objects: ask for its size, or name a field of its elements";
    let element = "an element of \"users\" is a whole object: name a field of it";
    for (when, column, words) in [
        ("users.sort().size() > 0", 1, list),
        ("users.filter(u, true).distinct().size() > 0", 1, list),
        ("users.isSorted()", 1, list),
        ("users.flatten().size() > 0", 1, list),
        ("users == []", 1, list),
        ("(users + users)[0].metadata.name == 'a'", 2, list),
        ("dyn(users)[0].metadata.name == 'a'", 5, list),
        ("[users].size() == 1", 2, list),
        ("users.map(u, u)[0].metadata.name == 'a'", 14, element),
        ("users.exists(u, u == users[0])", 22, element),
    ] {
        let (field, message) = refusal(rule(when));
        assert_eq!(field, "rules[0].when", "{when}");
        let expected = format!("column {column}: {words}");
        assert!(message.contains(&expected), "{when}: {message}");
    }
}
