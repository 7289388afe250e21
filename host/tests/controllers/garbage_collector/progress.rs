//! Deletions in progress: which object waits for which, and progress although objects
//! change meanwhile.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultId, FaultTiming, Match, Refusal, WatchFault};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{
    Cluster, blocking, config_map, configuration, definition, held, object, owned, pod, rc,
    reference, test, to_nowhere,
};
use crate::bench::RunningHost;
use crate::objects::SETTLED;

fn delay(cluster: &Cluster, matches: Match, time: Duration) -> FaultId {
    cluster.sim.add_fault(Fault {
        matches,
        when: FaultTiming::Always,
        action: Action::Delay(time),
    })
}

/// An owner with another finalizer, and dependents that do not block it.
fn held_owner(cluster: &Cluster, dependents: usize) -> (Value, Vec<Value>) {
    let owner = cluster.create(held(config_map("owner")));
    let pods = (0..dependents)
        .map(|number| cluster.create(owned(pod(&format!("p-{number}")), &[reference(&owner)])))
        .collect();
    (owner, pods)
}

fn finalizers(cluster: &Cluster, object: &Value) -> Value {
    cluster.now(object).expect("the object is gone")["metadata"]["finalizers"].clone()
}

fn left(cluster: &Cluster, objects: &[Value]) -> usize {
    objects.iter().filter(|it| cluster.is_there(it)).count()
}

/// Once only the collector's finalizer is left the owner counts as solid: its
/// dependents must be decided before that.
#[test]
fn an_owner_is_released_after_the_last_of_its_dependents_was_decided() {
    for millis in [0, 1, 20, 1_000] {
        test(|cluster| async move {
            let _host = cluster.collector().await;
            for round in 0..5 {
                let (owner, pods) = held_owner(&cluster, 10);
                if round % 2 == 0 {
                    sleep(SETTLED).await;
                }
                // The owner is read before its dependents are decided.
                let slow = delay(
                    &cluster,
                    Match::new("get", "configmaps"),
                    Duration::from_millis(millis),
                );
                cluster.delete(&owner, "Foreground");
                cluster.until_gone(&pods.iter().collect::<Vec<_>>()).await;
                sleep(SETTLED).await;
                assert_eq!(finalizers(&cluster, &owner), json!(["example.com/hold"]));
                cluster.sim.heal(slow);
                cluster.set(&owner, &json!({"finalizers": null}));
                cluster.until_gone(&[&owner]).await;
            }
        });
    }
}

/// Dependents that cannot be deleted at the moment are not decided.
#[test]
fn an_owner_waits_for_dependents_whose_deletion_fails() {
    test(|cluster| async move {
        let (owner, pods) = held_owner(&cluster, 10);
        let refused = Match {
            name: "p-3".to_owned(),
            ..Match::new("delete", "pods")
        };
        let refused = cluster.refuse(refused, Refusal::InternalError);
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        sleep(Duration::from_secs(20)).await;
        assert_eq!(left(&cluster, &pods), 1);
        let both = json!(["example.com/hold", "foregroundDeletion"]);
        assert_eq!(finalizers(&cluster, &owner), both);
        cluster.sim.heal(refused);
        cluster.until_gone(&[&pods[3]]).await;
        sleep(SETTLED).await;
        assert_eq!(finalizers(&cluster, &owner), json!(["example.com/hold"]));
    });
}

/// A guardrail admits three of them in the first minute.
#[test]
fn an_owner_waits_for_dependents_that_a_guardrail_holds() {
    test(|cluster| async move {
        let (owner, pods) = held_owner(&cluster, 10);
        let mut host = cluster.host();
        let mut config = configuration("Enforce", "{}");
        config.push_str("  guardrails: {deletesPerMinute: 3}\n");
        host.apply(&config).await;
        host.started().await;
        cluster.delete(&owner, "Foreground");
        sleep(SETTLED).await;
        assert_eq!(left(&cluster, &pods), 7);
        let both = json!(["example.com/hold", "foregroundDeletion"]);
        assert_eq!(finalizers(&cluster, &owner), both);
    });
}

