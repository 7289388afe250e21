//! A node with more pods than fit into one answer of the guest.

use std::time::Duration;

use davit_sim::fault::Match;
use serde_json::Value;
use tokio::time::sleep;

use super::cluster::{KEY, pod, taint, taint_eviction, toleration, until_resynced};
use crate::bench::journals::{MANY_READS, explain_skips};
use crate::bench::{Bench, on_the_sim};

/// With two commands for each: more than the host accepts in one decision.
const PODS: usize = 6_000;

async fn many_pods(bench: &Bench, node: &str, seconds: Option<i64>) {
    let tolerations: Vec<Value> = seconds
        .map(|it| toleration(KEY, Some(it)))
        .into_iter()
        .collect();
    for number in 0..PODS {
        pod(bench, &format!("p-{number}"), node, &tolerations).await;
    }
}

fn left(bench: &Bench) -> usize {
    bench
        .sim()
        .list("v1", "Pod", &bench.namespace)
        .unwrap()
        .len()
}

#[test]
fn six_thousand_pods_of_one_node_are_evicted() {
    explain_skips(MANY_READS);
    on_the_sim(|bench| all_leave(bench, None));
}

/// One timer for each pod, which takes two commands to start.
#[test]
fn six_thousand_timers_of_one_node_end() {
    explain_skips(MANY_READS);
    on_the_sim(|bench| all_leave(bench, Some(15)));
}

async fn all_leave(mut bench: Bench, seconds: Option<i64>) {
    let node = bench.node("a").await;
    many_pods(&bench, &node, seconds).await;
    let host = bench.host(&taint_eviction("Enforce", "{}")).await;
    until_resynced().await;
    bench.sim().clear_log();
    taint(&bench, &node, &[KEY]).await;
    // Two writes and an event for each, at the client's 1,000 a second after the first
    // 2,000.
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        if left(&bench) == 0 {
            break;
        }
    }
    assert_eq!(left(&bench), 0);
    let sim = bench.sim();
    assert_eq!(sim.count(&Match::new("delete", "pods")), PODS);
    assert_eq!(sim.count(&Match::new("patch", "pods")), PODS);
    host.assert_every_call_answered();
}

/// A dry run rules on every pod, and comes to rest.
#[test]
fn a_dry_run_of_six_thousand_pods_comes_to_rest() {
    explain_skips(MANY_READS);
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        many_pods(&bench, &node, Some(15)).await;
        let host = bench.host(&taint_eviction("DryRun", "{}")).await;
        until_resynced().await;
        bench.sim().clear_log();
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(60)).await;
        let calls = || {
            host.metric("davit_guest_calls_total{controller=\"taint-eviction\",result=\"ok\",role=\"stable\"}")
        };
        let before = calls();
        assert!(before > 0.5);
        sleep(Duration::from_secs(600)).await;
        assert!((calls() - before).abs() < 0.5, "it continues to decide");
        assert_eq!(bench.sim().count(&Match::new("delete", "pods")), 0);
        assert_eq!(left(&bench), PODS);
        host.assert_every_call_answered();
    });
}
