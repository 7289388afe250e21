//! PodGC's cases that need an API server or time, by the ids of the specification; and
//! the host's additions.

use std::collections::BTreeSet;
use std::time::Duration;

use davit::host::Report;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::bench::{Bench, deploy, on_any_server, on_the_sim, podgc, text};

/// The settings of Kubernetes' integration tests: a pass every half second, a second of
/// quarantine, no threshold.
const HASTY: &str = "{terminatedPodThreshold: 0, period: 500ms, quarantine: 1s}";

fn hold(pod: &mut Value) {
    pod["metadata"]["finalizers"] = json!(["example.com/hold"]);
}

fn disruption_target(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == "DisruptionTarget")
}

/// `TestGCInspectingPatchedPodBeforeDeletion`, with the uid precondition that is
/// recommended.
#[test]
fn pgc_25_an_orphaned_pod_is_marked_before_it_is_deleted() {
    on_the_sim(|bench| async move {
        let uid = bench.pod("a", "missing", "Running").await;
        let _host = bench.host(&podgc("Enforce", HASTY)).await;
        bench.until_left(&[]).await;
        let log = bench.sim().log();
        let writes: Vec<_> = log
            .iter()
            .filter(|served| served.method == "PATCH" || served.method == "DELETE")
            .collect();
        let [patch, delete] = writes[..] else {
            panic!("{writes:?}");
        };
        let pod = format!("/api/v1/namespaces/{}/pods/a", bench.namespace);
        assert_eq!(
            patch.path,
            format!("{pod}/status?fieldManager=davit%2Fpodgc")
        );
        let body: Value = serde_json::from_slice(&patch.body).unwrap();
        let condition = &body["status"]["conditions"][0];
        assert_ne!(text(condition, "/lastTransitionTime"), "");
        assert_eq!(
            body,
            json!({
                "metadata": {"uid": uid},
                "status": {
                    "conditions": [{
                        "lastProbeTime": null,
                        "lastTransitionTime": condition["lastTransitionTime"],
                        "message": "PodGC: node no longer exists",
                        "observedGeneration": 1,
                        "reason": "DeletionByPodGC",
                        "status": "True",
                        "type": "DisruptionTarget",
                    }],
                    "observedGeneration": 1,
                    "phase": "Failed",
                },
            })
        );
        assert!(delete.path.starts_with(&pod));
        let body: Value = serde_json::from_slice(&delete.body).unwrap();
        assert_eq!(body["gracePeriodSeconds"], 0);
        assert_eq!(body["preconditions"], json!({"uid": uid}));
        assert_eq!(body.get("propagationPolicy"), None);
    });
}

/// `TestPodGcOrphanedPodsWithFinalizer`
#[test]
fn pgc_35_orphaned_pods_with_a_finalizer_fail_and_stay() {
    on_any_server(|bench| async move {
        let node = format!("{}-missing", bench.namespace);
        for (name, phase) in [("a", "Pending"), ("b", "Succeeded"), ("c", "Failed")] {
            bench
                .pod_with(name, &node, &json!({"phase": phase}), hold)
                .await;
        }
        let host = bench.host(&podgc("Enforce", HASTY)).await;
        let marked = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
        let pending = bench.until_pod("a", marked).await;
        assert_eq!(pending["status"]["phase"], "Failed");
        let condition = disruption_target(&pending).unwrap();
        assert_eq!(condition["reason"], "DeletionByPodGC");
        assert_eq!(condition["observedGeneration"], 1);
        assert_eq!(pending["status"]["observedGeneration"], 1);
        for (name, phase) in [("b", "Succeeded"), ("c", "Failed")] {
            let pod = bench.until_pod(name, marked).await;
            assert_eq!(pod["status"]["phase"], phase);
            assert_eq!(disruption_target(&pod), None);
        }
        host.host.stop().await;
        bench
    });
}

