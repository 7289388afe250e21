//! `TestConflictingData`: references that contradict the objects. The original
//! prescribes the order of events and asserts each step of the graph. Here the order is
//! that of creations and deletions, and the tests assert which objects remain, and
//! which warnings were written.

use std::time::Duration;

use davit_sim::fault::Match;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{Cluster, config_map, definition, object, owned, pod, rc, reference, test};
use crate::objects::SETTLED;

const INVALID: &str = "OwnerRefInvalidNamespace";

fn node(name: &str) -> Value {
    object("v1", "Node", "", name)
}

fn pod_in(namespace: &str, name: &str) -> Value {
    let mut pod = pod(name);
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// A reference whose field was changed.
fn with(mut reference: Value, field: &str, value: &str) -> Value {
    reference[field] = json!(value);
    reference
}

/// The warning of a reference across namespaces.
fn warning(child: &Value, reference: &Value) -> (String, String) {
    let namespace = child["metadata"]["namespace"].as_str().unwrap_or_default();
    let text = |field: &str| reference[field].as_str().unwrap();
    let message = format!(
        "ownerRef [{}/{}, namespace: {namespace}, name: {}, uid: {}] does not exist in namespace \"{namespace}\"",
        text("apiVersion"),
        text("kind"),
        text("name"),
        text("uid"),
    );
    (INVALID.to_owned(), message)
}

async fn until_reported(cluster: &Cluster, child: &Value, reference: &Value) {
    let wanted = warning(child, reference);
    cluster
        .until("the event", || cluster.events(child).contains(&wanted))
        .await;
}

#[test]
fn gc_19_a_namespaced_child_of_a_cluster_scoped_owner_stays() {
    test(|cluster| async move {
        let owner = cluster.create(node("owner"));
        let child = cluster.create(owned(pod("child"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        cluster.stay(&[&owner, &child]).await;
        assert_eq!(cluster.events(&child), []);
        cluster.delete(&owner, "");
        cluster.until_gone(&[&child]).await;
    });
}

/// A child whose owner is in another namespace.
async fn across_namespaces(cluster: Cluster, child_first: bool) {
    let owner = cluster.create(pod_in("ns2", "owner"));
    let child = owned(pod_in("ns1", "child"), &[reference(&owner)]);
    let host = if child_first {
        // The owner's watch delivers it after the child's.
        let child = cluster.create(child);
        (cluster.collector().await, child)
    } else {
        let host = cluster.collector().await;
        (host, cluster.create(child))
    };
    let (_host, child) = host;
    cluster.until_gone(&[&child]).await;
    until_reported(&cluster, &child, &reference(&owner)).await;
    cluster.stay(&[&owner]).await;
    assert_eq!(cluster.deletions(&child), 1);
}

#[test]
fn gc_20_a_child_in_another_namespace_goes_if_it_is_seen_first() {
    test(|cluster| across_namespaces(cluster, true));
}

#[test]
fn gc_21_a_child_in_another_namespace_goes_if_its_owner_is_seen_first() {
    test(|cluster| across_namespaces(cluster, false));
}

/// A cluster-scoped child with an owner in a namespace stays, with a warning.
async fn cluster_scoped_child(cluster: Cluster, child_first: bool) {
    let (owner, child);
    let _host;
    if child_first {
        owner = cluster.create(pod_in("ns1", "owner"));
        child = cluster.create(owned(node("child"), &[reference(&owner)]));
        _host = cluster.collector().await;
    } else {
        _host = cluster.collector().await;
        owner = cluster.create(pod_in("ns1", "owner"));
        sleep(SETTLED).await;
        child = cluster.create(owned(node("child"), &[reference(&owner)]));
    }
    until_reported(&cluster, &child, &reference(&owner)).await;
    cluster.stay(&[&owner, &child]).await;
    cluster.sim.clear_log();
    cluster.delete(&owner, "Background");
    cluster.stay(&[&child]).await;
    // No request would give more information.
    assert_eq!(cluster.requests().len(), 0);
}

#[test]
fn gc_22_a_cluster_scoped_child_of_a_namespaced_owner_stays_if_it_is_seen_first() {
    test(|cluster| cluster_scoped_child(cluster, true));
}

#[test]
fn gc_23_a_cluster_scoped_child_of_a_namespaced_owner_stays_if_its_owner_is_seen_first() {
    test(|cluster| cluster_scoped_child(cluster, false));
}

/// The owner is watched in the preferred version and named in another one.
#[test]
fn gc_24_an_owner_may_be_named_in_another_version_that_is_served() {
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1beta1", "v1"], "Namespaced"));
        let owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
        let named = with(reference(&owner), "apiVersion", "example.com/v1beta1");
        let child = cluster.create(owned(pod("child"), &[named]));
        let _host = cluster.collector().await;
        cluster.stay(&[&child]).await;
        let read = cluster.requests();
        let read: Vec<&str> = read.iter().map(|it| it.path.as_str()).collect();
        let path = "/apis/example.com/v1beta1/namespaces/default/foos/owner";
        assert_eq!(read, [path], "it is not asked for again");
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&child]).await;
    });
}

