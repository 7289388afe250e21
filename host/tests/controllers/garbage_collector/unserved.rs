//! Resources that cannot be listed: unknown objects are never treated as absent.

use std::time::Duration;

use davit_sim::fault::{Match, WatchFault};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{
    Cluster, Discovery, blocking, config_map, configuration, definition, held, object, owned, pod,
    reference, test,
};
use super::discovery::{break_lists, is_watched, make_stale};
use crate::bench::RunningHost;
use crate::objects::SETTLED;

/// The period of discovery.
const PERIOD: Duration = Duration::from_secs(30);

fn foo(name: &str) -> Value {
    object("example.com/v1", "Foo", "default", name)
}

/// Serves every version of a definition, or none. The objects stay.
fn serve(cluster: &Cluster, definition: &Value, served: bool) {
    let mut changed = cluster.now(definition).unwrap();
    for version in changed["spec"]["versions"].as_array_mut().unwrap() {
        version["served"] = json!(served);
    }
    cluster.sim.update(changed).unwrap();
}

/// A definition whose resource is watched, an owner, and a dependent of that kind.
fn dependent_of_a_custom_kind(cluster: &Cluster) -> (Value, Value, Value) {
    let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
    let owner = cluster.create(config_map("owner"));
    let dependent = cluster.create(owned(foo("dependent"), &[blocking(&owner)]));
    (definition, owner, dependent)
}

/// The owner's finalizers, while it exists.
fn finalizers(cluster: &Cluster, owner: &Value) -> Value {
    cluster.now(owner).expect("the owner is gone")["metadata"]["finalizers"].clone()
}

async fn ends_as_asked(cluster: &Cluster, policy: &str, owner: &Value, dependent: &Value) {
    cluster.until_gone(&[owner]).await;
    sleep(SETTLED).await;
    if policy == "Orphan" {
        cluster.stay(&[dependent]).await;
        assert_eq!(cluster.owners(dependent), [] as [Value; 0]);
    } else {
        assert!(!cluster.is_there(dependent));
    }
}

/// Long enough for two discoveries, or for less than one.
#[test]
fn an_owner_waits_for_dependents_whose_kind_is_not_served_at_the_moment() {
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        for pause in [Duration::from_secs(10), Duration::from_secs(75)] {
            test(|cluster| async move {
                let (definition, owner, dependent) = dependent_of_a_custom_kind(&cluster);
                let _host = cluster.collector().await;
                serve(&cluster, &definition, false);
                sleep(pause / 2).await;
                cluster.delete(&owner, policy);
                sleep(pause / 2).await;
                assert_eq!(finalizers(&cluster, &owner), json!([finalizer]));
                serve(&cluster, &definition, true);
                ends_as_asked(&cluster, policy, &owner, &dependent).await;
            });
        }
    }
}

/// A host that starts while a kind is not served knows none of its objects.
#[test]
fn a_host_that_starts_knows_which_kinds_are_not_served() {
    for (policy, finalizer) in [("Orphan", "orphan"), ("Foreground", "foregroundDeletion")] {
        test(|cluster| async move {
            let (definition, owner, dependent) = dependent_of_a_custom_kind(&cluster);
            serve(&cluster, &definition, false);
            let _host = cluster.collector().await;
            cluster.delete(&owner, policy);
            sleep(PERIOD * 5).await;
            assert_eq!(finalizers(&cluster, &owner), json!([finalizer]));
            serve(&cluster, &definition, true);
            ends_as_asked(&cluster, policy, &owner, &dependent).await;
        });
    }
}

/// A kind whose definition is created while the host runs may have dependents before
/// discovery finds it.
#[test]
fn a_kind_that_discovery_has_not_seen_yet_is_unknown() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        sleep(SETTLED).await;
        let (_, owner, dependent) = dependent_of_a_custom_kind(&cluster);
        cluster.delete(&owner, "Orphan");
        ends_as_asked(&cluster, "Orphan", &owner, &dependent).await;
    });
}

/// A definition is deleted and created again between two discoveries, as when its
/// operator is reinstalled: there is no stream of its objects yet.
#[test]
fn a_kind_that_returns_between_two_discoveries_is_unknown() {
    for policy in ["Orphan", "Foreground"] {
        test(|cluster| async move {
            let former = cluster.create(definition("Foo", &["v1"], "Namespaced"));
            let _host = cluster.collector().await;
            sleep(PERIOD + SETTLED).await;
            cluster.delete(&former, "");
            cluster.until_gone(&[&former]).await;
            sleep(SETTLED).await;
            let (_, owner, dependent) = dependent_of_a_custom_kind(&cluster);
            sleep(SETTLED).await;
            cluster.delete(&owner, policy);
            ends_as_asked(&cluster, policy, &owner, &dependent).await;
        });
    }
}

