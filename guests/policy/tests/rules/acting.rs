//! When a rule acts, and what it does.

use std::time::Duration;

use davit_guest::testing::Execution;
use serde_json::json;

use crate::support::{HOUR, MINUTE, START, failed, rules};

#[test]
fn the_example_of_the_documentation_acts_on_the_second() {
    let mut harness = rules(json!([{
        "name": "failed-builds",
        "match": {"resource": "pods", "namespaces": ["ci"], "labelSelector": "app=build"},
        "when": "object.status.phase == 'Failed' && now - finishedAt(object) > duration('24h')",
        "unless": "object.metadata.annotations['keep'] == 'true'",
        "do": {"delete": {"gracePeriodSeconds": 0}},
    }]));
    harness.put(failed("ci", "old"));
    let mut kept = failed("ci", "kept");
    kept["metadata"]["annotations"] = json!({"keep": "true"});
    harness.put(kept);
    harness.put(failed("shop", "elsewhere"));
    let mut running = failed("ci", "running");
    running["status"]["phase"] = json!("Running");
    harness.put(running);
    harness.run();
    let reads = harness.objects_read();
    harness.advance(5 * HOUR + 59 * MINUTE);
    assert_eq!(
        harness.objects_read(),
        reads,
        "nothing is judged in between"
    );
    harness.advance(18 * HOUR);
    assert_eq!(harness.keys("Pod").len(), 4);
    harness.advance(Duration::from_secs(60));
    assert_eq!(
        harness.keys("Pod").len(),
        4,
        "not before the 24 hours are over"
    );
    harness.advance(Duration::from_secs(1));
    assert_eq!(
        harness.keys("Pod"),
        ["ci/kept", "ci/running", "shop/elsewhere"]
    );
}

/// Timers do not see that the wall clock is corrected.
#[test]
fn a_clock_that_is_set_forward_delays_a_rule_by_six_hours_at_most() {
    let mut harness = rules(json!([{
        "name": "failed-builds",
        "match": {"resource": "pods"},
        "when": "now - finishedAt(object) > duration('720h')",
        "do": {"delete": {}},
    }]));
    harness.put(failed("ci", "old"));
    harness.run();
    harness.shift_clock(721 * 3_600_000);
    harness.advance(5 * HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/old"]);
    harness.advance(HOUR + MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn what_is_spared_no_longer_is_acted_on() {
    let mut harness = rules(json!([{
        "name": "failed",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "unless": "object.metadata.annotations['keep'] == 'true'",
        "do": {"delete": {}},
    }]));
    let mut pod = failed("ci", "a");
    pod["metadata"]["annotations"] = json!({"keep": "true"});
    harness.put(pod.clone());
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    pod["metadata"]["annotations"] = json!({});
    harness.put(pod);
    harness.run();
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn a_deletion_is_only_of_the_version_that_was_judged() {
    let mut harness = rules(json!([{
        "name": "failed",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "unless": "object.metadata.annotations['keep'] == 'true'",
        "do": {"delete": {}},
    }]));
    let mut pod = failed("ci", "a");
    pod["metadata"]["annotations"] = json!({"keep": "true"});
    harness.put_on_server(failed("ci", "a"));
    harness.put_on_server(pod);
    harness.hide("Pod", "ci/a");
    harness.run();
    // The cache has the first version, the server the second one.
    harness.put(failed("ci", "b"));
    let mut kept = failed("ci", "b");
    kept["metadata"]["annotations"] = json!({"keep": "true"});
    harness.put_on_server(kept);
    harness.run();
    assert!(harness.keys("Pod").contains(&"ci/a".to_owned()));
}

#[test]
fn labels_annotations_and_patches_are_made_once() {
    let mut harness = rules(json!([{
        "name": "mark",
        "match": {"resource": "namespaces"},
        "when": "object.metadata.labels.team == null",
        "do": {
            "label": {"team": "none", "stale": null},
            "annotate": {"davit.dev/seen": "of ${object.metadata.name}"},
        },
    }]));
    harness.put(json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "a", "labels": {"stale": "true"}}}));
    harness.advance(HOUR);
    let namespace = harness.object("Namespace", "a").unwrap();
    assert_eq!(
        namespace["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "a", "team": "none"})
    );
    assert_eq!(
        namespace["metadata"]["annotations"],
        json!({"davit.dev/seen": "of a"})
    );
    let of_a = |it: &&Execution| it.plan.target.name == "a";
    assert_eq!(harness.executions().iter().filter(of_a).count(), 1);
}

#[test]
fn a_rule_that_always_holds_changes_an_object_only_if_it_differs() {
    let mut harness = rules(json!([{
        "name": "taint",
        "match": {"resource": "nodes"},
        "when": "object.metadata.labels.fenced == 'true'",
        "do": {"taint": {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown",
                         "effect": "NoExecute"}},
    }]));
    harness.put(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"fenced": "true"}},
        "spec": {"taints": [{"key": "other", "effect": "NoSchedule"}]}}));
    harness.advance(HOUR);
    let node = harness.object("Node", "n1").unwrap();
    assert_eq!(node["spec"]["taints"][0]["key"], "other");
    assert_eq!(node["spec"]["taints"][1]["value"], "nodeshutdown");
    assert_eq!(harness.executions().len(), 1);
}

