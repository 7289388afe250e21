//! The guest and the host together.

use std::time::Duration;

use davit_sim::fault::{Action, Fault, FaultTiming, Match, WatchFault};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::cluster::{
    KEY, assert_left, disruption_target, held_pod, is_terminating, messages, pod, set_tolerations,
    taint, taint_eviction, toleration, until_resynced,
};
use crate::bench::{Bench, on_the_sim, text};

/// The golden patch of §1.7, with the uid as a precondition of both writes.
#[test]
fn a_pod_is_marked_and_deleted_under_its_uid() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        let uid = held_pod(&bench, "pod", &node, &[]).await;
        let path = format!("/api/v1/namespaces/{}/pods/pod", bench.namespace);
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        bench.must("PATCH", &format!("{path}/status"), &ready).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        bench.sim().clear_log();
        taint(&bench, &node, &[KEY]).await;
        bench.until_pod("pod", is_terminating).await;
        host.host.stop().await;
        let log = bench.sim().log();
        let of_host = |verb, subresource| {
            log.iter().find(|served| {
                served.work.verb == verb
                    && served.work.resource == "pods"
                    && served.work.subresource == subresource
            })
        };
        let patch = of_host("patch", "status").unwrap();
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        let time = text(&body, "/status/conditions/0/lastTransitionTime");
        assert_ne!(time, "");
        assert_eq!(
            body,
            json!({
                "metadata": {"uid": uid},
                "status": {
                    "$setElementOrder/conditions": [
                        {"type": "Ready"}, {"type": "DisruptionTarget"},
                    ],
                    "conditions": [{
                        "lastProbeTime": null,
                        "lastTransitionTime": time,
                        "message": "Taint manager: deleting due to NoExecute taint",
                        "observedGeneration": 1,
                        "reason": "DeletionByTaintManager",
                        "status": "True",
                        "type": "DisruptionTarget",
                    }],
                },
            })
        );
        let delete = of_host("delete", "").unwrap();
        let body: Value = serde_json::from_slice(&delete.body).unwrap();
        assert_eq!(body["preconditions"], json!({"uid": uid}));
        assert_eq!(body.get("gracePeriodSeconds"), None);
        assert_eq!(body.get("propagationPolicy"), None);
        // Two requests for a pod, and none for known information.
        assert_eq!(of_host("get", "").map(|it| &it.path), Some(&path));
        let reads = Match::new("get", "pods");
        let own = log.iter().filter(|it| reads.matches(&it.work));
        assert!(own.map(|it| &it.path).all(|read| *read == path));
    });
}

/// The number of requests in the design. Every pod costs two requests and every node
/// one, and no pod waits for another node.
#[test]
fn twelve_hundred_pods_on_sixty_nodes_take_two_writes_a_pod_and_one_read_a_node() {
    on_the_sim(|mut bench| async move {
        let mut nodes = Vec::new();
        for number in 0..60 {
            let node = bench.node(&format!("n-{number}")).await;
            for pod_number in 0..20 {
                pod(&bench, &format!("p-{number}-{pod_number}"), &node, &[]).await;
            }
            nodes.push(node);
        }
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        until_resynced().await;
        bench.sim().clear_log();
        for node in &nodes {
            taint(&bench, node, &[KEY]).await;
        }
        // The time is due to the client's rate: two writes and an event for each pod at
        // 1,000 a second after the first 2,000.
        sleep(Duration::from_secs(3)).await;
        bench.until_left(&[]).await;
        let sim = bench.sim();
        assert_eq!(sim.count(&Match::new("patch", "pods")), 1200);
        assert_eq!(sim.count(&Match::new("delete", "pods")), 1200);
        assert_eq!(sim.count(&Match::new("get", "pods")), 0);
        assert_eq!(sim.count(&Match::new("get", "nodes")), 60);
        let deletions =
            "taint_eviction_controller_pod_deletions_total{controller=\"taint-eviction\"}";
        assert!((host.metric(deletions) - 1200.0).abs() < 0.5);
        let latencies = "taint_eviction_controller_pod_deletion_duration_seconds";
        let sum = host.metric(&format!("{latencies}_sum{{controller=\"taint-eviction\"}}"));
        assert!((0.0..3.0 * 1200.0).contains(&sum), "{sum} s in all");
    });
}