/// `TestTerminatingOnOutOfServiceNode`: the feature `JobPodReplacementPolicy` makes
/// no difference any more.
#[test]
fn pgc_36_terminating_pods_leave_a_node_out_of_service() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        let running = json!({"phase": "Running"});
        bench.pod_with("held", &node, &running, hold).await;
        bench.pod("free", &node, "Running").await;
        bench.pod("stays", &node, "Running").await;
        bench.delete_pod("held").await;
        bench.delete_pod("free").await;
        bench.put_out_of_service(&node).await;
        let host = bench.host(&podgc("Enforce", HASTY)).await;
        bench.until_left(&["held", "stays"]).await;
        let held = bench
            .until_pod("held", |pod| pod["status"]["phase"] == "Failed")
            .await;
        assert_eq!(disruption_target(&held), None);
        let stays = bench.get_pod("stays").await;
        assert_eq!(stays["status"]["phase"], "Running");
        host.host.stop().await;
        bench
    });
}

/// `TestPodGcForPodsWithDuplicatedFieldKeys`: server-side apply would fail on
/// such pods, a strategic merge patch does not.
#[test]
fn pgc_37_duplicated_keys_in_a_pod_do_not_matter() {
    on_any_server(|bench| async move {
        let node = format!("{}-missing", bench.namespace);
        let running = json!({"phase": "Running"});
        let env = |pod: &mut Value| {
            hold(pod);
            pod["spec"]["containers"][0]["env"] =
                json!([{"name": "X", "value": "1"}, {"name": "X", "value": "2"}]);
        };
        let ports = |pod: &mut Value| {
            hold(pod);
            pod["spec"]["containers"][0]["ports"] =
                json!([{"containerPort": 80}, {"containerPort": 80}]);
        };
        bench.pod_with("env", &node, &running, env).await;
        bench.pod_with("ports", &node, &running, ports).await;
        let host = bench.host(&podgc("Enforce", HASTY)).await;
        for name in ["env", "ports"] {
            let pod = bench
                .until_pod(name, |pod| pod["status"]["phase"] == "Failed")
                .await;
            let condition = disruption_target(&pod).unwrap();
            assert_ne!(text(condition, "/lastTransitionTime"), "");
        }
        host.host.stop().await;
        bench
    });
}

/// The conformance test "should handle the creation of 1000 pods".
#[test]
fn pgc_38_of_1000_pods_100_are_left() {
    on_any_server(|mut bench| async move {
        let node = bench.node("a").await;
        for number in 0..1000 {
            let name = format!("pod-{number:04}");
            bench.pod(&name, &node, "Failed").await;
        }
        let config = "{terminatedPodThreshold: 100, period: 1s}";
        let host = bench.host(&podgc("Enforce", config)).await;
        let deadline = Instant::now() + Duration::from_secs(120);
        while bench.pods().await.len() > 100 {
            assert!(Instant::now() < deadline, "{}", bench.pods().await.len());
            sleep(Duration::from_secs(1)).await;
        }
        sleep(Duration::from_secs(5)).await;
        assert_eq!(bench.pods().await.len(), 100);
        let deleted = "pod_gc_collector_force_delete_pods_total{controller=\"podgc\",namespace=\"";
        let deleted = format!("{deleted}{}\",reason=\"terminated\"}}", bench.namespace);
        assert!((host.metric(&deleted) - 900.0).abs() < 0.5);
        host.host.stop().await;
        bench
    });
}

