//! `TestGetAlternateOwnerIdentity`: several objects name an owner by one uid
//! and different coordinates, of which at most one set is right. Kubernetes
//! keeps one identity for each uid and tries the alternatives when it proves
//! wrong; here every reference is checked by its own coordinates. So the cases
//! assert the purpose of those alternatives: an object that names the owner
//! rightly stays, an object that names it wrongly is deleted, in any order.

use std::time::Duration;

use davit_guest::Command;
use garbage_collector::{DEPENDENTS, OBJECTS_QUEUE};
use serde_json::{Value, json};

use crate::common::{Gc, collector, harness, object, owner, pod, stop_serving_foos};

/// The owner's uid in every case.
const UID: &str = "uid1";

/// What happens to a dependent while the owner exists.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Stays,
    Goes,
    /// It stays, because its reference cannot be checked.
    CannotBeChecked,
}
use Fate::{CannotBeChecked, Goes, Stays};

/// A dependent: its namespace, and how it names the owner.
type Dependent = (&'static str, [&'static str; 3], Fate);

fn namespaced_owner() -> Value {
    let mut owner = object("v1", "ReplicationController", "ns1", "name1", &[]);
    crate::common::set(&mut owner, "uid", UID.into());
    owner
}

fn cluster_scoped_owner() -> Value {
    let mut owner = object("v1", "Node", "", "name1", &[]);
    crate::common::set(&mut owner, "uid", UID.into());
    owner
}

const NAMESPACED: [&str; 3] = ["v1", "ReplicationController", "name1"];
const CLUSTER_SCOPED: [&str; 3] = ["v1", "Node", "name1"];

/// Puts the dependents, forwards and backwards, before the owner is in the
/// cache and after; then deletes the owner.
fn check(owner: &Value, dependents: &[Dependent]) {
    for backwards in [false, true] {
        for observed in [false, true] {
            let mut harness = witnesses();
            if observed {
                harness.put(owner.clone());
            } else {
                harness.put_on_server(owner.clone());
            }
            let mut order: Vec<usize> = (0..dependents.len()).collect();
            if backwards {
                order.reverse();
            }
            for number in order {
                harness.put(dependent(number, &dependents[number]));
                harness.run();
            }
            let stays = |fate: Fate| fate != Goes;
            assert_eq!(left(&harness), expected(dependents, stays));
            let kind = owner["kind"].as_str().unwrap();
            let key = ["ns1/name1", "name1"][usize::from(kind == "Node")];
            harness.show(kind, key);
            harness.run();
            assert_eq!(left(&harness), expected(dependents, stays));
            harness.remove(kind, key);
            harness.run();
            let stays = |fate: Fate| fate == CannotBeChecked;
            assert_eq!(left(&harness), expected(dependents, stays));
        }
    }
}

/// A collector in a cluster that serves the kinds of the cases.
fn witnesses() -> Gc {
    let mut harness = collector();
    for (api_version, kind, namespace) in [
        ("v1", "ReplicationController", "witness"),
        ("v1", "Secret", "witness"),
        ("v1", "Node", ""),
        ("v1", "PersistentVolume", ""),
    ] {
        let mut witness = object(api_version, kind, namespace, "witness", &[]);
        crate::common::set(&mut witness, "uid", kind.into());
        harness.put(witness);
    }
    harness
}

fn dependent(number: usize, (namespace, [api_version, kind, name], _): &Dependent) -> Value {
    let reference = owner(api_version, kind, name, UID);
    object("v1", "Pod", namespace, &format!("d{number}"), &[reference])
}

/// A user can write any text as the uid of an owner.
#[test]
fn a_dependent_of_an_owner_with_an_endless_uid_is_deleted() {
    let mut harness = collector();
    let long = "x".repeat(2000);
    let uids = [
        long.clone(),
        format!("absent/{long}"),
        format!("absent/{}7", "0".repeat(2000)),
    ];
    let lost = uids.map(|uid| owner("v1", "ConfigMap", "lost", &uid));
    harness.put(object("v1", "Pod", "ns1", "a", &lost));
    harness.run();
    assert_eq!(left(&harness), [""; 0]);
    harness.advance(Duration::from_mins(5));
}

fn left(harness: &Gc) -> Vec<String> {
    let mut keys = harness.keys("Pod");
    keys.sort();
    keys
}

fn expected(dependents: &[Dependent], stays: impl Fn(Fate) -> bool) -> Vec<String> {
    let numbered = dependents.iter().enumerate();
    let left = numbered.filter(|(_, (_, _, fate))| stays(*fate));
    let mut keys: Vec<String> = left
        .map(|(number, (namespace, ..))| format!("{namespace}/d{number}"))
        .collect();
    keys.sort();
    keys
}