/// Timers are the controller's, not the revision's.
#[test]
fn a_swap_keeps_timers() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[toleration(KEY, Some(60))]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(40)).await;
        host.apply(&taint_eviction("Enforce", "{reschedule: recompute}"))
            .await;
        sleep(Duration::from_millis(19_800)).await;
        assert_left(&bench.pods().await, &["pod"]);
        sleep(Duration::from_millis(400)).await;
        assert_left(&bench.pods().await, &[]);
        // No eviction was cancelled in between.
        let events = bench.events(1).await;
        let marked = format!("Marking for deletion Pod {}/pod", bench.namespace);
        assert_eq!(messages(&events), [marked]);
    });
}

/// When a pod leaves whose 30 s change to another time after 10 s.
#[test]
fn a_changed_toleration_counts_from_the_start_of_its_taint() {
    for (policy, lasts, expected, count) in [
        ("keep", 20, 30, 1),
        ("shorten-only", 20, 20, 1),
        ("shorten-only", 90, 30, 1),
        ("recompute", 20, 20, 1),
        ("recompute", 90, 90, 2),
    ] {
        on_the_sim(|mut bench| async move {
            let node = bench.node("a").await;
            pod(&bench, "pod", &node, &[toleration(KEY, Some(30))]).await;
            let config = format!("{{reschedule: {policy}}}");
            let _host = bench.host(&taint_eviction("Enforce", &config)).await;
            taint(&bench, &node, &[KEY]).await;
            sleep(Duration::from_secs(10)).await;
            set_tolerations(&bench, "pod", &[toleration(KEY, Some(lasts))]).await;
            sleep(Duration::from_millis(expected * 1_000 - 10_200)).await;
            assert_left(&bench.pods().await, &["pod"]);
            sleep(Duration::from_millis(400)).await;
            assert_left(&bench.pods().await, &[]);
            let events = bench.events(count).await;
            assert_eq!(events.len(), count, "{policy} {lasts}");
        });
    }
}

/// Longer than the host's clock can represent.
#[test]
fn the_longest_toleration_is_a_timer_that_can_be_cancelled() {
    for policy in ["keep", "shorten-only", "recompute"] {
        on_the_sim(|mut bench| async move {
            let node = bench.node("a").await;
            pod(&bench, "pod", &node, &[toleration(KEY, Some(i64::MAX))]).await;
            let config = format!("{{reschedule: {policy}}}");
            let _host = bench.host(&taint_eviction("Enforce", &config)).await;
            taint(&bench, &node, &[KEY]).await;
            sleep(Duration::from_secs(3600)).await;
            assert_left(&bench.pods().await, &["pod"]);
            taint(&bench, &node, &[]).await;
            let events = bench.events(1).await;
            assert_eq!(events.len(), 1, "{policy}");
            assert!(text(&events[0], "/message").starts_with("Cancelling"));
        });
    }
}

/// E4: Kubernetes would delete the pod that has the name at that time.
#[test]
fn a_pod_created_again_under_its_name_is_kept() {
    on_the_sim(|mut bench| async move {
        let (node, other) = (bench.node("a").await, bench.node("b").await);
        let tolerations = [toleration(KEY, Some(10))];
        pod(&bench, "pod", &node, &tolerations).await;
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(5)).await;
        bench.delete_pod("pod").await;
        let second = pod(&bench, "pod", &other, &tolerations).await;
        sleep(Duration::from_secs(60)).await;
        let pod = bench.get_pod("pod").await;
        assert_eq!(text(&pod, "/metadata/uid"), second);
        assert_eq!(disruption_target(&pod), None);
    });
}

/// The same while the deletion is under way: the uid is its precondition.
#[test]
fn a_pod_created_again_during_the_deletion_is_kept() {
    on_the_sim(|mut bench| async move {
        let (node, other) = (bench.node("a").await, bench.node("b").await);
        pod(&bench, "pod", &node, &[]).await;
        bench.sim().add_fault(Fault {
            matches: Match::new("patch", "pods"),
            when: FaultTiming::First(1),
            action: Action::Delay(Duration::from_secs(5)),
        });
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(1)).await;
        bench.delete_pod("pod").await;
        let second = pod(&bench, "pod", &other, &[]).await;
        sleep(Duration::from_secs(60)).await;
        let pod = bench.get_pod("pod").await;
        assert_eq!(text(&pod, "/metadata/uid"), second);
        assert_eq!(disruption_target(&pod), None);
    });
}

