//! Which pods of a node that is down are evicted, and how.

use davit_guest::{DeleteOptions, Step};
use node_eviction::{EVICTED, QUEUED};
use serde_json::{Value, json};

use crate::common::Cluster;

/// The timeout, and the pass after it.
const EVICTED_AFTER: u64 = 305;

/// A node that has just stopped, beside a healthy one.
fn cluster() -> Cluster {
    with_config(&Value::Null)
}

fn with_config(config: &Value) -> Cluster {
    let mut cluster = Cluster::new(config);
    cluster.well("witness", "elsewhere");
    cluster.well("node", "here");
    cluster.pass(10);
    cluster.silence("node");
    cluster
}

fn daemon_set(namespace: &str, selector: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": {"name": "agent", "namespace": namespace}, "spec": {"selector": selector},
    })
}

fn finalizers(pod: &mut Value, finalizers: Value) {
    pod["metadata"]["finalizers"] = finalizers;
}

/// `TestMarkPodsNotReady`: node-lifecycle does that. Here: the status of a pod
/// on a lost node gives the reason, and its conditions stay as they are.
#[test]
fn ne_20_mark_pods() {
    for conditions in [
        json!([{"type": "Ready", "status": "True"}]),
        json!([{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]),
        json!([]),
    ] {
        let mut cluster = cluster();
        cluster.pod_with("pod", "node", |pod| {
            pod["status"]["conditions"] = conditions.clone();
        });
        cluster.pass(EVICTED_AFTER);
        let mut status = cluster.get("pod")["status"].clone();
        let kept = status.as_object_mut().unwrap().remove("conditions");
        assert_eq!(kept.unwrap_or_else(|| json!([])), conditions);
        assert_eq!(
            status,
            json!({
                "phase": "Running", "reason": "NodeLost",
                "message": "Node node which was running pod pod is unresponsive",
            })
        );
    }
}

/// `TestMarkPodsNotReadyWithWorkerSize`: 50 nodes with 100 pods. There is no
/// number of workers to configure; here: all of them are evicted.
#[test]
fn ne_21_many_nodes_with_many_pods_are_evicted() {
    let mut cluster = Cluster::with_witness();
    for node in 0..20 {
        let node = format!("node-{node}");
        cluster.node(&node, "here", Some("True"));
        for pod in 0..25 {
            cluster.pod_with(&format!("{node}-{pod}"), &node, |pod| {
                finalizers(pod, json!([]));
            });
        }
    }
    // One node in ten seconds.
    cluster.pass(EVICTED_AFTER + 19 * 10);
    assert!(cluster.harness.keys("Pod").is_empty());
    assert!((cluster.evictions("here") - 20.0).abs() < 1e-9);
}

#[test]
fn ne_22_a_success_is_not_repeated() {
    let mut cluster = cluster();
    cluster.pod("one", "node");
    cluster.pod("two", "node");
    cluster.pass(EVICTED_AFTER + 600);
    assert_eq!(cluster.evicted(), ["one", "two"]);
    let writes = cluster.harness.executions().iter();
    let pods = writes.filter(|done| done.plan.target.kind == "Pod").count();
    assert_eq!(pods, 2);
}

/// A pod that cannot be written is retried, and delays no other.
#[test]
fn ne_23_a_failed_write_is_retried() {
    for class in ["server", "timeout", "throttled", "conflict", "forbidden"] {
        let mut cluster = cluster();
        for pod in ["one", "three", "two"] {
            cluster.pod(pod, "node");
        }
        cluster.harness.fail_writes("Pod", "default/one", class);
        // A server that is overloaded delays the others for a moment.
        cluster.pass(EVICTED_AFTER + 5);
        assert_eq!(cluster.evicted(), ["three", "two"], "{class}");
        cluster.harness.heal();
        cluster.pass(60);
        assert_eq!(cluster.evicted(), ["one", "three", "two"], "{class}");
        assert_eq!(
            cluster.get("one")["status"]["reason"],
            "NodeLost",
            "{class}"
        );
        // It is still one eviction.
        assert!((cluster.evictions("here") - 1.0).abs() < 1e-9, "{class}");
    }
}

/// Like the list of pods in Kubernetes, the live read may fail here.
#[test]
fn ne_24_a_failed_read_is_retried() {
    for kind in [
        ("Node", "node"),
        ("Lease", "kube-node-lease/node"),
        ("Pod", "default/pod"),
    ] {
        for class in ["server", "timeout", "forbidden"] {
            let mut cluster = cluster();
            cluster.pod("pod", "node");
            cluster.harness.fail_reads(kind.0, kind.1, class);
            cluster.pass(EVICTED_AFTER + 60);
            assert!(!cluster.is_evicted("pod"), "{kind:?} {class}");
            cluster.harness.heal();
            cluster.pass(120);
            assert_eq!(cluster.evicted(), ["pod"], "{kind:?} {class}");
        }
    }
}

/// `TestApplyNoExecuteTaints`: node-lifecycle does that. Here: a node with such
/// a taint is left to taint-based eviction, unless configured otherwise.
#[test]
fn ne_25_nodes_with_no_execute_taints_are_left_to_taint_eviction() {
    let left = json!({});
    let taken = json!({"skipTaintedNodes": false});
    for (config, key, effect, evicted) in [
        (&left, "node.kubernetes.io/unreachable", "NoExecute", false),
        (&left, "node.kubernetes.io/not-ready", "NoExecute", false),
        (&left, "node.kubernetes.io/unreachable", "NoSchedule", true),
        (&left, "example.com/mine", "NoExecute", true),
        (&taken, "node.kubernetes.io/unreachable", "NoExecute", true),
        (&taken, "node.kubernetes.io/not-ready", "NoExecute", true),
    ] {
        let mut cluster = with_config(config);
        cluster.pod("pod", "node");
        let taints = json!([{"key": key, "effect": effect}]);
        cluster.change("node", |node| node["spec"] = json!({"taints": taints}));
        cluster.pass(EVICTED_AFTER);
        assert_eq!(
            cluster.is_evicted("pod"),
            evicted,
            "{config} {key} {effect}"
        );
        let node = cluster.harness.object("Node", "node").unwrap();
        assert_eq!(node["spec"]["taints"], taints);
    }
}

/// `TestTaintsNodeByCondition`: node-lifecycle does that. Here: no condition
/// but `Ready` evicts a pod.
#[test]
fn ne_29_other_conditions_evict_no_pod() {
    for condition in [
        "NetworkUnavailable",
        "MemoryPressure",
        "DiskPressure",
        "PIDPressure",
    ] {
        let mut cluster = Cluster::with_witness();
        cluster.well("node", "here");
        cluster.pod("pod", "node");
        cluster.change("node", |node| {
            let conditions = node["status"]["conditions"].as_array_mut().unwrap();
            conditions.insert(0, json!({"type": condition, "status": "True"}));
        });
        cluster.assert_quiet(900);
    }
}

/// `TestNodeEventGeneration`: a node's event names the node and its uid, and
/// there is exactly one. Here: none when nodes are first seen, one when its
/// pods are evicted.
#[test]
fn ne_30_a_node_has_one_event() {
    let mut cluster = cluster();
    cluster.pod("pod", "node");
    cluster.pass(EVICTED_AFTER + 600);
    let message = "Node node event: Deleting all Pods from Node node.";
    let event = ["node", "Normal", "DeletingAllPods", message].map(str::to_owned);
    assert_eq!(cluster.events("Node"), [event.into()]);
    let mut plans = cluster.harness.executions().iter();
    let target = &plans
        .find(|it| it.plan.target.kind == "Node")
        .unwrap()
        .plan
        .target;
    let node = cluster.harness.object("Node", "node").unwrap();
    assert_eq!(node["metadata"]["uid"], *target.uid);
}

/// `TestProcessPodMarkPodNotReady`: a pod that is bound to a node that is down.
#[test]
fn ne_34_a_late_pod_is_evicted_with_its_node() {
    // To a healthy node.
    let mut well = Cluster::with_witness();
    well.pod("late", "witness");
    well.assert_quiet(900);
    // To a node that is down, before its time.
    let mut early = cluster();
    early.pod("pod", "node");
    early.pass(200);
    early.pod("late", "node");
    early.assert_evicted_after("late", EVICTED_AFTER - 200);
    // To a node that had its turn.
    let mut late = cluster();
    late.pod("pod", "node");
    late.pass(EVICTED_AFTER);
    late.pod("late", "node");
    late.pass(5);
    assert_eq!(late.evicted(), ["late", "pod"]);
    assert!(
        (late.evictions("here") - 1.0).abs() < 1e-9,
        "it is the same eviction"
    );
    assert_eq!(late.events("Node").len(), 1);
}

/// Although nothing shows any more that the node had its turn: its pods are
/// gone, or there were none.
#[test]
fn a_late_pod_on_a_node_without_evicted_pods_is_evicted_immediately() {
    for has_pod in [true, false] {
        let mut cluster = cluster();
        if has_pod {
            cluster.pod("pod", "node");
        }
        cluster.pass(EVICTED_AFTER);
        if has_pod {
            cluster.harness.remove("Pod", "default/pod");
        }
        cluster.pass(60);
        assert!(cluster.harness.pending(EVICTED, "node").is_some());
        cluster.pod("late", "node");
        // It uses no turn of another node.
        for _ in 0..5 {
            assert!(cluster.harness.pending(QUEUED, "node").is_none());
            cluster.pass(1);
        }
        assert_eq!(cluster.evicted(), ["late"]);
        assert_eq!(cluster.events("Node").len(), usize::from(has_pod));
    }
}

/// More than one call may read.
#[test]
fn a_node_with_many_pods_is_evicted_in_several_calls() {
    const PODS: usize = 1_003;
    let mut cluster = cluster();
    for number in 0..PODS {
        cluster.pod(&format!("pod-{number}"), "node");
    }
    cluster.pass(EVICTED_AFTER);
    assert_eq!(cluster.evicted().len(), PODS);
    assert_eq!(cluster.events("Node").len(), 1);
}

/// The pods of a `DaemonSet`: by its selector, in its namespace, or as their
/// controller.
#[test]
fn ne_50_pods_of_daemon_sets_stay() {
    let app = json!({"matchLabels": {"app": "agent"}});
    for (selector, namespace, labels, owner, stays) in [
        (
            app.clone(),
            "default",
            json!({"app": "agent", "x": "y"}),
            None,
            true,
        ),
        (app.clone(), "default", json!({"app": "web"}), None, false),
        (app.clone(), "default", json!({}), None, false),
        (app.clone(), "other", json!({"app": "agent"}), None, false),
        (json!(null), "default", json!({"app": "agent"}), None, false),
        (json!({}), "default", json!({"app": "agent"}), None, false),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "Like"}]}),
            "default",
            json!({"app": "agent"}),
            None,
            false,
        ),
        (
            json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]}),
            "default",
            json!({"app": "agent"}),
            None,
            true,
        ),
        (
            json!({}),
            "default",
            json!({}),
            Some(("DaemonSet", true)),
            true,
        ),
        (
            json!({}),
            "default",
            json!({}),
            Some(("DaemonSet", false)),
            false,
        ),
        (
            json!({}),
            "default",
            json!({}),
            Some(("ReplicaSet", true)),
            false,
        ),
    ] {
        let mut cluster = cluster();
        cluster.harness.put(daemon_set(namespace, &selector));
        cluster.pod_with("pod", "node", |pod| {
            pod["metadata"]["labels"] = labels.clone();
            if let Some((kind, controller)) = owner {
                pod["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "apps/v1", "kind": kind, "name": "agent", "uid": "u",
                    "controller": controller,
                }]);
            }
        });
        cluster.pass(EVICTED_AFTER);
        assert_eq!(
            !cluster.is_evicted("pod"),
            stays,
            "{selector} {namespace} {labels} {owner:?}"
        );
        if stays {
            assert_eq!(cluster.get("pod")["status"].get("reason"), None);
        }
    }
}

