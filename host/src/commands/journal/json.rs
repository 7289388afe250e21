//! Entries as JSON. `docs/operating.md` has the shape.

use davit_core::controller::CallId;
use davit_core::journal::{
    AnswerEntry, CallEntry, ControllerEntry, Entry, ExecutionEntry, KeptEntry, Record,
    RevisionEntry, RulingEntry, StreamEntry,
};
use davit_core::object::ObjectRef;
use davit_core::plan::{Command, Decision, Plan, Verdict};
use davit_core::queue::EnqueueReason;
use davit_core::store::StateChange;
use davit_core::watch::Condition;
use serde::Serialize;
use serde_json::{Value, json};

use super::reads::{ReportedRead, reported_reads};
use super::time;
use crate::http::disagreements::{Target, step};

/// One line.
#[derive(Debug, Serialize)]
pub(super) struct EntryLine<'a> {
    pub(super) time: String,
    segment: u64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) controller: Option<&'a str>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    uids: &'a [String],
    #[serde(flatten)]
    details: Value,
}

impl<'a> EntryLine<'a> {
    pub(super) fn new(
        stored: &'a davit_journal::Entry,
        record: &Record,
        controller: Option<&'a str>,
    ) -> Self {
        Self {
            time: time(stored.time),
            segment: stored.segment,
            kind: kind(&record.entry),
            controller,
            uids: &stored.objects,
            details: details(&record.entry),
        }
    }
}

/// The kind of an entry.
pub(super) const fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::Keyframe { .. } => "keyframe",
        Entry::KeyframeEnd => "keyframe-end",
        Entry::Cache(_) => "cache",
        Entry::Mapping(_) => "mapping",
        Entry::Unlisted(_) => "unlisted",
        Entry::Controller(_) => "controller",
        Entry::Removed { .. } => "removed",
        Entry::Spec { .. } => "spec",
        Entry::Call(_) => "call",
        Entry::Answer(_) => "answer",
        Entry::Failure { .. } => "failure",
        Entry::Ruling(_) => "ruling",
        Entry::Execution(_) => "execution",
        Entry::Stream(_) => "stream",
        Entry::Held(_) => "held",
        Entry::Kept(_) => "kept",
        Entry::Lost(_) => "lost",
    }
}

/// The controller that an entry names.
pub(super) fn controller(entry: &Entry) -> Option<&str> {
    match entry {
        Entry::Controller(controller) => Some(&controller.name),
        Entry::Removed { controller } | Entry::Spec { controller, .. } => Some(controller),
        Entry::Call(call) => Some(&call.controller),
        Entry::Ruling(ruling) => Some(&ruling.controller),
        Entry::Execution(execution) => Some(&execution.controller),
        Entry::Held(held) => Some(&held.controller),
        Entry::Kept(kept) => Some(&kept.controller),
        _ => None,
    }
}

/// A call: its controller and its number.
pub(super) fn call_name(call: CallId) -> String {
    format!("{}-{}", call.controller.0, call.number)
}

/// In a word.
pub(super) const fn change_name(change: &StateChange) -> &'static str {
    match change {
        StateChange::AddView(_) => "add-view",
        StateChange::DropView(_) => "drop-view",
        StateChange::AddSegment { .. } => "add-list",
        StateChange::DropSegment(_) => "drop-list",
        StateChange::Show { .. } => "show",
        StateChange::Hide { .. } => "hide",
        StateChange::Width { .. } => "width",
        StateChange::Put { .. } => "put",
        StateChange::Renew(_) => "renew",
        StateChange::Remove { .. } => "remove",
    }
}

