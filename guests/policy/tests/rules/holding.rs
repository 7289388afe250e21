//! Rules whose own acts change what `hold` counts: a floor stays a floor.

use davit_guest::Controller as _;
use davit_guest::testing::Harness;
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE, failed, refusal_of};

/// A rule about `ConfigMaps` with a floor under their number.
fn floor(rules: Value) -> Harness<Policy> {
    let count = json!({"resource": "configmaps", "labelSelector": "app=build"});
    configured(&json!({"counts": {"all": count}, "rules": rules}))
}

fn configured(config: &Value) -> Harness<Policy> {
    Harness::new(config).unwrap_or_else(|error| panic!("{error:?}"))
}

fn rule(name: &str, hold: &str) -> Value {
    json!({
        "name": name,
        "match": {"resource": "configmaps"},
        "when": "object.data.old == 'yes'",
        "hold": hold,
        "do": {"delete": {}},
    })
}

fn config_map(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "ci", "name": name, "labels": {"app": "build"}},
        "data": {"old": "yes"},
    })
}

fn put_all(harness: &mut Harness<Policy>, names: impl Iterator<Item = String>) {
    for name in names {
        harness.put(config_map(&name));
    }
}

/// Twelve failed pods that are not gone when they are deleted.
fn put_slow_pods(harness: &mut Harness<Policy>) {
    for number in 0..12 {
        let mut pod = failed("ci", &format!("p{number:02}"));
        pod["metadata"]["finalizers"] = json!(["example.com/slow"]);
        harness.put(pod);
    }
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("c{number:04}"))
}

#[test]
fn a_rule_never_deletes_below_the_number_that_holds_it() {
    for (before, least) in [(5, 3), (4, 3), (40, 20), (1200, 1100)] {
        let mut harness = floor(json!([rule("old", &format!("counts.all <= {least}"))]));
        put_all(&mut harness, names(before));
        harness.advance(HOUR);
        assert_eq!(harness.keys("ConfigMap").len(), least, "of {before}");
    }
}

#[test]
fn two_rules_with_one_floor_do_not_pass_it_together() {
    let hold = "counts.all <= 3";
    let mut other = rule("other", hold);
    other["when"] = json!("object.metadata.name.endsWith('1')");
    for rules in [
        json!([rule("old", hold), other]),
        json!([other, rule("old", hold)]),
    ] {
        let mut harness = floor(rules);
        put_all(&mut harness, names(20));
        harness.advance(HOUR);
        assert_eq!(harness.keys("ConfigMap").len(), 3);
    }
}

#[test]
fn what_keep_does_not_spare_is_deleted_down_to_the_floor() {
    for (keep, left) in [
        (json!({"newest": 3}), 10),
        (json!({"newest": 12}), 12),
        (json!({"newest": 0, "per": "namespace"}), 10),
    ] {
        let mut keeping = rule("old", "counts.all <= 10");
        keeping["keep"] = keep.clone();
        let mut harness = floor(json!([keeping]));
        put_all(&mut harness, names(20));
        harness.advance(HOUR);
        assert_eq!(harness.keys("ConfigMap").len(), left, "{keep}");
    }
}

/// A kubelet takes its time to end a pod, which is still running.
#[test]
fn what_is_being_deleted_does_not_count() {
    let failing = "object.status.phase == 'Failed'";
    for count in [
        json!({"resource": "pods"}),
        json!({"resource": "pods", "when": failing}),
    ] {
        let mut harness = configured(&json!({
            "counts": {"all": count},
            "rules": [{
                "name": "old",
                "match": {"resource": "pods"},
                "when": failing,
                "hold": "counts.all <= 4",
                "do": {"delete": {}},
            }],
        }));
        put_slow_pods(&mut harness);
        harness.advance(HOUR);
        let is_left = |key: &String| {
            let pod = harness.object("Pod", key).unwrap();
            pod["metadata"]["deletionTimestamp"].is_null()
        };
        let left = harness
            .keys("Pod")
            .iter()
            .filter(|key| is_left(key))
            .count();
        assert_eq!(left, 4, "{count}");
    }
}

#[test]
fn a_count_that_asks_for_what_is_being_deleted_has_it() {
    let mut harness = configured(&json!({
        "counts": {"going": {
            "resource": "pods",
            "when": "object.metadata.deletionTimestamp != null",
        }},
        "rules": [{
            "name": "old",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "hold": "counts.going >= 2",
            "do": {"delete": {}},
        }],
    }));
    put_slow_pods(&mut harness);
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 2, "two at a time");
}

