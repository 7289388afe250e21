//! Which of several rules acts on an object.

use davit_guest::testing::Harness;
use policy::{Policy, Verdict};
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, failed, rules};

/// Rules with other selectors have watches of their own, which may have the same objects.
#[test]
fn the_first_rule_acts_on_an_object_that_another_selector_selects_too() {
    for selectors in [["one=x", "two=x"], ["two=x", "one=x"], ["one=x", ""]] {
        let rule = |name: &str, selector: &str| {
            json!({
                "name": name,
                "match": pods(selector),
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

/// Pods with these labels; all of them without a selector.
fn pods(selector: &str) -> Value {
    match selector {
        "" => json!({"resource": "pods"}),
        _ => json!({"resource": "pods", "labelSelector": selector}),
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
                "match": pods(selector),
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
    let mut rule = json!({
        "name": "first",
        "match": {"resource": "pods", "labelSelector": "app=build"},
        "when": "object.status.phase == 'Failed'",
        "do": action,
    });
    if !hold.is_empty() {
        rule["hold"] = json!(hold);
    }
    rule
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

/// A first rule that spares some objects of a group.
fn keeping(keep: Value, action: Value, hold: &str) -> Value {
    let mut rule = first(action, hold);
    rule["keep"] = keep;
    rule
}

#[test]
fn what_an_earlier_rule_does_not_spare_is_left_to_it() {
    let none = || json!({"newest": 0});
    let fails = json!({"annotate": {"a": "${object.metadata.labels.nope}"}});
    for (rule, expected) in [
        (keeping(none(), json!({"evict": {}}), ""), vec!["first"]),
        (keeping(none(), json!({"delete": {}}), ""), vec!["first"]),
        (keeping(none(), json!({"evict": {}}), HELD), vec![]),
        (keeping(none(), json!({"delete": {}}), HELD), vec![]),
        (keeping(none(), json!({"label": {"a": "b"}}), HELD), vec![]),
        (keeping(none(), fails, ""), vec![]),
        // It has changed the object, and has nothing left to change.
        (
            keeping(none(), json!({"label": {"app": "build"}}), HELD),
            vec!["second"],
        ),
        // It does not know which ones are the newest.
        (
            keeping(
                json!({"newest": 0, "by": "timestamp(object.metadata.annotations['at'])"}),
                json!({"delete": {}}),
                "",
            ),
            vec![],
        ),
    ] {
        for (case, reasons) in reasons(&rule) {
            assert_eq!(reasons, expected, "{case}: {rule}");
        }
    }
}

#[test]
fn what_an_earlier_rule_spares_is_open_to_later_ones() {
    for rule in [
        keeping(json!({"newest": 1}), json!({"delete": {}}), HELD),
        keeping(json!({"newest": 1}), json!({"label": {"a": "b"}}), ""),
        // Without an owner, it is in no group.
        keeping(
            json!({"newest": 0, "per": "owner"}),
            json!({"delete": {}}),
            "",
        ),
    ] {
        for (case, reasons) in reasons(&rule) {
            assert_eq!(reasons, ["second"], "{case}: {rule}");
        }
    }
    for (way, later) in later_rules() {
        let mut second = first(json!({}), "");
        second["name"] = json!("second");
        let fields = second.as_object_mut().unwrap();
        fields.extend(later.as_object().unwrap().clone());
        let first = keeping(json!({"newest": 1}), json!({"delete": {}}), HELD);
        let mut harness = rules(json!([first, second]));
        for (name, minute) in [("old", 1), ("new", 2)] {
            let mut pod = failed("ci", name);
            let created = format!("2023-11-14T22:{minute:02}:00Z");
            pod["metadata"]["creationTimestamp"] = json!(created);
            harness.put(pod);
        }
        // Without the newer pod, the first rule would spare the older one in its place.
        harness.advance(MINUTE / 2);
        assert_eq!(harness.keys("Pod"), ["ci/new", "ci/old"], "{way}");
    }
}

/// While the cache may lack objects, nobody knows which ones the first rule spares.
#[test]
fn what_an_earlier_rule_selects_is_left_to_it_while_its_group_is_not_known() {
    let mut second = first(json!({"delete": {}}), "");
    second["name"] = json!("second");
    second["when"] = json!("now - finishedAt(object) > duration('30m')");
    let mut harness = rules(json!([
        keeping(json!({"newest": 1}), json!({"delete": {}}), ""),
        second
    ]));
    harness.put(failed("ci", "a"));
    harness.run();
    harness.interrupt("Pod");
    harness.advance(HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/a"]);
    harness.heal();
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn what_nobody_knows_of_an_earlier_rule_keeps_the_object_from_later_ones() {
    let later = json!({
        "name": "later", "match": {"resource": "pods"},
        "when": "now - finishedAt(object) > duration('30m')", "do": {"delete": {}},
    });
    let reads_the_node = json!({
        "name": "gpu", "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed' && node.metadata.labels['pool'] == 'gpu'",
        "do": {"label": {"pool": "gpu"}},
    });
    let another_selector = json!({
        "name": "incident", "match": {"resource": "pods", "labelSelector": "incident=open"},
        "when": "true", "do": {"label": {"seen": "yes"}},
    });
    let group = json!({
        "name": "group", "match": {"resource": "pods"}, "when": "node.metadata.labels['a'] == 'b'",
        "keep": {"newest": 0}, "do": {"label": {"pool": "gpu"}},
    });
    for (first, unknown) in [
        (reads_the_node, "Node"),
        (another_selector, "Pod"),
        (group, "Node"),
    ] {
        let mut harness = rules(json!([first, later]));
        harness.put(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        }));
        let mut pod = failed("ci", "a");
        pod["spec"] = json!({"nodeName": "n"});
        harness.put(pod);
        harness.run();
        harness.interrupt(unknown);
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), ["ci/a"], "{first}");
        harness.heal();
        harness.advance(5 * MINUTE);
        assert_eq!(harness.keys("Pod"), [""; 0], "{first}");
    }
}

#[test]
fn an_explanation_says_which_rule_comes_first() {
    let mut second = first(json!({"delete": {"gracePeriodSeconds": 0}}), "");
    second["name"] = json!("second");
    for hold in ["", HELD] {
        let first = keeping(json!({"newest": 0}), json!({"evict": {}}), hold);
        let mut harness = rules(json!([first, second]));
        harness.put(failed("ci", "a"));
        let explanation = harness.observe(Policy::explain);
        let findings = &explanation.objects[0].findings;
        assert_eq!(findings[0].verdict.plan().is_some(), hold.is_empty());
        let by = "first".to_owned();
        assert_eq!(findings[1].verdict, Verdict::Preceded { by });
    }
}

/// Nothing changes at the object itself when its group gets smaller.
#[test]
fn what_an_earlier_rule_spares_from_now_on_is_open_to_later_ones() {
    for (way, later) in later_rules() {
        let mut second = first(json!({}), "");
        second["name"] = json!("second");
        second["when"] = json!("object.metadata.name == 'old'");
        let fields = second.as_object_mut().unwrap();
        fields.extend(later.as_object().unwrap().clone());
        let first = keeping(json!({"newest": 1}), json!({"label": {"a": "b"}}), HELD);
        let mut harness = rules(json!([first, second]));
        for (name, minute) in [("old", 1), ("new", 2)] {
            let mut pod = failed("ci", name);
            let created = format!("2023-11-14T22:{minute:02}:00Z");
            pod["metadata"]["creationTimestamp"] = json!(created);
            harness.put(pod);
        }
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), ["ci/new", "ci/old"], "{way}");
        harness.remove("Pod", "ci/new");
        harness.advance(2 * MINUTE);
        assert_eq!(harness.keys("Pod"), [""; 0], "{way}");
    }
}

/// The rule between spares the object, and is one whose objects are decided about one by one.
#[test]
fn a_rule_between_that_spares_an_object_gives_it_to_no_later_one() {
    let failed_pods = |name: &str, rest: Value| {
        let mut rule = json!({
            "name": name, "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'", "do": {"delete": {}},
        });
        let fields = rule.as_object_mut().unwrap();
        fields.extend(rest.as_object().unwrap().clone());
        rule
    };
    let floor = |floor: &str| json!({"keep": {"newest": 3}, "hold": floor});
    for (first, left) in [
        (
            json!({"hold": HELD, "do": {"annotate": {"a": "b"}}}),
            &["ci/a", "ci/b"][..],
        ),
        (json!({"hold": "counts.failed <= 1"}), &["ci/b"]),
    ] {
        let rules = [
            failed_pods("first", first.clone()),
            failed_pods("between", floor("counts.failed <= 1")),
            failed_pods("last", json!({})),
        ];
        let counts = json!({
            "failed": {"resource": "pods", "when": "object.status.phase == 'Failed'"},
        });
        let mut harness =
            Harness::<Policy>::new(&json!({"counts": counts, "rules": rules})).unwrap();
        for name in ["a", "b"] {
            harness.put(failed("ci", name));
        }
        harness.advance(HOUR);
        assert_eq!(harness.keys("Pod"), left, "{first}");
    }
}
