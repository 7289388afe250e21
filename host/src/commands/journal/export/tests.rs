//! Decisions on their way from entries to a file that the crate reads again.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use davit_core::controller::{CallId, ControllerId, DecisionId, Outcome};
use davit_core::failure::{Failure, FailureClass};
use davit_core::gate::{Mode, Ruling, WaitReason};
use davit_core::grant::Grant;
use davit_core::journal::{
    AnswerEntry, CallEntry, ControllerEntry, Entry, ExecutionEntry, RulingEntry,
};
use davit_core::object::ObjectRef;
use davit_core::plan::{Decision, DeleteOptions, Plan, QueueKey, Step, Verdict, WorkItem};
use davit_core::rollout::Role;
use davit_core::time::Instant;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::{Field, Row};

use super::file::DecisionFile;
use super::rows::{DecisionRow, DecisionRows, MOST_WAITING};
use crate::cli::{Arguments, Command, JournalCommand};
use crate::commands::journal::testing;

const CONTROLLER: ControllerId = ControllerId(7);

fn call_id(number: u64) -> CallId {
    CallId {
        controller: CONTROLLER,
        number,
    }
}

fn decision_id(number: u64) -> DecisionId {
    DecisionId {
        call: call_id(number),
        position: 0,
    }
}

fn controller() -> Entry {
    Entry::Controller(Arc::new(ControllerEntry {
        name: "podgc".to_owned(),
        id: Some(CONTROLLER),
        leads: true,
        mode: Mode::Enforce,
        account: None,
        grant: Grant::Declared,
        stable: None,
        candidate: None,
    }))
}

fn target(uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "ReplicaSet".to_owned(),
        namespace: "default".to_owned(),
        name: format!("web-{uid}"),
        uid: uid.to_owned(),
    }
}

fn plan(uid: &str) -> Plan {
    Plan {
        target: target(uid),
        reason: "orphaned".to_owned(),
        message: String::new(),
        steps: vec![Step::Delete(DeleteOptions::default())],
        measures: Vec::new(),
        when_cancelled: None,
    }
}

/// A call for one item, and its answer with these plans.
fn decided(number: u64, uids: &[&str]) -> [Entry; 2] {
    let item = WorkItem::new("pods", format!("key-{number}"), Instant::ZERO);
    let call = CallEntry {
        id: call_id(number),
        controller: "podgc".into(),
        revision: "aaaa".into(),
        role: Role::Stable,
        items: vec![item],
        reasons: Vec::new(),
        continues: None,
    };
    let decision = Decision {
        plans: uids.iter().map(|uid| plan(uid)).collect(),
        commands: Vec::new(),
        verdict: Verdict::Done,
        parallel: 0,
    };
    let answer = AnswerEntry {
        call: call_id(number),
        result: Ok(vec![decision]),
        is_void: false,
        took: Duration::ZERO,
        reads: None,
        live: Vec::new(),
        versions: Vec::new(),
    };
    [Entry::Call(Box::new(call)), Entry::Answer(Box::new(answer))]
}

fn ruled(number: u64, uid: &str, ruling: Ruling) -> Entry {
    Entry::Ruling(Box::new(RulingEntry {
        controller: "podgc".to_owned(),
        revision: "aaaa".into(),
        role: Role::Stable,
        item: QueueKey {
            queue: "pods".to_owned(),
            key: format!("key-{number}"),
        },
        decision: decision_id(number),
        target: target(uid),
        reason: "orphaned".to_owned(),
        ruling,
    }))
}

fn executed(number: u64, uid: &str, failure: Option<&str>) -> Entry {
    let failure = failure.map(|text| (0, Failure::new(FailureClass::Conflict, text)));
    Entry::Execution(Box::new(ExecutionEntry {
        controller: "podgc".to_owned(),
        revision: "aaaa".into(),
        decision: decision_id(number),
        target: target(uid),
        reason: "orphaned".to_owned(),
        outcome: Outcome {
            written: None,
            failed: failure,
        },
        took: Duration::ZERO,
    }))
}

/// The rows of entries, one a second, and how many leave while the entries are taken.
fn rows(entries: impl IntoIterator<Item = Entry>) -> (Vec<DecisionRow>, usize, DecisionRows) {
    let mut rows = DecisionRows::new(None);
    let mut left = Vec::new();
    for (second, entry) in (0..).zip(entries) {
        rows.take(second * 1_000_000, true, entry);
        left.extend(std::iter::from_fn(|| rows.next_complete()));
    }
    let early = left.len();
    left.extend(std::iter::from_fn(|| rows.next_left()));
    (left, early, rows)
}

