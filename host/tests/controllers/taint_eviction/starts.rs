//! Each taint has its own start.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, WatchFault};
use jiff::{Span, Timestamp};
use serde_json::json;
use tokio::time::sleep;

use super::cluster::{
    assert_left, messages, pod, set_tolerations, taint, taint_eviction, toleration,
};
use crate::bench::{Bench, RunningHost, in_real_time_since, on_the_sim};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A node, and a pod on it that tolerates a taint of each key for this many seconds.
async fn pod_on_a_node(bench: &mut Bench, tolerated: &[(&str, i64)]) -> String {
    let node = bench.node("a").await;
    let tolerations = tolerated.iter();
    let tolerations = tolerations.map(|(key, seconds)| toleration(key, Some(*seconds)));
    pod(bench, "pod", &node, &tolerations.collect::<Vec<_>>()).await;
    node
}

/// A host that enforces this policy.
async fn host_with(bench: &Bench, policy: &str) -> RunningHost {
    let config = format!("{{reschedule: {policy}}}");
    bench.host(&taint_eviction("Enforce", &config)).await
}

/// The pod exists until then, to the second.
async fn leaves_after(bench: &mut Bench, seconds: u64) {
    sleep(Duration::from_millis(seconds * 1_000 - 500)).await;
    assert_left(&bench.pods().await, &["pod"]);
    sleep(Duration::from_secs(1)).await;
    assert_left(&bench.pods().await, &[]);
}

/// While no taint is removed, the policies agree with Kubernetes that an added taint
/// ends no pod's time before its own seconds have passed.
#[test]
fn a_later_taint_counts_from_when_it_was_added() {
    for (policy, after) in [("shorten-only", 15), ("recompute", 15), ("keep", 30)] {
        on_the_sim(|mut bench| async move {
            let node = pod_on_a_node(&mut bench, &[("a", 60), ("b", 15)]).await;
            let _host = host_with(&bench, policy).await;
            taint(&bench, &node, &["a"]).await;
            sleep(Duration::from_secs(30)).await;
            taint(&bench, &node, &["a", "b"]).await;
            leaves_after(&mut bench, after).await;
        });
    }
}

/// A node that is first not ready and then unreachable: 300 s and 60 s.
#[test]
fn pods_of_an_unreachable_node_stay_for_their_toleration() {
    for policy in ["shorten-only", "recompute", "keep"] {
        on_the_sim(|mut bench| async move {
            let tolerated = [(NOT_READY, 300), (UNREACHABLE, 60)];
            let node = pod_on_a_node(&mut bench, &tolerated).await;
            let _host = host_with(&bench, policy).await;
            taint(&bench, &node, &[NOT_READY]).await;
            sleep(Duration::from_secs(100)).await;
            taint(&bench, &node, &[UNREACHABLE]).await;
            leaves_after(&mut bench, 60).await;
        });
    }
}

/// Under every policy, the remaining taints decide.
#[test]
fn a_removed_taint_no_longer_limits_a_pods_time() {
    for policy in ["shorten-only", "recompute", "keep"] {
        on_the_sim(|mut bench| async move {
            let node = pod_on_a_node(&mut bench, &[("a", 60), ("b", 15)]).await;
            let _host = host_with(&bench, policy).await;
            taint(&bench, &node, &["a"]).await;
            sleep(Duration::from_secs(30)).await;
            taint(&bench, &node, &["a", "b"]).await;
            sleep(Duration::from_secs(10)).await;
            taint(&bench, &node, &["a"]).await;
            leaves_after(&mut bench, 20).await;
            // A later time has an event. If the first one is kept, there is none.
            let namespace = &bench.namespace;
            let mut expected = vec![format!("Marking for deletion Pod {namespace}/pod")];
            if policy != "keep" {
                expected.insert(0, format!("Cancelling deletion of Pod {namespace}/pod"));
            }
            let found = bench.events(expected.len()).await;
            assert_eq!(messages(&found), expected, "{policy}");
        });
    }
}

/// The watch does not deliver this, but a live read at the end of the time finds it.
#[test]
fn a_taint_that_was_removed_unseen_no_longer_limits_a_pods_time() {
    on_the_sim(|mut bench| async move {
        let node = pod_on_a_node(&mut bench, &[("a", 60), ("b", 15)]).await;
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &["a", "b"]).await;
        sleep(Duration::from_secs(5)).await;
        bench
            .sim()
            .disturb(&Match::new("watch", "nodes"), WatchFault::Silence);
        taint(&bench, &node, &["a"]).await;
        leaves_after(&mut bench, 55).await;
    });
}

