//! The formats of work items, decisions, plans, failures and rulings.

use crate::budget::{Guardrail, Trip};
use crate::circuit::{CallFailure, CallFailureKind};
use crate::controller::{CallId, ControllerId, DecisionId, Outcome};
use crate::expectation::{ExpectationState, WriteResult};
use crate::failure::{Failure, FailureClass};
use crate::gate::{Mode, Refusal, Ruling, WaitReason};
use crate::manifest::{Permission, Rate};
use crate::object::ObjectRef;
use crate::plan::{
    Amount, Apply, Command, Create, Decision, DeleteOptions, Enqueue, Event, Measure, MeasureWhen,
    Patch, PatchKind, Plan, PlanFailure, PlanMeasure, PropagationPolicy, QueueKey, Step, Verdict,
    WorkItem,
};
use crate::queue::{EnqueueReason, PendingItem};
use crate::rollout::Role;

wire_tag!(Role { 0 Stable, 1 Candidate });
wire_tag!(Mode { 0 Enforce, 1 DryRun, 2 Disabled });
wire_name!(FailureClass);
wire_name!(CallFailureKind);

wire_struct!(ObjectRef {
    api_version,
    kind,
    namespace,
    name,
    uid
});
wire_struct!(QueueKey { queue, key });
wire_struct!(Failure {
    class,
    message,
    retry_after
});
wire_struct!(CallFailure {
    kind,
    message,
    guest_message
});
wire_struct!(PlanFailure { uid, step, failure });
wire_struct!(WorkItem {
    queue,
    key,
    attempt,
    created_at,
    due_at,
    failures,
    cursor
});
wire_struct!(PendingItem { created_at, due_at });
wire_enum!(EnqueueReason {
    0 Change { watch },
    1 List,
    2 Resync,
    3 Tick,
    4 Command,
    5 Retry,
    6 Requeue,
    7 Observed,
});

wire_struct!(Decision {
    plans,
    commands,
    verdict,
    parallel
});
wire_enum!(Verdict {
    0 Done,
    1 Retry { reason },
    2 RequeueAfter(delay),
    3 RequeueWhenObserved,
    4 ContinueFrom { cursor },
});

wire_struct!(Plan {
    target,
    reason,
    message,
    steps,
    measures,
    when_cancelled
});
wire_enum!(Step {
    0 Patch(patch),
    1 Delete(options),
    2 Evict(options),
    3 Create(create),
    4 Event(event),
    5 Apply(apply),
});
wire_struct!(Patch {
    kind,
    subresource,
    body
});
wire_tag!(PatchKind { 0 StrategicMerge, 1 Merge, 2 Json });
wire_struct!(DeleteOptions {
    resource_version,
    propagation_policy,
    grace_period_seconds
});
wire_tag!(PropagationPolicy { 0 Background, 1 Foreground, 2 Orphan });
wire_struct!(Create { object, body });
wire_struct!(Apply {
    object,
    subresource,
    force,
    body
});
wire_struct!(Event {
    event_type,
    reason,
    message,
    component
});
wire_struct!(PlanMeasure { when, measure });
wire_tag!(MeasureWhen { 0 Attempted, 1 Succeeded, 2 Gone, 3 Failed });
wire_struct!(Measure {
    metric,
    labels,
    amount
});
wire_enum!(Amount { 0 Add(by), 1 Set(to), 2 Observe(value), 3 SecondsSince(at) });

wire_enum!(Command {
    0 Enqueue(enqueue),
    1 Cancel(item),
    2 SetRate { queue, group, rate },
    3 SetNote { key, value },
    4 Measure(measure),
});
wire_struct!(Enqueue {
    item,
    after,
    created_at,
    group
});
wire_struct!(Rate { per_second, burst });

wire_enum!(Ruling { 0 Admit, 1 DryRun, 2 Wait(reason), 3 Refuse(refusal) });
wire_enum!(WaitReason {
    0 NotLeading,
    1 Disabled,
    2 NotOwned,
    3 Expectation(state),
    4 Tripped(trip),
    5 NotServed,
});
wire_tag!(ExpectationState { 0 InFlight, 1 NotObserved, 2 Gone });
wire_struct!(Trip {
    guardrail,
    limit,
    role,
    since,
    until
});
wire_tag!(Guardrail { 0 Writes, 1 Deletes, 2 DeletesPercent });
wire_enum!(Refusal {
    0 NoSteps,
    1 NoUid,
    2 OtherUid { namespace, name },
    3 NotDeclared { permission },
    4 NotGranted { permission, namespace },
    5 NotAPod,
    6 UnknownTarget,
    7 WritesOutside,
    8 CreatesEvent,
});
wire_struct!(Permission {
    verb,
    group,
    resource
});

wire_struct!(Outcome { written, failed });
wire_enum!(WriteResult { 0 Gone, 1 Version(version), 2 Unknown });

wire_struct!(CallId { controller, number });
wire_struct!(DecisionId { call, position });

impl super::value::Wire for ControllerId {
    fn write(&self, to: &mut super::writer::Writer) {
        to.unsigned(self.0);
    }

    fn read(from: &mut super::reader::Reader<'_>) -> Result<Self, super::UnreadableEntry> {
        Ok(Self(from.unsigned()?))
    }
}

#[cfg(test)]
impl super::Sample for ControllerId {
    fn sample(source: &mut super::SampleSource<'_>) -> Self {
        Self(u64::sample(source))
    }
}