fn details(entry: &Entry) -> Value {
    match entry {
        Entry::Keyframe { is_start } => json!({"isStart": is_start}),
        Entry::KeyframeEnd | Entry::Removed { .. } | Entry::Mapping(_) => json!({}),
        Entry::Cache(change) => cache(change),
        Entry::Unlisted(unlisted) => {
            let resources = unlisted.values().flatten();
            json!({"resources": resources.map(|it| &it.plural).collect::<Vec<_>>()})
        }
        Entry::Controller(controller) => revisions(controller),
        Entry::Spec { spec, .. } => {
            let spec: Value = serde_json::from_str(spec).unwrap_or_default();
            json!({"spec": spec})
        }
        Entry::Call(call) => call_details(call),
        Entry::Answer(answer) => answer_details(answer),
        Entry::Failure { call, failure } => {
            json!({"call": call_name(*call), "failure": failure.to_string()})
        }
        Entry::Ruling(ruling) => ruling_details(ruling),
        Entry::Execution(execution) => execution_details(execution),
        Entry::Stream(stream) => stream_details(stream),
        Entry::Held(held) => {
            let holds = held.holds.iter().map(|it| it.uid().to_string());
            let releases = held.releases.iter().map(ToString::to_string);
            json!({
                "holds": holds.collect::<Vec<_>>(),
                "releases": releases.collect::<Vec<_>>(),
            })
        }
        Entry::Kept(kept) => kept_details(kept),
        Entry::Lost(lost) => json!({"what": lost.what, "bytes": lost.bytes}),
    }
}

fn cache(change: &StateChange) -> Value {
    let name = change_name(change);
    match change {
        StateChange::AddSegment { spec, .. } => {
            json!({"change": name, "resource": spec.resource.to_string()})
        }
        StateChange::Put { object, .. } => json!({
            "change": name,
            "object": object.key(),
            "resourceVersion": object.version().to_string(),
            "fields": rmp_serde::from_slice::<Value>(&object.data()).unwrap_or_default(),
        }),
        StateChange::Renew(renewals) => json!({"change": name, "objects": renewals.renewed.len()}),
        _ => json!({"change": name}),
    }
}

fn revisions(controller: &ControllerEntry) -> Value {
    let revision = |it: &RevisionEntry| {
        let module = format!("sha256:{}", it.module);
        json!({"revision": &*it.name, "module": module})
    };
    json!({
        "leads": controller.leads,
        "stable": controller.stable.as_ref().map(revision),
        "candidate": controller.candidate.as_ref().map(|it| revision(&it.revision)),
    })
}

fn call_details(call: &CallEntry) -> Value {
    let items = call.items.iter().enumerate().map(|(position, item)| {
        let reason = call.reasons.get(position).map(EnqueueReason::as_str);
        json!({"queue": item.queue, "key": item.key, "reason": reason})
    });
    json!({
        "call": call_name(call.id),
        "revision": &*call.revision,
        "role": call.role.as_str(),
        "items": items.collect::<Vec<_>>(),
    })
}

fn answer_details(answer: &AnswerEntry) -> Value {
    let reads = answer.live.iter().flat_map(reported_reads);
    let reads = reads.map(ReportedRead::short);
    let mut details = json!({
        "call": call_name(answer.call),
        "isVoid": answer.is_void,
        "tookMillis": millis(answer.took),
        "liveReads": reads.collect::<Vec<_>>(),
    });
    if let Some(fields) = details.as_object_mut() {
        let (name, value) = match &answer.result {
            Ok(decisions) => {
                let decisions = decisions.iter().map(decision).collect::<Vec<_>>();
                ("decisions", Value::from(decisions))
            }
            Err(failure) => ("failure", failure.to_string().into()),
        };
        fields.insert(name.to_owned(), value);
    }
    details
}

fn decision(decision: &Decision) -> Value {
    json!({
        "plans": decision.plans.iter().map(plan).collect::<Vec<_>>(),
        "commands": decision.commands.iter().map(command).collect::<Vec<_>>(),
        "verdict": verdict(&decision.verdict),
    })
}