/// A sent deletion is enough: what keeps the dependent afterwards does not matter.
#[test]
fn an_owner_does_not_wait_for_finalizers_of_dependents_that_do_not_block() {
    test(|cluster| async move {
        let owner = cluster.create(held(config_map("owner")));
        let pods: Vec<Value> = (0..3)
            .map(|number| {
                let name = format!("p-{number}");
                cluster.create(held(owned(pod(&name), &[reference(&owner)])))
            })
            .collect();
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        sleep(SETTLED).await;
        assert_eq!(finalizers(&cluster, &owner), json!(["example.com/hold"]));
        for pod in &pods {
            assert_eq!(cluster.deletions(pod), 1);
        }
    });
}

/// A dependent that stays because the kind of its other owner is unknown was decided:
/// it does not keep an owner that it does not block.
#[test]
fn a_dependent_that_can_never_be_judged_keeps_no_owner_that_it_does_not_block() {
    test(|cluster| async move {
        let owner = cluster.create(config_map("owner"));
        let unknown = to_nowhere("unknown.example.org/v1", "Unknown");
        let stays = cluster.create(owned(pod("stays"), &[reference(&owner), unknown]));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&[&owner]).await;
        cluster.stay(&[&stays]).await;
    });
}

/// The reference names the owner in a version that is no longer served: the fate of
/// that owner is unknown, so the dependent stays, as in kube-controller-manager. The
/// owner does not wait for it forever.
#[test]
fn a_dependent_that_names_its_owner_in_a_former_version_does_not_keep_it() {
    test(|cluster| async move {
        let owner = cluster.create(config_map("owner"));
        let mut former = reference(&owner);
        former["apiVersion"] = json!("v1beta3");
        let stays = cluster.create(owned(pod("stays"), &[former]));
        let goes = cluster.create(owned(pod("goes"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&[&owner, &goes]).await;
        cluster.stay(&[&stays]).await;
    });
}

/// The user deletes again, with the dependents orphaned, while the finalizer of the
/// first deletion is being removed: the conflict shows another finalizer, and the
/// dependents must be orphaned before it is removed.
#[test]
fn a_conflict_on_the_owner_is_decided_again() {
    test(|cluster| async move {
        let owner = cluster.create(config_map("owner"));
        let blocker = cluster.create(held(owned(pod("blocker"), &[blocking(&owner)])));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        sleep(SETTLED).await;
        cluster.sim.disturb(
            &Match::new("watch", "configmaps"),
            WatchFault::Delay(Duration::from_secs(20)),
        );
        cluster.delete(&owner, "Orphan");
        assert_eq!(finalizers(&cluster, &owner), json!(["orphan"]));
        let late = cluster.create(owned(pod("late"), &[reference(&owner)]));
        cluster.set(&blocker, &json!({"finalizers": null}));
        cluster.until_gone(&[&owner]).await;
        cluster.stay(&[&late]).await;
        assert_eq!(cluster.owners(&late), [] as [Value; 0]);
    });
}

/// The cache has not observed yet that the dependent's other owner was removed.
#[test]
fn a_dependent_never_loses_its_last_owner_to_a_stale_cache() {
    for custom in [false, true] {
        test(|cluster| async move {
            cluster.create(definition("Foo", &["v1"], "Namespaced"));
            let waiting = cluster.create(held(rc("waiting")));
            let solid = cluster.create(rc("solid"));
            let blocker = cluster.create(held(owned(config_map("blocker"), &[blocking(&waiting)])));
            let dependent = if custom {
                object("example.com/v1", "Foo", "default", "dependent")
            } else {
                pod("dependent")
            };
            let references = [blocking(&waiting), reference(&solid)];
            let dependent = cluster.create(owned(dependent, &references));
            let _host = cluster.collector().await;
            sleep(SETTLED).await;
            for resource in ["pods", "foos"] {
                cluster.sim.disturb(
                    &Match::new("watch", resource),
                    WatchFault::Delay(Duration::from_secs(10)),
                );
            }
            cluster.set(
                &dependent,
                &json!({"ownerReferences": [blocking(&waiting)]}),
            );
            cluster.delete(&waiting, "Foreground");
            cluster.until_gone(&[&dependent]).await;
            assert!(cluster.is_there(&blocker) && cluster.is_there(&solid));
        });
    }
}

/// A controller writes the dependent's status repeatedly, faster than a deletion
/// arrives.
#[test]
fn a_dependent_that_changes_all_the_time_is_deleted() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        delay(
            &cluster,
            Match::new("delete", "pods"),
            Duration::from_millis(500),
        );
        cluster.delete(&owner, "Background");
        let mut number = 0;
        while cluster.is_there(&dependent) && number < 600 {
            number += 1;
            let labels = json!({"labels": {"number": number.to_string()}});
            cluster.set(&dependent, &labels);
            sleep(Duration::from_millis(200)).await;
        }
        assert!(!cluster.is_there(&dependent), "it stays forever");
        assert_eq!(cluster.deletions(&dependent), 1);
    });
}