/// A change that makes an object count is an act too: "no more than so many".
#[test]
fn no_more_objects_are_marked_than_hold_allows() {
    let mut harness = configured(&json!({
        "counts": {"marked": {"resource": "configmaps", "labelSelector": "marked=yes"}},
        "rules": [{
            "name": "mark",
            "match": {"resource": "configmaps"},
            "when": "object.data.old == 'yes'",
            "hold": "counts.marked >= 3",
            "do": {"label": {"marked": "yes"}},
        }],
    }));
    put_all(&mut harness, names(20));
    harness.advance(HOUR);
    let is_marked = |key: &String| {
        let object = harness.object("ConfigMap", key).unwrap();
        object["metadata"]["labels"]["marked"] == "yes"
    };
    let marked = harness
        .keys("ConfigMap")
        .iter()
        .filter(|key| is_marked(key))
        .count();
    assert_eq!(marked, 3);
}

/// Nothing happened to it: the others have their turn.
#[test]
fn an_object_that_cannot_be_deleted_does_not_keep_the_others() {
    for class in ["forbidden", "server", "invalid", "conflict"] {
        for keep in [json!(null), json!({"newest": 0})] {
            let mut deleting = rule("old", "counts.all <= 2");
            if !keep.is_null() {
                deleting["keep"] = keep;
            }
            let mut harness = floor(json!([deleting]));
            put_all(&mut harness, names(6));
            for name in ["c0000", "c0003"] {
                harness.fail_writes("ConfigMap", &format!("ci/{name}"), class);
            }
            harness.advance(2 * HOUR);
            assert_eq!(
                harness.keys("ConfigMap"),
                ["ci/c0000", "ci/c0003"],
                "{class}"
            );
        }
    }
}

#[test]
fn a_rule_that_is_held_acts_when_it_is_held_no_longer() {
    let mut harness = floor(json!([rule("old", "counts.all <= 3")]));
    put_all(&mut harness, names(3));
    harness.advance(HOUR);
    assert_eq!(harness.keys("ConfigMap").len(), 3);
    harness.put(config_map("new"));
    harness.advance(2 * MINUTE);
    assert_eq!(harness.keys("ConfigMap").len(), 3);
}

#[test]
fn an_eviction_that_becomes_a_deletion_has_no_floor() {
    let config = json!({
        "counts": {"all": {"resource": "pods"}},
        "rules": [{
            "name": "old",
            "match": {"resource": "pods"},
            "when": "object.status.phase == 'Failed'",
            "hold": "counts.all <= 4",
            "do": {"evict": {"thenDeleteAfter": "10m"}},
        }],
    });
    let (field, message) = refusal_of(&config);
    assert_eq!(field, "rules[0].do.evict.thenDeleteAfter");
    assert!(message.contains("hold counts the pods"), "{message}");
}

/// A kind that the API server has in two versions is one resource.
#[test]
fn a_floor_in_another_version_of_the_kind_is_a_floor_too() {
    for (count, is_own) in [
        ("widgets.v1.example.com", true),
        ("widgets.v1beta1.example.com", true),
        ("widgets.v1.example.org", false),
        ("gadgets.v1.example.com", false),
    ] {
        let config = json!({
            "counts": {"all": {"resource": count}},
            "rules": [{
                "name": "old",
                "match": {"resource": "widgets.v1.example.com"},
                "when": "object.spec.old == true",
                "hold": "counts.all <= 4",
                "do": {"delete": {}},
            }],
        });
        let policy = Policy::new(serde_json::from_value(config).unwrap()).unwrap();
        let manifest = policy.manifest();
        let has_item = manifest.queues.iter().any(|it| it.name == "one-by-one");
        assert_eq!(has_item, is_own, "{count}");
    }
}

/// A rule whose act takes an object out of its own selector.
fn leaving(count: Value, hold: &str) -> Harness<Policy> {
    let mut harness = configured(&json!({
        "counts": {"marked": count},
        "rules": [{
            "name": "mark",
            "match": {"resource": "configmaps", "labelSelector": "app=build"},
            "when": "object.data.old == 'yes'",
            "hold": hold,
            "do": {"label": {"app": "done"}},
        }],
    }));
    put_all(&mut harness, names(20));
    harness
}

/// The count has it in its new version.
#[test]
fn an_act_that_takes_the_object_away_from_the_rule_is_seen_at_once() {
    let count = json!({
        "resource": "configmaps",
        "when": "object.metadata.labels.app == 'done'",
    });
    let mut harness = leaving(count, "counts.marked >= 10");
    harness.advance(MINUTE);
    assert_eq!(harness.executions().len(), 10);
}

/// The count does not have it before.
#[test]
fn no_more_objects_move_from_one_selector_to_another_than_hold_allows() {
    let count = json!({"resource": "configmaps", "labelSelector": "app=done"});
    let mut harness = leaving(count, "counts.marked >= 3");
    harness.advance(HOUR);
    assert_eq!(harness.executions().len(), 3);
}
