//! Which objects are deleted, how, and what it costs.

use std::time::Duration;

use davit_guest::testing::Harness;
use davit_guest::{Command, DeleteOptions, Step};
use garbage_collector::{DEPENDENTS, GarbageCollector, OBJECTS_QUEUE, OWNERS};
use serde_json::{Value, json};

use crate::common::{blocking, collector, owner, pod, set, terminating, to_pod};

/// The executed deletions: the object and the policy.
fn deletions(harness: &Harness<GarbageCollector>) -> Vec<(&str, &DeleteOptions)> {
    let plans = harness.executions().iter();
    plans
        .filter_map(|it| match it.plan.steps.first()? {
            Step::Delete(options) => Some((it.plan.target.name.as_str(), options)),
            _ => None,
        })
        .collect()
}

fn policies(harness: &Harness<GarbageCollector>) -> Vec<(&str, &str)> {
    let deletions = deletions(harness).into_iter();
    deletions
        .map(|(name, options)| (name, options.propagation_policy.as_str()))
        .collect()
}

/// `TestAttemptToDeleteItemDeleteObjectNotFound`: the object is gone before its
/// deletion. That is the wanted result; nothing is retried.
#[test]
fn gc_02_a_deletion_of_a_missing_object_is_done() {
    let mut harness = collector();
    harness.put(pod("witness", &[]));
    harness.put(pod("garbage", &[to_pod("nobody")]));
    harness.remove_from_server("Pod", "default/garbage");
    harness.run();
    assert_eq!(policies(&harness), [("garbage", "Background")]);
    let (step, failure) = harness.executions()[0].result.clone().unwrap_err();
    assert_eq!((step, failure.class.as_str()), (0, "not-found"));
    assert_eq!(harness.pending(OBJECTS_QUEUE, "garbage"), None);
    // Its own dependents are enqueued when the cache shows that it is gone.
    harness.put(pod("below", &[to_pod("garbage")]));
    harness.run();
    assert_eq!(policies(&harness).len(), 1);
    harness.show("Pod", "default/garbage");
    harness.run();
    assert_eq!(harness.keys("Pod"), ["default/witness"]);
}

/// …`WaitingForDependents`: the same with an owner that waits. Without
/// dependents of its own, the object is deleted in the background.
#[test]
fn gc_03_a_deletion_of_a_missing_object_for_a_waiting_owner_is_done() {
    let mut harness = collector();
    let waiting = terminating(pod("owner", &[]), &["foregroundDeletion"]);
    harness.put(waiting);
    harness.put(pod("garbage", &[blocking(to_pod("owner"), true)]));
    harness.remove_from_server("Pod", "default/garbage");
    harness.run();
    // The owner's own item enqueues it again. The cache has not observed the deletion:
    // the host holds a second one back.
    assert_eq!(policies(&harness), [("garbage", "Background")]);
    harness.show("Pod", "default/garbage");
    harness.run();
    assert_eq!(policies(&harness), [("garbage", "Background")]);
    assert_eq!(harness.pending(OBJECTS_QUEUE, "garbage"), None);
    let reads = harness.live_reads();
    assert!(reads.iter().all(|(_, it)| it.name == "owner"), "{reads:?}");
}

/// `TestAbsentOwnerCache`: an absent owner is read once, whatever else the
/// references contain. It is forgotten after a while.
#[test]
fn gc_10_an_absent_owner_is_recorded() {
    let mut harness = collector();
    harness.put(pod("witness", &[]));
    let reads_of = |harness: &Harness<GarbageCollector>, name: &str| {
        let reads = harness.live_reads();
        reads.iter().filter(|(_, it)| it.name == name).count()
    };
    let mut controller = to_pod("rc1");
    controller["controller"] = json!(true);
    for (name, reference) in [
        ("a", to_pod("rc1")),
        ("b", controller),
        ("c", to_pod("rc1")),
    ] {
        harness.put(pod(name, &[reference]));
        harness.run();
    }
    assert_eq!(harness.keys("Pod"), ["default/witness"]);
    assert_eq!(reads_of(&harness, "rc1"), 1);
    // Another namespace needs another read.
    let mut elsewhere = pod("d", &[to_pod("rc1")]);
    set(&mut elsewhere, "namespace", json!("other"));
    harness.put(elsewhere);
    harness.run();
    assert_eq!(reads_of(&harness, "rc1"), 2);
    for number in 0..1_000 {
        let absent = to_pod(&format!("absent-{number}"));
        harness.put(pod("garbage", &[absent]));
        harness.run();
    }
    harness.put(pod("e", &[to_pod("rc1")]));
    harness.run();
    assert_eq!(reads_of(&harness, "rc1"), 2, "however many others came");
    harness.advance(Duration::from_mins(2));
    assert_eq!(harness.notes(), [] as [&str; 0]);
    harness.put(pod("f", &[to_pod("rc1")]));
    harness.run();
    assert_eq!(reads_of(&harness, "rc1"), 3);
    assert_eq!(harness.keys("Pod"), ["default/witness"]);
}