const GOOD: Dependent = ("ns1", NAMESPACED, Stays);
const GOOD_OF_NODE: Dependent = ("ns1", CLUSTER_SCOPED, Stays);

#[test]
fn gc_36_a_namespaced_owner_in_an_alternate_version() {
    let other = ["v2", "ReplicationController", "name1"];
    check(
        &namespaced_owner(),
        &[GOOD, ("ns1", other, CannotBeChecked)],
    );
}

#[test]
fn gc_37_a_namespaced_owner_of_an_alternate_kind() {
    check(
        &namespaced_owner(),
        &[GOOD, ("ns1", ["v1", "Secret", "name1"], Goes)],
    );
}

#[test]
fn gc_38_a_namespaced_owner_in_an_alternate_namespace() {
    check(&namespaced_owner(), &[GOOD, ("ns2", NAMESPACED, Goes)]);
}

#[test]
fn gc_39_a_namespaced_owner_of_an_alternate_name() {
    let other = ["v1", "ReplicationController", "name2"];
    check(&namespaced_owner(), &[GOOD, ("ns1", other, Goes)]);
}

#[test]
fn gc_40_a_cluster_scoped_owner_in_an_alternate_version() {
    let other = ["v2", "Node", "name1"];
    check(
        &cluster_scoped_owner(),
        &[GOOD_OF_NODE, ("ns1", other, CannotBeChecked)],
    );
}

#[test]
fn gc_41_a_cluster_scoped_owner_of_an_alternate_kind() {
    let other = ["v1", "PersistentVolume", "name1"];
    check(
        &cluster_scoped_owner(),
        &[GOOD_OF_NODE, ("ns1", other, Goes)],
    );
}

/// No namespace is wrong: every namespace means the same owner.
#[test]
fn gc_42_a_cluster_scoped_owner_in_an_alternate_namespace() {
    check(
        &cluster_scoped_owner(),
        &[GOOD_OF_NODE, ("ns2", CLUSTER_SCOPED, Stays)],
    );
}

#[test]
fn gc_43_a_cluster_scoped_owner_of_an_alternate_name() {
    let other = ["v1", "Node", "name2"];
    check(
        &cluster_scoped_owner(),
        &[GOOD_OF_NODE, ("ns1", other, Goes)],
    );
}

/// The right coordinates come last in Kubernetes' order of the alternatives.
#[test]
fn gc_44_a_namespaced_owner_after_all_wrong_ones() {
    check(
        &namespaced_owner(),
        &[
            ("ns0", NAMESPACED, Goes),
            ("ns1", ["v1", "ReplicationController", "a"], Goes),
            ("ns1", ["v1", "ReplicationController", "b"], Goes),
            GOOD,
        ],
    );
}

/// They come between the wrong ones.
#[test]
fn gc_45_a_namespaced_owner_between_wrong_ones() {
    check(
        &namespaced_owner(),
        &[
            ("ns1", ["v1", "ReplicationController", "a"], Goes),
            GOOD,
            ("ns1", ["v1", "ReplicationController", "z"], Goes),
            ("ns2", ["v1", "Secret", "name1"], Goes),
        ],
    );
}

#[test]
fn gc_46_a_cluster_scoped_owner_after_all_wrong_ones() {
    check(
        &cluster_scoped_owner(),
        &[
            ("ns1", ["v1", "Node", "a"], Goes),
            ("ns0", ["v1", "Node", "b"], Goes),
            GOOD_OF_NODE,
        ],
    );
}

#[test]
fn gc_47_a_cluster_scoped_owner_between_wrong_ones() {
    check(
        &cluster_scoped_owner(),
        &[
            ("ns1", ["v1", "Node", "a"], Goes),
            GOOD_OF_NODE,
            ("ns2", ["v1", "PersistentVolume", "z"], Goes),
        ],
    );
}

/// References to other owners do not matter.
#[test]
fn gc_48_unrelated_references_do_not_matter() {
    let mut harness = witnesses();
    harness.put(namespaced_owner());
    let unrelated = owner("v1", "Node", "witness", "Node");
    let named = owner("v1", "ReplicationController", "name1", UID);
    harness.put(object(
        "v1",
        "Pod",
        "ns1",
        "both",
        &[unrelated.clone(), named],
    ));
    harness.put(object(
        "v1",
        "Pod",
        "ns1",
        "unrelated",
        std::slice::from_ref(&unrelated),
    ));
    harness.run();
    harness.remove("ReplicationController", "ns1/name1");
    harness.run();
    assert_eq!(left(&harness), ["ns1/both", "ns1/unrelated"]);
    let both = harness.object("Pod", "ns1/both").unwrap();
    assert_eq!(
        both["metadata"]["ownerReferences"],
        Value::from(vec![unrelated])
    );
}

