//! Terminating pods: on nodes that are out of service, and never scheduled.

use std::time::Duration;

use davit_guest::node::OUT_OF_SERVICE;
use davit_guest::{DeleteOptions, Step, Verdict};
use serde_json::{Value, json};

use crate::common::{
    assert_counted, handled, harness, hour, node, patched, pod, ready_node, without_threshold,
};

/// Longer than the period of the passes.
const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn pgc_20_an_unscheduled_pod_in_any_phase_is_deleted() {
    let mut harness = without_threshold();
    for (name, phase) in [("a", "Failed"), ("b", "Succeeded"), ("c", "Running")] {
        harness.put(pod(name).phase(phase).node("").terminating().into());
    }
    harness.run();
    assert_eq!(handled(&harness), ["a", "b", "c"]);
    assert_eq!(patched(&harness), ["c"]);
    assert_eq!(harness.keys("Pod"), [""; 0]);
    assert_counted(&harness, "unscheduled", 3, 0);
}

#[test]
fn pgc_21_a_scheduled_pod_or_one_that_stays_is_kept() {
    let mut harness = without_threshold();
    harness.put(ready_node("worker"));
    for phase in ["Failed", "Succeeded", "Running"] {
        let name = phase.to_lowercase();
        harness.put(pod(&format!("{name}-stays")).phase(phase).node("").into());
        let bound = pod(&format!("{name}-bound")).phase(phase).node("worker");
        harness.put(bound.terminating().into());
    }
    harness.run();
    assert_eq!(handled(&harness), [""; 0]);
}

#[test]
fn pgc_22_a_node_that_is_only_not_ready_keeps_its_pods() {
    let mut harness = without_threshold();
    harness.put(node("worker-0", "False", None));
    harness.put(node("worker-1", "False", None));
    harness.put(pod("a").node("worker-0").terminating().into());
    harness.put(pod("b").node("worker-1").terminating().into());
    harness.run();
    assert_eq!(handled(&harness), [""; 0]);
}

/// And E12: the taint's key decides, whatever its effect and value.
#[test]
fn pgc_23_only_terminating_pods_leave_a_node_out_of_service() {
    let mut harness = without_threshold();
    let out = |effect| Some((OUT_OF_SERVICE, effect));
    harness.put(node("worker-1", "False", out("NoExecute")));
    harness.put(node("worker-2", "False", None));
    harness.put(node("worker-3", "True", out("NoExecute")));
    harness.put(node("worker-4", "False", out("NoSchedule")));
    harness.put(node("worker-5", "False", out("PreferNoSchedule")));
    let mut with_value = node("worker-6", "False", out("NoExecute"));
    with_value["spec"]["taints"][0]["value"] = json!("nodeshutdown");
    harness.put(with_value);
    for number in 1..=6 {
        let on_node =
            |name: &str| pod(&format!("{name}{number}")).node(&format!("worker-{number}"));
        harness.put(on_node("a").into());
        harness.put(on_node("b").terminating().into());
        harness.put(on_node("c").phase("Failed").into());
        harness.put(on_node("d").phase("Succeeded").into());
        harness.put(on_node("e").phase("Unknown").into());
    }
    harness.run();
    assert_eq!(handled(&harness), ["b1", "b4", "b5", "b6"]);
    assert_eq!(patched(&harness), ["b1", "b4", "b5", "b6"]);
    assert_eq!(harness.keys("Pod").len(), 26);
    assert_counted(&harness, "out-of-service", 4, 0);
}

#[test]
fn pgc_24_pods_in_any_phase_leave_a_node_out_of_service() {
    let mut harness = without_threshold();
    harness.put(node("worker", "False", Some((OUT_OF_SERVICE, "NoExecute"))));
    for (name, phase) in [("a", "Running"), ("b", "Failed"), ("c", "Succeeded")] {
        harness.put(pod(name).phase(phase).node("worker").terminating().into());
    }
    harness.run();
    assert_eq!(handled(&harness), ["a", "b", "c"]);
    assert_eq!(patched(&harness), ["a"]);
    assert_counted(&harness, "out-of-service", 3, 0);
}

