//! Deletions in the background: dependents follow their owners.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, WatchFault};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::{
    blocking, config_map, definition, object, owned, pod, rc, reference, test, to_nowhere, uid,
};
use crate::objects::SETTLED;

/// The requests for one dependent: not three as in Kubernetes, because the object
/// itself is not read.
#[test]
fn gc_04_a_dependent_costs_one_read_of_its_owner_and_one_deletion() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        cluster.sim.clear_log();
        cluster.delete(&owner, "Background");
        cluster.until_gone(&[&dependent]).await;
        sleep(SETTLED).await;
        let requests: Vec<String> = cluster
            .requests()
            .iter()
            .map(|it| format!("{} {} {}", it.work.verb, it.work.resource, it.work.name))
            .collect();
        assert_eq!(
            requests,
            ["get replicationcontrollers owner", "delete pods dependent"]
        );
        let requests = cluster.requests();
        let body: Value = serde_json::from_slice(&requests[1].body).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "v1", "kind": "DeleteOptions",
                "preconditions": {
                    "uid": dependent["metadata"]["uid"],
                    "resourceVersion": dependent["metadata"]["resourceVersion"],
                },
                "propagationPolicy": "Background",
            })
        );
    });
}

/// With 2,000 dependents: one deletion each, and a few reads.
#[test]
fn two_thousand_dependents_cost_two_thousand_deletions_and_a_handful_of_reads() {
    let reads = reads_for_two_thousand("Background", 0);
    assert!((1..=8).contains(&reads), "{reads}");
}

/// In the foreground the owner still exists, so its absence cannot be recorded: each
/// call reads it once. The last request releases it.
#[test]
fn two_thousand_dependents_of_an_owner_that_waits_cost_a_read_a_call() {
    let reads = reads_for_two_thousand("Foreground", 1);
    assert!((1..=100).contains(&reads), "{reads}");
}

/// How often the owner of 2,000 dependents is read. Each dependent is deleted once;
/// besides, there are this many patches.
fn reads_for_two_thousand(policy: &'static str, patches: usize) -> usize {
    const DEPENDENTS: usize = 2_000;
    let counted = Arc::new(AtomicUsize::new(0));
    let reads = Arc::clone(&counted);
    test(|cluster| async move {
        let owner = cluster.create(config_map("owner"));
        for number in 0..DEPENDENTS {
            let name = format!("dependent-{number}");
            cluster.create(owned(config_map(&name), &[blocking(&owner)]));
        }
        let _host = cluster.collector().await;
        sleep(SETTLED).await;
        cluster.sim.clear_log();
        let (began, wall) = (Instant::now(), std::time::Instant::now());
        cluster.delete(&owner, policy);
        cluster
            .until("all are gone", || {
                cluster.names("v1", "ConfigMap").is_empty()
            })
            .await;
        let took = (began.elapsed(), wall.elapsed());
        sleep(SETTLED).await;
        let count = |verb| cluster.sim.count(&Match::new(verb, "configmaps"));
        let (reads, deletions) = (count("get"), count("delete"));
        println!("{policy}: virtual and real time {took:?}; {reads} reads, {deletions} deletions");
        assert_eq!((deletions, count("patch")), (DEPENDENTS, patches));
        assert_eq!(cluster.requests().len(), reads + deletions + patches);
        counted.store(reads, Ordering::Relaxed);
    });
    reads.load(Ordering::Relaxed)
}

/// `TestCRDDeletionCascading`, twice with the same definition. The API server deletes a
/// definition's objects before the definition, and both before all dependents are
/// deleted.
#[test]
fn gc_71_a_deleted_definition_deletes_its_objects_and_their_dependents() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        for round in 0..2 {
            let definition = cluster.create(definition("Foo", &["v1"], "Namespaced"));
            sleep(Duration::from_secs(31)).await;
            let owner = cluster.create(object("example.com/v1", "Foo", "default", "owner"));
            let dependent = cluster.create(owned(config_map("dependent"), &[reference(&owner)]));
            cluster.stay(&[&owner, &dependent]).await;
            // The owner's kind is gone before the owner is read.
            let slow = cluster.sim.add_fault(Fault {
                matches: Match::new("get", "foos"),
                when: FaultTiming::Always,
                action: Action::Delay(Duration::from_secs(1)),
            });
            cluster.delete(&owner, "");
            sleep(Duration::from_millis(500)).await;
            assert!(cluster.is_there(&dependent), "round {round}");
            cluster.delete(&definition, "");
            cluster.sim.heal(slow);
            cluster.until_gone(&[&dependent]).await;
            sleep(Duration::from_secs(90)).await;
        }
    });
}

