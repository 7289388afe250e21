//! What a rule does when an expression has no value or fails.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, START, failed, rules};

/// A rule that waits while nodes are lost.
fn breaker(nodes: &[Value]) -> Harness<Policy> {
    let config = json!({
        "counts": {"lost": {"resource": "nodes", "when":
            "object.spec.unschedulable != true && \
             now - timestamp(object.metadata.annotations['lost-at']) > duration('5m')"}},
        "rules": [{
            "name": "failed",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "hold": "counts.lost > 0",
            "do": {"delete": {}},
        }],
    });
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    for (index, annotations) in nodes.iter().enumerate() {
        harness.put(json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": format!("n{index}"), "annotations": annotations}}));
    }
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    harness
}

/// The field that was read before, and is not set, is not why the time fails.
#[test]
fn a_count_that_fails_holds_although_another_field_is_not_set() {
    let harness = breaker(&[json!({}), json!({"lost-at": "yesterday"})]);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    let message = harness.report("failed").unwrap().message;
    assert!(message.contains("Node n1"), "{message}");
}

#[test]
fn an_object_that_lacks_the_field_does_not_count() {
    let harness = breaker(&[json!({}), json!({"other": "x"})]);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert!(harness.report("failed").is_none());
}

/// What fails is reported, whatever else is not set; what only needs a field that is not
/// set is not.
#[test]
fn an_error_beside_a_field_that_is_not_set_is_reported() {
    for (when, is_reported) in [
        (
            "object.data.mode != 'x' && int(object.data.limit) > 3",
            true,
        ),
        (
            "(object.data.mode == 'x' || int(object.data.limit) > 3)",
            true,
        ),
        (
            "['a'].exists(m, object.data.mode == m || int(object.data.limit) > 3)",
            true,
        ),
        (
            "(object.data.mode == null ? int(object.data.limit) : 4) > 3",
            true,
        ),
        (
            "object.data.mode != 'x' && int(object.data.missing) > 3",
            false,
        ),
        (
            "(object.data.mode == 'x' || int(object.data.missing) > 3)",
            false,
        ),
        ("['a'].exists(m, int(object.data[m]) > 3)", false),
        ("object.data.missing.startsWith('a')", false),
        ("timestamp(object.data.missing) < now", false),
        (
            "age(object) - duration(object.data.missing) > duration('1h')",
            false,
        ),
        (
            "quantity(object.data.missing).isGreaterThan(quantity('1'))",
            false,
        ),
        (
            "int(object.data.missing) > 3 || int(object.data.limit) > 3",
            true,
        ),
    ] {
        let mut harness = rules(json!([{
            "name": "odd",
            "match": {"resource": "configmaps"},
            "when": when,
            "do": {"delete": {}},
        }]));
        harness.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ci", "name": "a"}, "data": {"limit": "many"}}));
        harness.advance(HOUR);
        assert_eq!(harness.keys("ConfigMap"), ["ci/a"], "{when}");
        assert_eq!(harness.report("odd").is_some(), is_reported, "{when}");
    }
}

/// A message is for people: what it cannot name does not decide whether the rule acts.
#[test]
fn a_message_without_a_value_does_not_keep_a_rule_from_acting() {
    for (text, words) in [
        ("handle ${object.spec.csi.volumeHandle}", "handle not set"),
        ("${object.spec.csi.volumeHandle}", "not set"),
        ("${int(object.metadata.name)} is it", "not set is it"),
    ] {
        let mut harness = rules(json!([{
            "name": "released",
            "match": {"resource": "persistentvolumes"},
            "when": "object.status.phase == 'Released'",
            "do": {"delete": {}, "event": {"reason": "Gone", "message": text}},
            "message": text,
        }]));
        harness.put(json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "pv"}, "spec": {"nfs": {"server": "a", "path": "/"}},
            "status": {"phase": "Released"}}));
        harness.advance(HOUR);
        assert_eq!(harness.keys("PersistentVolume"), [""; 0], "{text}");
        let plan = &harness.executions()[0].plan;
        assert_eq!(plan.message, words);
        assert!(format!("{:?}", plan.steps).contains(words), "{plan:?}");
    }
}