/// The watch of nodes is stuck: the node is back, and one of its pods ends as usual.
#[test]
fn a_node_that_only_the_cache_has_out_of_service_keeps_its_pods() {
    let out = Some((OUT_OF_SERVICE, "NoExecute"));
    for back in [
        node("worker", "True", None),
        node("worker", "False", None),
        node("worker", "True", out),
    ] {
        let mut harness = without_threshold();
        harness.put(node("worker", "False", out));
        harness.run();
        harness.put_on_server(back);
        harness.put(pod("a").node("worker").terminating().into());
        harness.advance(MINUTE);
        assert_eq!(handled(&harness), [""; 0]);
    }
}

#[test]
fn a_node_that_cannot_be_read_keeps_its_pods_until_it_can() {
    let mut harness = without_threshold();
    harness.put(node("worker", "False", Some((OUT_OF_SERVICE, "NoExecute"))));
    harness.fail_reads("Node", "worker", "server");
    harness.put(pod("a").node("worker").terminating().into());
    harness.put(pod("b").node("").terminating().into());
    harness.advance(MINUTE);
    assert_eq!(handled(&harness), ["b"]);
    harness.heal();
    harness.advance(MINUTE);
    assert_eq!(handled(&harness), ["b", "a"]);
}

#[test]
fn a_node_is_ready_only_if_it_reports_so() {
    for (ready, expected) in [("True", 0), ("False", 1), ("Unknown", 1)] {
        let mut harness = without_threshold();
        harness.put(node("worker", ready, Some((OUT_OF_SERVICE, "NoExecute"))));
        harness.put(pod("a").node("worker").terminating().into());
        harness.run();
        assert_eq!(handled(&harness).len(), expected, "Ready is {ready}");
    }
    let mut harness = without_threshold();
    let mut silent = node("worker", "True", Some((OUT_OF_SERVICE, "NoExecute")));
    silent["status"] = json!({});
    harness.put(silent);
    harness.put(pod("a").node("worker").terminating().into());
    harness.run();
    assert_eq!(handled(&harness), ["a"]);
}

/// And E13: it gets no disruption condition.
#[test]
fn pgc_36_a_pod_on_a_node_out_of_service_fails_and_its_finalizer_keeps_it() {
    let mut harness = without_threshold();
    harness.put(node("worker", "False", Some((OUT_OF_SERVICE, "NoExecute"))));
    let on_node = |name: &str| pod(name).node("worker").terminating();
    harness.put(on_node("held").finalizer().into());
    harness.put(on_node("free").into());
    harness.run();
    assert_eq!(harness.keys("Pod"), ["default/held"]);
    let held = harness.object("Pod", "default/held").unwrap();
    assert_eq!(
        held["status"],
        json!({"phase": "Failed", "observedGeneration": 1})
    );
}

#[test]
fn e3_the_out_of_service_stage_ignores_a_pod_without_a_node() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("").terminating().into());
    harness.run();
    let reasons: Vec<&str> = harness
        .executions()
        .iter()
        .map(|it| it.plan.reason.as_str())
        .collect();
    assert_eq!(reasons, ["unscheduled"]);
    assert_counted(&harness, "out-of-service", 0, 0);
}

#[test]
fn e4_a_terminating_pod_on_a_missing_node_waits_for_the_quarantine() {
    let mut harness = without_threshold();
    harness.put(pod("a").node("gone").terminating().into());
    harness.run();
    assert_eq!(handled(&harness), [""; 0]);
    harness.advance(crate::common::QUARANTINE);
    assert_eq!(handled(&harness), ["a"]);
    assert_counted(&harness, "orphaned", 1, 0);
}

/// Many terminating pods, or many that wait for the scheduler, cost no more
/// than one page of pods.
#[test]
fn unscheduled_pods_are_found_among_many() {
    for (bound, waiting) in [(2_000, 0), (0, 2_000), (2_000, 2_000)] {
        let mut harness = without_threshold();
        harness.put(ready_node("worker"));
        harness.put(pod("stuck").node("").terminating().into());
        for number in 0..bound {
            let name = format!("bound-{number}");
            harness.put(pod(&name).node("worker").terminating().into());
        }
        for number in 0..waiting {
            let name = format!("waiting-{number}");
            harness.put(pod(&name).node("").phase("Pending").into());
        }
        let decision = harness.decide(podgc::PASSES, podgc::PASS);
        assert_eq!(decision.plans.len(), 1);
        assert_eq!(decision.plans[0].target.name, "stuck");
        assert_eq!(decision.verdict, Verdict::Done);
        assert!(
            harness.objects_read() <= 500,
            "{bound} bound, {waiting} waiting"
        );
    }
}