/// With right references only, there is no alternative to try.
#[test]
fn gc_49_right_references_have_no_alternative() {
    check(&namespaced_owner(), &[GOOD, GOOD, GOOD]);
    check(
        &cluster_scoped_owner(),
        &[GOOD_OF_NODE, ("ns2", CLUSTER_SCOPED, Stays)],
    );
}

/// The same wrong coordinates many times are read once.
#[test]
fn gc_50_the_same_alternative_many_times_is_read_once() {
    let wrong: Dependent = ("ns1", ["v1", "ReplicationController", "wrong"], Goes);
    check(&namespaced_owner(), &[wrong, GOOD, wrong, wrong]);
    let mut harness = witnesses();
    harness.put(namespaced_owner());
    for number in 0..10 {
        harness.put(dependent(number, &wrong));
        harness.run();
    }
    assert_eq!(left(&harness), [""; 0]);
    assert_eq!(harness.live_reads().len(), 1);
}

const V1: &str = "example.com/v1";
const V1_BETA1: &str = "example.com/v1beta1";
const DEFINITION: &str = "CustomResourceDefinition";

/// What is unknown, and how it comes to be.
type Gap = (&'static str, fn(&mut Gc));

/// A custom resource `owner` in this version, a pod that names it by `v1beta1`,
/// and another resource that shows that `v1beta1` is served.
fn custom_owner(version: &str) -> Gc {
    let mut harness = collector();
    put_custom_owner(&mut harness, version);
    harness
}

fn put_custom_owner(harness: &mut Gc, version: &str) {
    harness.put(object(V1_BETA1, "Foo", "default", "served", &[]));
    harness.put(object(version, "Foo", "default", "owner", &[]));
    let named = owner(V1_BETA1, "Foo", "owner", "owner");
    harness.put(pod("child", &[named]));
    harness.run();
    assert_eq!(left(harness), ["default/child"]);
}

/// Time for many retries.
fn wait(harness: &mut Gc) {
    harness.advance(Duration::from_mins(12));
}

/// The watched version is no longer served, the dependent's version cannot be
/// read, and then it is not served either: the owner exists all the while.
#[test]
fn an_owner_whose_resource_is_no_longer_watched_is_not_taken_for_gone() {
    for class in ["server", "forbidden", "timeout", "throttled"] {
        let mut harness = custom_owner(V1);
        harness.fail_reads("Foo", "default/owner", class);
        harness.hide("Foo", "default/owner");
        harness.interrupt("Foo");
        wait(&mut harness);
        harness.unserve("Foo");
        wait(&mut harness);
        assert_eq!(left(&harness), ["default/child"], "{class}: not followed");
        harness.show("Foo", "default/owner");
        wait(&mut harness);
        assert_eq!(left(&harness), ["default/child"], "{class}: followed");
    }
}

/// The cache outweighs every recorded fact about an owner.
#[test]
fn a_cached_owner_is_not_gone_with_its_kind() {
    for back in [true, false] {
        let mut harness = custom_owner(V1);
        harness.fail_writes("Pod", "default/child", "server");
        harness.hide("Foo", "default/owner");
        harness.run();
        if back {
            harness.show("Foo", "default/owner");
        }
        // The reference names this version. The cache follows the other one.
        stop_serving_foos(&mut harness, "v1beta1");
        wait(&mut harness);
        assert_eq!(left(&harness), ["default/child"]);
        harness.heal();
        harness.enqueue(OBJECTS_QUEUE, "child");
        wait(&mut harness);
        assert_eq!(left(&harness).is_empty(), !back);
        // The cache has the owner, and proves nothing about this version.
        assert_eq!(harness.pending(OBJECTS_QUEUE, "child").is_some(), back);
    }
}

/// The collector does not watch the resource, so the owner never was in its
/// cache, whatever items a revision with other settings has left.
#[test]
fn an_owner_of_an_ignored_resource_is_not_gone_with_its_kind() {
    for (resource, facts) in [("foos", 0), ("bars", 1)] {
        let ignored = json!({"group": "example.com", "resource": resource});
        let mut harness = harness(&json!({"ignoredResources": [ignored]}));
        harness.put(object(V1_BETA1, "Foo", "default", "served", &[]));
        let named = owner(V1_BETA1, "Foo", "owner", "owner");
        harness.put(pod("child", &[named]));
        let decision = harness.decide(DEPENDENTS, "owner");
        let is_note = |it: &&Command| matches!(it, Command::SetNote(_));
        let learnt = decision.commands.iter().filter(is_note).count();
        assert_eq!(learnt, facts, "{resource}");
    }
}

/// The collector does not watch everything of the group: the owner may be there.
#[test]
fn an_owner_beside_an_ignored_resource_is_not_gone_with_its_kind() {
    for (group, kept) in [("example.com", true), ("other.example.com", false)] {
        let ignored = json!({"group": group, "resource": "bars"});
        let mut harness = harness(&json!({"ignoredResources": [ignored]}));
        put_custom_owner(&mut harness, V1);
        harness.hide("Foo", "default/owner");
        harness.run();
        stop_serving_foos(&mut harness, "v1beta1");
        wait(&mut harness);
        assert_eq!(left(&harness).is_empty(), !kept, "{group}");
    }
}

/// Another object has the owner's name.
#[test]
fn an_owner_that_was_replaced_is_gone() {
    for observed in [true, false] {
        let mut harness = collector();
        harness.put(pod("owner", &[]));
        harness.put(pod("child", &[crate::common::to_pod("owner")]));
        harness.run();
        assert_eq!(left(&harness).len(), 2);
        let mut successor = pod("owner", &[]);
        crate::common::set(&mut successor, "uid", "another".into());
        harness.put(successor);
        if !observed {
            harness.put(pod("late", &[crate::common::to_pod("owner")]));
        }
        harness.run();
        assert_eq!(left(&harness), ["default/owner"]);
    }
}

/// A cluster-scoped owner is in no wrong namespace.
#[test]
fn a_cluster_scoped_owner_is_not_worth_an_event() {
    let mut harness = witnesses();
    let node = owner("v1", "Node", "witness", "Node");
    harness.put(object("v1", "Pod", "ns1", "dependent", &[node]));
    harness.run();
    assert_eq!(harness.executions(), []);
}

/// An absence is remembered for cluster-scoped owners as well.
#[test]
fn an_absent_cluster_scoped_owner_is_read_once() {
    let mut harness = witnesses();
    let node = owner("v1", "Node", "gone", "gone");
    harness.fail_writes("Pod", "ns1/first", "server");
    for name in ["first", "second"] {
        let dependent = object("v1", "Pod", "ns1", name, std::slice::from_ref(&node));
        harness.put(dependent);
        harness.run();
    }
    assert_eq!(left(&harness), ["ns1/first"]);
    assert_eq!(harness.live_reads().len(), 1);
}

/// A definition is deleted right after its objects: when the owner is read, its
/// kind is unknown.
#[test]
fn an_owner_that_is_deleted_with_its_kind_is_gone() {
    let mut harness = custom_owner(V1_BETA1);
    harness.fail_reads("Foo", "default/owner", "unmappable");
    harness.remove("Foo", "default/owner");
    harness.run();
    assert_eq!(left(&harness), [""; 0]);
}

/// The kind is not served for a while and comes back: nothing is known of the
/// owner meanwhile, and its absence from the cache proves nothing.
#[test]
fn an_owner_is_not_gone_while_anything_of_its_group_is_unknown() {
    let gaps: [Gap; 3] = [
        ("a resource", |harness| harness.interrupt("Foo")),
        ("the group", |harness| harness.silence("example.com/v1a1")),
        ("all resources", |harness| harness.interrupt(DEFINITION)),
    ];
    let unmappable = |harness: &mut Gc| harness.fail_reads("Foo", "default/owner", "unmappable");
    for (unknown, open) in gaps {
        // The version of the reference is not served any more, or not known only while
        // the owner is read.
        for is_served in [true, false] {
            let mut harness = custom_owner(V1);
            if is_served {
                unmappable(&mut harness);
            }
            harness.hide("Foo", "default/owner");
            open(&mut harness);
            harness.run();
            if !is_served {
                stop_serving_foos(&mut harness, "v1beta1");
            }
            wait(&mut harness);
            assert_eq!(left(&harness), ["default/child"], "{unknown}");
            harness.heal();
            if is_served {
                unmappable(&mut harness);
            }
            harness.silence("other.example.com/v1");
            wait(&mut harness);
            assert_eq!(left(&harness), [""; 0], "{unknown}");
        }
    }
}

/// A recorded absence holds after the kind is gone too.
#[test]
fn an_owner_that_was_not_found_is_gone_without_its_kind() {
    let mut harness = custom_owner(V1_BETA1);
    harness.fail_writes("Pod", "default/child", "server");
    harness.remove("Foo", "default/owner");
    harness.run();
    harness.remove(DEFINITION, "foos.example.com");
    wait(&mut harness);
    assert_eq!(left(&harness), ["default/child"]);
    harness.heal();
    wait(&mut harness);
    assert_eq!(left(&harness), [""; 0]);
    assert_eq!(harness.live_reads().len(), 1);
}
