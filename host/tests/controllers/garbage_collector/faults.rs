//! Whatever fails: in the end every object that lost its owners is gone, deleted once,
//! and no other.

use std::time::Duration;

use davit_sim::Rng;
use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{
    Cluster, blocking, config_map, definition, held, object, owned, pod, rc, reference, test,
};
use crate::bench::{FAILURES, WATCH_FAULTS};
use crate::objects::SETTLED;

const RESOURCES: [&str; 4] = ["pods", "replicationcontrollers", "configmaps", "foos"];

/// Lets reads and writes fail in every way, each with some probability.
fn break_requests(cluster: &Cluster) {
    let slow = Action::Delay(Duration::from_secs(2));
    let actions: Vec<Action> = FAILURES.into_iter().chain([slow]).collect();
    for verb in ["get", "delete", "patch"] {
        for resource in RESOURCES {
            for action in &actions {
                // 409 is not an answer to a read.
                if verb == "get" && *action == Action::Refuse(Refusal::Conflict) {
                    continue;
                }
                cluster.sim.add_fault(Fault {
                    matches: Match::new(verb, resource),
                    when: FaultTiming::Chance(0.05),
                    action: action.clone(),
                });
            }
        }
    }
}

/// An owner with its dependents, and their expected fate.
struct Family {
    owner: Value,
    dependents: Vec<Value>,
    fate: &'static str,
}

fn family(cluster: &Cluster, number: usize, fate: &'static str) -> Family {
    let owner = match number % 3 {
        0 => cluster.create(rc(&format!("owner-{number}"))),
        1 => cluster.create(config_map(&format!("owner-{number}"))),
        _ => cluster.create(object(
            "example.com/v1",
            "Foo",
            "default",
            &format!("owner-{number}"),
        )),
    };
    let mut dependents = Vec::new();
    for child in 0..4 {
        let name = format!("child-{number}-{child}");
        let child = match child {
            0 => owned(
                object("example.com/v1", "Foo", "default", &name),
                &[blocking(&owner)],
            ),
            _ => owned(pod(&name), &[blocking(&owner)]),
        };
        let child = cluster.create(child);
        let below = owned(config_map(&format!("{name}-below")), &[reference(&child)]);
        dependents.push(cluster.create(below));
        dependents.push(child);
    }
    Family {
        owner,
        dependents,
        fate,
    }
}

async fn run(cluster: Cluster, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut below = |limit: usize| usize::try_from(rng.next_u64()).unwrap() % limit;
    cluster.create(definition("Foo", &["v1"], "Namespaced"));
    let fates = ["Background", "Foreground", "Orphan", "stays"];
    let families: Vec<Family> = (0..24)
        .map(|number| family(&cluster, number, fates[number % fates.len()]))
        .collect();
    let haven = cluster.create(rc("haven"));
    let shared: Vec<Value> = families
        .iter()
        .enumerate()
        .map(|(number, family)| {
            let owners = [blocking(&family.owner), reference(&haven)];
            cluster.create(owned(pod(&format!("shared-{number}")), &owners))
        })
        .collect();
    break_requests(&cluster);
    let host = cluster.collector().await;
    for family in &families {
        let fault = WATCH_FAULTS[below(WATCH_FAULTS.len())];
        let resource = RESOURCES[below(RESOURCES.len())];
        cluster.sim.disturb(&Match::new("watch", resource), fault);
        if family.fate != "stays" {
            cluster.delete(&family.owner, family.fate);
        }
        sleep(Duration::from_millis(below(2_000) as u64)).await;
    }
    // The host detects idle streams after a minute and a half, and retries failures
    // after a back-off.
    sleep(Duration::from_mins(5)).await;
    cluster.sim.heal_all();
    sleep(Duration::from_mins(7)).await;
    for family in &families {
        let lives = family.fate == "stays";
        assert_eq!(cluster.is_there(&family.owner), lives, "seed {seed}");
        for dependent in &family.dependents {
            let stays = lives || family.fate == "Orphan";
            let was_deleted = cluster.deletions(dependent);
            assert_eq!(
                cluster.is_there(dependent),
                stays,
                "seed {seed}: {dependent}"
            );
            assert_eq!(was_deleted, usize::from(!stays), "seed {seed}: {dependent}");
        }
    }
    for (pod, family) in shared.iter().zip(&families) {
        let mut owners = vec![blocking(&family.owner), reference(&haven)];
        if family.fate != "stays" {
            owners.remove(0);
        }
        assert_eq!(cluster.owners(pod), owners, "seed {seed}: {pod}");
    }
    host.host.stop().await;
}