/// Evicted pods go first, then the oldest ones.
#[test]
fn stuck_pods_are_deleted_in_the_order_of_terminated_ones() {
    let mut harness = without_threshold();
    harness.put(node("dead", "False", Some((OUT_OF_SERVICE, "NoExecute"))));
    let stuck = |name: &str| pod(name).node("dead").terminating();
    harness.put(stuck("a").created(hour(3)).into());
    harness.put(stuck("b").created(hour(2)).into());
    let evicted = stuck("c").phase("Failed").reason("Evicted");
    harness.put(evicted.created(hour(4)).into());
    harness.run();
    assert_eq!(handled(&harness), ["c", "b", "a"]);
}

/// Finalizers keep more pods than one answer may have: the pods after them are
/// deleted in the same pass, each once, and a call reads no more than it
/// decides about.
#[test]
fn stuck_pods_delay_no_others() {
    let mut harness = without_threshold();
    let out = Some((OUT_OF_SERVICE, "NoExecute"));
    harness.put(node("dead-1", "False", out));
    harness.put(node("dead-2", "False", out));
    harness.put(ready_node("worker"));
    for number in 0..2_500 {
        let unbound = pod(&format!("unbound-{number:05}")).node("").terminating();
        harness.put(unbound.finalizer().into());
        let held = pod(&format!("held-{number:05}")).node("dead-1");
        harness.put(held.terminating().finalizer().into());
    }
    for number in 0..1_000 {
        let bound = pod(&format!("bound-{number:05}")).node("dead-10");
        harness.put(bound.terminating().into());
        let last = pod(&format!("last-{number:05}")).node("dead-2");
        harness.put(last.terminating().into());
    }
    harness.put(ready_node("dead-10"));
    let before = harness.objects_read();
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    assert_eq!(first.plans.len(), 1_000);
    assert!(harness.objects_read() - before <= 2_000);
    harness.run();
    let mut names = handled(&harness);
    assert_eq!(names.len(), 2 * 2_500 + 1_000);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 2 * 2_500 + 1_000);
    let left = harness.keys("Pod");
    assert_eq!(left.len(), 2 * 2_500 + 1_000);
    assert!(!left.iter().any(|key| key.contains("last")));
}

/// A call's time does not depend on how the nodes that are out of service lie
/// between the others: each skip costs a page of pods.
#[test]
fn many_nodes_out_of_service_are_walked_in_pages() {
    let mut harness = without_threshold();
    for number in 0..200 {
        let out = (number % 2 == 0).then_some((OUT_OF_SERVICE, "NoExecute"));
        harness.put(node(&format!("node-{number:04}"), "False", out));
        for pods in 0..10 {
            let pod = pod(&format!("pod-{number:04}-{pods}")).node(&format!("node-{number:04}"));
            harness.put(pod.terminating().into());
        }
    }
    let before = harness.objects_read();
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    assert!(matches!(first.verdict, Verdict::ContinueFrom(_)));
    assert!(harness.objects_read() - before < 12_000);
    harness.run();
    assert_eq!(harness.keys("Pod").len(), 1_000);
    assert_eq!(handled(&harness).len(), 1_000);
}

/// The host refuses a cursor of more than 1,024 bytes.
#[test]
fn a_cursor_has_room_for_the_longest_names() {
    let mut harness = harness(&json!({"terminatedPodThreshold": 1}));
    let long = |length| "n".repeat(length);
    let out = Some((OUT_OF_SERVICE, "NoExecute"));
    harness.put(node(&long(253), "False", out));
    for number in 0..1_100 {
        let named = |start: &str| {
            let name = format!("{start}{number:05}{}", long(247));
            let pod = pod(&name).namespace(&long(63)).node(&long(253));
            pod.finalizer()
        };
        harness.put(named("a").phase("Failed").into());
        harness.put(named("b").terminating().into());
    }
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    let Verdict::ContinueFrom(cursor) = first.verdict else {
        panic!("{:?}", first.verdict);
    };
    assert!((900..=1_024).contains(&cursor.len()), "{}", cursor.len());
    harness.run();
    assert_eq!(handled(&harness).len(), 1_099 + 1_100);
}

