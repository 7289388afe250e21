//! Many faults at once: the cluster ends up in the right state.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};
use davit_sim::{Rng, Sim};
use tokio::time::sleep;

use super::cluster::{
    KEY, assert_left, disruption_target, messages, pod, taint, taint_eviction, toleration,
};
use crate::bench::{Bench, WATCH_FAULTS, accepted_deletions, break_requests, on_the_sim, text};

/// Lets these writes fail in every way.
fn failing_writes(sim: &Sim, verbs: &[(&str, &str)]) {
    for (verb, subresource) in verbs {
        let matches = Match {
            subresource: (*subresource).to_owned(),
            ..Match::new(verb, "pods")
        };
        break_requests(sim, &matches);
    }
}

fn disturb_watches(sim: &Sim, fault: WatchFault) {
    for resource in ["pods", "nodes"] {
        sim.disturb(&Match::new("watch", resource), fault);
    }
}

/// Watches are cut, expired, silent and starved of bookmarks, and writes fail in every
/// way, while nodes get taints, lose them and are deleted.
#[test]
fn whatever_fails_tainted_pods_are_evicted_and_no_others() {
    for (seed, deletion) in [(1, "delete"), (2, "delete"), (3, "evict")] {
        on_the_sim(|bench| run(bench, seed, deletion));
    }
}

async fn run(mut bench: Bench, seed: u64, deletion: &str) {
    let mut rng = Rng::new(seed);
    let skipped = usize::try_from(seed).unwrap();
    let (mut leave, mut stay) = (BTreeSet::new(), BTreeSet::new());
    let mut tainted = Vec::new();
    for number in 0..6 {
        let node = bench.node(&format!("n-{number}")).await;
        for (kind, tolerations) in [
            ("none", vec![]),
            ("other", vec![toleration("another", None)]),
            ("short", vec![toleration(KEY, Some(5))]),
        ] {
            leave.insert(pod(&bench, &format!("{kind}-{number}"), &node, &tolerations).await);
        }
        let forever = [toleration(KEY, None)];
        stay.insert(pod(&bench, &format!("ever-{number}"), &node, &forever).await);
        tainted.push(node);
    }
    // Longer than any fault lasts: these pods stay.
    let mut relieved = Vec::new();
    for number in 0..4 {
        let node = bench.node(&format!("r-{number}")).await;
        for long in 0..5 {
            let tolerations = [toleration(KEY, Some(600))];
            let name = format!("long-{number}-{long}");
            stay.insert(pod(&bench, &name, &node, &tolerations).await);
        }
        relieved.push(node);
    }
    stay.insert(pod(&bench, "unbound", "", &[]).await);
    failing_writes(
        bench.sim(),
        &[("patch", "status"), ("delete", ""), ("create", "eviction")],
    );
    break_requests(bench.sim(), &Match::new("get", "nodes"));
    let config = format!("{{deletion: {deletion}}}");
    let host = bench.host(&taint_eviction("Enforce", &config)).await;
    for node in &relieved {
        taint(&bench, node, &[KEY]).await;
    }
    for (node, fault) in tainted
        .iter()
        .zip(WATCH_FAULTS.iter().cycle().skip(skipped))
    {
        disturb_watches(bench.sim(), *fault);
        taint(&bench, node, &[KEY]).await;
        sleep(Duration::from_millis(500 + rng.next_u64() % 4000)).await;
    }
    for (number, node) in relieved.iter().enumerate() {
        if number % 2 == 0 {
            taint(&bench, node, &[]).await;
        } else {
            bench.delete_node(node).await;
        }
    }
    disturb_watches(bench.sim(), WatchFault::Expire);
    // The host detects idle streams after a minute and a half.
    sleep(Duration::from_secs(150)).await;
    bench.sim().heal_all();
    sleep(Duration::from_secs(1000)).await;

    let sim = bench.sim();
    let pods = sim.list("v1", "Pod", &bench.namespace).unwrap();
    let left: BTreeSet<String> = pods.iter().map(|pod| text(pod, "/metadata/uid")).collect();
    assert_eq!(left, stay, "seed {seed}");
    for uid in &leave {
        assert_eq!(accepted_deletions(sim, uid), 1, "seed {seed}: {uid}");
    }
    for uid in &stay {
        assert_eq!(accepted_deletions(sim, uid), 0, "seed {seed}: {uid}");
    }
    for pod in &pods {
        assert_eq!(disruption_target(pod), None, "seed {seed}");
    }
    host.host.stop().await;
}

