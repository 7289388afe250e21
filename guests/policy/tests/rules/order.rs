//! Which of several rules acts on an object.

use serde_json::{Value, json};

use crate::support::{HOUR, failed, rules};

/// Rules with other selectors have watches of their own, which may have the same objects.
#[test]
fn the_first_rule_acts_on_an_object_that_another_selector_selects_too() {
    for selectors in [["one=x", "two=x"], ["two=x", "one=x"], ["one=x", ""]] {
        let rule = |name: &str, selector: &str| {
            json!({
                "name": name,
                "match": {"resource": "pods", "labelSelector": selector},
                "when": "object.status.phase == 'Failed'",
                "do": {"delete": {}},
            })
        };
        let [first, second] = selectors;
        let mut harness = rules(json!([rule("first", first), rule("second", second)]));
        let mut pod = failed("ci", "a");
        pod["metadata"]["labels"] = json!({"one": "x", "two": "x"});
        pod["metadata"]["finalizers"] = json!(["example.com/slow"]);
        harness.put(pod);
        harness.advance(HOUR);
        let reasons: Vec<String> = harness
            .executions()
            .iter()
            .map(|it| it.plan.reason.clone())
            .collect();
        assert_eq!(reasons, ["first"], "{selectors:?}");
    }
}

/// Until long after the tests.
const HELD: &str = "now < timestamp('2030-01-01T00:00:00Z')";

/// The ways in which a later rule deletes.
fn later_rules() -> Vec<(&'static str, Value)> {
    vec![
        ("plain", json!({"do": {"delete": {}}})),
        ("keep", json!({"do": {"delete": {}}, "keep": {"newest": 0}})),
        (
            "evict",
            json!({"do": {"evict": {"thenDeleteAfter": "10m"}}}),
        ),
    ]
}

/// The reasons of the plans for a pod that both rules select, by whether the later rule has
/// the selector of the first one, and by its way.
fn reasons(first: &Value) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for selector in ["app=build", ""] {
        for (way, later) in later_rules() {
            let mut second = json!({
                "name": "second",
                "match": {"resource": "pods", "labelSelector": selector},
                "when": "object.status.phase == 'Failed'",
            });
            let fields = second.as_object_mut().unwrap();
            fields.extend(later.as_object().unwrap().clone());
            let mut harness = rules(json!([first, second]));
            harness.put(failed("ci", "a"));
            harness.advance(HOUR);
            let executions = harness.executions().iter();
            let mut reasons: Vec<String> = executions.map(|it| it.plan.reason.clone()).collect();
            reasons.dedup();
            reasons.sort();
            found.push((format!("{selector:?} {way}"), reasons));
        }
    }
    found
}

fn first(action: Value, hold: &str) -> Value {
    json!({
        "name": "first",
        "match": {"resource": "pods", "labelSelector": "app=build"},
        "when": "object.status.phase == 'Failed'",
        "hold": hold,
        "do": action,
    })
}

#[test]
fn a_rule_that_waits_keeps_its_objects_from_later_ones() {
    let fails = json!({"annotate": {"a": "${object.metadata.labels.nope}"}});
    for rule in [
        first(json!({"label": {"hold": "yes"}}), HELD),
        first(json!({"delete": {}}), HELD),
        first(fails, ""),
    ] {
        for (case, reasons) in reasons(&rule) {
            assert_eq!(reasons, [""; 0], "{case}: {rule}");
        }
    }
}

#[test]
fn a_rule_that_only_records_an_event_keeps_nothing_from_later_ones() {
    let event = json!({"event": {"reason": "Seen", "message": "it failed"}});
    for (case, reasons) in reasons(&first(event.clone(), "")) {
        assert_eq!(reasons, ["first", "second"], "{case}");
    }
    for (case, reasons) in reasons(&first(event, HELD)) {
        assert_eq!(reasons, ["second"], "{case}: it waits");
    }
}

#[test]
fn a_rule_that_has_nothing_to_change_keeps_nothing_from_later_ones() {
    let rule = first(json!({"label": {"app": "build"}}), HELD);
    for (case, reasons) in reasons(&rule) {
        assert_eq!(reasons, ["second"], "{case}");
    }
}