#[test]
fn whatever_fails_garbage_is_deleted_once_and_nothing_else() {
    for seed in [1, 2, 3] {
        test(|cluster| run(cluster, seed));
    }
}

/// A failed read proves nothing about an owner.
#[test]
fn an_owner_that_cannot_be_read_is_not_absent() {
    for refusal in [
        Refusal::InternalError,
        Refusal::Unavailable,
        Refusal::TooManyRequests(1),
    ] {
        test(|cluster| async move {
            let owner = cluster.create(rc("owner"));
            let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
            let broken = cluster.refuse(Match::new("get", "replicationcontrollers"), refusal);
            let _host = cluster.collector().await;
            cluster.delete(&owner, "Background");
            sleep(Duration::from_mins(2)).await;
            assert!(cluster.is_there(&dependent));
            let reads = cluster
                .sim
                .count(&Match::new("get", "replicationcontrollers"));
            assert!((3..200).contains(&reads), "{reads} reads in two minutes");
            cluster.sim.heal(broken);
            sleep(Duration::from_mins(3)).await;
            assert!(!cluster.is_there(&dependent));
        });
    }
}

/// The cache lags behind the deletions when the owner is reconciled again.
#[test]
fn a_cache_that_lags_deletes_nothing_twice() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let pods: Vec<Value> = (0..20)
            .map(|number| cluster.create(owned(pod(&format!("p-{number}")), &[blocking(&owner)])))
            .collect();
        let _host = cluster.collector().await;
        let pods_watch = Match::new("watch", "pods");
        cluster
            .sim
            .disturb(&pods_watch, WatchFault::Delay(Duration::from_secs(10)));
        cluster.sim.clear_log();
        cluster.delete(&owner, "Foreground");
        cluster.until_gone(&pods.iter().collect::<Vec<_>>()).await;
        cluster.set(&owner, &json!({"labels": {"touched": "true"}}));
        cluster.until_gone(&[&owner]).await;
        sleep(SETTLED).await;
        assert_eq!(cluster.sim.count(&Match::new("delete", "pods")), pods.len());
    });
}

/// A silent connection proves nothing.
#[test]
fn the_host_waits_for_an_unreachable_api_server() {
    test(|cluster| async move {
        let owner = cluster.create(rc("owner"));
        let dependent = cluster.create(owned(pod("dependent"), &[reference(&owner)]));
        let _host = cluster.collector().await;
        let away = cluster.sim.add_fault(Fault {
            matches: Match::default(),
            when: FaultTiming::Always,
            action: Action::CloseBefore,
        });
        for resource in RESOURCES {
            cluster
                .sim
                .disturb(&Match::new("watch", resource), WatchFault::Abort);
        }
        cluster.delete(&owner, "Background");
        sleep(Duration::from_mins(2)).await;
        assert!(cluster.is_there(&dependent));
        cluster.sim.heal(away);
        cluster.until_gone(&[&dependent]).await;
        assert_eq!(cluster.deletions(&dependent), 1);
    });
}

/// A deletion in the foreground is undone while the owner's watch is stuck: in the
/// cache, the owner waits all the while.
#[test]
fn an_owner_that_was_rescued_behind_a_stuck_watch_keeps_its_dependents() {
    test(|cluster| async move {
        let owner = cluster.create(held(rc("owner")));
        let blocker = cluster.create(held(owned(pod("blocker"), &[blocking(&owner)])));
        let _host = cluster.collector().await;
        cluster.delete(&owner, "Foreground");
        sleep(SETTLED).await;
        cluster.sim.disturb(
            &Match::new("watch", "replicationcontrollers"),
            WatchFault::Silence,
        );
        let rescued = cluster.set(&owner, &json!({"finalizers": ["example.com/hold"]}));
        assert_eq!(
            rescued["metadata"]["finalizers"],
            json!(["example.com/hold"])
        );
        let late = cluster.create(owned(pod("late"), &[blocking(&owner)]));
        cluster.stay(&[&late]).await;
        assert!(cluster.is_there(&blocker) && cluster.is_there(&owner));
    });
}
