//! Deletions that orphan the dependents: they lose the reference and stay.

use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{
    Cluster, blocking, config_map, definition, held, object, owned, pod, rc, reference, test,
};
use crate::objects::SETTLED;

async fn orphaned(cluster: &Cluster, owner: &Value, dependents: &[Value]) {
    cluster.until_gone(&[owner]).await;
    cluster.stay(&dependents.iter().collect::<Vec<_>>()).await;
    for dependent in dependents {
        assert_eq!(cluster.owners(dependent), [] as [Value; 0]);
    }
}

fn pods(cluster: &Cluster, owner: &Value, number: usize) -> Vec<Value> {
    (0..number)
        .map(|number| cluster.create(owned(pod(&format!("p-{number}")), &[blocking(owner)])))
        .collect()
}

/// `TestOrphanDependentsFailure`: the owner stays until the last of its dependents is
/// orphaned.
#[test]
fn gc_13_an_owner_waits_for_a_dependent_that_cannot_be_orphaned() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let pods = pods(&cluster, &owner, 3);
        let conflict = Match {
            name: "p-1".to_owned(),
            ..Match::new("patch", "pods")
        };
        let conflict = cluster.refuse(conflict, Refusal::Conflict);
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Orphan");
        sleep(SETTLED * 4).await;
        assert_eq!(cluster.owners(&pods[0]), [] as [Value; 0]);
        assert_eq!(cluster.owners(&pods[1]), [blocking(&owner)]);
        let finalizers = cluster.now(&owner).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(["orphan"]));
        cluster.sim.heal(conflict);
        orphaned(&cluster, &owner, &pods).await;
    });
}

/// `TestStressingCascadingDeletion`: five collections, deleted in five ways.
#[test]
fn gc_63_a_hundred_and_fifty_owners_are_deleted_by_their_policies() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        // The default of a replication controller is to orphan.
        let ways: [(&str, Value, &str, bool); 5] = [
            ("default", json!(null), "", true),
            ("finalizer", json!(["orphan"]), "", true),
            ("orphan", json!(null), "Orphan", true),
            ("background", json!(null), "Background", false),
            ("overruled", json!(["orphan"]), "Background", false),
        ];
        let mut made = Vec::new();
        for number in 0..30 {
            for (way, finalizers, policy, stays) in &ways {
                let mut owner = rc(&format!("{way}-{number}"));
                owner["metadata"]["finalizers"] = finalizers.clone();
                let owner = cluster.create(owner);
                let pods: Vec<Value> = (0..3)
                    .map(|pod_number| {
                        let name = format!("{way}-{number}-{pod_number}");
                        cluster.create(owned(pod(&name), &[reference(&owner)]))
                    })
                    .collect();
                made.push((owner, pods, *policy, *stays));
            }
        }
        sleep(SETTLED).await;
        for (owner, _, policy, _) in &made {
            cluster.delete(owner, policy);
        }
        for (owner, pods, _, stays) in &made {
            cluster.until_gone(&[owner]).await;
            if !stays {
                cluster.until_gone(&pods.iter().collect::<Vec<_>>()).await;
            }
        }
        sleep(SETTLED).await;
        for (_, pods, _, stays) in &made {
            for pod in pods {
                assert_eq!(cluster.is_there(pod), *stays);
                assert_eq!(cluster.deletions(pod), usize::from(!stays));
                if *stays {
                    assert_eq!(cluster.owners(pod), [] as [Value; 0]);
                }
            }
        }
    });
}

/// "should support orphan deletion of custom resources": these accept no strategic
/// merge patch, which the guest records once for the kind.
#[test]
fn gc_89_custom_resources_are_orphaned_with_a_merge_patch() {
    const DEPENDENTS: usize = 200;
    test(|cluster| async move {
        cluster.create(definition("Foo", &["v1"], "Namespaced"));
        let foo = |name: &str| object("example.com/v1", "Foo", "default", name);
        let _host = cluster.collector().await;
        for round in 0..2 {
            let owner = cluster.create(foo(&format!("owner-{round}")));
            let other = cluster.create(config_map(&format!("other-{round}")));
            let dependents: Vec<Value> = (0..DEPENDENTS)
                .map(|number| {
                    let owners = [blocking(&owner), reference(&other)];
                    cluster.create(owned(foo(&format!("{round}-{number}")), &owners))
                })
                .collect();
            sleep(SETTLED).await;
            cluster.sim.clear_log();
            cluster.delete(&owner, "Orphan");
            cluster.until_gone(&[&owner]).await;
            for dependent in &dependents {
                assert_eq!(cluster.owners(dependent), [reference(&other)]);
            }
            let log = cluster.sim.log();
            let refused = log.iter().filter(|it| it.status == 415).count();
            assert_eq!(refused, if round == 0 { DEPENDENTS } else { 0 });
        }
    });
}

/// Terminating dependents lose the reference too, and are not deleted again.
#[test]
fn a_terminating_dependent_is_orphaned_too() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let going = cluster.create(held(owned(pod("going"), &[reference(&owner)])));
        let _host = cluster.collector().await;
        cluster.delete(&going, "Background");
        cluster.delete(&owner, "Orphan");
        cluster.until_gone(&[&owner]).await;
        assert_eq!(cluster.owners(&going), [] as [Value; 0]);
        assert_eq!(cluster.deletions(&going), 1);
    });
}

/// The owner changes while its dependents are orphaned: its finalizer is removed from
/// its present state.
#[test]
fn a_conflict_on_the_owner_is_read_again() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let pods = pods(&cluster, &owner, 2);
        cluster.sim.add_fault(Fault {
            matches: Match::new("patch", "replicationcontrollers"),
            when: FaultTiming::First(3),
            action: Action::Refuse(Refusal::Conflict),
        });
        let _host = cluster.collector().await;
        cluster.sim.clear_log();
        cluster.delete(&owner, "Orphan");
        orphaned(&cluster, &owner, &pods).await;
        let verbs: Vec<String> = cluster
            .requests()
            .iter()
            .filter(|it| it.work.resource == "replicationcontrollers")
            .map(|it| it.work.verb.clone())
            .collect();
        assert_eq!(
            verbs,
            ["patch", "get", "patch", "get", "patch", "get", "patch"]
        );
    });
}
