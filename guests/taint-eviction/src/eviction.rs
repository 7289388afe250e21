//! Evicting one pod whose time has come. The work items are pods' uids.

use davit_guest::pod::{PodCondition, PodStatus, status_patch};
use davit_guest::{
    Context, Decision, DeleteOptions, Measure, Metric, Object, Patch, Plan, Time, WorkItem,
};

use crate::config::{Config, Deletion};
use crate::event;
use crate::taints::{LiveNodes, Source, Unproven, is_proven};
use crate::timer;
use crate::view::{PODS_WITH_STATUS, PodWithStatus};

const DELETIONS: &str = "taint_eviction_controller_pod_deletions_total";
const DURATION: &str = "taint_eviction_controller_pod_deletion_duration_seconds";
const BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0,
];

/// What the controller counts, under kube-controller-manager's names.
pub(crate) fn metrics() -> Vec<Metric> {
    vec![
        Metric::counter(
            DELETIONS,
            "Total number of Pods deleted by TaintEvictionController since its start.",
            &[],
        ),
        Metric::histogram(
            DURATION,
            "Latency, in seconds, between the time when a taint effect has been activated for \
             the Pod and its deletion via TaintEvictionController.",
            &[],
            &BUCKETS,
        ),
    ]
}

/// Decides about a pod whose time has come, from the present state: what called
/// for its eviction may be gone by now. That its time got longer meanwhile is of
/// no account.
pub(crate) fn reconcile(
    config: &Config,
    cx: &Context<'_>,
    item: &WorkItem,
    nodes: &LiveNodes,
) -> Result<Decision, Unproven> {
    let Some(pod) = cx.watch(PODS_WITH_STATUS).get_by_uid(&item.key) else {
        return Ok(timer::is_gone(cx, &item.key));
    };
    let taints = nodes.taints(cx, &pod.view.spec.node_name);
    if !timer::is_over(config, cx, &item.key, &pod.view.spec, &taints) {
        return Ok(called_off(item, pod));
    }
    let node = &pod.view.spec.node_name;
    match taints.source {
        Source::Cache if !is_proven(cx, node) => Err(Unproven { node: node.clone() }),
        Source::Unread(why) => Ok(Decision::retry(why)),
        Source::Cache | Source::Live => Ok(Decision::done().plans(plan(config, cx, item, pod))),
    }
}

/// The pod may stay. That is worth an event if a timer ran out or an attempt
/// was made, and so people may think the opposite; and if it can stay.
fn called_off(item: &WorkItem, pod: Object<PodWithStatus>) -> Decision {
    let has_waited = item.due_at > item.created_at;
    let is_terminating = pod.view.metadata.deletion_timestamp.is_some();
    let plan = (has_waited && !is_terminating).then(|| event::cancelled(pod.reference));
    Decision::done().plans(plan)
}

/// The plan that says why the pod is disrupted and removes it, with the pod's
/// own grace period; none if both have been done. If the condition cannot be
/// written, the pod stays.
///
/// A pod that is evicted gets the condition from the API server, in the same
/// step that takes from its budget: one that its budget keeps must not be
/// marked.
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
        format!("it does not, or no longer, tolerate the NoExecute taints of its node {node}");
    let mut plan = Plan::new(pod.reference, "not-tolerated", message);
    // Further attempts are not news.
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
    // An eviction is created when the pod's time has come, however often it is
    // tried.
    let latency = Measure::seconds_since(DURATION, &[], item.created_at);
    let plan = plan.measure("succeeded", Measure::add(DELETIONS, &[], 1.0));
    Some(plan.measure("succeeded", latency))
}

/// The patch that adds the condition; none if the pod has it.
fn mark(cx: &Context<'_>, pod: &Object<PodWithStatus>) -> Option<Patch> {
    let old = PodStatus {
        conditions: pod.view.status.conditions.clone(),
        ..PodStatus::default()
    };
    let mut new = old.clone();
    let condition = PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
        pod.view.metadata.generation,
    );
    new.update_condition(condition, Time::from_instant(cx.now()))
        .then(|| status_patch(&pod.reference.uid, &old, &new))
        .flatten()
}