#[test]
fn a_json_patch_is_made_once() {
    let mut harness = rules(json!([{
        "name": "cordon",
        "match": {"resource": "nodes"},
        "when": "object.metadata.labels.hold == 'true'",
        "do": {
            "jsonPatch": [{"op": "add", "path": "/spec/unschedulable", "value": true}],
            "event": {"reason": "Cordoned", "message": "hold is ${object.metadata.labels.hold}"},
        },
    }]));
    harness.put(json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "labels": {"hold": "true"}}, "spec": {"podCIDR": "10.0.0.0/24"}}));
    harness.advance(HOUR);
    let node = harness.object("Node", "n1").unwrap();
    assert_eq!(node["spec"]["unschedulable"], json!(true));
    assert_eq!(harness.executions().len(), 1);
}

#[test]
fn an_event_alone_is_recorded_once_for_each_time_that_it_is_true() {
    let mut harness = rules(json!([{
        "name": "announce",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "do": {"event": {"type": "Warning", "reason": "Failed", "message": "it failed"}},
    }]));
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 1);
    let mut pod = failed("ci", "a");
    pod["status"]["phase"] = json!("Running");
    harness.put(pod);
    harness.run();
    harness.put(failed("ci", "a"));
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 2);
    harness.remove("Pod", "ci/a");
    harness.advance(HOUR);
    assert_eq!(harness.notes(), [""; 0], "no note outlives its object");
}

/// Nothing changes at the object when the rule ceases to select it.
#[test]
fn an_event_alone_is_recorded_again_after_time_has_ended_what_it_was_about() {
    for rule in [
        json!({"when": "now - finishedAt(object) < duration('5m')"}),
        json!({"when": "object.status.phase == 'Failed'",
               "unless": "now - finishedAt(object) >= duration('5m')"}),
        json!({"when": "node.metadata.name == 'n' && now - finishedAt(object) < duration('5m')"}),
    ] {
        let mut rule = rule;
        rule["name"] = json!("announce");
        rule["match"] = json!({"resource": "pods"});
        rule["do"] = json!({"event": {"reason": "Failed", "message": "it failed"}});
        let mut harness = rules(json!([rule]));
        harness.put(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}));
        let failed_at = |time: &str| {
            let mut pod = failed("ci", "a");
            pod["spec"] = json!({"nodeName": "n"});
            let ended = "/status/containerStatuses/0/state/terminated/finishedAt";
            *pod.pointer_mut(ended).unwrap() = json!(time);
            pod
        };
        harness.put(failed_at(START));
        harness.advance(HOUR);
        assert_eq!(harness.executions().len(), 1, "{rule}");
        harness.put(failed_at("2023-11-14T23:13:20Z"));
        harness.advance(HOUR);
        assert_eq!(harness.executions().len(), 2, "{rule}");
    }
}

#[test]
fn what_fails_does_not_act_and_is_reported() {
    let mut harness = rules(json!([{
        "name": "odd",
        "match": {"resource": "configmaps"},
        "when": "int(object.data.limit) > 3",
        "do": {"delete": {}},
    }]));
    for (name, limit) in [("a", "many"), ("b", "5")] {
        harness.put(json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "ci", "name": name}, "data": {"limit": limit}}));
    }
    harness.advance(HOUR);
    assert_eq!(harness.keys("ConfigMap"), ["ci/a"]);
    assert!(harness.metric("policy_evaluation_failures_total", &["odd"]) >= 1.0);
    let report = harness.report("odd").unwrap();
    assert!(report.count >= 1);
    let example = "ConfigMap ci/a";
    assert!(report.message.contains(example), "{report:?}");
}

#[test]
fn a_rule_about_the_hour_of_the_day_is_judged_every_minute() {
    let mut harness = rules(json!([{
        "name": "nightly",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed' && now.getHours() == 3",
        "do": {"delete": {}},
    }]));
    harness.put(failed("ci", "a"));
    // It is 22:13:20.
    harness.advance(4 * HOUR + 46 * MINUTE);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert_eq!(START, "2023-11-14T22:13:20Z");
}

#[test]
fn what_is_being_deleted_is_not_deleted_again() {
    let mut harness = rules(json!([{
        "name": "failed",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "do": {"delete": {}},
    }]));
    let mut pod = failed("ci", "a");
    pod["metadata"]["finalizers"] = json!(["example.com/wait"]);
    harness.put(pod);
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 1);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
}