/// The objects of a kind are deleted with its definition: nothing waits for them.
#[test]
fn a_kind_whose_definition_is_deleted_keeps_no_owner_waiting() {
    for policy in ["Orphan", "Foreground"] {
        test(|cluster| async move {
            let (definition, owner, dependent) = dependent_of_a_custom_kind(&cluster);
            let other = cluster.create(config_map("other"));
            let _host = cluster.collector().await;
            // The watch never shows the deletion of the dependent.
            let foos = Match::new("watch", "foos");
            cluster.sim.disturb(&foos, WatchFault::Silence);
            cluster.delete(&definition, "");
            cluster.until_gone(&[&definition, &dependent]).await;
            for owner in [&owner, &other] {
                cluster.delete(owner, policy);
            }
            cluster.until_gone(&[&other]).await;
            // The host must first detect the silent watch.
            sleep(PERIOD * 4).await;
            cluster.until_gone(&[&owner]).await;
        });
    }
}

/// A resource that never synced may have dependents.
#[test]
fn an_owner_waits_for_a_resource_that_was_never_listed() {
    for policy in ["Orphan", "Foreground"] {
        test(|cluster| async move {
            let (_, owner, dependent) = dependent_of_a_custom_kind(&cluster);
            let faults = break_lists(&cluster, "foos");
            let _host = cluster.collector().await;
            cluster.delete(&owner, policy);
            sleep(PERIOD * 4).await;
            assert!(cluster.is_there(&owner));
            assert_eq!(cluster.owners(&dependent), [blocking(&owner)]);
            for fault in faults {
                cluster.sim.heal(fault);
            }
            ends_as_asked(&cluster, policy, &owner, &dependent).await;
        });
    }
}

/// A dependent that was created while its watch was broken.
#[test]
fn an_owner_waits_for_a_watch_that_is_broken() {
    test(|cluster| async move {
        let owner = cluster.create(config_map("owner"));
        let _host = cluster.collector().await;
        sleep(SETTLED).await;
        let faults = break_lists(&cluster, "pods");
        cluster
            .sim
            .disturb(&Match::new("watch", "pods"), WatchFault::Abort);
        sleep(Duration::from_secs(1)).await;
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        cluster.delete(&owner, "Orphan");
        sleep(PERIOD).await;
        assert_eq!(finalizers(&cluster, &owner), json!(["orphan"]));
        for fault in faults {
            cluster.sim.heal(fault);
        }
        ends_as_asked(&cluster, "Orphan", &owner, &dependent).await;
    });
}

/// An aggregated API server is unavailable when the host starts.
#[test]
fn an_owner_waits_for_a_group_that_never_answered() {
    test(|cluster| async move {
        let (_, owner, dependent) = dependent_of_a_custom_kind(&cluster);
        cluster.discovery(|answer| {
            make_stale(answer, "example.com");
            Discovery::Answers
        });
        // Only the answers of discovery matter here.
        let config = "{ignoredResources: [{group: apiextensions.k8s.io, \
                      resource: customresourcedefinitions}]}";
        let host: RunningHost = cluster.collector_with("Enforce", config).await;
        cluster.delete(&owner, "Orphan");
        sleep(PERIOD * 5).await;
        assert_eq!(finalizers(&cluster, &owner), json!(["orphan"]));
        cluster.discovery(|_| Discovery::Answers);
        ends_as_asked(&cluster, "Orphan", &owner, &dependent).await;
        drop(host);
    });
}

/// A dependent is to be deleted while its kind is not served. When the kind is served
/// again, the cache does not change, and the dependent is deleted nevertheless.
#[test]
fn a_plan_is_decided_again_when_the_kind_of_its_target_is_served_again() {
    for pause in [Duration::from_secs(20), Duration::from_mins(10)] {
        test(|cluster| async move {
            let (definition, owner, dependent) = dependent_of_a_custom_kind(&cluster);
            let _host = cluster.collector().await;
            serve(&cluster, &definition, false);
            sleep(PERIOD).await;
            cluster.delete(&owner, "Background");
            sleep(pause).await;
            serve(&cluster, &definition, true);
            sleep(PERIOD + SETTLED).await;
            assert!(!cluster.is_there(&dependent));
        });
    }
}