/// More terminated pods than a guest can hold at once, with the default limits. Evicted
/// pods are deleted first although they are the youngest, then the oldest; those of one
/// second by name. The number of remaining pods is exact.
#[test]
fn a_backlog_of_60_000_terminated_pods_is_deleted_in_order() {
    const PODS: usize = 60_000;
    const EVICTED: usize = 100;
    const KEPT: usize = 57_500;
    on_the_sim(|mut bench| async move {
        let node = bench.node("a").await;
        // The conditions that a kubelet leaves on a pod that has ended.
        let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
            .iter()
            .map(|name| {
                json!({
                    "type": name, "status": "False", "reason": "PodCompleted",
                    "lastTransitionTime": "2026-11-20T10:00:00Z",
                })
            })
            .collect();
        // The later a pod is created, the earlier its name sorts.
        let number_of = |created: usize| PODS - created;
        for created in 0..PODS {
            if created == PODS / 2 {
                sleep(Duration::from_secs(60)).await;
            }
            let mut status = json!({"phase": "Succeeded", "conditions": conditions});
            if created >= PODS - EVICTED {
                status["phase"] = json!("Failed");
                status["reason"] = json!("Evicted");
            }
            let name = format!("pod-{:05}", number_of(created));
            bench.pod_with(&name, &node, &status, |_| {}).await;
        }
        let config = format!("{{terminatedPodThreshold: {KEPT}, period: 1h}}");
        let host = bench.host(&podgc("Enforce", &config)).await;
        let deadline = Instant::now() + Duration::from_secs(600);
        while bench.pods().await.len() > KEPT {
            assert!(Instant::now() < deadline, "{}", bench.pods().await.len());
            sleep(Duration::from_secs(10)).await;
        }
        sleep(Duration::from_secs(60)).await;
        host.assert_every_call_answered();
        let oldest = PODS / 2 + 1..=PODS / 2 + PODS - KEPT - EVICTED;
        let left: BTreeSet<String> = (EVICTED + 1..=PODS)
            .filter(|number| !oldest.contains(number))
            .map(|number| format!("pod-{number:05}"))
            .collect();
        let found = bench.pods().await;
        assert_eq!(found.len(), KEPT);
        assert_eq!(found.symmetric_difference(&left).next(), None);
        host.host.stop().await;
    });
}

/// Case E15: the name is reused between the decision and the write.
#[test]
fn a_pod_created_again_under_its_name_is_kept() {
    on_the_sim(|bench| async move {
        use davit_sim::fault::{Action, Fault, FaultTiming, Match};
        bench.pod("a", "missing", "Failed").await;
        // The deletion is slow, and the pod is replaced meanwhile.
        bench.sim().add_fault(Fault {
            matches: Match::new("delete", "pods"),
            when: FaultTiming::First(1),
            action: Action::Delay(Duration::from_secs(5)),
        });
        let mut host = bench.host(&podgc("Enforce", HASTY)).await;
        sleep(Duration::from_secs(3)).await;
        let options = davit_sim::model::DeleteOptions::default();
        let sim = bench.sim();
        sim.delete("v1", "Pod", &bench.namespace, "a", &options)
            .unwrap();
        let uid = bench.pod("a", "", "Pending").await;
        sleep(Duration::from_secs(30)).await;
        assert_eq!(text(&bench.get_pod("a").await, "/metadata/uid"), uid);
        // The pod is gone, as intended: no error is counted.
        let reports = host.work_reports();
        assert!(reports.iter().any(|report| matches!(
            report,
            Report::Executed { outcome, .. } if outcome.is_success() && outcome.failed.is_some()
        )));
        let errors = "pod_gc_collector_force_delete_pod_errors_total";
        assert!(!host.metrics.render().contains(&format!("{errors}{{")));
    });
}

#[test]
fn a_dry_run_writes_nothing_and_rules_on_every_plan() {
    on_the_sim(|bench: Bench| async move {
        bench.pod("a", "missing", "Running").await;
        let mut host = bench.host(&podgc("DryRun", HASTY)).await;
        sleep(Duration::from_secs(10)).await;
        bench.until_left(&["a"]).await;
        let wrote = |served: &davit_sim::RequestRecord| served.method != "GET";
        let requests = deploy::requests(bench.sim());
        assert_eq!(requests.iter().filter(|s| wrote(s)).count(), 0);
        let shown = host
            .work_reports()
            .into_iter()
            .find_map(|report| match report {
                Report::Ruled { plan, ruling, .. } => Some((plan, ruling)),
                _ => None,
            });
        let (plan, ruling) = shown.unwrap();
        assert_eq!(plan.reason, "orphaned");
        assert_eq!(ruling, davit_core::gate::Ruling::DryRun);
        assert!(
            host.metric(
                "davit_plans_total{controller=\"podgc\",role=\"stable\",ruling=\"dry-run\"}"
            ) >= 1.0
        );
    });
}
