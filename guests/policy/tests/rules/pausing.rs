//! What rules with a floor wait for between two of their acts: see `holding.rs` for the floor itself.

use std::time::Duration;

use davit_guest::testing::Harness;
use davit_guest::{ObjectRef, QueueName, Verdict};
use policy::Policy;
use serde_json::{Value, json};

use crate::support::{HOUR, MINUTE};

/// A rule about `ConfigMaps` that waits while there are so few, and other fields of it.
fn floor(least: usize, more: Value) -> Harness<Policy> {
    floor_with(json!({}), least, more)
}

/// The same in a configuration with other fields.
fn floor_with(mut config: Value, least: usize, more: Value) -> Harness<Policy> {
    let mut rule = json!({
        "name": "old",
        "match": {"resource": "configmaps"},
        "when": "object.data.old == 'yes'",
        "hold": format!("counts.all <= {least}"),
        "do": {"delete": {}},
    });
    for (name, value) in more.as_object().unwrap() {
        rule[name.as_str()] = value.clone();
    }
    config["counts"] = json!({"all": {"resource": "configmaps"}});
    config["rules"] = json!([rule]);
    Harness::new(&config).unwrap_or_else(|error| panic!("{error:?}"))
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name},
        "data": {"old": "yes"},
    })
}

fn put_all(harness: &mut Harness<Policy>, count: usize) {
    for number in 0..count {
        harness.put(config_map("ci", &format!("c{number:04}")));
    }
}

/// The wait for an act starts when it has ended: neither a slow write nor a watch that is late
/// lets the rule act once too often.
#[test]
fn a_floor_holds_however_slow_a_write_is() {
    let mut harness = floor_with(json!({"every": "1s"}), 7, json!({}));
    put_all(&mut harness, 1);
    harness.advance(MINUTE);
    harness.delay_watches(Duration::from_secs(20));
    harness.delay_requests(Duration::from_secs(14));
    put_all(&mut harness, 12);
    harness.advance(HOUR);
    for it in harness.executions() {
        println!("{:?} {} {:?}", it.at, it.plan.target.name, it.result);
    }
    assert_eq!(harness.keys("ConfigMap").len(), 7);
}

/// What cannot be done to one object is no reason to wait with the others.
#[test]
fn a_refusal_delays_the_others_by_a_second() {
    for class in ["forbidden", "invalid", "conflict"] {
        let mut harness = floor(2, json!({}));
        put_all(&mut harness, 6);
        for name in ["c0000", "c0001"] {
            harness.fail_writes("ConfigMap", &format!("ci/{name}"), class);
        }
        harness.advance(Duration::from_secs(5));
        assert_eq!(
            harness.keys("ConfigMap"),
            ["ci/c0000", "ci/c0001"],
            "{class}"
        );
    }
}

/// None of its acts is ever seen, whatever the clock shows: nobody knows how long ago a time in the
/// future was.
#[test]
fn a_dry_run_plans_an_object_in_thirty_seconds() {
    for shift in [0, -86_400_000, 86_400_000] {
        let mut harness = floor_with(json!({"every": "1h"}), 2, json!({}));
        harness.dry_run(true);
        put_all(&mut harness, 12);
        harness.advance(Duration::from_secs(45));
        assert_eq!(harness.dry_runs().len(), 2, "before {shift}");
        harness.shift_clock(shift);
        harness.advance(4 * MINUTE);
        let planned = harness.dry_runs().len();
        assert!((8..=11).contains(&planned), "{planned} of {shift}");
    }
}

/// Groups of which the API server has something that the cache does not have: each is asked for.
#[test]
fn what_a_call_reads_of_groups_is_bounded() {
    let mut harness = floor(1, json!({"keep": {"newest": 1000, "per": "namespace"}}));
    for number in 0..11 * 1001 {
        let (namespace, name) = (format!("g{:02}", number % 11), format!("c{number:05}"));
        harness.put(config_map(&namespace, &name));
    }
    for group in 0..11 {
        let name = format!("c{:05}", 11 * 500 + group);
        let mut object = config_map(&format!("g{group:02}"), &name);
        object["metadata"]["labels"] = json!({"new": "yes"});
        harness.put_on_server(object);
    }
    let decision = harness.decide(QueueName::named("one-by-one"), "rules");
    assert!(decision.plans.is_empty());
    assert_eq!(harness.live_reads().len(), 9000, "of nine groups");
    assert_eq!(decision.verdict, Verdict::RequeueAfter(0));
}

