//! Which objects a rule is about, its variables, and passes over many objects.

use davit_guest::testing::Harness;
use davit_guest::{QueueName, Verdict};
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, failed, rules};

fn pod_on(node: &str, name: &str, phase: &str) -> Value {
    let mut pod = failed("ci", name);
    pod["spec"] = json!({"nodeName": node});
    pod["status"]["phase"] = json!(phase);
    pod
}

#[test]
fn objects_are_selected_by_their_fields() {
    let mut harness = rules(json!([{
        "name": "on-n1",
        "match": {"resource": "pods", "fieldSelector": "spec.nodeName=n1,status.phase!=Running"},
        "when": "true",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    harness.put(pod_on("n1", "ended", "Failed"));
    harness.put(pod_on("n1", "later", "Running"));
    harness.put(pod_on("n2", "elsewhere", "Failed"));
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/elsewhere", "ci/later"]);
    harness.put(pod_on("n1", "later", "Failed"));
    harness.run();
    assert_eq!(harness.keys("Pod"), ["ci/elsewhere"]);
}

/// One watch has the objects of all namespaces then.
#[test]
fn a_rule_about_several_namespaces_leaves_the_others_alone() {
    let mut harness = rules(json!([{
        "name": "failed",
        "match": {"resource": "pods", "namespaces": ["ci", "shop"]},
        "when": "object.status.phase == 'Failed'",
        "do": {"delete": {}},
    }]));
    for namespace in ["ci", "shop", "prod"] {
        harness.put(failed(namespace, "a"));
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["prod/a"]);
}

#[test]
fn a_variable_stands_for_its_expression_wherever_the_rule_uses_it() {
    let mut harness = rules(json!([{
        "name": "old",
        "match": {"resource": "pods"},
        "variables": {
            "ended": "finishedAt(object)",
            // Variables may use others.
            "isOld": "now - variables.ended > duration('1h')",
            "team": "object.metadata.labels.team",
        },
        "when": "variables.isOld",
        "unless": "variables.team == 'kept'",
        "do": {"annotate": {"team": "of ${variables.team}"}},
        "message": "ended at ${variables.ended}",
    }]));
    for (name, team) in [("a", "shop"), ("b", "kept")] {
        let mut pod = failed("ci", name);
        pod["metadata"]["labels"]["team"] = json!(team);
        pod["spec"] = json!({"containers": [{"name": "main", "image": "i"}]});
        harness.put(pod);
    }
    harness.advance(HOUR);
    assert!(harness.executions().is_empty(), "not before the hour ends");
    harness.advance(MINUTE);
    let executions = harness.executions();
    assert_eq!(executions.len(), 1);
    assert_eq!(executions[0].result, Ok(()));
    assert_eq!(executions[0].plan.message, "ended at 2023-11-14T22:13:20Z");
    let pod = harness.object("Pod", "ci/a").unwrap();
    assert_eq!(pod["metadata"]["annotations"]["team"], "of shop");
}

fn pages_of_a_pass(harness: &Harness<Policy>) -> usize {
    let mut cursor = String::new();
    for page in 1.. {
        let decision = harness.decide_page(QueueName::named("passes"), "configmaps", &cursor);
        match decision.verdict {
            Verdict::ContinueFrom(next) => cursor = next,
            _ => return page,
        }
    }
    0
}

/// No comparison with `now` announces these objects: only a pass finds them.
#[test]
fn a_pass_over_more_objects_than_a_page_acts_on_all_of_them() {
    const OBJECTS: usize = 2001;
    let mut harness = rules(json!([{
        "name": "nightly",
        "match": {"resource": "configmaps"},
        "when": "now.getHours() == 23 && now.getMinutes() == 2",
        "do": {"label": {"seen": "yes"}},
    }]));
    for number in 0..OBJECTS {
        harness.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ci", "name": format!("c{number:04}")}}));
    }
    // It is 22:13:20.
    harness.advance(48 * MINUTE);
    assert!(harness.executions().is_empty());
    assert_eq!(pages_of_a_pass(&harness), 2);
    harness.advance(2 * MINUTE);
    let is_seen = |key: &String| {
        harness.object("ConfigMap", key).unwrap()["metadata"]["labels"]["seen"] == "yes"
    };
    let seen = harness
        .keys("ConfigMap")
        .iter()
        .filter(|key| is_seen(key))
        .count();
    assert_eq!(seen, OBJECTS);
    assert_eq!(harness.executions().len(), OBJECTS, "each once");
}

/// A list without elements has none for which the condition is false.
#[test]
fn a_loop_over_a_missing_list_is_true_of_all() {
    for (when, left) in [
        (
            "object.status.containerStatuses.all(c, c.state.terminated != null)",
            0,
        ),
        (
            "!object.status.containerStatuses.exists(c, c.state.terminated == null)",
            0,
        ),
        (
            "size(object.status.containerStatuses) > 0 && \
             object.status.containerStatuses.all(c, c.state.terminated != null)",
            1,
        ),
    ] {
        let mut harness = rules(json!([{
            "name": "ended",
            "match": {"resource": "pods"},
            "when": when,
            "do": {"delete": {"gracePeriodSeconds": 0}},
        }]));
        let mut pod = failed("ci", "a");
        pod["status"] = json!({"phase": "Pending"});
        harness.put(pod);
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod").len(), left, "{when}");
    }
}