/// Changes between two calls of a pass: a node that is back keeps its pods, and
/// the place is valid although its pod is gone.
#[test]
fn every_page_reads_the_nodes_again() {
    let mut harness = without_threshold();
    let out = Some((OUT_OF_SERVICE, "NoExecute"));
    harness.put(node("dead-1", "False", out));
    harness.put(node("dead-2", "False", out));
    for number in 0..1_500 {
        for name in ["dead-1", "dead-2"] {
            let pod = pod(&format!("{name}-{number:05}")).node(name);
            harness.put(pod.terminating().into());
        }
    }
    let first = harness.decide(podgc::PASSES, podgc::PASS);
    let Verdict::ContinueFrom(cursor) = first.verdict else {
        panic!("{:?}", first.verdict);
    };
    harness.remove("Pod", "default/dead-1-00999");
    harness.put(node("dead-1", "True", out));
    let second = harness.decide_page(podgc::PASSES, podgc::PASS, &cursor);
    assert_eq!(second.plans[0].target.name, "dead-2-00000");
    assert_eq!(second.plans.len(), 1_000);
    harness.put(node("dead-1", "False", out));
    let second = harness.decide_page(podgc::PASSES, podgc::PASS, &cursor);
    assert_eq!(second.plans[0].target.name, "dead-1-01000");
}

#[test]
fn a_pass_over_a_healthy_cluster_reads_no_pod() {
    let mut harness = harness(&json!({}));
    for number in 0..20 {
        let name = format!("worker-{number}");
        harness.put(ready_node(&name));
        harness.put(pod(&format!("a{number}")).node(&name).into());
        harness.put(
            pod(&format!("b{number}"))
                .node(&name)
                .phase("Succeeded")
                .into(),
        );
    }
    let decision = harness.decide(podgc::PASSES, podgc::PASS);
    assert!(decision.plans.is_empty() && decision.commands.is_empty());
    assert_eq!(harness.objects_read(), 0);
}

/// Upstream asserts the request: a grace period of 0 s and no other option. The
/// host adds the uid.
#[test]
fn a_pod_is_deleted_without_a_grace_period() {
    let mut harness = harness(&json!({"maxParallelDeletes": 3}));
    harness.put(pod("a").node("").phase("Failed").terminating().into());
    let decision = harness.decide(podgc::PASSES, podgc::PASS);
    assert_eq!(decision.parallel, 3);
    let [plan] = decision.plans.as_slice() else {
        panic!("one plan, not {:?}", decision.plans);
    };
    assert_eq!(plan.target.uid, "Pod/default/a");
    let steps: &[Step] = &[Step::Delete(DeleteOptions {
        resource_version: String::new(),
        propagation_policy: String::new(),
        grace_period_seconds: Some(0),
    })];
    assert_eq!(plan.steps, steps);
}

/// The patch contains only the uid and the status, so that it works on a pod
/// with fields that could not be merged, like two ports of one number.
#[test]
fn pgc_37_duplicated_keys_in_a_pod_do_not_matter() {
    let port = json!({"containerPort": 80, "protocol": "TCP"});
    let env = json!({"name": "XYZ", "value": "1"});
    for (field, value) in [("ports", json!([port, port])), ("env", json!([env, env]))] {
        let mut harness = without_threshold();
        let mut duplicated: Value = pod("a").node("gone").finalizer().into();
        duplicated["spec"]["containers"][0][field] = value.clone();
        harness.put(duplicated);
        harness.advance(crate::common::QUARANTINE);
        let pod = harness.object("Pod", "default/a").unwrap();
        assert_eq!(pod["spec"]["containers"][0][field], value);
        assert_eq!(pod["status"]["phase"], "Failed");
        let condition = &pod["status"]["conditions"][0];
        assert_eq!(condition["type"], "DisruptionTarget");
        assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:14:00Z");
        let [plan, ..] = harness.executions() else {
            panic!("one plan was executed");
        };
        let Some(Step::Patch(patch)) = plan.plan.steps.first() else {
            panic!("the first step is a patch");
        };
        assert_eq!(
            (&*patch.kind, &*patch.subresource),
            ("strategic-merge", "status")
        );
    }
}
