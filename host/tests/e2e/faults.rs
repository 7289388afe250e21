//! Many faults at once: the cluster ends up in the right state.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::model::DeleteOptions;
use davit_sim::{Rng, Sim};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, WATCH_FAULTS, accepted_deletions, break_requests, on_the_sim, podgc};

const CONFIG: &str = "{terminatedPodThreshold: 0, period: 2s, quarantine: 4s}";

/// Disturbs every open watch; returns how many there were.
fn disturb_watches(sim: &Sim, fault: WatchFault) -> usize {
    let resources = ["pods", "nodes"];
    let disturb = |resource| sim.disturb(&Match::new("watch", resource), fault);
    resources.into_iter().map(disturb).sum()
}

/// The uids of all pods.
fn uids(sim: &Sim) -> BTreeSet<String> {
    let pods = sim.list("v1", "Pod", "").unwrap();
    let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap().to_owned();
    pods.iter().map(uid).collect()
}

/// A watch is cut, expired, silent and starved of bookmarks, and writes fail in every
/// way, while nodes disappear and pods are created again under their names.
#[test]
fn whatever_fails_orphans_are_deleted_and_nothing_else() {
    for seed in 1..=3 {
        on_the_sim(|bench| run(bench, seed));
    }
}

async fn run(mut bench: Bench, seed: u32) {
    let mut rng = Rng::new(u64::from(seed));
    let live = bench.node("live").await;
    let mut doomed = Vec::new();
    for number in 0..5 {
        let node = bench.node(&format!("doomed-{number}")).await;
        for pod in 0..10 {
            let phase =
                ["Running", "Pending", "Succeeded", "Failed"][(rng.next_u64() % 4) as usize];
            bench.pod(&format!("d-{number}-{pod}"), &node, phase).await;
        }
        doomed.push(node);
    }
    for pod in 0..20 {
        bench.pod(&format!("live-{pod}"), &live, "Running").await;
    }
    bench.pod("unbound", "", "Pending").await;
    for verb in ["patch", "delete"] {
        break_requests(bench.sim(), &Match::new(verb, "pods"));
    }
    let host = bench.host(&podgc("Enforce", CONFIG)).await;
    let everything: BTreeSet<String> = uids(bench.sim());
    let mut spared = BTreeSet::new();
    for (node, fault) in doomed.iter().zip(
        WATCH_FAULTS
            .iter()
            .cycle()
            .skip(seed as usize % WATCH_FAULTS.len()),
    ) {
        disturb_watches(bench.sim(), *fault);
        bench.delete_node(node).await;
        sleep(Duration::from_millis(500 + rng.next_u64() % 4000)).await;
        // A workload's controller creates a pod again under its name, on an existing
        // node.
        let gone: Vec<String> = (0..5)
            .flat_map(|number| (0..10).map(move |pod| format!("d-{number}-{pod}")))
            .filter(|name| {
                bench
                    .sim()
                    .get("v1", "Pod", &bench.namespace, name)
                    .is_err()
            })
            .collect();
        for name in gone.iter().take(2) {
            spared.insert(bench.pod(name, &live, "Running").await);
        }
    }
    disturb_watches(bench.sim(), WatchFault::Expire);
    // The host detects idle streams after a minute and a half.
    sleep(Duration::from_secs(150)).await;
    bench.sim().heal_all();
    sleep(Duration::from_secs(30)).await;

    let sim = bench.sim();
    let left = uids(sim);
    for pod in sim.list("v1", "Pod", "").unwrap() {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        assert!(
            !doomed.iter().any(|gone| gone == node),
            "seed {seed}: {pod}"
        );
    }
    assert!(spared.is_subset(&left), "seed {seed}");
    assert_eq!(left.len(), 20 + 1 + spared.len(), "seed {seed}");
    for uid in everything.difference(&left) {
        assert_eq!(
            accepted_deletions(sim, uid),
            1,
            "seed {seed}: {uid} deleted twice"
        );
    }
    for uid in &left {
        assert_eq!(accepted_deletions(sim, uid), 0, "seed {seed}");
    }
    host.host.stop().await;
}

/// While the API server does not answer, nothing is lost and nothing is written.
#[test]
fn the_host_waits_for_an_unreachable_api_server() {
    on_the_sim(|bench| async move {
        bench.pod("orphan", "missing", "Running").await;
        let away = bench.sim().add_fault(Fault {
            matches: Match::default(),
            when: FaultTiming::Always,
            action: Action::CloseBefore,
        });
        let mut host = bench.host_without_controllers();
        host.apply(&podgc("Enforce", CONFIG)).await;
        sleep(Duration::from_secs(60)).await;
        assert!(host.work_reports().is_empty());
        bench.sim().heal(away);
        bench.until_left(&[]).await;
        assert!(host.health.is_ready(), "{:?}", host.health);

        // Once the host runs, an unreachable API server affects readiness, not
        // liveness.
        let away = bench.sim().add_fault(Fault {
            matches: Match::default(),
            when: FaultTiming::Always,
            action: Action::CloseBefore,
        });
        disturb_watches(bench.sim(), WatchFault::Abort);
        sleep(Duration::from_secs(5)).await;
        assert!(host.health.is_ready(), "{:?}", host.health);
        sleep(Duration::from_secs(25)).await;
        let why = host.health.not_ready().concat();
        assert!(
            why.starts_with("the API server has not answered for "),
            "{why}"
        );
        assert!(why.contains(" s: GET /api"), "{why}");
        assert!(host.health.is_live());
        bench.sim().heal(away);
        sleep(Duration::from_secs(60)).await;
        assert!(host.health.is_ready(), "{:?}", host.health);
    });
}

