//! Deletions in the foreground: an owner is deleted after the dependents that block it.

use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{Cluster, blocking, config_map, held, owned, pod, rc, reference, test, uid};
use crate::objects::SETTLED;

fn finalizers(cluster: &Cluster, object: &Value) -> Vec<Value> {
    let found = cluster.now(object).expect("the object is gone");
    let finalizers = found["metadata"]["finalizers"].as_array();
    finalizers.cloned().unwrap_or_default()
}

/// Pods that own each other in a cycle of this many.
fn circle(cluster: &Cluster, members: usize) -> Vec<Value> {
    let pods: Vec<Value> = (0..members)
        .map(|number| cluster.create(pod(&format!("pod-{number}"))))
        .collect();
    for (position, pod) in pods.iter().enumerate() {
        let owner = &pods[(position + members - 1) % members];
        let mut owner = blocking(owner);
        owner["controller"] = json!(true);
        cluster.set(pod, &json!({"ownerReferences": [owner]}));
    }
    pods
}

/// A user deletes every member at once, or while no host runs: in
/// kube-controller-manager such a cycle waits forever.
#[test]
fn a_circle_whose_members_all_wait_is_broken() {
    for begun in [true, false] {
        test(|cluster| async move {
            let pods = circle(&cluster, 3);
            let mut host = None;
            if begun {
                host = Some(cluster.collector().await);
            }
            for pod in &pods {
                cluster.delete(pod, "Foreground");
            }
            if host.is_none() {
                host = Some(cluster.collector().await);
            }
            cluster.until_gone(&pods.iter().collect::<Vec<_>>()).await;
            drop(host);
        });
    }
}

/// In a chain, each owner waits for its dependents, even if a user deleted the lowest
/// first.
#[test]
fn a_chain_is_no_circle() {
    test(|cluster| async move {
        let top = cluster.create(config_map("top"));
        let middle = cluster.create(owned(config_map("middle"), &[blocking(&top)]));
        let low = cluster.create(owned(config_map("low"), &[blocking(&middle)]));
        let leaf = cluster.create(held(owned(config_map("leaf"), &[blocking(&low)])));
        let host = cluster.collector().await;
        cluster.delete(&low, "Foreground");
        cluster.delete(&top, "Foreground");
        sleep(SETTLED).await;
        // A new host reconciles everything again.
        host.host.stop().await;
        let _host = cluster.collector().await;
        sleep(SETTLED).await;
        for waiting in [&top, &middle, &low] {
            assert_eq!(finalizers(&cluster, waiting), ["foregroundDeletion"]);
        }
        cluster.set(&leaf, &json!({"finalizers": null}));
        cluster.until_gone(&[&leaf, &low, &middle, &top]).await;
    });
}

/// The specification's recommendation: an object is not a dependent of its own.
#[test]
fn an_object_that_owns_itself_can_be_deleted() {
    for policy in ["Background", "Foreground", "Orphan"] {
        test(|cluster| async move {
            let pod = cluster.create(pod("pod"));
            let itself = cluster.set(&pod, &json!({"ownerReferences": [blocking(&pod)]}));
            assert_eq!(uid(&pod), uid(&itself));
            let _host = cluster.collector().await;
            cluster.stay(&[&pod]).await;
            cluster.delete(&pod, policy);
            cluster.until_gone(&[&pod]).await;
        });
    }
}

/// A dependent that is created while its owner waits is deleted too.
#[test]
fn a_dependent_that_is_created_late_is_deleted_too() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let first = cluster.create(held(owned(pod("first"), &[blocking(&owner)])));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        sleep(SETTLED).await;
        let late = cluster.create(owned(pod("late"), &[blocking(&owner)]));
        cluster.until_gone(&[&late]).await;
        assert!(cluster.is_there(&owner));
        cluster.set(&first, &json!({"finalizers": null}));
        cluster.until_gone(&[&first, &owner]).await;
    });
}

/// A dependent that no longer blocks, or is no longer a dependent, releases its owner.
#[test]
fn an_owner_is_deleted_when_its_dependent_no_longer_blocks_it() {
    test(|cluster| async move {
        let owners = [cluster.create(rc("a")), cluster.create(rc("b"))];
        let [unblocks, leaves] = [0, 1].map(|number| {
            let name = format!("pod-{number}");
            cluster.create(held(owned(pod(&name), &[blocking(&owners[number])])))
        });
        let _host = cluster.collector().await;
        for owner in &owners {
            cluster.delete(owner, "Foreground");
        }
        sleep(SETTLED).await;
        assert!(owners.iter().all(|owner| cluster.is_there(owner)));
        let reference = reference(&owners[0]);
        let mut open = reference.clone();
        open["blockOwnerDeletion"] = json!(false);
        cluster.set(&unblocks, &json!({"ownerReferences": [open]}));
        cluster.set(&leaves, &json!({"ownerReferences": null}));
        cluster.until_gone(&[&owners[0], &owners[1]]).await;
    });
}

/// A wrong reference does not mean the owner, and does not keep it.
#[test]
fn a_wrong_reference_does_not_block() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let mut wrong = blocking(&owner);
        wrong["name"] = json!("another");
        let wrong = cluster.create(held(owned(pod("wrong"), &[wrong])));
        let cluster_scoped = super::cluster::object("v1", "Node", "", "node");
        let cluster_scoped = cluster.create(owned(cluster_scoped, &[blocking(&owner)]));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&[&owner]).await;
        assert!(cluster.is_there(&wrong));
        cluster.stay(&[&cluster_scoped]).await;
    });
}