/// A dependent that stays costs no read, whether its owner is forgotten or not.
#[test]
fn a_dependent_that_stays_is_not_read_again() {
    let mut harness = collector();
    harness.put(pod("solid", &[]));
    let mut held = pod("held", &[to_pod("absent")]);
    set(&mut held, "finalizers", json!(["example.com/hold"]));
    harness.put(held);
    harness.advance(Duration::from_secs(30));
    assert_eq!(harness.notes().len(), 1);
    harness.advance(Duration::from_mins(60));
    assert_eq!(harness.notes(), [] as [&str; 0]);
    assert_eq!(harness.live_reads().len(), 1);
}

/// Anybody may name owners that never existed, any number of them in one object: it is more than a
/// call may read, and than the host would note.
#[test]
fn an_object_that_names_12_000_absent_owners_is_deleted_and_costs_bounded_memory() {
    let mut harness = collector();
    let owners = (0..12_000).map(|number| to_pod(&format!("absent-{number}")));
    harness.put(pod("garbage", &owners.collect::<Vec<_>>()));
    // It keeps no other object of its call from being decided.
    harness.put(pod("orphan", &[to_pod("lost")]));
    harness.run();
    assert_eq!(harness.keys("Pod"), ["default/garbage"]);
    harness.advance(Duration::from_mins(2));
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert!(harness.notes().len() <= 4_096);
}

/// Objects of one call share their reads.
#[test]
fn an_owner_is_read_once_a_call() {
    let mut harness = collector();
    harness.put(pod("witness", &[]));
    for number in 0..100 {
        let owners = [to_pod("one"), to_pod("two")];
        harness.put(pod(&format!("p-{number}"), &owners));
    }
    harness.run();
    assert_eq!(harness.keys("Pod"), ["default/witness"]);
    assert_eq!(harness.live_reads().len(), 2);
}

/// An owner that the cache has under the coordinates of the reference is not
/// read.
#[test]
fn a_cached_owner_costs_no_request() {
    let mut harness = collector();
    harness.put(pod("owner", &[]));
    harness.put(pod("child", &[to_pod("owner")]));
    harness.run();
    assert!(harness.live_reads().is_empty() && harness.executions().is_empty());
    assert_eq!(harness.pending(OBJECTS_QUEUE, "child"), None);
}

/// An owner that waits is read, once for all objects of a call: a deletion in
/// the foreground may have been rescued while the cache lags.
#[test]
fn an_owner_that_was_rescued_keeps_its_dependents() {
    let holding = ["example.com/hold"];
    for (live, kept) in [
        (pod("owner", &[]), true),
        (terminating(pod("owner", &[]), &holding), true),
        (
            terminating(pod("owner", &[]), &["foregroundDeletion"]),
            false,
        ),
    ] {
        let mut harness = collector();
        harness.put(pod("other", &[]));
        harness.put(terminating(pod("owner", &[]), &["foregroundDeletion"]));
        harness.put_on_server(live);
        for number in 0..10 {
            let name = format!("only-{number}");
            harness.put(pod(&name, &[blocking(to_pod("owner"), true)]));
        }
        let shared = [to_pod("owner"), to_pod("other")];
        harness.put(pod("shared", &shared));
        let only = |harness: &Harness<GarbageCollector>| {
            let keys = harness.keys("Pod").into_iter();
            keys.filter(|it| it.contains("only")).count()
        };
        harness.run();
        assert_eq!(only(&harness), if kept { 10 } else { 0 });
        let shared = harness.object("Pod", "default/shared").unwrap();
        let references = shared["metadata"]["ownerReferences"].as_array().unwrap();
        assert_eq!(references.len(), if kept { 2 } else { 1 });
    }
}

/// An object with a finalizer that was set before its deletion is deleted with
/// the matching policy.
#[test]
fn a_finalizer_determines_the_policy() {
    let mut harness = collector();
    harness.put(pod("witness", &[]));
    for (name, finalizer) in [
        ("background", "example.com/hold"),
        ("foreground", "foregroundDeletion"),
        ("orphan", "orphan"),
    ] {
        let mut garbage = pod(name, &[to_pod("nobody")]);
        set(&mut garbage, "finalizers", json!([finalizer]));
        harness.put(garbage);
    }
    harness.run();
    let mut policies = policies(&harness);
    policies.sort_unstable();
    assert_eq!(
        policies,
        [
            ("background", "Background"),
            ("foreground", "Foreground"),
            ("orphan", "Orphan")
        ]
    );
    let graces = deletions(&harness).into_iter();
    assert!(
        graces
            .map(|(_, it)| it.grace_period_seconds)
            .all(|it| it.is_none())
    );
}