#[test]
fn a_taint_that_is_added_again_starts_again() {
    on_the_sim(|mut bench| async move {
        let node = pod_on_a_node(&mut bench, &[("a", 60), ("b", 15)]).await;
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        for taints in [&["a", "b"][..], &["a"], &["a", "b"]] {
            taint(&bench, &node, taints).await;
            sleep(Duration::from_secs(10)).await;
        }
        leaves_after(&mut bench, 5).await;
    });
}

/// A taint keeps its start across a swap.
#[test]
fn a_swap_keeps_the_starts_of_taints() {
    on_the_sim(|mut bench| async move {
        let node = pod_on_a_node(&mut bench, &[("a", 60), ("b", 40)]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &["a"]).await;
        sleep(Duration::from_secs(15)).await;
        taint(&bench, &node, &["a", "b"]).await;
        sleep(Duration::from_secs(15)).await;
        host.apply(&taint_eviction("Enforce", "{reschedule: recompute}"))
            .await;
        sleep(Duration::from_secs(5)).await;
        // From the start of its taint, which was 20 s ago.
        set_tolerations(
            &bench,
            "pod",
            &[toleration("a", Some(60)), toleration("b", Some(30))],
        )
        .await;
        leaves_after(&mut bench, 10).await;
    });
}

/// The node that has the name now has been tainted for 5 s.
#[test]
fn a_node_created_again_under_its_name_has_starts_of_its_own() {
    on_the_sim(|mut bench| async move {
        let node = pod_on_a_node(&mut bench, &[("a", 30)]).await;
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &["a"]).await;
        sleep(Duration::from_secs(20)).await;
        let again = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node},
            "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]},
        });
        bench.delete_node(&node).await;
        bench.sim().create(again).unwrap();
        leaves_after(&mut bench, 30).await;
    });
}

/// The call that decides about a new pod waits for the live read of another pod's node
/// while the taint of its own node is removed. The timer that it starts then must not
/// count when the taint returns.
#[test]
fn a_taint_that_was_away_during_a_slow_call_starts_again() {
    on_the_sim(|mut bench| async move {
        let (node, slow) = (bench.node("a").await, bench.node("b").await);
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &["a"]).await;
        taint(&bench, &slow, &["b"]).await;
        sleep(Duration::from_secs(2)).await;
        bench.sim().add_fault(Fault {
            matches: Match {
                name: slow.clone(),
                ..Match::new("get", "nodes")
            },
            when: FaultTiming::First(1),
            action: Action::Delay(Duration::from_secs(20)),
        });
        // Both pods come in one list, and so in one call.
        bench
            .sim()
            .disturb(&Match::new("watch", "pods"), WatchFault::Expire);
        pod(&bench, "pod", &node, &[toleration("a", Some(60))]).await;
        pod(&bench, "other", &slow, &[]).await;
        sleep(Duration::from_secs(10)).await;
        taint(&bench, &node, &[]).await;
        sleep(Duration::from_secs(20)).await;
        assert_left(&bench.pods().await, &["pod"]);
        taint(&bench, &node, &["a"]).await;
        leaves_after(&mut bench, 60).await;
    });
}

/// If configured, a time counts from `timeAdded`, also across a restart of the host.
/// Its wall clock is the machine's, so the times here are too.
#[test]
fn with_count_from_time_added_a_restart_keeps_the_start() {
    let begun = Timestamp::now();
    let long_ago = begun - Span::new().hours(1);
    in_real_time_since(long_ago, |mut bench| async move {
        let node = pod_on_a_node(&mut bench, &[("a", 15)]).await;
        let added = begun - Span::new().seconds(8);
        let taint = json!({
            "key": "a", "effect": "NoExecute",
            "timeAdded": added.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
        let patch = json!({"spec": {"taints": [taint]}});
        let path = format!("/api/v1/nodes/{node}");
        bench.must("PATCH", &path, &patch).await;
        let config = taint_eviction("Enforce", "{countFrom: TimeAdded}");
        let first = bench.host(&config).await;
        sleep(Duration::from_secs(3)).await;
        first.host.stop().await;
        let _second = bench.host(&config).await;
        while Timestamp::now() < begun + Span::new().milliseconds(6_500) {
            assert_left(&bench.pods().await, &["pod"]);
            sleep(Duration::from_millis(200)).await;
        }
        // Counted from the second host's first observation, it would be 18 s.
        bench.until_left(&[]).await;
        assert!(Timestamp::now() < begun + Span::new().seconds(16));
    });
}
