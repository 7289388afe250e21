//! The watched resources follow discovery, and a resource that does not sync delays no
//! other.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{
    Cluster, Discovery, blocking, config_map, definition, object, owned, pod, rc, reference, test,
    to_nowhere,
};
use crate::objects::SETTLED;

const SYNC_ERRORS: &str =
    "garbagecollector_controller_resources_sync_error_total{controller=\"gc\"}";

/// The period of discovery.
const PERIOD: Duration = Duration::from_secs(30);

/// How many watches of a resource are open, counted by a disturbance without effect.
fn watches(cluster: &Cluster, resource: &str) -> usize {
    let matches = Match::new("watch", resource);
    cluster
        .sim
        .disturb(&matches, WatchFault::Delay(Duration::ZERO))
}

pub(crate) fn is_watched(cluster: &Cluster, resource: &str) -> bool {
    watches(cluster, resource) > 0
}

/// Which of these are watched.
fn watched<'r>(cluster: &Cluster, resources: &[&'r str]) -> BTreeSet<&'r str> {
    let watched = resources.iter().filter(|it| is_watched(cluster, it));
    watched.copied().collect()
}

/// The part of an answer of discovery that is about a group; null if there is
/// none.
fn group<'v>(answer: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    let groups = answer["items"].as_array_mut()?;
    groups
        .iter_mut()
        .find(|group| group["metadata"]["name"].as_str().unwrap_or_default() == name)
}

/// Removes a resource of the group `example.com` from an answer of discovery.
fn hide(answer: &mut Value, resource: &str) {
    if let Some(group) = group(answer, "example.com") {
        for version in group["versions"].as_array_mut().unwrap() {
            let resources = version["resources"].as_array_mut().unwrap();
            resources.retain(|it| it["resource"] != resource);
        }
    }
}

/// Lets a group answer that it cannot be reached, without resources.
pub(crate) fn make_stale(answer: &mut Value, name: &str) {
    if let Some(group) = group(answer, name) {
        for version in group["versions"].as_array_mut().unwrap() {
            version["freshness"] = json!("Stale");
            version["resources"] = json!([]);
        }
    }
}

/// `TestGarbageCollectorConstruction`: no, two, one, two and one resource of the tests
/// are watched. A watch stops after two discoveries without its resource.
#[test]
fn gc_01_watches_start_and_stop_with_the_served_resources() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        let ours = ["foos", "bars"];
        assert_eq!(watched(&cluster, &ours), BTreeSet::new());
        for kind in ["Foo", "Bar"] {
            cluster.create(definition(kind, &["v1"], "Namespaced"));
        }
        sleep(PERIOD + SETTLED).await;
        assert_eq!(watched(&cluster, &ours), BTreeSet::from(ours));
        cluster.discovery(|answer| {
            hide(answer, "bars");
            Discovery::Answers
        });
        sleep(PERIOD).await;
        assert_eq!(
            watched(&cluster, &ours),
            BTreeSet::from(ours),
            "once is a mistake"
        );
        sleep(PERIOD).await;
        assert_eq!(watched(&cluster, &ours), BTreeSet::from(["foos"]));
        cluster.discovery(|_| Discovery::Answers);
        sleep(PERIOD).await;
        assert_eq!(watched(&cluster, &ours), BTreeSet::from(ours));
        // It works again.
        let owner = cluster.create(object("example.com/v1", "Bar", "default", "owner"));
        let child = cluster.create(owned(pod("child"), &[reference(&owner)]));
        cluster.stay(&[&child]).await;
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&child]).await;
        cluster.discovery(|answer| {
            hide(answer, "foos");
            Discovery::Answers
        });
        sleep(PERIOD * 3).await;
        assert_eq!(watched(&cluster, &ours), BTreeSet::from(["bars"]));
    });
}

/// An object that disappears from the cache with its resource was not deleted.
#[test]
fn objects_of_a_resource_that_is_no_longer_watched_are_not_absent() {
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
        let child = cluster.create(owned(pod("child"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        cluster.discovery(|answer| {
            hide(answer, "foos");
            Discovery::Answers
        });
        sleep(PERIOD * 4).await;
        assert!(!is_watched(&cluster, "foos"));
        cluster.stay(&[&owner, &child]).await;
        cluster.discovery(|_| Discovery::Answers);
        sleep(PERIOD * 2).await;
        cluster.stay(&[&owner, &child]).await;
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&child]).await;
    });
}