/// A pod that is terminating already.
#[test]
fn ne_51_terminating_pods_are_skipped() {
    let mut cluster = cluster();
    cluster.pod_with("pod", "node", |pod| {
        pod["metadata"]["deletionTimestamp"] = json!("2023-11-14T22:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    });
    cluster.assert_quiet(EVICTED_AFTER + 60);
    assert_eq!(cluster.get("pod")["status"].get("reason"), None);
}

/// A pod that is gone, or whose name belongs to another pod, is not a failure.
#[test]
fn ne_52_pods_that_are_gone_are_skipped() {
    let mut cluster = cluster();
    for pod in ["gone", "left", "renewed"] {
        cluster.pod(pod, "node");
    }
    cluster.harness.remove_from_server("Pod", "default/gone");
    let mut renewed = cluster.get("renewed").clone();
    renewed["metadata"]["uid"] = json!("another");
    cluster.harness.put_on_server(renewed.clone());
    cluster.pass(EVICTED_AFTER);
    assert!(cluster.is_evicted("left"));
    assert_eq!(cluster.get("renewed")["status"], renewed["status"]);
    assert!(!cluster.is_evicted("renewed"));
    let waiting = cluster.harness.pending(QUEUED, "node");
    assert_eq!(waiting, None, "nothing is retried");
}

/// The reply to the deletion was lost, and the cache does not show it yet: no
/// pod is deleted twice.
#[test]
fn a_pod_that_is_terminating_on_the_server_is_skipped() {
    let mut cluster = cluster();
    cluster.pod("pod", "node");
    let mut terminating = cluster.get("pod").clone();
    terminating["metadata"]["deletionTimestamp"] = json!(cluster.now());
    cluster.harness.put_on_server(terminating.clone());
    cluster.pass(EVICTED_AFTER + 60);
    assert_eq!(cluster.get("pod")["status"], terminating["status"]);
    let plans = cluster.harness.executions().iter();
    assert_eq!(
        plans.filter(|done| done.plan.target.kind == "Pod").count(),
        0
    );
}

/// A conflict skips the pod, is collected, and retried with it.
#[test]
fn ne_53_conflicts_are_collected_and_retried() {
    let mut cluster = cluster();
    for pod in ["a", "b", "c", "d"] {
        cluster.pod(pod, "node");
    }
    for pod in ["a", "c"] {
        cluster
            .harness
            .fail_writes("Pod", &format!("default/{pod}"), "conflict");
    }
    cluster.pass(EVICTED_AFTER);
    assert_eq!(cluster.evicted(), ["b", "d"]);
    assert_eq!(cluster.get("a")["status"].get("reason"), None);
    cluster.harness.heal();
    cluster.pass(30);
    assert_eq!(cluster.evicted(), ["a", "b", "c", "d"]);
}

#[test]
fn ne_54_an_eviction_has_its_events_and_options() {
    let mut cluster = cluster();
    cluster.pod("pod", "node");
    cluster.pass(EVICTED_AFTER);
    let message = "Marking for deletion Pod pod from Node node";
    let event = ["pod", "Normal", "NodeControllerEviction", message].map(str::to_owned);
    assert_eq!(cluster.events("Pod"), [event.into()]);
    let mut plans = cluster.harness.executions().iter();
    let plan = &plans.find(|it| it.plan.target.kind == "Pod").unwrap().plan;
    let [
        Step::Patch(patch),
        Step::Delete(options),
        Step::Event(event),
    ] = plan.steps.as_slice()
    else {
        panic!("{:?}", plan.steps);
    };
    assert_eq!(
        (&*patch.kind, &*patch.subresource),
        ("strategic-merge", "status")
    );
    // Its own grace period, and the server's default propagation.
    assert_eq!(*options, DeleteOptions::new());
    assert_eq!(event.component, "node-controller");
}

/// A marked pod is deleted without another mark.
#[test]
fn a_marked_pod_keeps_its_message() {
    let mut cluster = cluster();
    cluster.pod_with("pod", "node", |pod| {
        pod["status"]["reason"] = json!("NodeLost");
        pod["status"]["message"] = json!("I know");
    });
    cluster.pass(EVICTED_AFTER);
    assert_eq!(cluster.get("pod")["status"]["message"], "I know");
    assert_eq!(cluster.evicted(), ["pod"]);
}

/// No write to the API server ends a static pod.
#[test]
fn ne_55_static_pods_are_skipped() {
    let mut cluster = cluster();
    cluster.pod_with("static", "node", |pod| {
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
    });
    cluster.assert_quiet(EVICTED_AFTER + 60);
}

#[test]
fn ne_56_the_condition_disruption_target_is_written_if_configured() {
    let mut cluster = with_config(&json!({"disruptionTarget": true}));
    cluster.pod("pod", "node");
    cluster.pass(EVICTED_AFTER);
    let conditions = &cluster.get("pod")["status"]["conditions"];
    assert_eq!(conditions[0], json!({"type": "Ready", "status": "True"}));
    let mut condition = conditions[1].clone();
    assert!(condition["lastTransitionTime"].take().is_string());
    assert_eq!(
        condition,
        json!({
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByNodeEviction",
            "message": "Node eviction: the node is unresponsive or not ready",
            "observedGeneration": 1, "lastTransitionTime": null,
        })
    );
}