#[test]
fn an_action_without_a_value_names_the_field_and_the_expression() {
    for (action, words) in [
        (
            json!({"annotate": {"a/b": "x ${object.metadata.labels.nope}"}}),
            [
                "metadata.annotations[\"a/b\"]",
                "object.metadata.labels.nope",
            ],
        ),
        (
            json!({"mergePatch": {"spec": {"nodeName": "${string(int(object.metadata.name))}"}}}),
            ["spec.nodeName", "string(int(object.metadata.name))"],
        ),
        (
            json!({"jsonPatch": [{"op": "add", "path": "/metadata/labels/b",
                                  "value": "${object.metadata.labels.nope} y"}]}),
            ["/metadata/labels/b", "object.metadata.labels.nope"],
        ),
    ] {
        let mut harness = rules(json!([{
            "name": "mark",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "do": action,
        }]));
        harness.put(failed("ci", "a"));
        harness.advance(HOUR);
        assert!(harness.executions().is_empty());
        let message = harness.report("mark").unwrap().message;
        assert!(words.iter().all(|it| message.contains(it)), "{message}");
    }
}

/// What is being deleted is left alone before a rule judges it: a namespace may wait for its
/// finalizers for long.
#[test]
fn what_fails_for_an_object_that_is_being_deleted_is_no_failure() {
    for terminating in [true, false] {
        let mut harness = rules(json!([{
            "name": "previews",
            "match": {"resource": "namespaces"},
            "when": "age(object) > duration(object.metadata.annotations['ttl'])",
            "do": {"delete": {}},
        }]));
        let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "a", "annotations": {"ttl": "soon"}}});
        if terminating {
            namespace["metadata"]["deletionTimestamp"] = json!(START);
            namespace["metadata"]["finalizers"] = json!(["example.com/wait"]);
        }
        harness.put(namespace);
        harness.advance(HOUR);
        assert_eq!(harness.report("previews").is_none(), terminating);
    }
}

/// So is an object that a rule judges from time to time, and a pod whose eviction is pending.
#[test]
fn an_object_that_is_being_deleted_is_judged_neither_periodically_nor_in_an_eviction() {
    for (when, actions) in [
        (
            "now.getHours() >= 0 && int(object.metadata.annotations['n']) > 3",
            json!({"delete": {"gracePeriodSeconds": 0}}),
        ),
        (
            "int(object.metadata.annotations['n']) > 3",
            json!({"evict": {"thenDeleteAfter": "10m"}}),
        ),
    ] {
        let mut harness = rules(json!([{
            "name": "numbered", "match": {"resource": "pods"}, "when": when, "do": actions,
        }]));
        let mut pod = failed("ci", "a");
        pod["metadata"]["uid"] = json!("a");
        pod["metadata"]["finalizers"] = json!(["example.com/wait"]);
        pod["metadata"]["annotations"] = json!({"n": "5"});
        harness.put(pod.clone());
        harness.advance(MINUTE / 60);
        assert_eq!(harness.executions().len(), 1, "{when}");
        pod["metadata"]["annotations"] = json!({"n": "many"});
        pod["metadata"]["deletionTimestamp"] = json!(START);
        harness.put(pod);
        harness.advance(HOUR);
        assert!(harness.report("numbered").is_none(), "{when}");
    }
}

/// A message that says since when an object is being deleted asks for no such object.
#[test]
fn a_message_that_reads_the_deletion_does_not_end_what_is_being_deleted() {
    let mut pod = failed("ci", "a");
    pod["metadata"]["deletionTimestamp"] = json!(START);
    pod["metadata"]["finalizers"] = json!(["example.com/wait"]);
    for (when, variables, executions) in [
        ("object.status.phase == 'Failed'", json!({}), 0),
        (
            "variables.since != null",
            json!({"since": "object.metadata.deletionTimestamp"}),
            1,
        ),
    ] {
        let mut harness = rules(json!([{
            "name": "failed",
            "match": {"resource": "pods"},
            "variables": variables,
            "when": when,
            "message": "it is deleted since ${object.metadata.deletionTimestamp}",
            "do": {"delete": {"gracePeriodSeconds": 0}},
        }]));
        harness.put(pod.clone());
        harness.advance(HOUR);
        assert_eq!(harness.executions().len().min(1), executions, "{when}");
    }
}
