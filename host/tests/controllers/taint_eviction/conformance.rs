//! Kubernetes' own integration, end-to-end and conformance tests.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::cluster::{
    KEY, assert_left, disruption_target, held_pod, is_terminating, messages, pod, taint,
    taint_eviction, toleration,
};
use crate::bench::journals::expect_no_calls;
use crate::bench::{on_any_server, on_the_sim, text};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// How long the tests wait in cases where nothing should happen.
const A_WHILE: Duration = Duration::from_secs(3);

/// `TestEvictionForNoExecuteTaintAddedByUser`: "separate disabled" (the taint manager
/// within the node lifecycle controller) no longer exists; a dry run replaces it.
#[test]
fn te_60_a_taint_added_by_a_user_evicts_pods() {
    for (mode, evicts) in [("Disabled", false), ("DryRun", false), ("Enforce", true)] {
        on_any_server(|mut bench| async move {
            let node = bench.node("a").await;
            held_pod(&bench, "pod", &node, &[]).await;
            let mut host = bench.host_without_controllers();
            if mode == "Disabled" {
                expect_no_calls();
            }
            host.apply(&taint_eviction(mode, "{}")).await;
            taint(&bench, &node, &["CustomTaintByUser"]).await;
            let pod = if evicts {
                bench.until_pod("pod", is_terminating).await
            } else {
                sleep(A_WHILE).await;
                bench.get_pod("pod").await
            };
            assert_eq!(is_terminating(&pod), evicts, "{mode}");
            let condition = disruption_target(&pod);
            let reason = condition.map(|it| text(it, "/reason"));
            let expected = evicts.then(|| "DeletionByTaintManager".to_owned());
            assert_eq!(reason, expected, "{mode}");
            assert!(host.work_reports().len() < 1000);
            host.host.stop().await;
            bench
        });
    }
}

/// `TestTaintBasedEvictions`: another controller would add the taints, so the test
/// does; the default of 300 s is what admission would add. On virtual time, the test
/// asserts the moment of the deletion too.
#[test]
fn te_61_a_pod_leaves_a_failing_node_when_its_toleration_ends() {
    for (key, seconds) in [
        (NOT_READY, 200),
        (NOT_READY, 300),
        (NOT_READY, 0),
        (UNREACHABLE, 200),
        (UNREACHABLE, 300),
        (UNREACHABLE, 0),
    ] {
        on_the_sim(|mut bench| async move {
            let node = bench.node("a").await;
            let tolerations = [NOT_READY, UNREACHABLE].map(|key| toleration(key, Some(seconds)));
            held_pod(&bench, "pod", &node, &tolerations).await;
            let _host = bench.host(&taint_eviction("Enforce", "{}")).await;
            taint(&bench, &node, &[key]).await;
            let seconds = Duration::from_secs(seconds.unsigned_abs());
            let before = seconds.saturating_sub(Duration::from_millis(200));
            if !before.is_zero() {
                sleep(before).await;
                assert!(!is_terminating(&bench.get_pod("pod").await), "{key}");
            }
            sleep(Duration::from_millis(400)).await;
            assert!(is_terminating(&bench.get_pod("pod").await), "{key}");
        });
    }
}

#[test]
fn te_70_evicts_pods_from_tainted_nodes() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        bench.until_left(&[]).await;
        host.host.stop().await;
        bench
    });
}

#[test]
fn te_71_does_not_evict_a_pod_with_a_toleration() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[toleration(KEY, None)]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(A_WHILE).await;
        assert_left(&bench.pods().await, &["pod"]);
        host.host.stop().await;
        bench
    });
}

#[test]
fn te_72_evicts_a_pod_when_its_toleration_ends() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[toleration(KEY, Some(4))]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_millis(3_500)).await;
        assert_left(&bench.pods().await, &["pod"]);
        bench.until_left(&[]).await;
        host.host.stop().await;
        bench
    });
}

/// [Conformance]
#[test]
fn te_73_removing_a_taint_cancels_an_eviction() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod", &node, &[toleration(KEY, Some(4))]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        sleep(Duration::from_secs(2)).await;
        taint(&bench, &node, &[]).await;
        sleep(Duration::from_secs(5)).await;
        assert_left(&bench.pods().await, &["pod"]);
        let events = bench.events(1).await;
        let cancelled = format!("Cancelling deletion of Pod {}/pod", bench.namespace);
        assert_eq!(messages(&events), [cancelled]);
        host.host.stop().await;
        bench
    });
}

#[test]
fn te_74_evicted_pods_have_the_disruption_condition() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        held_pod(&bench, "pod", &node, &[]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        let pod = bench.until_pod("pod", is_terminating).await;
        let condition = disruption_target(&pod).unwrap();
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "DeletionByTaintManager");
        assert_eq!(
            condition["message"],
            "Taint manager: deleting due to NoExecute taint"
        );
        assert_eq!(condition["observedGeneration"], 1);
        assert_ne!(text(condition, "/lastTransitionTime"), "");
        host.host.stop().await;
        bench
    });
}

#[test]
fn te_75_only_evicts_pods_without_tolerations() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        pod(&bench, "pod1", &node, &[]).await;
        pod(&bench, "pod2", &node, &[toleration(KEY, None)]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        bench.until_left(&["pod2"]).await;
        sleep(A_WHILE).await;
        assert_left(&bench.pods().await, &["pod2"]);
        host.host.stop().await;
        bench
    });
}

/// [Conformance]
#[test]
fn te_76_evicts_pods_with_minimum_toleration_seconds() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        let taints = [KEY, "kubernetes.io/second"];
        let tolerating = |first, second| {
            [
                toleration(taints[0], Some(first)),
                toleration(taints[1], Some(second)),
            ]
        };
        pod(&bench, "pod1", &node, &tolerating(60, 2)).await;
        pod(&bench, "pod2", &node, &tolerating(5, 60)).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &taints).await;
        sleep(Duration::from_millis(1_500)).await;
        assert_left(&bench.pods().await, &["pod1", "pod2"]);
        bench.until_left(&["pod2"]).await;
        bench.until_left(&[]).await;
        host.host.stop().await;
        bench
    });
}

/// `TestEmitPodDeletionEvent` and `TestEmitCancelPodDeletionEvent`. Kubernetes omits
/// the uid.
#[test]
fn te_30_te_31_evictions_and_cancellations_are_events() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        let gone = pod(&bench, "gone", &node, &[]).await;
        let spared = pod(&bench, "spared", &node, &[toleration(KEY, Some(60))]).await;
        let host = bench.host(&taint_eviction("Enforce", "{}")).await;
        taint(&bench, &node, &[KEY]).await;
        bench.until_left(&["spared"]).await;
        taint(&bench, &node, &[]).await;
        let mut events = bench.events(2).await;
        events.sort_by_key(|event| text(event, "/involvedObject/name"));
        let namespace = &bench.namespace;
        for (event, name, uid, message) in [
            (&events[0], "gone", gone, "Marking for deletion Pod"),
            (&events[1], "spared", spared, "Cancelling deletion of Pod"),
        ] {
            let involved = json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": namespace,
                "name": name, "uid": uid,
            });
            assert_eq!(event["involvedObject"], involved);
            assert_eq!(event["message"], format!("{message} {namespace}/{name}"));
            assert_eq!(event["reason"], "TaintManagerEviction");
            assert_eq!(event["type"], "Normal");
            assert_eq!(event["source"]["component"], "taint-eviction-controller");
            assert_eq!(event["count"], 1);
        }
        host.host.stop().await;
        bench
    });
}