/// The watch of nodes is silent, the taint is gone, and new pods appear, or tolerations
/// end: the cache alone would evict them.
#[test]
fn a_taint_that_only_the_cache_shows_evicts_no_pod() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "early", &node, &[toleration(KEY, Some(20))]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(1)).await;
        bench
            .sim()
            .disturb(&Match::new("watch", "nodes"), WatchFault::Silence);
        taint(&bench, &node, &[]).await;
        pod(&bench, "late", &node, &[]).await;
        // Far below the time after which the host ends an idle watch.
        sleep(Duration::from_secs(40)).await;
        assert_left(&bench.pods().await, &["early", "late"]);
        assert_eq!(bench.sim().count(&Match::new("patch", "pods")), 0);
        // And far above.
        sleep(Duration::from_secs(300)).await;
        assert_left(&bench.pods().await, &["early", "late"]);
        let before = bench.sim().count(&Match::new("get", "nodes"));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(bench.sim().count(&Match::new("get", "nodes")), before);
        host.host.stop().await;
    });
}

/// Kubernetes drops the eviction after five attempts, until something changes.
#[test]
fn an_eviction_that_fails_is_retried() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[]).await;
        let closed = bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::Always,
            action: Action::Refuse(Refusal::InternalError),
        });
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(600)).await;
        let sim = bench.sim();
        let tries = sim.count(&Match::new("delete", "pods"));
        assert!((15..60).contains(&tries), "{tries} tries in ten minutes");
        // It is marked once, with one event.
        assert_eq!(sim.count(&Match::new("patch", "pods")), 1);
        sim.heal(closed);
        bench.until_left(&[]).await;
        assert_eq!(bench.events(1).await.len(), 1);
        let latency = "taint_eviction_controller_pod_deletion_duration_seconds_sum";
        let latency = host.metric(&format!("{latency}{{controller=\"taint-eviction\"}}"));
        assert!((600.0..640.0).contains(&latency), "{latency} s");
    });
}

/// A failing eviction is cancelled when the taint is removed.
#[test]
fn an_eviction_that_fails_can_be_cancelled() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[]).await;
        bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::Always,
            action: Action::CloseBefore,
        });
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(60)).await;
        taint(&bench, &node, &[]).await;
        sleep(Duration::from_secs(1)).await;
        bench.sim().heal_all();
        sleep(Duration::from_secs(300)).await;
        assert_left(&bench.pods().await, &["pod"]);
        let namespace = &bench.namespace;
        assert_eq!(
            messages(&bench.events(2).await),
            [
                format!("Cancelling deletion of Pod {namespace}/pod"),
                format!("Marking for deletion Pod {namespace}/pod"),
            ]
        );
    });
}

/// The next host continues the work of the first one, and the tolerations start again
/// (E10).
#[test]
fn the_next_host_finishes_what_the_first_left() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "now", &node, &[]).await;
        pod(&bench, "later", &node, &[toleration(KEY, Some(60))]).await;
        let closed = bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::Always,
            action: Action::CloseBefore,
        });
        let config = taint_eviction("Enforce", "{}");
        let first = bench.host(&config).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(30)).await;
        first.host.stop().await;
        bench.sim().heal(closed);
        let _second = bench.host(&config).await;
        bench.until_left(&["later"]).await;
        sleep(Duration::from_secs(55)).await;
        bench.until_left(&["later"]).await;
        bench.until_left(&[]).await;
    });
}
