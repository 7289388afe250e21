//! The policy in a small cluster with a clock of its own.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::time::Duration;

use davit_guest::Time;
use davit_guest::testing::{Harness, START};
use guest_template::Policy;
use serde_json::{Value, json};

const HOUR: Duration = Duration::from_secs(3600);

/// Keeps no terminated pods but those of `ci` that failed within a day.
fn harness() -> Harness<Policy> {
    let config = json!({"terminatedPodThreshold": 0, "keepFailedIn": ["ci"]});
    Harness::new(&config).unwrap()
}

/// So many hours after the clock's start, or before it.
fn hour(hours: i64) -> String {
    Time::from_instant(START + hours * 3_600_000).to_string()
}

/// A pod that was made two days before the clock's start.
fn pod(namespace: &str, name: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": hour(-48)},
        "status": {"phase": phase},
    })
}

/// A pod whose container failed so many hours after the clock's start.
fn failed(namespace: &str, name: &str, at: i64) -> Value {
    let mut pod = pod(namespace, name, "Failed");
    let state = json!({"terminated": {"exitCode": 1, "finishedAt": hour(at)}});
    pod["status"]["containerStatuses"] = json!([{"name": "main", "state": state}]);
    pod
}

#[test]
fn a_failed_pod_of_the_namespace_is_kept_for_a_day() {
    let mut harness = harness();
    harness.put(failed("ci", "build", 0));
    harness.put(failed("shop", "web", 0));
    harness.put(pod("ci", "lint", "Succeeded"));
    harness.put(pod("ci", "test", "Running"));
    harness.advance(23 * HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/build", "ci/test"]);
    harness.advance(2 * HOUR);
    assert_eq!(harness.keys("Pod"), ["ci/test"]);
}

/// It was evicted before its container ran: nothing says when it failed.
#[test]
fn a_pod_that_never_ran_is_as_old_as_it_is() {
    let mut harness = harness();
    harness.put(pod("ci", "evicted", "Failed"));
    harness.run();
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

#[test]
fn the_oldest_go_first_and_kept_ones_do_not_count() {
    let config = json!({"terminatedPodThreshold": 1, "keepFailedIn": ["ci"]});
    let mut harness = Harness::<Policy>::new(&config).unwrap();
    let mut older = pod("shop", "older", "Succeeded");
    older["metadata"]["creationTimestamp"] = hour(-49).into();
    harness.put(older);
    harness.put(pod("shop", "newer", "Succeeded"));
    harness.put(failed("ci", "build", 0));
    harness.run();
    assert_eq!(harness.keys("Pod"), ["ci/build", "shop/newer"]);
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