/// An owner whose kind is not served at the moment is not absent, whatever happens to
/// its dependents, and whether or not the host has observed it.
#[test]
fn an_owner_whose_kind_is_not_served_at_the_moment_keeps_its_dependents() {
    for seen in [true, false] {
        test(|cluster| async move {
            let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
            let owner = cluster.create(foo("owner"));
            let child = cluster.create(owned(pod("child"), &[blocking(&owner)]));
            let mut host = None;
            if seen {
                host = Some(cluster.collector().await);
            }
            serve(&cluster, &definition, false);
            if host.is_none() {
                host = Some(cluster.collector().await);
            }
            sleep(Duration::from_secs(1)).await;
            cluster.set(&child, &json!({"finalizers": ["example.com/hold"]}));
            let late = cluster.create(owned(pod("late"), &[reference(&owner)]));
            sleep(PERIOD * 4).await;
            let later = cluster.create(held(owned(pod("later"), &[reference(&owner)])));
            sleep(PERIOD * 20).await;
            cluster.stay(&[&child, &late, &later]).await;
            serve(&cluster, &definition, true);
            sleep(PERIOD * 2).await;
            cluster.stay(&[&owner, &child, &late, &later]).await;
            drop(host);
        });
    }
}

/// A resource that is served again is watched after the discovery that finds it, not
/// after the pause of a watch that was answered 404.
#[test]
fn a_resource_that_is_served_again_is_watched_immediately() {
    test(|cluster| async move {
        let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let _host = cluster.collector().await;
        for pause in [1, 29, 45] {
            sleep(SETTLED).await;
            assert!(is_watched(&cluster, "foos"));
            serve(&cluster, &definition, false);
            sleep(Duration::from_secs(1)).await;
            assert!(!is_watched(&cluster, "foos"));
            sleep(Duration::from_secs(pause)).await;
            serve(&cluster, &definition, true);
            sleep(PERIOD + Duration::from_secs(1)).await;
            assert!(is_watched(&cluster, "foos"), "after {pause} s");
        }
    });
}

/// Objects of the metrics APIs cannot own or be owned, and these APIs are often
/// unavailable.
#[test]
fn a_metrics_api_that_is_unavailable_delays_no_owner() {
    test(|cluster| async move {
        cluster.discovery(|answer| {
            let Some(groups) = answer["items"].as_array_mut() else {
                return Discovery::Answers;
            };
            if groups
                .iter()
                .any(|group| group["metadata"]["name"] == "apps")
            {
                groups.push(json!({
                    "metadata": {"name": "metrics.k8s.io"},
                    "versions": [{"version": "v1beta1", "freshness": "Stale", "resources": []}],
                }));
            }
            Discovery::Answers
        });
        let owner = cluster.create(config_map("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[blocking(&owner)]));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&[&dependent, &owner]).await;
    });
}

/// A definition is deleted, and the watch of its objects ends before it delivers their
/// deletions: they are gone with it.
#[test]
fn dependents_of_owners_that_vanished_with_their_kind_are_deleted() {
    test(|cluster| async move {
        let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let owner = cluster.create(foo("owner"));
        let dependent = cluster.create(owned(config_map("dependent"), &[reference(&owner)]));
        let other = cluster.create(held(config_map("other")));
        let stays = cluster.create(owned(
            config_map("stays"),
            &[reference(&owner), reference(&other)],
        ));
        let _host = cluster.collector().await;
        sleep(SETTLED).await;
        cluster.delete(&definition, "");
        cluster.until_gone(&[&definition, &owner]).await;
        cluster.until_gone(&[&dependent]).await;
        cluster.stay(&[&stays]).await;
    });
}

/// A swap while a kind is not served: the new revision has the objects that the former
/// one knew.
#[test]
fn a_swap_keeps_the_objects_of_a_kind_that_is_not_served() {
    test(|cluster| async move {
        let (definition, owner, dependent) = dependent_of_a_custom_kind(&cluster);
        let mut host = cluster
            .collector_with("Enforce", "{unlistedTimeout: 0s}")
            .await;
        serve(&cluster, &definition, false);
        sleep(PERIOD * 3).await;
        // It watches other resources, and so has its own view.
        let other = "{unlistedTimeout: 0s, ignoredResources: [{resource: secrets}]}";
        host.apply(&configuration("Enforce", other)).await;
        host.started().await;
        cluster.delete(&owner, "Orphan");
        sleep(PERIOD * 3).await;
        assert_eq!(finalizers(&cluster, &owner), json!(["orphan"]));
        serve(&cluster, &definition, true);
        ends_as_asked(&cluster, "Orphan", &owner, &dependent).await;
    });
}