/// A reference in a version that is not served cannot be checked: the child stays,
/// whether or not the owner exists, and nothing else is delayed.
async fn inaccessible_version(cluster: Cluster, child_first: bool) {
    let owner = cluster.create(rc("owner"));
    let named = with(reference(&owner), "apiVersion", "v2");
    let child = owned(pod("child"), &[named]);
    let good = owned(pod("good"), &[reference(&owner)]);
    let (child, _host) = if child_first {
        let child = cluster.create(child);
        (child, cluster.collector().await)
    } else {
        let host = cluster.collector().await;
        (cluster.create(child), host)
    };
    let good = cluster.create(good);
    cluster.stay(&[&owner, &child, &good]).await;
    cluster.delete(&owner, "Background");
    cluster.until_gone(&[&good]).await;
    sleep(Duration::from_mins(10)).await;
    cluster.stay(&[&child]).await;
    // No request could prove anything about it.
    assert_eq!(
        cluster.sim.count(&Match {
            name: "child".into(),
            ..Match::default()
        }),
        0
    );
}

#[test]
fn gc_25_an_existing_owner_in_an_inaccessible_version_if_the_child_is_seen_first() {
    test(|cluster| inaccessible_version(cluster, true));
}

#[test]
fn gc_26_an_existing_owner_in_an_inaccessible_version_if_the_owner_is_seen_first() {
    test(|cluster| inaccessible_version(cluster, false));
}

/// An owner that never existed. One child names it in a version that is served, another
/// in one that is not.
async fn missing_owner(cluster: Cluster, inaccessible_first: bool) {
    let missing = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "name": "nobody", "uid": "nowhere",
    });
    let accessible = owned(pod("accessible"), std::slice::from_ref(&missing));
    let inaccessible = owned(pod("inaccessible"), &[with(missing, "apiVersion", "v2")]);
    let _host = cluster.collector().await;
    let (accessible, inaccessible) = if inaccessible_first {
        let inaccessible = cluster.create(inaccessible);
        sleep(SETTLED).await;
        (cluster.create(accessible), inaccessible)
    } else {
        let accessible = cluster.create(accessible);
        sleep(SETTLED).await;
        (accessible, cluster.create(inaccessible))
    };
    cluster.until_gone(&[&accessible]).await;
    cluster.stay(&[&inaccessible]).await;
}

#[test]
fn gc_27_a_missing_owner_if_the_child_that_cannot_be_checked_is_seen_first() {
    test(|cluster| missing_owner(cluster, true));
}

#[test]
fn gc_28_a_missing_owner_if_the_child_that_can_be_checked_is_seen_first() {
    test(|cluster| missing_owner(cluster, false));
}

