//! What rules with a floor wait for between two of their acts: see `holding.rs` for the floor itself.

use std::time::Duration;

use davit_guest::testing::Harness;
use davit_guest::{QueueName, Verdict};
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

/// The wait for an act begins when it has ended: neither a slow write nor a watch that is late
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