fn plan(plan: &Plan) -> Value {
    json!({
        "target": target(&plan.target),
        "reason": plan.reason,
        "message": plan.message,
        "steps": plan.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn target(target: &ObjectRef) -> Target {
    target.into()
}

/// A command, in words.
pub(in crate::commands) fn command(command: &Command) -> String {
    match command {
        Command::Enqueue(enqueue) => {
            let (item, after) = (&enqueue.item, enqueue.after);
            format!("enqueue {} {} after {after:?}", item.queue, item.key)
        }
        Command::Cancel(item) => format!("cancel {} {}", item.queue, item.key),
        Command::SetRate { queue, group, .. } => format!("set the rate of {queue} {group}"),
        Command::SetNote { key, value } => match value {
            Some(_) => format!("set the note {key}"),
            None => format!("delete the note {key}"),
        },
        Command::Measure(measure) => format!("measure {}", measure.metric),
    }
}

/// A verdict, in words.
pub(in crate::commands) fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Done => "done".to_owned(),
        Verdict::Retry { reason } => format!("retry: {reason}"),
        Verdict::RequeueAfter(after) => format!("requeue after {after:?}"),
        Verdict::RequeueWhenObserved => "requeue when observed".to_owned(),
        Verdict::ContinueFrom { .. } => "continue with the next page".to_owned(),
    }
}

fn ruling_details(ruling: &RulingEntry) -> Value {
    json!({
        "revision": &*ruling.revision,
        "role": ruling.role.as_str(),
        "decision": ruling.decision.to_string(),
        "queue": ruling.item.queue,
        "key": ruling.item.key,
        "target": target(&ruling.target),
        "reason": ruling.reason,
        "ruling": ruling.ruling.as_str(),
        "message": ruling.ruling.to_string(),
    })
}

fn execution_details(execution: &ExecutionEntry) -> Value {
    let failed = execution.outcome.failed.as_ref();
    json!({
        "revision": &*execution.revision,
        "decision": execution.decision.to_string(),
        "target": target(&execution.target),
        "reason": execution.reason,
        "result": execution_result(execution),
        "message": failed.map(|(_, failure)| &failure.message),
        "tookMillis": millis(execution.took),
    })
}

/// Without the object: `davit restore` shows it.
fn kept_details(kept: &KeptEntry) -> Value {
    json!({
        "revision": &*kept.revision,
        "decision": kept.decision.to_string(),
        "target": target(&kept.target),
        "reason": kept.reason,
        "bytes": kept.object.len(),
        "keepForMillis": millis(kept.keep_for),
    })
}

/// `ok`, or the failure class.
pub(super) fn execution_result(execution: &ExecutionEntry) -> &'static str {
    let failed = execution.outcome.failed.as_ref();
    failed.map_or("ok", |(_, failure)| failure.class.as_str())
}

fn stream_details(stream: &StreamEntry) -> Value {
    json!({
        "resource": stream.resource,
        "condition": condition(&stream.condition),
        "isCurrent": stream.is_current,
    })
}

/// A condition, in words.
pub(super) fn condition(condition: &Condition) -> String {
    match condition {
        Condition::Synced => "synced".to_owned(),
        Condition::Interrupted { reason } => format!("interrupted: {reason}"),
        Condition::NotServed => "not served".to_owned(),
    }
}

fn millis(took: std::time::Duration) -> u64 {
    u64::try_from(took.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use davit_core::failure::{Failure, FailureClass};
    use davit_core::journal::SnapshotReads;

    use super::super::testing::{answer, failed_read, gone, list_read, node_read, with_reads};
    use super::*;

    #[test]
    fn the_live_reads_that_a_replay_answers_are_listed_without_fields() {
        let refused = Failure::new(FailureClass::Forbidden, "the server answered 403");
        let live = vec![
            node_read([("n1", Ok(json!({"spec": {}}))), ("n2", Err(gone()))]),
            list_read(1),
            failed_read(&refused),
        ];
        let entry = with_reads(answer(7, vec![]), SnapshotReads::default(), live);
        let reads = &details(&entry)["liveReads"];
        let list = "list v1/pods namespace=\"default\" fields=\"spec.nodeName=n1\"";
        let message = "the server answered 403";
        let failed = json!({"result": "failed", "class": "forbidden", "message": message});
        assert_eq!(
            *reads,
            json!([
                {"request": "get v1 Node n1", "answer": {"result": "found"}},
                {"request": "get v1 Node n2", "answer": {"result": "not-found"}},
                {"request": list, "answer": {"result": "list", "objects": 1}},
                {"request": list, "answer": failed},
            ])
        );
    }
}
