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

fn assert_writes_once_in_a_while(harness: &mut Harness<Policy>) {
    harness.advance(HOUR);
    let all = harness.executions().len();
    assert!((50..=64).contains(&all), "{all} in an hour");
}

/// Two rules that undo each other write little in an hour, and one of them is reported.
fn assert_braked(harness: &mut Harness<Policy>) {
    harness.advance(HOUR);
    let all = harness.executions().len();
    assert!(all <= 24, "{all} in an hour");
    let report = harness.report("on").unwrap();
    assert!(report.message.contains("undoes it"), "{}", report.message);
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
    assert_braked(&mut harness);
}

#[test]
fn a_rule_that_acts_on_its_own_result_writes_once_in_a_while() {
    let number = "${string(int(object.metadata.labels.n) + 1)}";
    let mut harness = with_object(json!([label("add", "true", json!({"n": number}))]));
    assert_writes_once_in_a_while(&mut harness);
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
    assert!(harness.report("team").is_none());
}

/// Nor is that of a dry run.
#[test]
fn a_change_that_failed_is_no_change() {
    for class in ["conflict", "invalid", "server"] {
        let mut harness = with_object(json!([label("team", "true", json!({"team": "a"}))]));
        harness.fail_writes("ConfigMap", "ci/a", class);
        for minute in 0..20 {
            harness.advance(MINUTE);
            // Others write the object meanwhile.
            let mut object = harness.object("ConfigMap", "ci/a").unwrap();
            object["data"] = json!({"minute": minute.to_string()});
            harness.put(object);
        }
        assert!(harness.executions().len() > 3, "it is retried");
        assert!(harness.report("team").is_none(), "{class}");
    }
}

/// The changes are different ones: a copy of a field that somebody edits.
#[test]
fn a_copy_of_a_field_follows_within_a_pause() {
    let copy = json!({"copy": "${object.metadata.labels.n}"});
    let mut harness = with_object(json!([label("copy", "true", copy)]));
    for number in 1..30 {
        harness.advance(2 * MINUTE);
        let mut object = harness.object("ConfigMap", "ci/a").unwrap();
        object["metadata"]["labels"]["n"] = json!(number.to_string());
        harness.put(object);
        harness.advance(MINUTE);
        let object = harness.object("ConfigMap", "ci/a").unwrap();
        assert_eq!(object["metadata"]["labels"]["copy"], number.to_string());
    }
    assert!(harness.report("copy").is_none());
}

/// A rule that acts on one object at a time pauses as any other.
#[test]
fn a_held_rule_pauses_too() {
    let number = "${string(int(object.metadata.labels.n) + 1)}";
    let mut rule = label("add", "true", json!({"n": number}));
    rule["hold"] = json!("counts.all > 100");
    let config = json!({"counts": {"all": {"resource": "configmaps"}}, "rules": [rule]});
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    harness.put(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": "a", "labels": {"n": "0"}},
    }));
    assert_writes_once_in_a_while(&mut harness);
}

#[test]
fn many_objects_are_changed_with_few_notes() {
    let mut harness = rules(json!([label("team", "true", json!({"team": "a"}))]));
    for number in 0..1000 {
        harness.put(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": "ci", "name": format!("c{number}")},
        }));
    }
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 1000);
    assert!(harness.notes().len() <= 64);
}

/// What keeps some decides in groups, and is no other loop.
#[test]
fn rules_that_keep_some_and_undo_each_other_write_less_and_less_and_are_reported() {
    let keeping = |name: &str| {
        let mut rule = label(name, "true", json!({"state": name}));
        rule["keep"] = json!({"newest": 0});
        rule
    };
    let mut harness = with_object(json!([keeping("on"), keeping("off")]));
    assert_braked(&mut harness);
}

/// Nobody knows how long ago a time in the future was.
#[test]
fn a_clock_that_is_set_back_stops_no_rule() {
    let number = "${string(int(object.metadata.labels.n) + 1)}";
    let mut harness = with_object(json!([label("add", "true", json!({"n": number}))]));
    harness.advance(10 * MINUTE);
    harness.shift_clock(-86_400_000);
    harness.clear_executions();
    assert_writes_once_in_a_while(&mut harness);
}
