//! What an act follows from is true when it is written, however many objects a rule acts on.

use std::time::Duration;

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, failed, rules};

/// How many acts may be in flight when something changes.
const IN_FLIGHT: usize = 8;

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "ci", "name": name}})
}

/// Deletes what no pod uses, by a live proof.
fn unused() -> Harness<Policy> {
    rules(json!([{
        "name": "unused",
        "match": {"resource": "configmaps"},
        "related": {"users": {"resource": "pods", "by": "spec.volumes[*].configMap.name",
                              "is": "object.metadata.name"}},
        "when": "size(users) == 0",
        "do": {"delete": {}},
    }]))
}

#[test]
fn an_object_is_proven_just_before_it_is_deleted() {
    let mut harness = unused();
    harness.put(failed("ci", "other"));
    harness.run();
    harness.delay_requests(Duration::from_millis(100));
    for number in 0..130 {
        harness.put(config_map(&format!("c{number}")));
    }
    harness.advance(Duration::from_secs(5));
    let before = harness.keys("ConfigMap").len();
    let volumes = (0..130).map(|it| format!("c{it}"));
    let volumes =
        volumes.map(|name| json!({"name": format!("v-{name}"), "configMap": {"name": name}}));
    let mut user = failed("ci", "user");
    user["spec"] = json!({"volumes": volumes.collect::<Vec<_>>()});
    harness.put(user);
    harness.advance(5 * MINUTE);
    let used = harness.keys("ConfigMap").len();
    assert!(before - used <= IN_FLIGHT, "{before} before, {used} in use");
    assert!(
        used > 10,
        "the trial is too fast: {before} before, {used} in use"
    );
}

/// One list of the users has three megabytes.
#[test]
fn no_object_is_read_twice_because_a_call_reads_too_many_bytes() {
    let mut harness = unused();
    for number in 0..10 {
        let mut pod = failed("ci", &format!("p{number}"));
        let volumes = (0..1500)
            .map(|it| json!({"name": format!("v{it}"), "configMap": {"name": "n".repeat(200)}}));
        pod["spec"] = json!({"volumes": volumes.collect::<Vec<_>>()});
        harness.put(pod);
    }
    harness.run();
    for number in 0..26 {
        harness.put(config_map(&format!("c{number}")));
    }
    harness.advance(2 * MINUTE);
    assert_eq!(harness.live_reads().len(), 26);
    assert_eq!(harness.keys("ConfigMap").len(), 0);
}

#[test]
fn a_rule_that_starts_to_wait_stops_what_is_not_written_yet() {
    for (proof, when) in [
        ("live", "node.metadata.labels.gone == 'yes'"),
        ("cache", "true"),
    ] {
        let mut harness = Harness::<Policy>::new(&json!({
            "counts": {"gone": {"resource": "nodes", "when": "object.metadata.labels.gone == 'yes'"}},
            "rules": [{
                "name": "unreachable",
                "match": {"resource": "pods"},
                "when": when,
                "proof": proof,
                "hold": "counts.gone > 1",
                "do": {"delete": {"gracePeriodSeconds": 0}},
            }],
        }))
        .unwrap();
        for number in 0..4 {
            harness.put(node(number, number == 0));
        }
        harness.run();
        harness.delay_requests(Duration::from_millis(250));
        for number in 0..100 {
            let mut pod = failed("ci", &format!("p{number}"));
            pod["spec"] = json!({"nodeName": "n0"});
            harness.put(pod);
        }
        harness.advance(Duration::from_secs(3));
        let before = harness.keys("Pod").len();
        for number in 1..4 {
            harness.put(node(number, true));
        }
        harness.advance(5 * MINUTE);
        let after = harness.keys("Pod").len();
        assert!(
            before - after <= IN_FLIGHT,
            "{proof}: {before} before, {after} after"
        );
        assert!(
            after > 20,
            "{proof}: the trial is too fast: {before} before, {after} after"
        );
    }
}

fn node(number: usize, is_gone: bool) -> Value {
    let gone = if is_gone { "yes" } else { "no" };
    json!({"apiVersion": "v1", "kind": "Node",
           "metadata": {"name": format!("n{number}"), "labels": {"gone": gone}}})
}

/// Somebody deletes the newest pod of each group that still has both.
#[test]
fn a_group_keeps_what_it_should_although_somebody_deletes_another() {
    for proof in ["live", "cache"] {
        let mut harness = rules(json!([{
            "name": "keep",
            "match": {"resource": "pods"},
            "when": "true",
            "proof": proof,
            "keep": {"newest": 1, "per": "namespace"},
            "do": {"delete": {}},
        }]));
        harness.put(failed("other", "x"));
        harness.advance(MINUTE);
        harness.delay_requests(Duration::from_millis(250));
        let pod = |group: usize, name: &str, minute: u32| {
            let mut pod = failed(&format!("ns{group}"), name);
            pod["metadata"]["creationTimestamp"] = json!(format!("2023-11-14T22:{minute:02}:00Z"));
            pod
        };
        for group in 0..50 {
            harness.put(pod(group, "new", 2));
            harness.put(pod(group, "old", 1));
        }
        harness.advance(Duration::from_secs(3));
        let has = |harness: &Harness<Policy>, group: usize| {
            harness.keys("Pod").contains(&format!("ns{group}/old"))
        };
        let both: Vec<usize> = (0..50).filter(|it| has(&harness, *it)).collect();
        for group in &both {
            harness.remove("Pod", &format!("ns{group}/new"));
        }
        harness.advance(10 * MINUTE);
        let empty = both.iter().filter(|it| !has(&harness, **it)).count();
        assert!(
            empty <= IN_FLIGHT,
            "{proof}: {empty} of {} groups",
            both.len()
        );
        assert!(
            both.len() > 10,
            "{proof}: the trial is too fast: {}",
            both.len()
        );
    }
}

/// Calls that read take a while, and each notes the changes of its objects.
#[test]
fn rules_that_undo_each_other_are_braked_with_live_proofs() {
    let label = |name: &str, when: &str, state: &str| {
        json!({
            "name": name, "match": {"resource": "configmaps"}, "when": when,
            "proof": "live", "do": {"label": {"state": state}},
        })
    };
    let mut harness = rules(json!([
        label("on", "object.metadata.labels.state != 'on'", "on"),
        label("off", "object.metadata.labels.state == 'on'", "off"),
    ]));
    harness.delay_requests(Duration::from_millis(20));
    for number in 0..30 {
        let mut object = config_map(&format!("c{number:03}"));
        object["metadata"]["labels"] = json!({"state": "new"});
        harness.put(object);
        harness.advance(Duration::from_millis(10));
    }
    harness.advance(HOUR + MINUTE);
    let writes = harness.executions().len();
    assert!(writes <= 23 * 30, "{writes} writes of 30 objects");
}
