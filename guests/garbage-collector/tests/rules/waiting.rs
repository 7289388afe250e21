//! Owners that wait: for what, and for how long.

use std::time::Duration;

use davit_guest::testing::Harness;
use garbage_collector::GarbageCollector;
use serde_json::{Value, json};

use crate::common::{
    blocking, collector, harness, interrupt_foos, object, owner, pod, set, terminating, to_pod,
};

/// The finalizers that keep an object. The harness removes no finalizer by
/// itself.
fn finalizers(harness: &Harness<GarbageCollector>, name: &str) -> Option<Value> {
    let object = harness.object("Pod", &format!("default/{name}"))?;
    let finalizers = object.pointer("/metadata/finalizers").cloned();
    finalizers.filter(|it| !it.is_null())
}

/// Such a resource may have dependents, until the timeout.
#[test]
fn an_owner_waits_for_a_resource_that_cannot_be_listed() {
    for finalizer in ["orphan", "foregroundDeletion"] {
        let mut harness = collector();
        interrupt_foos(&mut harness);
        harness.put(terminating(pod("owner", &[]), &[finalizer]));
        harness.advance(Duration::from_mins(5 * 60 + 50));
        assert_eq!(finalizers(&harness, "owner"), Some(json!([finalizer])));
        let warning =
            "owner waits for its dependents: a resource that may have dependents is not listed";
        let logged = harness.logged();
        let times = logged.iter().filter(|(_, it)| it == warning).count();
        assert_eq!(times, 1);
        harness.advance(Duration::from_mins(11));
        assert_eq!(finalizers(&harness, "owner"), None);
        assert_eq!(harness.live_reads(), []);
    }
}

#[test]
fn an_owner_is_released_as_soon_as_everything_is_listed() {
    let mut harness = collector();
    interrupt_foos(&mut harness);
    harness.put(terminating(pod("owner", &[]), &["orphan"]));
    harness.advance(Duration::from_mins(60));
    harness.heal();
    harness.advance(Duration::from_mins(1));
    assert_eq!(finalizers(&harness, "owner"), None);
}

/// An operator can shorten the timeout, and exclude resources from it.
#[test]
fn the_timeout_of_a_waiting_owner_can_be_configured() {
    let mut short = harness(&json!({"unlistedTimeout": "10m"}));
    interrupt_foos(&mut short);
    short.put(terminating(pod("owner", &[]), &["orphan"]));
    short.advance(Duration::from_mins(9));
    assert!(finalizers(&short, "owner").is_some());
    short.advance(Duration::from_mins(2));
    assert_eq!(finalizers(&short, "owner"), None);
}

/// The metrics APIs store nothing, and are often unavailable.
#[test]
fn no_owner_waits_for_the_metrics_apis() {
    let mut harness = collector();
    for group in [
        "metrics.k8s.io",
        "custom.metrics.k8s.io",
        "external.metrics.k8s.io",
    ] {
        harness.silence(&format!("{group}/v1beta1"));
    }
    harness.put(terminating(pod("owner", &[]), &["foregroundDeletion"]));
    harness.run();
    assert_eq!(finalizers(&harness, "owner"), None);
}

/// Only the finalizer that was decided on is removed.
#[test]
fn one_finalizer_is_removed_at_a_time() {
    let mut harness = collector();
    let both = ["orphan", "example.com/hold", "foregroundDeletion"];
    harness.put(terminating(pod("owner", &[]), &both));
    harness.run();
    let rest = json!(["example.com/hold"]);
    assert_eq!(finalizers(&harness, "owner"), Some(rest));
    assert_eq!(harness.executions().len(), 2);
}

/// The dependents do not block it. As long as one of them was not deleted, the
/// owner keeps its finalizer, whatever the reason.
#[test]
fn an_owner_keeps_its_finalizer_until_each_dependent_was_decided() {
    for class in ["forbidden", "server", "throttled", "timeout"] {
        let mut harness = collector();
        let waits = ["foregroundDeletion", "example.com/hold"];
        harness.put(terminating(pod("owner", &[]), &waits));
        for name in ["a", "b", "c"] {
            harness.put(pod(name, &[to_pod("owner")]));
        }
        harness.fail_writes("Pod", "default/b", class);
        harness.advance(Duration::from_mins(10));
        assert_eq!(harness.keys("Pod"), ["default/b", "default/owner"]);
        assert_eq!(finalizers(&harness, "owner"), Some(json!(waits)), "{class}");
        harness.heal();
        harness.advance(Duration::from_mins(10));
        assert_eq!(harness.keys("Pod"), ["default/owner"]);
        let rest = json!(["example.com/hold"]);
        assert_eq!(finalizers(&harness, "owner"), Some(rest));
    }
}

/// A dependent whose other owner is of an unknown kind stays forever, unless a
/// resource of that group is not served at the moment.
#[test]
fn a_dependent_that_stays_forever_counts_as_decided() {
    for known in [true, false] {
        let mut harness = collector();
        if !known {
            harness.silence("metrics.k8s.io/v1");
        }
        harness.put(terminating(pod("owner", &[]), &["foregroundDeletion"]));
        let unknown = owner("metrics.k8s.io/v1", "Unknown", "nobody", "nowhere");
        harness.put(pod("child", &[to_pod("owner"), unknown]));
        harness.advance(Duration::from_mins(10));
        assert_eq!(finalizers(&harness, "owner").is_none(), known);
        assert!(harness.keys("Pod").contains(&"default/child".to_owned()));
    }
}

/// A deletion that was sent is enough.
#[test]
fn a_terminating_dependent_does_not_keep_an_owner_that_it_does_not_block() {
    let mut harness = collector();
    harness.put(terminating(pod("owner", &[]), &["foregroundDeletion"]));
    let mut going = terminating(pod("going", &[to_pod("owner")]), &["example.com/hold"]);
    set(&mut going, "labels", json!({"some": "label"}));
    harness.put(going);
    harness.run();
    assert_eq!(finalizers(&harness, "owner"), None);
}

/// A reference from another namespace does not mean the owner, whatever becomes of its
/// object.
#[test]
fn an_owner_does_not_wait_for_an_object_of_another_namespace() {
    let mut harness = collector();
    harness.fail_writes("Pod", "other/child", "server");
    harness.put(object("v1", "Pod", "other", "child", &[to_pod("owner")]));
    harness.put(terminating(pod("owner", &[]), &["foregroundDeletion"]));
    harness.run();
    assert_eq!(finalizers(&harness, "owner"), None);
    assert_eq!(harness.keys("Pod"), ["other/child"]);
}

/// An object that names itself waits for the others only, and orphans the others only.
#[test]
fn an_owner_does_not_wait_for_itself() {
    for finalizer in ["foregroundDeletion", "orphan"] {
        let mut harness = collector();
        let own = blocking(to_pod("owner"), true);
        harness.put(terminating(pod("owner", &[own]), &[finalizer]));
        harness.run();
        let executions = harness.executions().iter();
        // Its item as an owner and its item as a dependent may both release it.
        let mut reasons = executions.map(|it| it.plan.reason.as_str());
        assert!(
            reasons.all(|reason| reason == "release-owner"),
            "{finalizer}"
        );
        assert_eq!(harness.keys("Pod"), [""; 0]);
    }
}