/// The deletion carries the version that was decided on.
#[test]
fn a_deletion_carries_the_version_that_was_decided_on() {
    let mut harness = collector();
    harness.put(pod("witness", &[]));
    harness.put(pod("garbage", &[to_pod("nobody")]));
    let version =
        harness.object("Pod", "default/garbage").unwrap()["metadata"]["resourceVersion"].clone();
    harness.run();
    let deletions = deletions(&harness);
    assert_eq!(json!(deletions[0].1.resource_version), version);
}

/// Both finalizers at once, which an API server refuses to store today: the
/// dependents are orphaned, none is deleted.
#[test]
fn an_owner_with_both_finalizers_orphans_its_dependents() {
    let mut harness = collector();
    harness.put(pod("child", &[blocking(to_pod("owner"), true)]));
    let finalizers = ["foregroundDeletion", "orphan", "example.com/hold"];
    harness.put(terminating(pod("owner", &[]), &finalizers));
    harness.run();
    assert_eq!(deletions(&harness), []);
    let child = harness.object("Pod", "default/child").unwrap();
    assert_eq!(child["metadata"].get("ownerReferences"), None);
    let owner = harness.object("Pod", "default/owner").unwrap();
    assert_eq!(owner["metadata"]["finalizers"], json!(["example.com/hold"]));
}

/// Failed reads prove nothing.
#[test]
fn an_owner_that_cannot_be_read_keeps_its_dependent() {
    for class in [
        "forbidden",
        "server",
        "timeout",
        "throttled",
        "unmappable",
        "brand-new",
    ] {
        let mut harness = collector();
        harness.put(pod("witness", &[]));
        harness.fail_reads("Pod", "default/owner", class);
        harness.put(pod("child", &[to_pod("owner")]));
        harness.advance(Duration::from_mins(1));
        assert_eq!(harness.keys("Pod").len(), 2, "{class}");
        let reads = harness.live_reads().len();
        assert!((5..20).contains(&reads), "{class}: {reads}");
        // An item is not pending while the host repeats a throttled read of its call.
        let mut is_pending = || {
            harness.advance(Duration::from_secs(1));
            harness.pending(OBJECTS_QUEUE, "child").is_some()
        };
        assert!((0..30).any(|_| is_pending()), "{class}");
        harness.heal();
        harness.advance(Duration::from_mins(2));
        assert_eq!(harness.keys("Pod"), ["default/witness"], "{class}");
    }
}

/// The kind of an owner that is not served now may be served later.
#[test]
fn an_unmappable_owner_is_retried_forever() {
    let mut harness = collector();
    let unknown = owner("unknown/v1", "Unknown", "owner", "unknown");
    harness.put(pod("child", &[unknown, to_pod("nobody")]));
    harness.advance(Duration::from_hours(2));
    assert_eq!(harness.keys("Pod"), ["default/child"]);
    assert!(harness.pending(OBJECTS_QUEUE, "child").is_some());
    assert!(harness.live_reads().iter().all(|(_, it)| it.kind == "Pod"));
    let warnings = harness.logged();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    harness.put(crate::common::object(
        "unknown/v1",
        "Unknown",
        "default",
        "another",
        &[],
    ));
    harness.advance(Duration::from_mins(6));
    assert_eq!(harness.keys("Pod"), [""; 0]);
}

/// With any number of dependents, no call is too large, and the first is small: its objects are
/// decided about before the rest is read.
#[test]
fn many_dependents_are_enqueued_in_pages() {
    let mut harness = collector();
    for number in 0..2_051 {
        harness.put(pod(&format!("p-{number:04}"), &[to_pod("owner")]));
    }
    let mut key = "owner".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = harness.decide(DEPENDENTS, &key);
        let Some(Command::Enqueue(rest)) = page.commands.last() else {
            break;
        };
        pages.push((page.commands.len(), rest.after));
        if rest.queue != DEPENDENTS.as_str() {
            break;
        }
        key.clone_from(&rest.key);
        // A deletion in between makes the pages skip no object.
        harness.remove("Pod", "default/p-0000");
    }
    assert_eq!(
        pages,
        [(50 + 1, 20), (2_000 + 1, 0), (1, 0)],
        "each with the rest and its delay in milliseconds, but the last"
    );
}