/// `TestClusterScopedOwners`.
#[test]
fn gc_73_only_dependents_of_a_valid_cluster_scoped_owner_stay() {
    test(|cluster| async move {
        // The owners' watch is late.
        cluster.sim.add_fault(Fault {
            matches: Match::new("watch", "persistentvolumes"),
            when: FaultTiming::Always,
            action: Action::Watch(0, WatchFault::Delay(Duration::from_secs(5))),
        });
        let _host = cluster.collector().await;
        let mut volume = object("v1", "PersistentVolume", "", "volume");
        volume["spec"] = json!({
            "storageClassName": "none", "capacity": {"storage": "1Mi"},
            "accessModes": ["ReadWriteMany"], "hostPath": {"path": "/tmp"},
        });
        let volume = cluster.create(volume);
        let valid = cluster.create(owned(config_map("valid"), &[reference(&volume)]));
        let missing = to_nowhere("v1", "PersistentVolume");
        let missing = cluster.create(owned(config_map("missing"), &[missing]));
        let unknown = to_nowhere("unknown/v1", "Unknown");
        let unknown = cluster.create(owned(config_map("unknown"), &[unknown]));
        cluster.until_gone(&[&missing]).await;
        sleep(Duration::from_mins(2)).await;
        cluster.stay(&[&valid, &unknown]).await;
        cluster.delete(&volume, "Background");
        cluster.until_gone(&[&valid]).await;
        cluster.stay(&[&unknown]).await;
    });
}

/// An owner that only a live read has found is read until the cache has it: otherwise
/// its deletion would not be observed. (kubernetes/kubernetes issue 56121)
#[test]
fn an_owner_that_is_deleted_before_its_watch_shows_it_is_missing() {
    test(|cluster| async move {
        let _host = cluster.collector().await;
        cluster.sim.disturb(
            &Match::new("watch", "replicationcontrollers"),
            WatchFault::Silence,
        );
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        sleep(Duration::from_secs(3)).await;
        assert!(cluster.is_there(&dependent));
        cluster.delete(&owner, "Background");
        // Long before the host ends the silent watch.
        sleep(Duration::from_secs(20)).await;
        assert!(!cluster.is_there(&dependent));
    });
}

/// Objects from before the start of the host are reconciled like later ones, although
/// there was no event.
#[test]
fn orphans_from_before_the_start_are_deleted() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        let held_owner = cluster.create(rc("held"));
        let blocker = cluster.create(owned(pod("blocker"), &[blocking(&held_owner)]));
        let let_go = cluster.create(rc("let-go"));
        let orphan = cluster.create(owned(pod("orphan"), &[blocking(&let_go)]));
        cluster.delete(&owner, "Background");
        cluster.delete(&held_owner, "Foreground");
        cluster.delete(&let_go, "Orphan");
        let _host = cluster.collector().await;
        cluster
            .until_gone(&[&dependent, &blocker, &held_owner, &let_go])
            .await;
        cluster.stay(&[&orphan]).await;
        assert_eq!(cluster.owners(&orphan), [] as [Value; 0]);
    });
}

/// A name that was reused is another owner.
#[test]
fn a_dependent_of_a_former_owner_of_the_same_name_is_deleted() {
    test(|cluster| async move {
        let former = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&former)]));
        cluster.delete(&former, "Background");
        let owner = cluster.create(rc("owner"));
        let its_own = cluster.create(owned(pod("its-own"), &[reference(&owner)]));
        assert_ne!(uid(&former), uid(&owner));
        let _host = cluster.collector().await;
        cluster.until_gone(&[&dependent]).await;
        cluster.stay(&[&owner, &its_own]).await;
    });
}

/// In the mode `DryRun` nothing is written, and nothing is retried forever.
#[test]
fn a_dry_run_writes_nothing_and_comes_to_rest() {
    test(|cluster| async move {
        let garbage = cluster.create(owned(pod("garbage"), &[to_nowhere("v1", "Pod")]));
        let let_go = cluster.create(rc("let-go"));
        let orphan = cluster.create(owned(pod("orphan"), &[reference(&let_go)]));
        cluster.delete(&let_go, "Orphan");
        let mut host = cluster.collector_with("DryRun", "{}").await;
        sleep(Duration::from_mins(1)).await;
        assert!(cluster.is_there(&garbage) && cluster.is_there(&let_go));
        assert_eq!(cluster.owners(&orphan), [reference(&let_go)]);
        let shown: Vec<String> = host
            .work_reports()
            .into_iter()
            .filter_map(|report| match report {
                davit::host::Report::Ruled { plan, .. } => Some(plan.target.name.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(BTreeSet::from_iter(&shown).len(), 2);
        assert!(shown.len() < 10, "{shown:?}");
    });
}
