//! How a pod is deleted, and how deletions are counted.

use davit_guest::pod::{PodCondition, PodStatus, status_patch};
use davit_guest::{Context, Counter, DeleteOptions, Object, Plan, Reason, Time, When};

use crate::view::Pod;

/// The collector's metrics, under kube-controller-manager's names.
pub(crate) const DELETIONS: Counter<2> = Counter::new(
    "pod_gc_collector_force_delete_pods_total",
    "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
    LABELS,
);
pub(crate) const ERRORS: Counter<2> = Counter::new(
    "pod_gc_collector_force_delete_pod_errors_total",
    "Number of errors encountered when forcefully deleting the pods since the Pod GC \
     Controller started.",
    LABELS,
);
const LABELS: [&str; 2] = ["namespace", "reason"];

/// The reason in the condition of an orphaned pod.
pub(crate) const DELETION_BY_POD_GC: &str = "DeletionByPodGC";

/// Why a pod is deleted: also a label of the metrics.
pub(crate) const TERMINATED: Reason = Reason::new("terminated");
pub(crate) const OUT_OF_SERVICE: Reason = Reason::new("out-of-service");
pub(crate) const ORPHANED: Reason = Reason::new("orphaned");
pub(crate) const UNSCHEDULED: Reason = Reason::new("unscheduled");

/// The plan that marks a pod as failed, unless the pod has ended, and then
/// force-deletes it. If the mark fails, the pod stays.
///
/// Only a pod whose node is missing gets a condition: its workload may need to
/// know that the pod did not fail by itself.
pub(crate) fn plan(cx: &Context<'_>, pod: Object<Pod>, reason: Reason, message: String) -> Plan {
    let mark = if pod.view.status.is_terminal() {
        None
    } else {
        let mut failed = pod.view.status.clone();
        "Failed".clone_into(&mut failed.phase);
        failed.observed_generation = pod.view.metadata.generation;
        if reason == ORPHANED {
            let condition = disruption_target(pod.view.metadata.generation);
            failed.update_condition(condition, Time::from(cx.now()));
        }
        status_patch(&pod.reference.uid, &pod.view.status, &failed)
    };
    let count = |metric: Counter<2>| {
        let labels = [pod.reference.namespace.as_str(), reason.as_str()];
        metric.add(labels, 1.0)
    };
    let (deletions, errors) = (count(DELETIONS), count(ERRORS));
    let plan = Plan::new(pod.reference, reason, message)
        .measure(When::Attempted, deletions)
        .measure(When::Failed, errors);
    match mark {
        Some(patch) => plan.patch(patch),
        None => plan,
    }
    .delete(DeleteOptions::force())
}

/// Whether a pod was marked because its node is missing.
pub(crate) fn is_marked(status: &PodStatus) -> bool {
    status.conditions.iter().any(|condition| {
        condition.r#type == PodCondition::DISRUPTION_TARGET
            && condition.status == "True"
            && condition.reason == DELETION_BY_POD_GC
    })
}

/// Whether a pod was deleted, and has a grace period or finalizers.
pub(crate) fn is_terminating(pod: &Object<Pod>) -> bool {
    pod.view.metadata.deletion_timestamp.is_some()
}

fn disruption_target(generation: i64) -> PodCondition {
    PodCondition::holds(
        PodCondition::DISRUPTION_TARGET,
        DELETION_BY_POD_GC,
        "PodGC: node no longer exists",
        generation,
    )
}