/// `TestGetDeletableResources`, by its outcome.
#[test]
fn gc_14_only_resources_that_can_be_listed_watched_and_deleted_are_watched() {
    test(|cluster| async move {
        for kind in ["Foo", "Bar", "Baz"] {
            cluster.create(definition(kind, &["v1"], "Namespaced"));
        }
        cluster.discovery(|answer| {
            let Some(group) = group(answer, "example.com") else {
                return Discovery::Answers;
            };
            for resource in group["versions"][0]["resources"].as_array_mut().unwrap() {
                let name = resource["resource"].clone();
                let verbs = resource["verbs"].as_array_mut().unwrap();
                match name.as_str().unwrap() {
                    "foos" => verbs.retain(|verb| verb != "delete"),
                    "bars" => verbs.retain(|verb| verb != "watch"),
                    _ => {}
                }
            }
            Discovery::Answers
        });
        let _host = cluster.collector().await;
        let all = [
            "foos",
            "bars",
            "bazs",
            "events",
            "componentstatuses",
            "bindings",
        ];
        assert_eq!(watched(&cluster, &all), BTreeSet::from(["bazs"]));
        let garbage = |kind| {
            let garbage = object("example.com/v1", kind, "default", "garbage");
            cluster.create(owned(garbage, &[to_nowhere("v1", "Pod")]))
        };
        let [foo, bar, baz] = ["Foo", "Bar", "Baz"].map(garbage);
        cluster.until_gone(&[&baz]).await;
        cluster.stay(&[&foo, &bar]).await;
    });
}

/// An error that names no group: the known resources stay, nothing is lost.
#[test]
fn gc_15_a_failed_discovery_removes_no_resource() {
    failing_discovery(|_| Discovery::Fails);
}

/// One group cannot be reached: the others are watched.
#[test]
fn gc_16_a_group_that_does_not_answer_stays_watched() {
    failing_discovery(|answer| {
        make_stale(answer, "example.com");
        Discovery::Answers
    });
}

/// An empty answer removes nothing.
#[test]
fn gc_17_a_discovery_without_any_result_removes_no_resource() {
    failing_discovery(|answer| {
        *answer = json!("nonsense");
        Discovery::Answers
    });
    failing_discovery(|answer| {
        answer["items"] = json!([]);
        Discovery::Answers
    });
}

fn failing_discovery(edit: fn(&mut Value) -> Discovery) {
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let _host = cluster.collector().await;
        cluster.discovery(edit);
        sleep(PERIOD * 10).await;
        assert!(is_watched(&cluster, "foos"));
        assert!(is_watched(&cluster, "pods"));
        let owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
        let child = cluster.create(owned(pod("child"), &[blocking(&owner)]));
        sleep(SETTLED).await;
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&[&child, &owner]).await;
    });
}

/// `TestGarbageCollectorSync`, with the host's parts: discovery may fail, a resource
/// may not sync, and deletions continue; afterwards every resource is watched.
#[test]
fn gc_18_neither_discovery_nor_a_resource_that_cannot_sync_blocks() {
    test(|cluster| async move {
        let begun = Instant::now();
        let unsyncable = break_lists(&cluster, "secrets");
        let host = cluster.collector().await;
        let sync_errors = || host.metric(SYNC_ERRORS);
        assert!(begun.elapsed() >= PERIOD, "it waits for it for a while");
        assert!(begun.elapsed() < PERIOD * 2, "and no longer");
        let garbage = |name| {
            let reference = to_nowhere("v1", "ReplicationController");
            cluster.create(owned(pod(name), &[reference]))
        };
        cluster
            .until_gone(&[&garbage("while-one-does-not-sync")])
            .await;
        sleep(PERIOD * 2).await;
        let unlisted = sync_errors();
        assert!((1.0..4.0).contains(&unlisted), "{unlisted}");
        cluster.discovery(|_| Discovery::Fails);
        sleep(PERIOD * 2).await;
        assert!(sync_errors() > unlisted + 1.0);
        cluster
            .until_gone(&[&garbage("while-discovery-fails")])
            .await;
        cluster.discovery(|answer| {
            make_stale(answer, "apps");
            Discovery::Answers
        });
        sleep(PERIOD * 3).await;
        assert!(is_watched(&cluster, "deployments"));
        let synced = || host.metric("davit_watch_synced{resource=\"v1/secrets\"}");
        assert!(synced() < 0.5);
        for fault in unsyncable {
            cluster.sim.heal(fault);
        }
        cluster.discovery(|_| Discovery::Answers);
        sleep(PERIOD * 3).await;
        assert!(is_watched(&cluster, "secrets"));
        let secret = object("v1", "Secret", "default", "garbage");
        let secret = cluster.create(owned(secret, &[to_nowhere("v1", "Pod")]));
        cluster.until_gone(&[&secret]).await;
        assert!(synced() > 0.5);
        let errors = sync_errors();
        sleep(PERIOD * 10).await;
        assert!((sync_errors() - errors).abs() < 0.5);
    });
}

