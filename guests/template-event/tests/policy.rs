//! The policy in a small cluster with a clock of its own.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use davit_guest::FailureClass;
use davit_guest::testing::Harness;
use event_template::Policy;
use serde_json::{Value, json};

fn harness() -> Harness<Policy> {
    Harness::new(&json!({"team": "platform"})).unwrap()
}

fn namespace(name: &str, labels: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

fn team(harness: &Harness<Policy>, name: &str) -> Value {
    let namespace = harness.object("Namespace", name).unwrap();
    namespace.pointer("/metadata/labels/team").cloned().unwrap()
}

#[test]
fn a_namespace_without_the_label_gets_it() {
    let mut harness = harness();
    harness.put(namespace("shop", &json!({})));
    harness.put(namespace("ci", &json!({"team": "build"})));
    harness.run();
    assert_eq!(team(&harness, "shop"), "platform");
    assert_eq!(team(&harness, "ci"), "build");
    let executions = harness.executions();
    let changed = |name: &str| {
        executions
            .iter()
            .filter(|it| it.plan.target.name == name)
            .count()
    };
    assert_eq!((changed("shop"), changed("ci")), (1, 0));
}

#[test]
fn a_label_that_is_removed_comes_back() {
    let mut harness = harness();
    harness.put(namespace("ci", &json!({"team": "build"})));
    harness.run();
    harness.put(namespace("ci", &json!({})));
    harness.run();
    assert_eq!(team(&harness, "ci"), "platform");
}

#[test]
fn an_empty_label_is_a_label() {
    let mut harness = harness();
    harness.put(namespace("shop", &json!({"team": ""})));
    harness.run();
    assert_eq!(team(&harness, "shop"), "");
}

#[test]
fn a_label_that_somebody_sets_meanwhile_stays() {
    let mut harness = harness();
    harness.put(namespace("shop", &json!({})));
    harness.put_on_server(namespace("shop", &json!({"team": "payments"})));
    harness.run();
    let mut executions = harness.executions().iter();
    let refused = executions.find(|it| it.plan.target.name == "shop");
    let (_, failure) = refused.unwrap().result.clone().unwrap_err();
    assert_eq!(failure.class, FailureClass::Conflict);
    harness.show("Namespace", "shop");
    harness.advance(Duration::from_secs(60));
    assert_eq!(team(&harness, "shop"), "payments");
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    harness().assert_schema_is_read();
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    let refused = |config: Value| Harness::<Policy>::refused(&config).unwrap();
    assert_eq!(refused(json!({"team": ""})).0, "team");
    assert_eq!(refused(json!({"teams": []})).0, "teams");
}