/// One child names an owner in the wrong API version, which is served for a kind of
/// that name: only that child is deleted.
async fn wrong_version(cluster: Cluster, order: [&str; 3]) {
    cluster.create(definition("ReplicationController", &["v1"], "Namespaced"));
    let _host = cluster.collector().await;
    sleep(SETTLED).await;
    let uid = "7d0e0000-0000-4000-8000-000000000001";
    let named = json!({
        "apiVersion": "v1", "kind": "ReplicationController", "name": "owner", "uid": uid,
    });
    let mut parts = std::collections::BTreeMap::new();
    let imported = |mut object: Value| {
        object["metadata"]["uid"] = json!(uid);
        cluster
            .sim
            .with_model(|model, now| model.import(now, object).map(drop))
            .unwrap();
        let namespace = "default";
        cluster
            .sim
            .get("v1", "ReplicationController", namespace, "owner")
            .unwrap()
    };
    for part in order {
        let object = match part {
            "good parent" => imported(rc("owner")),
            "bad child" => {
                let wrong = with(named.clone(), "apiVersion", "example.com/v1");
                cluster.create(owned(pod("bad"), &[wrong]))
            }
            _ => cluster.create(owned(pod("good"), std::slice::from_ref(&named))),
        };
        parts.insert(part, object);
    }
    cluster.until_gone(&[&parts["bad child"]]).await;
    cluster
        .stay(&[&parts["good parent"], &parts["good child"]])
        .await;
}

#[test]
fn gc_29_an_owner_in_the_wrong_version_bad_child_first() {
    test(|cluster| wrong_version(cluster, ["bad child", "good child", "good parent"]));
}

/// In the original, the absence of the wrongly named owner is noticed after the owner
/// was observed. Here the two are always different: the last child finds the recorded
/// absence.
#[test]
fn gc_30_an_owner_in_the_wrong_version_good_parent_before_its_absence() {
    test(|cluster| wrong_version(cluster, ["good parent", "bad child", "good child"]));
}

#[test]
fn gc_31_an_owner_in_the_wrong_version_good_child_first() {
    test(|cluster| wrong_version(cluster, ["good child", "bad child", "good parent"]));
}

/// A cluster-scoped and a namespaced child of a missing owner: the first stays, the
/// second is deleted.
async fn missing_parent(cluster: Cluster, cluster_scoped_first: bool) {
    let _host = cluster.collector().await;
    let missing = super::cluster::to_nowhere("v1", "Pod");
    let missing = std::slice::from_ref(&missing);
    let make_bad = || cluster.create(owned(node("bad"), missing));
    let make_good = || cluster.create(owned(pod("good"), missing));
    let (bad, good);
    if cluster_scoped_first {
        bad = make_bad();
        sleep(SETTLED).await;
        good = make_good();
    } else {
        good = make_good();
        sleep(SETTLED).await;
        bad = make_bad();
    }
    cluster.until_gone(&[&good]).await;
    cluster.stay(&[&bad]).await;
    assert_eq!(cluster.events(&bad), []);
}

#[test]
fn gc_32_a_missing_owner_of_a_cluster_scoped_child_seen_first() {
    test(|cluster| missing_parent(cluster, true));
}

/// The owner is observed late: the valid child stays, and the other one has a warning.
#[test]
fn gc_33_an_owner_that_is_seen_late() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        cluster.sim.disturb(
            &Match::new("watch", "pods"),
            davit_sim::fault::WatchFault::Delay(Duration::from_secs(5)),
        );
        let owner = cluster.create(pod("owner"));
        let bad = cluster.create(owned(node("bad"), &[reference(&owner)]));
        let good = cluster.create(owned(config_map("good"), &[reference(&owner)]));
        sleep(Duration::from_secs(3)).await;
        assert_eq!(cluster.events(&bad), []);
        until_reported(&cluster, &bad, &reference(&owner)).await;
        cluster.stay(&[&owner, &good, &bad]).await;
        assert_eq!(cluster.events(&good), []);
    });
}

