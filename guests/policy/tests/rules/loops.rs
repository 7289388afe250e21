//! Loops of which some elements lack a field: an element that decides does so wherever it stands.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, failed, rules};

/// Whether a taint of Kubernetes is older than five minutes.
const TAINTED: &str = "object.spec.taints.exists(t, t.key.startsWith('node.kubernetes.io/') && \
                       now - t.timeAdded > duration('5m'))";

/// A node with these taints: one without a time, and one that is old.
fn tainted(name: &str, is_timed: &[bool]) -> Value {
    let taints = is_timed.iter().enumerate().map(|(index, is_timed)| {
        let mut taint =
            json!({"key": format!("node.kubernetes.io/t{index}"), "effect": "NoExecute"});
        if *is_timed {
            taint["timeAdded"] = json!("2023-11-14T12:00:00Z");
        }
        taint
    });
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"taints": taints.collect::<Vec<_>>()}})
}

#[test]
fn an_element_that_decides_does_so_in_any_order() {
    let mut harness = rules(json!([{
        "name": "tainted",
        "match": {"resource": "nodes"},
        "when": TAINTED,
        "do": {"delete": {}},
    }]));
    harness.put(tainted("first", &[false, true]));
    harness.put(tainted("last", &[true, false]));
    harness.put(tainted("none", &[false]));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Node"), ["none"]);
    assert!(harness.report("tainted").is_none());
}

/// A rule that waits while a node is tainted.
fn breaker(nodes: &[Value]) -> Harness<Policy> {
    let config = json!({
        "counts": {"tainted": {"resource": "nodes", "when": TAINTED}},
        "rules": [{
            "name": "failed",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "hold": "counts.tainted > 0",
            "do": {"delete": {}},
        }],
    });
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    for node in nodes {
        harness.put(node.clone());
    }
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    harness
}

#[test]
fn an_element_that_decides_counts_in_any_order() {
    for is_timed in [[false, true], [true, false]] {
        let harness = breaker(&[tainted("n", &is_timed)]);
        assert_eq!(harness.keys("Pod"), ["ci/a"], "{is_timed:?}");
        assert!(harness.report("failed").is_none(), "{is_timed:?}");
    }
    assert_eq!(breaker(&[tainted("n", &[false])]).keys("Pod"), [""; 0]);
}

/// `unless` with `all`: an element that is false decides against it.
#[test]
fn an_element_that_is_false_decides_over_all_in_any_order() {
    for is_timed in [[false, true], [true, false]] {
        let mut harness = rules(json!([{
            "name": "tainted",
            "match": {"resource": "nodes"},
            "when": "true",
            "unless": "object.spec.taints.all(t, now - t.timeAdded < duration('5m'))",
            "do": {"delete": {}},
        }]));
        harness.put(tainted("n", &is_timed));
        harness.advance(HOUR);
        assert_eq!(harness.keys("Node"), [""; 0], "{is_timed:?}");
    }
}

/// What fails in one element, and is not decided by another, is reported, and holds.
#[test]
fn an_error_in_an_element_holds_whatever_other_elements_lack() {
    let config = |when: &str| {
        json!({
            "counts": {"odd": {"resource": "configmaps", "when": when}},
            "rules": [{
                "name": "failed",
                "match": {"resource": "pods"},
                "when": "object.status.phase == 'Failed'",
                "hold": "counts.odd > 0",
                "do": {"delete": {}},
            }],
        })
    };
    for (when, is_held) in [
        (
            "['missing', 'word'].exists(k, int(object.data[k]) > 3)",
            true,
        ),
        (
            "['word', 'missing'].exists(k, int(object.data[k]) > 3)",
            true,
        ),
        ("['missing', 'word'].all(k, int(object.data[k]) > 3)", true),
        (
            "['missing', 'word', 'five'].exists(k, int(object.data[k]) > 3)",
            true,
        ),
        (
            "['missing', 'one'].exists(k, int(object.data[k]) > 3)",
            false,
        ),
        (
            "['missing', 'one', 'word'].all(k, int(object.data[k]) > 3)",
            false,
        ),
    ] {
        let mut harness = Harness::<Policy>::new(&config(when)).unwrap();
        harness.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ci", "name": "c"},
            "data": {"word": "many", "one": "1", "five": "5"}}));
        harness.put(failed("ci", "a"));
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod").len() == 1, is_held, "{when}");
    }
}

/// A call on a loop's variable is evaluated in the loop, not when the configuration is applied.
#[test]
fn a_method_of_a_loops_variable_is_accepted() {
    let mut harness = rules(json!([{
        "name": "finalized",
        "match": {"resource": "pods"},
        "when": "object.metadata.finalizers.exists(f, f.startsWith('example.com/')) && \
                 object.spec.containers.map(c, c.image).exists(i, i.split('/')[0] == 'registry')",
        "do": {"label": {"finalized": "true"}},
    }]));
    for (name, finalizer) in [("a", "example.com/wait"), ("b", "other.com/wait")] {
        harness.put(json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"namespace": "ci", "name": name, "finalizers": [finalizer]},
            "spec": {"containers": [{"name": "c", "image": "registry/a"}]}}));
    }
    harness.advance(HOUR);
    let labelled: Vec<String> = harness
        .executions()
        .iter()
        .map(|it| it.plan.target.name.clone())
        .collect();
    assert!(labelled.contains(&"a".to_owned()), "{labelled:?}");
    assert!(!labelled.contains(&"b".to_owned()), "{labelled:?}");
}
