//! Evicting one pod whose time is over. The work items are pods' uids.

use davit_guest::pod::{PodCondition, PodStatus, status_patch};
use davit_guest::{
    Context, Counter, Decision, DeleteOptions, Histogram, Object, Patch, Plan, Reason, Time, When,
    WorkItem,
};

use crate::config::{Config, Deletion};
use crate::event;
use crate::taints::{LiveNodes, Source, UnprovenNode, is_proven};
use crate::timer;
use crate::view::{PODS_WITH_STATUS, PodWithStatus};

/// The controller's metrics, under kube-controller-manager's names.
pub(crate) const DELETIONS: Counter<0> = Counter::new(
    "taint_eviction_controller_pod_deletions_total",
    "Total number of Pods deleted by TaintEvictionController since its start.",
    [],
);
pub(crate) const DURATION: Histogram<0> = Histogram::new(
    "taint_eviction_controller_pod_deletion_duration_seconds",
    "Latency, in seconds, between the time when a taint effect has been activated for the Pod \
     and its deletion via TaintEvictionController.",
    [],
    &[
        0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0,
    ],
);

const NOT_TOLERATED: Reason = Reason::new("not-tolerated");

/// Decides about a pod whose time is over, from the present state: the cause of
/// its eviction may be gone. A longer time since then does not count.
pub(crate) fn reconcile(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
    nodes: &LiveNodes,
) -> Result<Decision, UnprovenNode> {
    let Some(pod) = cx.watch(PODS_WITH_STATUS).get_by_uid(&item.key) else {
        return Ok(timer::is_gone(cx, &item.key));
    };
    let taints = nodes.taints(cx, &pod.view.spec.node_name);
    if !timer::is_over(config, cx, &item.key, &pod.view.spec, &taints) {
        return Ok(cancelled_eviction(item, pod));
    }
    let node = &pod.view.spec.node_name;
    match taints.source {
        Source::Cache if !is_proven(cx, node) => Err(UnprovenNode { node: node.clone() }),
        Source::Unread(why) => Ok(Decision::retry(why)),
        Source::Cache | Source::Live => Ok(Decision::done().plans(plan(config, cx, item, pod))),
    }
}

/// The pod may stay. An event says so if a timer ended or an attempt was made,
/// because an observer may expect the opposite; and only if the pod is not
/// terminating.
fn cancelled_eviction(item: &WorkItem, pod: Object<PodWithStatus>) -> Decision {
    let has_waited = item.due_at > item.created_at;
    let is_terminating = pod.view.metadata.deletion_timestamp.is_some();
    let plan = (has_waited && !is_terminating).then(|| event::cancelled(pod.reference));
    Decision::done().plans(plan)
}

/// The plan that adds the reason to the pod's status and removes the pod, with
/// the pod's own grace period; none if both were done. If the condition cannot
/// be written, the pod stays.
///
/// For an evicted pod, the API server writes the condition in the same step
/// that takes from its budget: a pod that its budget keeps must not be marked.
fn plan(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
    pod: Object<PodWithStatus>,
) -> Option<Plan> {
    let is_terminating = pod.view.metadata.deletion_timestamp.is_some();
    let mark = match config.deletion {
        Deletion::Delete => mark(cx, &pod),
        Deletion::Evict => None,
    };
    if is_terminating && mark.is_none() {
        return None;
    }
    let node = &pod.view.spec.node_name;
    let message =
        format!("it does not tolerate the NoExecute taints of its node {node}, or no longer does");
    let mut plan = Plan::new(pod.reference, NOT_TOLERATED, message);
    // No event for further attempts.
    if item.failures.is_empty() {
        plan = event::marking(plan);
    }
    if let Some(mark) = mark {
        plan = plan.patch(mark);
    }
    if is_terminating {
        return Some(plan);
    }
    let options = DeleteOptions::new();
    let plan = match config.deletion {
        Deletion::Delete => plan.delete(options),
        Deletion::Evict => plan.evict(options),
    };
    // The eviction's item is created when the pod's time is over, however often
    // it is retried.
    let latency = DURATION.seconds_since([], item.created_at);
    let plan = plan.measure(When::Succeeded, DELETIONS.add([], 1.0));
    Some(plan.measure(When::Succeeded, latency))
}

/// The patch that adds the condition; none if the pod has it.
fn mark(cx: &Context<'_>, pod: &Object<PodWithStatus>) -> Option<Patch> {
    let old = PodStatus {
        conditions: pod.view.conditions.clone(),
        ..PodStatus::default()
    };
    let mut new = old.clone();
    let condition = PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
        pod.view.metadata.generation,
    );
    new.update_condition(condition, Time::from(cx.now()))
        .then(|| status_patch(&pod.reference.uid, &old, &new))
        .flatten()
}
