//! The journal of a machine.

use super::*;
use crate::journal::{
    AnswerCopy, Entry, JournalItem, Record, Replay, ReplayOutcome, SnapshotReads, Unreplayable,
};
use crate::msgpack::sample::{list, map};
use crate::store::StateChange;

/// The entries since they were last taken.
fn entries(bench: &mut Bench) -> Vec<Record> {
    let items = bench.machine.take_journal().into_iter();
    let records = items.flat_map(|item| match item {
        JournalItem::Record(record) => vec![record],
        JournalItem::Keyframe(keyframe) => keyframe.entries().collect(),
        JournalItem::Released(_) => Vec::new(),
    });
    records.collect()
}

/// A machine with a journal and two pods.
fn recording() -> Bench {
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", enforce())]);
    bench.list("pods", &["a", "b"]);
    bench
}

/// The answer to a call with what a driver adds to it for a journal.
fn answered_with_copy(call: &Call<Guest>) -> Input {
    let mut answer = answered(call, true);
    if let Input::Answered { result, copy, .. } = &mut answer {
        *copy = Some(AnswerCopy::of(result, SnapshotReads::default()).into());
    }
    answer
}

/// What the calls of a journal end with.
fn outcomes(records: Vec<Record>) -> Vec<ReplayOutcome> {
    let mut replay = Replay::default();
    let outcomes = records.into_iter();
    let outcomes = outcomes.filter_map(|record| replay.handle(record).unwrap());
    outcomes.collect()
}

#[test]
fn a_machine_without_a_journal_keeps_none_and_asks_for_no_copies() {
    let mut bench = Bench::running(&["a"]);
    bench.machine.add_keyframe(bench.now);
    assert!(!bench.calls[0].is_recorded);
    bench.answer_all(true);
    assert!(bench.machine.take_journal().is_empty());
}

