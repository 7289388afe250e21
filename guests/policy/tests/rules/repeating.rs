//! Rules whose change does not last.

use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, rules};

fn label(name: &str, when: &str, label: Value) -> Value {
    json!({
        "name": name,
        "match": {"resource": "configmaps"},
        "when": when,
        "do": {"label": label},
    })
}

fn with_object(list: Value) -> Harness<Policy> {
    let mut harness = rules(list);
    harness.put(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": "a", "labels": {"n": "0", "state": "new"}},
    }));
    harness
}

#[test]
fn rules_that_undo_each_other_write_less_and_less_and_are_reported() {
    let mut harness = with_object(json!([
        label(
            "on",
            "object.metadata.labels.state != 'on'",
            json!({"state": "on"})
        ),
        label(
            "off",
            "object.metadata.labels.state == 'on'",
            json!({"state": "off"})
        ),
    ]));
    harness.advance(MINUTE);
    let first = harness.executions().len();
    assert!(first <= 8, "{first} in the first minute");
    harness.advance(HOUR);
    let all = harness.executions().len();
    assert!(all <= 24, "{all} in an hour");
    let report = harness.report("on").unwrap();
    assert!(report.message.contains("undoes"), "{}", report.message);
}

#[test]
fn a_rule_that_acts_on_its_own_result_writes_less_and_less_and_is_reported() {
    let number = "${string(int(object.metadata.labels.n) + 1)}";
    let mut harness = with_object(json!([label("add", "true", json!({"n": number}))]));
    harness.advance(HOUR);
    let all = harness.executions().len();
    assert!((5..=12).contains(&all), "{all} in an hour");
    let report = harness.report("add").unwrap();
    assert!(report.message.contains("its own") || report.message.contains("written"));
}

#[test]
fn what_somebody_takes_away_is_put_back() {
    let mut harness = with_object(json!([label("team", "true", json!({"team": "a"}))]));
    harness.advance(MINUTE);
    for round in 1..4 {
        let mut object = harness.object("ConfigMap", "ci/a").unwrap();
        object["metadata"]["labels"] = json!({"n": "0"});
        harness.put(object);
        harness.advance(10 * MINUTE);
        let object = harness.object("ConfigMap", "ci/a").unwrap();
        assert_eq!(object["metadata"]["labels"]["team"], "a", "round {round}");
    }
    assert_eq!(harness.executions().len(), 4);
    // What stayed as it should be is forgotten.
    harness.advance(HOUR);
    assert_eq!(harness.notes(), [""; 0]);
    assert!(harness.report("team").is_none());
}

/// Nor is that of a dry run.
#[test]
fn a_change_that_failed_is_no_change() {
    for class in ["conflict", "invalid", "server"] {
        let mut harness = with_object(json!([label("team", "true", json!({"team": "a"}))]));
        harness.fail_writes("ConfigMap", "ci/a", class);
        harness.advance(HOUR);
        assert!(harness.executions().len() > 3, "it is retried");
        assert!(harness.report("team").is_none(), "{class}");
    }
}
