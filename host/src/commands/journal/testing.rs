//! Journals for tests.

mod cache;
mod reads;

use std::collections::BTreeMap;
use std::time::Duration;

use davit_core::controller::{CallId, ControllerId, DecisionId};
use davit_core::digest::ModuleDigest;
use davit_core::gate::{Mode, Ruling};
use davit_core::grant::Grant;
use davit_core::journal::{
    AnswerEntry, CallEntry, ControllerEntry, Entry, Record, RecordedCall, Replay, ReplayOutcome,
    RevisionEntry, RulingEntry, encode,
};
use davit_core::object::ObjectRef;
use davit_core::plan::{Decision, DeleteOptions, Plan, QueueKey, Step, Verdict, WorkItem};
use davit_core::revision::CallLimits;
use davit_core::rollout::Role;
use davit_core::store::ViewId;
use davit_core::time::{Instant, Now, Wall};
use davit_journal::{Settings, Writer};
use tempfile::TempDir;

pub(in crate::commands) use cache::keyframe;
pub(in crate::commands) use reads::{failed_read, gone, list_read, node_read, with_reads};

/// A journal of these entries, each with its time in seconds since the Unix epoch. A keyframe
/// starts a segment.
pub(in crate::commands) fn journal(entries: impl IntoIterator<Item = (u32, Entry)>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
    for (seconds, entry) in entries {
        if matches!(entry, Entry::Keyframe { .. }) {
            let micros = i64::from(seconds) * 1_000_000;
            writer.start_segment(micros, b"").unwrap();
        }
        append(&mut writer, seconds, entry);
    }
    writer.close().unwrap();
    directory
}

/// The controller `podgc` with one revision, which has these views.
pub(in crate::commands) fn podgc(views: BTreeMap<String, ViewId>) -> ControllerEntry {
    ControllerEntry {
        name: "podgc".to_owned(),
        id: Some(ControllerId(1)),
        leads: true,
        mode: Mode::Enforce,
        account: None,
        grant: Grant::Declared,
        stable: Some(RevisionEntry {
            name: "r".into(),
            module: ModuleDigest::of(b""),
            config: [].into(),
            limits: CallLimits {
                memory_mib: 64,
                call_millis: 1000,
                instances: 4,
            },
            views: views.into(),
        }),
        candidate: None,
    }
}

/// Writes an entry at this time, in seconds since the Unix epoch.
pub(in crate::commands) fn append(writer: &mut Writer, seconds: u32, entry: Entry) {
    let micros = i64::from(seconds) * 1_000_000;
    let is_end = matches!(entry, Entry::KeyframeEnd);
    let encoded = encode(&record(seconds, entry));
    let uids: Vec<String> = encoded.uids.iter().map(ToString::to_string).collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    writer.append(micros, &uids, &encoded.payload).unwrap();
    if is_end {
        writer.end_keyframe().unwrap();
    }
}

fn record(seconds: u32, entry: Entry) -> Record {
    let now = Now {
        instant: Instant::from_nanos(u64::from(seconds) * 1_000_000_000),
        wall: Wall(i64::from(seconds) * 1_000),
    };
    Record { now, entry }
}

/// The last call of these entries, as a replay makes it again.
pub(in crate::commands) fn recorded_call(
    entries: impl IntoIterator<Item = (u32, Entry)>,
) -> RecordedCall {
    let mut replay = Replay::default();
    let entries = entries.into_iter();
    let outcomes = entries.filter_map(|(seconds, entry)| {
        let outcome = replay.handle(record(seconds, entry));
        outcome.unwrap()
    });
    match outcomes.last() {
        Some(ReplayOutcome::Call(call)) => *call,
        other => panic!("{other:?}"),
    }
}

/// The id of the call with this number.
pub(in crate::commands) fn id(number: u64) -> CallId {
    CallId {
        controller: ControllerId(1),
        number,
    }
}

/// The call with this number, of one item.
pub(in crate::commands) fn call(number: u64, controller: &str, queue: &str, key: &str) -> Entry {
    Entry::Call(Box::new(CallEntry {
        id: id(number),
        controller: controller.into(),
        revision: "r".into(),
        role: Role::Stable,
        items: vec![WorkItem::new(queue, key, Instant::ZERO)],
        reasons: vec![],
        continues: None,
    }))
}

/// The answer to the call with this number: a decision with these plans.
pub(in crate::commands) fn answer(number: u64, plans: Vec<Plan>) -> Entry {
    Entry::Answer(Box::new(AnswerEntry {
        call: id(number),
        result: Ok(vec![Decision {
            plans,
            commands: vec![],
            verdict: Verdict::Done,
            parallel: 0,
        }]),
        is_void: false,
        took: Duration::ZERO,
        reads: None,
        live: vec![],
        versions: vec![],
    }))
}

/// A pod in the namespace `default`.
pub(in crate::commands) fn pod(name: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
    }
}

/// A plan that deletes an object.
pub(in crate::commands) fn deletion(target: &ObjectRef) -> Plan {
    Plan {
        target: target.clone(),
        reason: "test".into(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: vec![],
        when_cancelled: None,
    }
}

/// The ruling on that plan of the call with this number.
pub(in crate::commands) fn ruling(number: u64, target: &ObjectRef, ruling: Ruling) -> Entry {
    Entry::Ruling(Box::new(RulingEntry {
        controller: "podgc".into(),
        revision: "r".into(),
        role: Role::Stable,
        item: QueueKey {
            queue: "pods".into(),
            key: "a".into(),
        },
        decision: DecisionId {
            call: id(number),
            position: 0,
        },
        target: target.clone(),
        reason: "test".into(),
        ruling,
    }))
}