#[test]
fn a_call_is_made_again_with_the_cache_that_it_read() {
    let mut bench = recording();
    let call = bench.calls.pop_front().unwrap();
    assert!(call.is_recorded);
    let later = bench.object("c");
    bench.update("pods", Update::Apply(later));
    bench.input(answered_with_copy(&call));
    let outcomes = outcomes(entries(&mut bench));
    let [ReplayOutcome::Call(again)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!((again.id, &again.items), (call.id, &call.items));
    assert_eq!((again.now, &again.mapping), (call.now, &call.mapping));
    let pods = |snapshot: &crate::store::Snapshot, views: &BTreeMap<String, _>| {
        let view = snapshot.view(views["pods"]).unwrap();
        let keys = view.keys(0, 10).items.into_iter();
        keys.map(std::borrow::Cow::into_owned)
            .collect::<Vec<String>>()
    };
    let keys = pods(&again.snapshot, &again.revision.views);
    assert_eq!(keys, pods(&call.snapshot, &call.views));
    assert_eq!(keys.len(), 2);
    assert_eq!(again.result.as_ref().map(Vec::len), Ok(call.items.len()));
}

/// The kubelets of a large cluster post 17 of them a second.
#[test]
fn a_heartbeat_is_recorded_within_a_second_and_before_a_call_that_reads_it() {
    let node = |bench: &mut Bench, at: &str| {
        let condition = map([("lastHeartbeatTime", at.into())]);
        let status = map([("conditions", list([condition]))]);
        let data = map([("status", status)]).encode();
        let node = bench.object("n");
        ProjectedObject {
            data: data.into(),
            ..node
        }
    };
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench.discover(&["pods", "nodes"]);
    let mut nodes = watch("nodes", Source::One(resource("nodes")));
    nodes.fields = vec!["status.conditions[*].lastHeartbeatTime".parse().unwrap()];
    let mut desired = desired("one", enforce());
    desired.stable.manifest = Arc::new(Manifest {
        watches: [manifest().watches, vec![nodes]].concat(),
        ..manifest()
    });
    bench.apply(vec![desired]);
    bench.list("pods", &[]);
    bench.list("nodes", &[]);
    let first = node(&mut bench, "10:43:00");
    bench.update("nodes", Update::Apply(first));
    entries(&mut bench);
    let is_renewal = |it: &Record| matches!(&it.entry, Entry::Cache(StateChange::Renew(all)) if all.renewed.len() == 1);
    let count = |bench: &mut Bench| entries(bench).iter().filter(|it| is_renewal(it)).count();

    bench.pass(SECOND / 2);
    let next = node(&mut bench, "10:48:00");
    bench.update("nodes", Update::Apply(next));
    assert_eq!(count(&mut bench), 0, "nobody reads it");
    bench.pass(SECOND);
    assert_eq!(count(&mut bench), 1);

    let next = node(&mut bench, "10:53:00");
    bench.update("nodes", Update::Apply(next));
    let pod = bench.object("a");
    bench.update("pods", Update::Apply(pod));
    let all = entries(&mut bench);
    let renewal = all.iter().position(is_renewal);
    let call = all.iter().position(|it| matches!(it.entry, Entry::Call(_)));
    assert!(renewal.is_some() && renewal < call, "{all:?}");

    // Whoever reads from a keyframe on knows it too, and gets it only once.
    let next = node(&mut bench, "10:58:00");
    bench.update("nodes", Update::Apply(next));
    bench.machine.add_keyframe(bench.now);
    let all = entries(&mut bench);
    let renewal = all.iter().position(is_renewal);
    let keyframe = all
        .iter()
        .position(|it| matches!(it.entry, Entry::Keyframe { .. }));
    assert!(renewal.is_some() && renewal < keyframe, "{all:?}");
}

#[test]
fn a_call_that_started_before_the_first_entry_is_skipped() {
    let mut bench = recording();
    let call = bench.calls.pop_front().unwrap();
    entries(&mut bench);
    bench.machine.add_keyframe(bench.now);
    bench.input(answered_with_copy(&call));
    let outcomes = outcomes(entries(&mut bench));
    let [ReplayOutcome::Skip { why, .. }] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(*why, Unreplayable::StartUnknown);
}

/// The guest may have read what is missing, until a keyframe has all of it.
#[test]
fn calls_after_a_lost_entry_cannot_be_made_again() {
    let mut bench = recording();
    let call = bench.calls.pop_front().unwrap();
    let mut all = entries(&mut bench);
    let put = |entry: &Entry| matches!(entry, Entry::Cache(StateChange::Put { .. }));
    let first = all.iter().position(|record| put(&record.entry)).unwrap();
    let lost = all.remove(first);
    let reduced = lost.entry.reduced(1_000).into_iter();
    let now = lost.now;
    let reduced: Vec<Record> = reduced.map(|entry| Record { now, entry }).collect();
    assert_eq!(reduced.len(), 2, "the object without its fields");
    all.splice(first..first, reduced);
    bench.input(answered_with_copy(&call));
    bench.calls.clear();
    bench.machine.add_keyframe(bench.now);
    let later = bench.object("c");
    bench.update("pods", Update::Apply(later));
    let call = bench.calls.pop_front().unwrap();
    bench.input(answered_with_copy(&call));
    all.extend(entries(&mut bench));
    let outcomes = outcomes(all);
    let [ReplayOutcome::Skip { why, .. }, ReplayOutcome::Call(again)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(*why, Unreplayable::EntryLost);
    assert_eq!(again.id, call.id);
}

#[test]
fn rulings_and_outcomes_follow_the_answer_that_they_are_about() {
    let mut bench = recording();
    let call = bench.calls.pop_front().unwrap();
    entries(&mut bench);
    bench.input(answered_with_copy(&call));
    let execute = bench.executes.pop_front().unwrap();
    bench.executed(&execute);
    let kinds = entries(&mut bench).into_iter();
    let kinds = kinds.filter_map(|record| match record.entry {
        Entry::Answer(answer) => Some(format!("answer {}", answer.versions.len())),
        Entry::Ruling(ruling) => Some(format!("{} {}", ruling.ruling, ruling.target.name)),
        Entry::Execution(one) => Some(format!("{} {}", one.outcome.is_success(), one.target.name)),
        _ => None,
    });
    let kinds: Vec<String> = kinds.collect();
    assert_eq!(kinds[0], format!("answer {}", call.items.len()));
    let name = &execute.plan.target.name;
    assert!(kinds.contains(&format!("admitted {name}")), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&format!("true {name}")));
}

/// The answer to a call of a revision that was replaced counts for nothing.
#[test]
fn an_answer_that_came_too_late_says_so() {
    let mut bench = recording();
    let call = bench.calls.pop_front().unwrap();
    bench.apply(vec![desired("two", enforce())]);
    bench.input(answered_with_copy(&call));
    let records = entries(&mut bench).into_iter();
    let is_void = records.filter_map(|record| match record.entry {
        Entry::Answer(answer) => Some(answer.is_void),
        _ => None,
    });
    assert_eq!(is_void.collect::<Vec<_>>(), [true]);
}

/// The keys of the pods that the guest of a call reads.
fn keys(
    snapshot: &crate::store::Snapshot,
    views: &BTreeMap<String, crate::store::ViewId>,
) -> Vec<String> {
    let view = snapshot.view(views["pods"]).unwrap();
    let keys = view.keys(0, 100).items.into_iter();
    keys.map(std::borrow::Cow::into_owned).collect()
}

/// A machine with a journal, whose controller is compared with the cluster.
fn compared() -> Bench {
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", super::compared::compared())]);
    bench.list("pods", &["a", "b", "c", "d"]);
    bench.answer_all(false);
    bench
}

/// Calls that read held objects, in the order in which they end, and what they read.
fn calls_that_read_held(bench: &mut Bench) -> Vec<(CallId, Vec<String>)> {
    let mut read = Vec::new();
    for (pod, decides) in [("b", false), ("a", false), ("a", true), ("c", true)] {
        if decides {
            let again = bench.object(pod);
            bench.update("pods", Update::Apply(again));
        } else {
            let gone = bench.object(pod);
            bench.update("pods", Update::Delete(gone));
        }
        while let Some(call) = bench.calls.pop_front() {
            read.push((call.id, keys(&call.snapshot, &call.views)));
            let mut answer = answered(&call, decides);
            if let Input::Answered { result, copy, .. } = &mut answer {
                *copy = Some(AnswerCopy::of(result, SnapshotReads::default()).into());
            }
            bench.input(answer);
        }
    }
    bench.pass(400 * SECOND);
    read
}

#[test]
fn a_call_is_made_again_with_the_objects_that_were_held_for_it() {
    let mut bench = compared();
    let before = entries(&mut bench);
    let read = calls_that_read_held(&mut bench);
    assert!(read.iter().any(|(_, keys)| keys.len() == 4));
    let after = entries(&mut bench);
    let ends = outcomes(before.into_iter().chain(after).collect());
    let again: BTreeMap<CallId, Vec<String>> = ends
        .into_iter()
        .filter_map(|outcome| match outcome {
            ReplayOutcome::Call(call) => {
                Some((call.id, keys(&call.snapshot, &call.revision.views)))
            }
            ReplayOutcome::Skip { .. } => None,
        })
        .collect();
    for (call, keys) in read {
        assert_eq!(again.get(&call), Some(&keys), "{call:?}");
    }
}

/// Reading may start at any keyframe.
#[test]
fn a_keyframe_has_what_is_held() {
    let mut bench = compared();
    let gone = bench.object("b");
    bench.update("pods", Update::Delete(gone));
    let call = bench.calls.pop_front().expect("the change is news");
    bench.answer(&call, false);
    entries(&mut bench);
    bench.machine.add_keyframe(bench.now);
    let other = bench.object("e");
    bench.update("pods", Update::Apply(other));
    let call = bench.calls.pop_front().expect("the change is news");
    bench.input(answered_with_copy(&call));
    let outcomes = outcomes(entries(&mut bench));
    let [ReplayOutcome::Call(again)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    let read = keys(&call.snapshot, &call.views);
    assert!(read.contains(&"ns/b".to_owned()), "{read:?}");
    assert_eq!(keys(&again.snapshot, &again.revision.views), read);
}

/// Before that, `davit why` shows nothing of them.
#[test]
fn the_rulings_on_held_objects_are_recorded() {
    let mut bench = compared();
    let gone = bench.object("b");
    bench.update("pods", Update::Delete(gone));
    let call = bench.calls.pop_front().expect("the change is news");
    assert!(call.is_recorded);
    entries(&mut bench);
    bench.input(answered_with_copy(&call));
    let kinds = entries(&mut bench).into_iter();
    let kinds: Vec<&str> = kinds
        .filter_map(|record| match record.entry {
            Entry::Answer(_) => Some("answer"),
            Entry::Ruling(_) => Some("ruling"),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["answer", "ruling"]);
}