/// E6: the pod garbage collector deletes its pods.
#[test]
fn a_node_that_goes_cancels_the_timers_of_its_pods() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[toleration(KEY, Some(10))]).await;
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(5)).await;
        bench.delete_node(&node).await;
        sleep(Duration::from_secs(60)).await;
        assert_left(&bench.pods().await, &["pod"]);
    });
}

/// A pod whose status changes constantly, and a node with heartbeats.
#[test]
fn heartbeats_trigger_no_reconcile() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(1)).await;
        // Before its node had a taint, it would have been none of the guest's business.
        pod(&bench, "pod", &node, &[toleration(KEY, Some(60))]).await;
        sleep(Duration::from_secs(1)).await;
        let worked = || {
            let page = host.metrics.render();
            let count = "workqueue_work_duration_seconds_count";
            let lines = page.lines().filter(|it| it.starts_with(count));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let before = worked();
        // Those of the node and of the pod.
        assert_eq!(before.len(), 2, "{before:?}");
        for beat in 0..20 {
            bench.set_ready(&node, ["True", "False"][beat % 2]).await;
            let path = format!("/api/v1/namespaces/{}/pods/pod/status", bench.namespace);
            let status = json!({"status": {"message": beat.to_string()}});
            bench.must("PATCH", &path, &status).await;
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(worked(), before);
    });
}

/// The eviction API checks the budget, and the pods that it protects are not marked.
#[test]
fn with_deletion_evict_disruption_budgets_hold() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        let budget = |allowed: i64| {
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": {"name": "budget", "namespace": bench.namespace},
                "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "a"}}},
                "status": {
                    "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 3,
                    "desiredHealthy": 2, "expectedPods": 3,
                },
            })
        };
        bench.sim().create(budget(1)).unwrap();
        for number in 0..3 {
            ready_pod(&bench, &format!("pod-{number}"), &node).await;
        }
        let host = bench
            .host(&taint_eviction("Enforce", "{deletion: evict}"))
            .await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(600)).await;
        let left = bench.pods().await;
        assert_eq!(left.len(), 2, "{left:?}");
        for name in &left {
            assert_eq!(disruption_target(&bench.get_pod(name).await), None);
        }
        let evictions = Match {
            subresource: "eviction".to_owned(),
            ..Match::new("create", "pods")
        };
        let tries = bench.sim().count(&evictions);
        assert!((10..200).contains(&tries), "{tries} in ten minutes");
        bench.sim().apply(budget(2)).unwrap();
        bench.until_left(&[]).await;
        assert_eq!(bench.sim().count(&Match::new("delete", "pods")), 0);
        host.host.stop().await;
    });
}

async fn ready_pod(bench: &Bench, name: &str, node: &str) {
    let status = json!({
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    });
    bench
        .pod_with(name, node, &status, |pod| {
            pod["metadata"]["labels"] = json!({"app": "a"});
            pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        })
        .await;
}

#[test]
fn pods_of_a_dry_run_are_evicted_when_it_ends() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "now", &node, &[]).await;
        pod(&bench, "later", &node, &[toleration(KEY, Some(10))]).await;
        let host = bench.host(&taint_eviction("DryRun", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        bench.sim().clear_log();
        sleep(Duration::from_secs(60)).await;
        let wrote = |served: &davit_sim::RequestRecord| served.method != "GET";
        assert_eq!(bench.sim().log().iter().filter(|it| wrote(it)).count(), 0);
        host.apply(&taint_eviction("Enforce", "{}")).await;
        bench.until_left(&[]).await;
    });
}

/// A deletion that the cache has not observed is not sent again.
#[test]
fn a_cache_that_lags_deletes_nothing_twice() {
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[]).await;
        held_pod(&bench, "held", &node, &[]).await;
        let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
        let watches = Match::new("watch", "pods");
        bench
            .sim()
            .disturb(&watches, WatchFault::Delay(Duration::from_secs(10)));
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(2)).await;
        // More taints enqueue the node's pods again.
        taint(&bench, &node, &[KEY, "another"]).await;
        sleep(Duration::from_secs(60)).await;
        let sim = bench.sim();
        assert_eq!(sim.count(&Match::new("delete", "pods")), 2);
        assert_eq!(sim.count(&Match::new("patch", "pods")), 2);
        assert_left(&bench.pods().await, &["held"]);
    });
}
