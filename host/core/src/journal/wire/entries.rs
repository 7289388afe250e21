//! The formats of entries.

use crate::account::Account;
use crate::grant::{Grant, Permissions, ReadRule, WriteRule};
use crate::journal::entry::{
    AnswerEntry, CallEntry, CandidateEntry, ControllerEntry, Entry, ExecutionEntry, HeldEntry,
    KeptEntry, LostEntry, Record, RevisionEntry, RulingEntry, StreamEntry,
};
use crate::journal::reads::{LiveRead, SnapshotReads};
use crate::revision::CallLimits;
use crate::time::Now;

wire_struct!(Record { now, entry });
wire_struct!(Now { instant, wall });

wire_enum!(Entry {
    0 Keyframe { is_start },
    1 KeyframeEnd,
    2 Cache(change),
    3 Mapping(mapping),
    4 Unlisted(unlisted),
    5 Controller(controller),
    6 Removed { controller },
    7 Spec { controller, spec },
    8 Call(call),
    9 Answer(answer),
    10 Ruling(ruling),
    11 Execution(execution),
    12 Stream(stream),
    13 Failure { call, failure },
    14 Kept(kept),
    15 Lost(lost),
    16 Held(held),
});

wire_struct!(HeldEntry {
    controller,
    holds,
    releases,
    is_stripped
});

wire_struct!(ControllerEntry {
    name,
    id,
    leads,
    mode,
    account,
    grant,
    stable,
    candidate
});
wire_struct!(RevisionEntry {
    name,
    module,
    config,
    limits,
    views
});
wire_struct!(CandidateEntry {
    revision,
    weight,
    step
});
wire_struct!(CallLimits {
    memory_mib,
    call_millis,
    instances
});
wire_struct!(Account { namespace, name });
wire_enum!(Grant { 0 Declared, 1 Rules { rules, home } });
wire_struct!(Permissions { reads, writes });
wire_struct!(ReadRule {
    group,
    resource,
    namespaces,
    fields
});
wire_struct!(WriteRule {
    verb,
    group,
    resource,
    namespaces
});

wire_struct!(CallEntry {
    id,
    controller,
    revision,
    role,
    items,
    reasons,
    continues
});
wire_struct!(AnswerEntry {
    call,
    result,
    is_void,
    took,
    reads,
    live,
    versions
});
wire_struct!(SnapshotReads {
    pending,
    notes,
    is_cut
});
wire_struct!(LiveRead { request, answer });
wire_struct!(RulingEntry {
    controller,
    revision,
    role,
    item,
    decision,
    target,
    reason,
    ruling
});
wire_struct!(ExecutionEntry {
    controller,
    revision,
    decision,
    target,
    reason,
    outcome,
    took
});
wire_struct!(KeptEntry {
    controller,
    revision,
    decision,
    reason,
    target,
    resource,
    keep_for,
    object
});
wire_struct!(LostEntry { what, bytes });
wire_struct!(StreamEntry {
    resource,
    condition,
    is_current
});
