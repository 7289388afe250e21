//! The policy in a small cluster with a clock of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::time::Duration;

use davit_guest::testing::{Harness, Pod, START};
use davit_guest::{Instant, Time};
use guest_template::Policy;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

/// Keeps the youngest terminated pod, and those of `ci` that failed within a
/// day.
fn harness() -> Harness<Policy> {
    let config = json!({"terminatedPodThreshold": 1, "keepFailedIn": ["ci"]});
    let mut harness = Harness::new(&config).unwrap();
    let youngest = pod("shop", "youngest", "Succeeded").created(hour(0));
    harness.put(youngest.into());
    harness
}

/// A time so many hours after the start of the clock, or before it.
fn hour(hours: i64) -> Instant {
    Instant::from_millis(START.as_millis() + hours * 3_600_000)
}

/// A pod that was created two days before the start of the clock.
fn pod(namespace: &str, name: &str, phase: &str) -> Pod {
    let pod = Pod::new(name).namespace(namespace).phase(phase);
    pod.created(hour(-48))
}

/// A pod whose container failed so many hours after the start of the clock.
fn failed(namespace: &str, name: &str, at: i64) -> Value {
    let finished = Time::from(hour(at)).to_string();
    let state = json!({"terminated": {"exitCode": 1, "finishedAt": finished}});
    let statuses = json!([{"name": "main", "state": state}]);
    let pod = pod(namespace, name, "Failed");
    pod.set("/status/containerStatuses", statuses).into()
}

#[test]
fn a_failed_pod_of_the_namespace_is_kept_for_a_day() {
    let mut harness = harness();
    harness.put(failed("ci", "build", 0));
    harness.put(failed("shop", "web", 0));
    harness.put(pod("ci", "lint", "Succeeded").into());
    harness.put(pod("ci", "test", "Running").into());
    harness.advance(23 * HOUR);
    assert_eq!(
        harness.keys("Pod"),
        ["ci/build", "ci/test", "shop/youngest"]
    );
    harness.advance(2 * HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/test", "shop/youngest"]);
}

/// It was evicted before its container ran: no field says when it failed.
#[test]
fn a_pod_that_never_ran_is_as_old_as_it_is() {
    let mut harness = harness();
    harness.put(pod("ci", "evicted", "Failed").into());
    harness.run();
    assert_eq!(harness.keys("Pod"), ["shop/youngest"]);
}

#[test]
fn the_oldest_go_first_and_kept_ones_do_not_count() {
    let config = json!({"terminatedPodThreshold": 2, "keepFailedIn": ["ci"]});
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    for (name, age) in [("older", 3), ("oldest", 4), ("newer", 2)] {
        let pod = pod("shop", name, "Succeeded").created(hour(-age));
        harness.put(pod.into());
    }
    harness.put(failed("ci", "build", 0));
    harness.run();
    assert_eq!(
        harness.keys("Pod"),
        ["ci/build", "shop/newer", "shop/older"]
    );
}

#[test]
fn threshold_0_keeps_all_pods_as_it_does_in_kubernetes() {
    let mut harness = Harness::<Policy>::new(&json!({"terminatedPodThreshold": 0})).unwrap();
    harness.put(failed("shop", "web", 0));
    harness.advance(25 * HOUR);
    assert_eq!(harness.keys("Pod"), ["shop/web"]);
}

#[test]
fn the_schema_names_the_fields_that_are_read() {
    harness().assert_schema_is_read();
}

#[test]
fn a_wrong_configuration_is_refused_by_name() {
    let refused = |config: Value| Harness::<Policy>::refused(&config).unwrap();
    assert_eq!(refused(json!({"keepFailed": "24h"})).0, "keepFailed");
    assert_eq!(refused(json!({"keepFailedFor": 24})).0, "keepFailedFor");
    assert_eq!(refused(json!({"period": "0s"})).0, "period");
}