/// Lets a resource never sync; returns the faults.
pub(crate) fn break_lists(cluster: &Cluster, resource: &str) -> Vec<davit_sim::fault::FaultId> {
    ["list", "watch"]
        .map(|verb| cluster.refuse(Match::new(verb, resource), Refusal::InternalError))
        .into()
}

/// `TestCascadingDeleteOnCRDConversionFailure`
#[test]
fn gc_72_a_definition_whose_conversion_fails_delays_no_other() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        break_lists(&cluster, "foos");
        sleep(PERIOD * 2).await;
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        cluster.stay(&[&dependent]).await;
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&owner, &dependent]).await;
    });
}

/// A host that starts waits for every resource before it releases an owner: the owner
/// may have dependents in any of them. kube-controller-manager waits for the same time.
#[test]
fn an_owner_is_not_released_before_its_dependents_can_be_seen() {
    for policy in ["Foreground", "Orphan"] {
        test(|cluster| async move {
            let owner = cluster.create(config_map("owner"));
            let dependent = cluster.create(owned(pod("dependent"), &[blocking(&owner)]));
            cluster.delete(&owner, policy);
            cluster.sim.add_fault(Fault {
                matches: Match::new("watch", "pods"),
                when: FaultTiming::First(1),
                action: Action::Delay(Duration::from_secs(20)),
            });
            let begun = Instant::now();
            let _host = cluster.collector().await;
            assert!(begun.elapsed() >= Duration::from_secs(20));
            cluster.until_gone(&[&owner]).await;
            sleep(SETTLED).await;
            assert_eq!(cluster.is_there(&dependent), policy == "Orphan");
        });
    }
}

/// A new preferred version is watched instead of the old one, and no object is observed
/// twice.
#[test]
fn a_new_preferred_version_takes_the_place_of_the_old_one() {
    test(|cluster| async move {
        let made = cluster.create(definition("Foo", &["v1beta1"], "Namespaced"));
        let owner = cluster.create(object("example.com/v1beta1", "Foo", "default", "owner"));
        let child = cluster.create(owned(
            object("example.com/v1beta1", "Foo", "default", "child"),
            &[blocking(&owner)],
        ));
        let _host = cluster.collector().await;
        let mut both = cluster.now(&made).unwrap();
        both["spec"]["versions"] =
            definition("Foo", &["v1beta1", "v1"], "")["spec"]["versions"].clone();
        cluster.sim.update(both).unwrap();
        sleep(PERIOD * 4).await;
        assert_eq!(watches(&cluster, "foos"), 1);
        cluster.stay(&[&owner, &child]).await;
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&[&child, &owner]).await;
    });
}

/// The watched version is no longer served; the version in a dependent's reference
/// cannot be listed or read; then the first version is watched again. The owner exists
/// all the while.
#[test]
fn an_owner_whose_version_is_no_longer_watched_is_not_absent() {
    test(|cluster| async move {
        let made = cluster.create(definition("Foo", &["v1beta1", "v1"], "Namespaced"));
        let owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
        let mut named = reference(&owner);
        named["apiVersion"] = json!("example.com/v1beta1");
        let child = cluster.create(owned(pod("child"), &[named]));
        let _host = cluster.collector().await;
        cluster.stay(&[&owner, &child]).await;
        assert!(is_watched(&cluster, "foos"));
        let serve = |only: &str| {
            let mut definition = cluster.now(&made).unwrap();
            for version in definition["spec"]["versions"].as_array_mut().unwrap() {
                version["served"] = json!(version["name"] == only);
            }
            cluster.sim.update(definition).unwrap();
        };
        let mut broken = break_lists(&cluster, "foos");
        broken.push(cluster.refuse(Match::new("get", "foos"), Refusal::InternalError));
        serve("v1beta1");
        sleep(PERIOD * 4).await;
        assert!(!is_watched(&cluster, "foos"));
        serve("v1");
        sleep(PERIOD * 20).await;
        cluster.stay(&[&child]).await;
        for fault in broken {
            cluster.sim.heal(fault);
        }
        sleep(PERIOD * 20).await;
        assert!(is_watched(&cluster, "foos"));
        cluster.stay(&[&owner, &child]).await;
    });
}