/// A dependent of a deleted owner, a second before the deletion of the dependent
/// arrives; and another owner that it can get meanwhile.
async fn doomed_dependent(cluster: &Cluster) -> (RunningHost, Value, Value) {
    let owner = cluster.create(rc("owner"));
    let haven = cluster.create(rc("haven"));
    let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
    let host = cluster.collector().await;
    let deletions = Match::new("delete", "pods");
    delay(cluster, deletions, Duration::from_secs(2));
    cluster.delete(&owner, "Background");
    sleep(Duration::from_secs(1)).await;
    (host, dependent, haven)
}

/// The owners change: then only the version proves that the object is still garbage.
#[test]
fn a_dependent_whose_owners_change_is_deleted_only_at_its_version() {
    test(|cluster| async move {
        let (_host, dependent, haven) = doomed_dependent(&cluster).await;
        cluster.set(&dependent, &json!({"ownerReferences": [reference(&haven)]}));
        cluster.stay(&[&dependent]).await;
    });
}

/// A label changes first, and then, while the next deletion is on its way, the owners:
/// the first conflict proves nothing about the second change.
#[test]
fn a_dependent_that_changes_twice_is_not_deleted_by_its_uid_alone() {
    test(|cluster| async move {
        let (_host, dependent, haven) = doomed_dependent(&cluster).await;
        cluster.set(&dependent, &json!({"labels": {"changed": "true"}}));
        sleep(Duration::from_secs(2)).await;
        cluster.set(&dependent, &json!({"ownerReferences": [reference(&haven)]}));
        cluster.stay(&[&dependent]).await;
    });
}

/// Many owners are deleted with their kind, all at once: the absence of each is
/// recorded as long as a dependent needs it.
#[test]
fn dependents_of_many_owners_that_vanished_with_their_kind_are_deleted() {
    const OWNERS: usize = 1_500;
    test(|cluster| async move {
        let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let made: Vec<(Value, Value)> = (0..OWNERS)
            .map(|number| {
                let name = format!("owner-{number}");
                let owner = cluster.create(object("example.com/v1", "Foo", "default", &name));
                let name = format!("dependent-{number}");
                let dependent = cluster.create(owned(config_map(&name), &[reference(&owner)]));
                (owner, dependent)
            })
            .collect();
        let host = cluster.collector().await;
        sleep(SETTLED).await;
        // The kind is gone before an owner of it is read, and none of the dependents
        // can be deleted for a while.
        let slow = delay(&cluster, Match::new("get", "foos"), Duration::from_secs(5));
        let refused = cluster.refuse(Match::new("delete", "configmaps"), Refusal::Unavailable);
        for (owner, _) in &made {
            cluster.delete(owner, "");
        }
        let seen = || host.metric("davit_cache_objects{resource=\"example.com/v1/foos\"}");
        cluster.until("the owners are gone", || seen() < 0.5).await;
        cluster.delete(&definition, "");
        cluster.sim.heal(slow);
        sleep(Duration::from_mins(3)).await;
        cluster.sim.heal(refused);
        sleep(Duration::from_mins(12)).await;
        let dependents: Vec<Value> = made.into_iter().map(|(_, dependent)| dependent).collect();
        let stay: Vec<usize> = (0..OWNERS)
            .filter(|number| cluster.is_there(&dependents[*number]))
            .collect();
        assert_eq!(stay, [0; 0]);
    });
}