#[test]
fn gc_34_a_missing_owner_of_a_namespaced_child_seen_first() {
    test(|cluster| missing_parent(cluster, false));
}

/// The child changes between the decision and the deletion.
pub(crate) async fn conflict(cluster: Cluster, owners_changed: bool) {
    let owner = cluster.create(rc("owner"));
    let child = cluster.create(owned(
        pod("child"),
        &[super::cluster::to_nowhere("v1", "Pod")],
    ));
    let host = cluster.collector_with("Disabled", "{}").await;
    cluster.sim.disturb(
        &Match::new("watch", "pods"),
        davit_sim::fault::WatchFault::Delay(Duration::from_secs(20)),
    );
    // The cache does not observe this for a while.
    let change = if owners_changed {
        json!({"ownerReferences": [reference(&owner)]})
    } else {
        json!({"labels": {"changed": "true"}})
    };
    cluster.set(&child, &change);
    cluster.sim.clear_log();
    host.apply(
        "controllers:\n- name: gc\n  module: {builtin: garbage-collector}\n  mode: Enforce\n",
    )
    .await;
    sleep(SETTLED).await;
    let verbs: Vec<(String, u16)> = cluster
        .requests()
        .iter()
        .filter(|it| it.work.name == "child")
        .map(|it| (it.work.verb.clone(), it.status))
        .collect();
    let verbs: Vec<(&str, u16)> = verbs
        .iter()
        .map(|(verb, status)| (verb.as_str(), *status))
        .collect();
    if owners_changed {
        assert_eq!(verbs, [("delete", 409), ("get", 200)]);
        cluster.stay(&[&child]).await;
    } else {
        assert_eq!(verbs, [("delete", 409), ("get", 200), ("delete", 200)]);
        assert!(!cluster.is_there(&child));
    }
}

/// "resourceVersion conflict between Get/Delete requests", both of its cases. The child
/// is read only when the cache is known to lag, not before each deletion.
#[test]
fn gc_35_a_conflict_is_decided_from_the_current_state() {
    test(|cluster| conflict(cluster, true));
    test(|cluster| conflict(cluster, false));
}

/// `TestCrossNamespaceReferencesWithWatchCache` and `-WithoutWatchCache`: children in
/// other namespaces and of other kinds with the owner's uid are deleted, valid ones
/// stay; also after a restart.
#[test]
fn gc_60_children_in_other_namespaces_are_deleted_and_valid_ones_are_kept() {
    const VALID: usize = 20;
    const INVALID: usize = 40;
    test(|cluster| async move {
        let mut parent = config_map("parent");
        parent["metadata"]["namespace"] = json!("a");
        let parent = cluster.create(parent);
        let child = |number: usize| {
            let mut child = object("v1", "Secret", "a", &format!("valid-{number}"));
            child["type"] = json!("Opaque");
            owned(child, &[reference(&parent)])
        };
        let valid: Vec<Value> = (0..VALID)
            .map(|number| cluster.create(child(number)))
            .collect();
        for round in 0..2 {
            let host = cluster.collector().await;
            let invalid: Vec<Value> = (0..INVALID)
                .map(|number| {
                    let kind = ["Secret", "Pod", "ReplicationController"][number % 3];
                    let named = with(reference(&parent), "kind", kind);
                    let name = format!("invalid-{round}-{number}");
                    cluster.create(owned(object("v1", "Secret", "b", &name), &[named]))
                })
                .collect();
            cluster
                .until_gone(&invalid.iter().collect::<Vec<_>>())
                .await;
            cluster.stay(&[&parent]).await;
            cluster.stay(&valid.iter().collect::<Vec<_>>()).await;
            host.host.stop().await;
        }
    });
}