/// An owner of thousands that is gone already costs nothing when one of its
/// dependents changes.
#[test]
fn a_change_of_one_dependent_of_a_missing_owner_reads_no_other() {
    let mut harness = collector();
    for number in 0..50 {
        harness.put(pod(&format!("p-{number}"), &[to_pod("owner")]));
    }
    let before = harness.objects_read();
    let decision = harness.decide(OWNERS, "owner");
    assert_eq!(harness.objects_read(), before);
    assert!(decision.plans.is_empty() && decision.commands.is_empty());
}

/// A foreground owner needs to know whether an object blocks it, not which one.
#[test]
fn the_search_for_a_blocking_dependent_ends_with_the_first() {
    let mut harness = collector();
    harness.put(terminating(pod("owner", &[]), &["foregroundDeletion"]));
    for number in 0..300 {
        let name = format!("p-{number}");
        let held = terminating(pod(&name, &[blocking(to_pod("owner"), true)]), &["hold"]);
        harness.put(held);
    }
    let before = harness.objects_read();
    assert!(harness.decide(OWNERS, "owner").plans.is_empty());
    assert!(harness.objects_read() - before < 20);
}

/// Owners in a cycle that wait for others must not enqueue the cycle forever:
/// the harness fails a run that does not end.
#[test]
fn a_cycle_that_waits_for_others_does_not_enqueue_itself_forever() {
    let mut harness = collector();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let open = blocking(to_pod(other), false);
        harness.put(terminating(pod(name, &[open]), &["foregroundDeletion"]));
        let blocker = pod(&format!("blocker-{name}"), &[blocking(to_pod(name), true)]);
        harness.put(terminating(blocker, &["hold"]));
    }
    harness.run();
    assert_eq!(harness.executions(), []);
    assert_eq!(harness.keys("Pod").len(), 4);
}

fn conflicting(live: Value) -> Harness<GarbageCollector> {
    let mut harness = collector();
    harness.put(pod("witness", &[]));
    harness.put(pod("child", &[to_pod("nobody")]));
    harness.put_on_server(live);
    harness.advance(Duration::from_secs(1));
    harness
}

/// The cache lags: the present state decides, not the former one.
#[test]
fn a_conflict_is_decided_from_a_live_read() {
    // Something else changed: the present version is the precondition.
    let harness = conflicting(pod("child", &[to_pod("nobody")]));
    let versions = deletions(&harness).into_iter();
    let versions: Vec<bool> = versions
        .map(|(_, options)| options.resource_version.is_empty())
        .collect();
    assert_eq!(versions, [false, false]);
    assert_eq!(harness.keys("Pod"), ["default/witness"]);
    // So did a finalizer that determines the policy.
    let mut held = pod("child", &[to_pod("nobody")]);
    set(&mut held, "finalizers", json!(["foregroundDeletion"]));
    let harness = conflicting(held);
    let versions = deletions(&harness).into_iter();
    let versions: Vec<bool> = versions
        .map(|(_, options)| options.resource_version.is_empty())
        .collect();
    assert_eq!(versions, [false, false]);
    // It has an owner now.
    let harness = conflicting(pod("child", &[to_pod("nobody"), to_pod("witness")]));
    assert_eq!(policies(&harness).len(), 1);
    let child = harness.object("Pod", "default/child").unwrap();
    assert_eq!(
        child["metadata"]["ownerReferences"],
        json!([to_pod("witness")])
    );
    // It has no owner any more.
    let harness = conflicting(pod("child", &[]));
    assert_eq!(policies(&harness).len(), 1);
    assert_eq!(harness.keys("Pod").len(), 2);
    // It is terminating now.
    let harness = conflicting(terminating(pod("child", &[to_pod("nobody")]), &["hold"]));
    assert_eq!(policies(&harness).len(), 1);
    assert_eq!(harness.keys("Pod").len(), 2);
}

/// An object changes faster than the cache shows it, except what matters: after some
/// conflicts it is deleted whatever its version is by then.
#[test]
fn a_dependent_that_changes_all_the_time_is_deleted() {
    let mut harness = collector();
    harness.put(pod("child", &[to_pod("nobody")]));
    harness.fail_writes("Pod", "default/child", "conflict");
    harness.advance(Duration::from_secs(10));
    let executions = harness.executions().iter();
    let versions = executions.map(|it| match &it.plan.steps[0] {
        Step::Delete(options) => !options.resource_version.is_empty(),
        other => panic!("{other:?}"),
    });
    let versions: Vec<bool> = versions.collect();
    assert!(versions.len() > 4, "{versions:?}");
    assert!(versions[0] && !versions[versions.len() - 1], "{versions:?}");
}