fn story() -> Vec<Entry> {
    let refused = "delete apps/v1 ReplicaSet default/web-b: the server answered 409 Conflict: no";
    let mut entries = vec![controller()];
    entries.extend(decided(1, &["a", "b"]));
    entries.extend(decided(2, &[]));
    entries.push(ruled(1, "a", Ruling::Admit));
    entries.push(ruled(1, "b", Ruling::Admit));
    entries.push(executed(1, "b", Some(refused)));
    entries.push(executed(1, "a", None));
    entries.extend(decided(3, &["c"]));
    entries.push(ruled(3, "c", Ruling::Wait(WaitReason::NotLeading)));
    entries.extend(decided(4, &["d"]));
    entries.push(ruled(4, "d", Ruling::Admit));
    entries
}

#[test]
fn a_row_has_the_ruling_and_the_outcome_that_follow_its_decision() {
    let (left, early, rows) = rows(story());
    let texts: Vec<String> = left
        .iter()
        .map(|row| {
            let Some(plan) = &row.plan else {
                return format!("{} {}", row.decision, row.verdict);
            };
            let ruling = plan.ruling.as_ref().map_or("?", |(ruling, _)| ruling);
            let outcome = plan.outcome.as_ref().map_or_else(String::new, |outcome| {
                let seconds = outcome.after_micros / 1_000_000;
                format!(" {} {:?} {seconds}", outcome.result, outcome.code)
            });
            let (decision, uid) = (&row.decision, &plan.target.uid);
            format!("{decision} {} {uid} {ruling}{outcome}", plan.action)
        })
        .collect();
    assert_eq!(
        texts,
        [
            "7-1-0 delete a admitted ok None 6",
            "7-1-0 delete b admitted conflict Some(409) 5",
            "7-2-0 done",
            "7-3-0 delete c not-leading",
            "7-4-0 delete d admitted",
        ]
    );
    assert_eq!((early, rows.open_count()), (4, 1));
    assert!(left.iter().all(|row| row.mode == Some("Enforce")));
}

#[test]
fn identifiers_of_another_host_complete_no_row_of_the_former_one() {
    let mut entries = vec![controller()];
    entries.extend(decided(1, &["a"]));
    entries.push(Entry::Keyframe { is_start: true });
    entries.push(executed(1, "a", None));
    let (left, early, rows) = rows(entries);
    assert_eq!((left.len(), early, rows.open_count()), (1, 1, 1));
    assert_eq!(left[0].plan.as_ref().unwrap().outcome, None);
}

