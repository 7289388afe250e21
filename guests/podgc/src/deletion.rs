//! How a pod is deleted, and how deletions are counted.

use davit_guest::pod::{PodCondition, PodStatus, status_patch};
use davit_guest::{Context, DeleteOptions, Measure, Metric, Object, Plan, Time};

use crate::view::Pod;

const DELETIONS: &str = "pod_gc_collector_force_delete_pods_total";
const ERRORS: &str = "pod_gc_collector_force_delete_pod_errors_total";
/// The reason in the condition of an orphaned pod.
pub(crate) const DELETION_BY_POD_GC: &str = "DeletionByPodGC";
const LABELS: [&str; 2] = ["namespace", "reason"];

/// Why a pod is deleted: a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::OutOfService => "out-of-service",
            Self::Orphaned => "orphaned",
            Self::Unscheduled => "unscheduled",
        }
    }
}

/// The collector's metrics, under kube-controller-manager's names.
pub(crate) fn metrics() -> Vec<Metric> {
    vec![
        Metric::counter(
            DELETIONS,
            "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            &LABELS,
        ),
        Metric::counter(
            ERRORS,
            "Number of errors encountered when forcefully deleting the pods since the Pod GC \
             Controller started.",
            &LABELS,
        ),
    ]
}

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
        if reason == Reason::Orphaned {
            let condition = disruption_target(pod.view.metadata.generation);
            failed.update_condition(condition, Time::from_instant(cx.now()));
        }
        status_patch(&pod.reference.uid, &pod.view.status, &failed)
    };
    let count = |metric| {
        let labels = [pod.reference.namespace.as_str(), reason.as_str()];
        Measure::add(metric, &labels, 1.0)
    };
    let (deletions, errors) = (count(DELETIONS), count(ERRORS));
    let plan = Plan::new(pod.reference, reason.as_str(), message)
        .measure("attempted", deletions)
        .measure("failed", errors);
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
