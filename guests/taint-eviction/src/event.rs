//! The events, in kube-controller-manager's words.

use davit_guest::{Event, ObjectRef, Plan, Reason};

const COMPONENT: &str = "taint-eviction-controller";
/// The reason of the plan for a pod that stays.
const CANCELLED: Reason = Reason::new("cancelled");
/// The reason of both events.
const REASON: &str = "TaintManagerEviction";

/// Adds the event that the plan's target is about to be deleted.
pub(crate) fn marking(plan: Plan) -> Plan {
    let message = format!("Marking for deletion Pod {}", named(&plan.target));
    plan.event(Event::normal(REASON, message, COMPONENT))
}

/// The plan with the event that a pod stays after all.
pub(crate) fn cancelled(pod: ObjectRef) -> Plan {
    let message = format!("Cancelling deletion of Pod {}", named(&pod));
    Plan::new(pod, CANCELLED, "its eviction is no longer due")
        .event(Event::normal(REASON, message, COMPONENT))
}

fn named(pod: &ObjectRef) -> String {
    format!("{}/{}", pod.namespace, pod.name)
}