/// What is as it should be is no reason to read what is kept.
#[test]
fn nothing_is_read_for_a_group_that_is_as_it_should_be() {
    let mut harness = floor(
        0,
        json!({
            "keep": {"newest": 2},
            "proof": "live",
            "do": {"label": {"old": "yes"}},
        }),
    );
    put_all(&mut harness, 4);
    harness.advance(MINUTE);
    let before = harness.live_reads().len();
    harness.advance(HOUR);
    assert_eq!(harness.live_reads().len(), before);
}

/// Two groups, each with one object too many.
fn two_groups() -> Harness<Policy> {
    let mut harness = floor(2, json!({"keep": {"newest": 20, "per": "namespace"}}));
    for namespace in ["a", "b"] {
        for number in 0..21 {
            harness.put(config_map(namespace, &format!("c{number:02}")));
        }
    }
    harness
}

/// The others of its group lead to it as well.
#[test]
fn an_object_of_a_group_has_one_turn_in_a_pass() {
    for (class, seconds) in [("forbidden", 10), ("server", 40)] {
        let mut harness = two_groups();
        harness.fail_writes("ConfigMap", "a/c00", class);
        harness.advance(Duration::from_secs(seconds));
        let keys = harness.keys("ConfigMap");
        assert!(!keys.contains(&"b/c00".to_owned()), "{class}");
        let tries = harness.executions().len() - 1;
        assert!(tries <= 2, "{tries} of {class}");
    }
}

/// One that has the name of an object which has had its turn.
#[test]
fn a_group_with_the_name_of_an_object_has_its_turn() {
    let mut harness = Harness::<Policy>::new(&json!({
        "counts": {"all": {"resource": "persistentvolumes"}},
        "rules": [{
            "name": "old",
            "match": {"resource": "persistentvolumes"},
            "when": "object.metadata.labels.group != ''",
            "keep": {"newest": 1, "per": "metadata.labels.group"},
            "hold": "counts.all < 2",
            "do": {"delete": {}},
        }],
    }))
    .unwrap();
    for (name, group) in [("a", "first"), ("b", "first"), ("c", "a"), ("d", "a")] {
        harness.put(json!({"apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": {"group": group}}}));
    }
    harness.fail_writes("PersistentVolume", "a", "forbidden");
    harness.advance(Duration::from_secs(10));
    assert_eq!(harness.keys("PersistentVolume"), ["a", "b", "d"]);
}

#[test]
fn a_dry_run_plans_objects_of_all_groups() {
    let mut harness = two_groups();
    harness.dry_run(true);
    harness.advance(MINUTE);
    let planned: Vec<String> = harness.dry_runs().iter().map(ObjectRef::key).collect();
    assert_eq!(planned[..2], ["a/c00", "b/c00"]);
}

/// More of them than one call acts on.
#[test]
fn objects_that_fail_keep_nothing_from_the_others_of_their_group() {
    let copy = json!({
        "keep": {"newest": 0},
        "do": {"label": {"copy": "${object.data.value}"}},
    });
    let mut alone = floor(0, copy.clone());
    let mut rule = json!({
        "name": "copy",
        "match": {"resource": "configmaps"},
        "when": "object.data.old == 'yes'",
    });
    rule["keep"] = copy["keep"].clone();
    rule["do"] = copy["do"].clone();
    let mut together = crate::support::rules(json!([rule]));
    for harness in [&mut together, &mut alone] {
        for number in 0..1010 {
            let mut object = config_map("ci", &format!("c{number:04}"));
            if number >= 1000 {
                object["data"]["value"] = json!("x");
            }
            harness.put(object);
        }
        harness.advance(MINUTE);
        assert_eq!(harness.executions().len(), 10);
    }
}

/// Two thousand acts are more than one page of them.
#[test]
fn a_large_group_goes_down_to_its_low_watermark() {
    for refused in [None, Some("ci/c0000")] {
        let mut harness = crate::support::rules(json!([{
            "name": "old",
            "match": {"resource": "configmaps"},
            "when": "object.data.old == 'yes'",
            "keep": {"newest": 5, "above": 1500},
            "do": {"delete": {}},
        }]));
        put_all(&mut harness, 2100);
        if let Some(key) = refused {
            harness.fail_writes("ConfigMap", key, "forbidden");
        }
        harness.advance(MINUTE);
        let left = harness.keys("ConfigMap").len();
        assert_eq!(left, 5 + usize::from(refused.is_some()));
    }
}