/// The cache has not observed the deletion at the next pass.
#[test]
fn a_cache_that_lags_deletes_nothing_twice() {
    on_the_sim(|bench| async move {
        let config = "{terminatedPodThreshold: 1, period: 1s}";
        for number in 0..5 {
            bench.pod(&format!("p-{number}"), "", "Succeeded").await;
        }
        let host = bench.host(&podgc("Disabled", config)).await;
        let late = WatchFault::Delay(Duration::from_secs(10));
        assert_eq!(disturb_watches(bench.sim(), late), 2);
        host.apply(&podgc("Enforce", config)).await;
        sleep(Duration::from_secs(8)).await;
        let deletions = Match::new("delete", "pods");
        assert_eq!(bench.sim().count(&deletions), 4);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(bench.sim().count(&deletions), 4);
        bench.until_left(&["p-4"]).await;
    });
}

#[test]
fn a_write_that_fails_is_retried_with_back_off() {
    on_the_sim(|bench| async move {
        bench.pod("orphan", "missing", "Failed").await;
        let closed = bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::Always,
            action: Action::Refuse(Refusal::InternalError),
        });
        let _host = bench.host(&podgc("Enforce", CONFIG)).await;
        sleep(Duration::from_secs(120)).await;
        let tries = bench.sim().count(&Match::new("delete", "pods"));
        assert!((5..60).contains(&tries), "{tries} tries in two minutes");
        bench.sim().heal(closed);
        bench.until_left(&[]).await;
        let options = DeleteOptions::default();
        let again = bench
            .sim()
            .delete("v1", "Pod", &bench.namespace, "orphan", &options);
        assert!(again.is_err());
    });
}

/// An aggregated API server is overloaded, and asks for half a minute at each request.
/// Only requests for its own objects wait.
#[test]
fn a_pause_of_one_api_group_delays_no_other() {
    on_the_sim(|mut bench| async move {
        let live = bench.node("live").await;
        let owner = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "owner", "namespace": bench.namespace},
        });
        let owner = bench.sim().create(owner).unwrap();
        let reference = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
            "uid": owner["metadata"]["uid"],
        }]);
        for number in 0..100 {
            let metadata = json!({
                "name": format!("d-{number}"), "namespace": bench.namespace,
                "ownerReferences": reference,
            });
            let deployment = json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {
                    "selector": {"matchLabels": {"app": "a"}},
                    "template": {
                        "metadata": {"labels": {"app": "a"}},
                        "spec": {"containers": [{"name": "main", "image": "example.com/main"}]},
                    },
                },
            });
            bench.sim().create(deployment).unwrap();
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            bench.sim().create(map).unwrap();
        }
        bench.pod("done", &live, "Running").await;
        let refused = |verb| {
            bench.sim().add_fault(Fault {
                matches: Match::new(verb, "deployments"),
                when: FaultTiming::Always,
                action: Action::Refuse(Refusal::TooManyRequests(30)),
            })
        };
        let refused = ["get", "patch", "delete"].map(refused);
        let both = podgc(
            "Enforce",
            "{terminatedPodThreshold: 1, period: 1s, quarantine: 1s}",
        ) + "- {name: gc, module: {builtin: garbage-collector}, mode: Enforce}\n";
        let mut host = bench.host(&both).await;
        host.started().await;
        sleep(Duration::from_secs(5)).await;
        let left = |kind| bench.sim().list(kind_of(kind), kind, "").unwrap().len();

        let options = DeleteOptions::default();
        let namespace = &bench.namespace;
        let gone = bench
            .sim()
            .delete("v1", "ConfigMap", namespace, "owner", &options);
        gone.unwrap();
        let begun = Instant::now();
        while left("ConfigMap") > 0 {
            sleep(Duration::from_millis(10)).await;
            assert!(
                begun.elapsed() < Duration::from_secs(2),
                "they wait for the other group"
            );
        }
        // In the middle of the pause, for both controllers.
        sleep(Duration::from_secs(5)).await;
        bench.pod("orphan", "missing", "Failed").await;
        sleep(Duration::from_secs(4)).await;
        assert_eq!(bench.pods().await, BTreeSet::from(["done".to_owned()]));
        assert_eq!(left("Deployment"), 100);
        // Each request was sent once in a pause, not six times: some at the same
        // moment, and the reads of a few calls.
        let requests: usize = ["get", "patch", "delete"]
            .map(|verb| bench.sim().count(&Match::new(verb, "deployments")))
            .iter()
            .sum();
        assert!(
            (1..=200).contains(&requests),
            "{requests} requests in a pause"
        );
        for fault in refused {
            bench.sim().heal(fault);
        }
        sleep(Duration::from_secs(60)).await;
        assert_eq!(left("Deployment"), 0);
        host.host.stop().await;
    });
}

fn kind_of(kind: &str) -> &'static str {
    if kind == "Deployment" {
        "apps/v1"
    } else {
        "v1"
    }
}