/// The first one fails, and the second one is in its place then.
#[test]
fn plans_of_a_decision_with_the_same_target_and_reason_have_their_own_outcomes() {
    let mut entries = vec![controller()];
    entries.extend(decided(1, &["a", "a", "a"]));
    entries.push(ruled(1, "a", Ruling::Admit));
    entries.push(ruled(1, "a", Ruling::Admit));
    entries.push(ruled(1, "a", Ruling::DryRun));
    entries.push(executed(1, "a", Some("no")));
    entries.push(executed(1, "a", None));
    let (left, _, rows) = rows(entries);
    let outcome = |row: &DecisionRow| {
        let plan = row.plan.as_ref().unwrap();
        let outcome = plan.outcome.as_ref().map_or("-", |outcome| outcome.result);
        (plan.ruling.as_ref().unwrap().0, outcome)
    };
    let outcomes: Vec<_> = left.iter().map(outcome).collect();
    let expected = [
        ("admitted", "conflict"),
        ("admitted", "ok"),
        ("dry-run", "-"),
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(rows.open_count(), 0);
}

/// The journal has nothing of the second host's start: its disk was full.
#[test]
fn a_row_gets_no_outcome_of_another_host_whose_start_is_missing() {
    let web = target("a");
    let mut entries = vec![
        (1, Entry::Keyframe { is_start: true }),
        (1, controller()),
        (1, Entry::KeyframeEnd),
    ];
    entries.extend(decided(1, &["a"]).map(|entry| (2, entry)));
    entries.push((9, Entry::Keyframe { is_start: false }));
    entries.push((9, Entry::KeyframeEnd));
    entries.push((10, ruled(1, &web.uid, Ruling::Admit)));
    entries.push((11, executed(1, &web.uid, None)));
    let directory = testing::journal(entries);
    let rows = exported(directory.path(), &[]);
    let [row] = &*rows else {
        panic!("one row: {rows:?}");
    };
    let outcome = row.get_column_iter();
    let outcome = outcome.filter(|(name, _)| ["ruling", "outcome"].contains(&name.as_str()));
    assert!(outcome.map(|(_, field)| field).all(|it| *it == Field::Null));
}

/// A decision just before the end of the span is executed after it.
#[test]
fn a_span_and_a_controller_choose_decisions_whose_outcomes_may_follow() {
    let mut entries = vec![
        (1, Entry::Keyframe { is_start: true }),
        (1, controller()),
        (1, Entry::KeyframeEnd),
    ];
    let mut decide = |second: u32, number: u64, uid: &str| {
        entries.extend(decided(number, &[uid]).map(|entry| (second, entry)));
        entries.push((second, ruled(number, uid, Ruling::Admit)));
    };
    decide(2, 1, "a");
    decide(9, 2, "b");
    decide(10, 3, "c");
    entries.push((11, executed(1, "a", None)));
    entries.push((12, executed(2, "b", Some("no"))));
    entries.push((13, executed(3, "c", None)));
    let directory = testing::journal(entries);
    let start = ["--from", "1970-01-01T00:00:05Z"];
    let end = ["--to", "1970-01-01T00:00:10Z"];
    for (arguments, expected) in [
        (&[][..], &["a ok", "b conflict", "c ok"][..]),
        (&end, &["a ok", "b conflict"]),
        (&start, &["b conflict", "c ok"]),
        (&[start, end].concat(), &["b conflict"]),
        (&["--controller", "podgc"], &["a ok", "b conflict", "c ok"]),
        (&["--controller", "other"], &[]),
    ] {
        let rows = exported(directory.path(), arguments);
        let found = rows.iter().map(|row| {
            let texts = ["uid", "outcome"].map(|name| match column(row, name) {
                Field::Str(text) => text,
                other => panic!("{other:?}"),
            });
            texts.join(" ")
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{arguments:?}");
    }
}

/// The rows of the file that `davit journal export` writes with these arguments.
fn exported(journal: &Path, arguments: &[&str]) -> Vec<Row> {
    let output = journal.join("rows.parquet");
    let command = ["davit", "journal", "export", "--decisions", "--output"];
    let mut command: Vec<_> = command.map(OsString::from).to_vec();
    command.extend([output.clone().into(), journal.into()]);
    command.extend(arguments.iter().map(OsString::from));
    let parsed = Arguments::try_parse_from(command).unwrap().command;
    let Command::Journal(tool) = parsed else {
        panic!("davit journal");
    };
    let JournalCommand::Export(arguments) = tool.command else {
        panic!("an export");
    };
    super::export(&arguments).unwrap();
    let bytes = std::fs::read(output).unwrap();
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let rows = reader.get_row_iter(None).unwrap();
    rows.map(Result::unwrap).collect()
}

fn column(row: &Row, name: &str) -> Field {
    let mut columns = row.get_column_iter();
    let found = columns.find(|(column, _)| *column == name);
    found.unwrap().1.clone()
}

/// A plan whose end nobody recorded does not keep everything after it in memory.
#[test]
fn the_rows_that_wait_are_bounded() {
    let numbers = 1..=MOST_WAITING as u64 + 10;
    let entries = numbers.flat_map(|number| decided(number, &["a"]));
    let (left, early, _) = rows(entries);
    assert_eq!((left.len(), early), (MOST_WAITING + 10, 10));
}

#[test]
fn a_file_is_read_back_as_it_was_written() {
    let mut bytes = Vec::new();
    let mut file = DecisionFile::new(&mut bytes).unwrap();
    let (left, ..) = rows(story());
    for row in left.clone() {
        file.push(row).unwrap();
    }
    assert_eq!(file.finish().unwrap(), 5);
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let read: Vec<_> = reader
        .get_row_iter(None)
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let text = |text: &str| Field::Str(text.to_owned());
    assert_eq!(read.len(), left.len());
    let second = &read[1];
    for (name, field) in [
        ("time", Field::TimestampMicros(2_000_000)),
        ("controller", text("podgc")),
        ("role", text("stable")),
        ("decision", text("7-1-0")),
        ("queue", text("pods")),
        ("item", text("key-1")),
        ("verdict", text("done")),
        ("is_void", Field::Bool(false)),
        ("mode", text("Enforce")),
        ("action", text("delete")),
        ("api_group", text("apps")),
        ("kind", text("ReplicaSet")),
        ("namespace", text("default")),
        ("name", text("web-b")),
        ("uid", text("b")),
        ("reason", text("orphaned")),
        ("ruling", text("admitted")),
        ("outcome", text("conflict")),
        ("outcome_code", Field::Int(409)),
        ("outcome_micros", Field::Long(5_000_000)),
    ] {
        assert_eq!(column(second, name), field, "{name}");
    }
    for name in ["action", "uid", "ruling", "outcome", "outcome_code"] {
        assert_eq!(column(&read[2], name), Field::Null, "{name}");
    }
}

#[test]
fn a_file_has_a_row_group_for_every_20_000_rows() {
    let mut bytes = Vec::new();
    let mut file = DecisionFile::new(&mut bytes).unwrap();
    for number in 0..45_000 {
        let row = DecisionRow {
            time: number,
            ..DecisionRow::default()
        };
        file.push(row).unwrap();
    }
    assert_eq!(file.finish().unwrap(), 45_000);
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
    let groups = reader.metadata().row_groups().iter();
    let sizes: Vec<i64> = groups.map(RowGroupMetaData::num_rows).collect();
    assert_eq!(sizes, [20_000, 20_000, 5_000]);
}
