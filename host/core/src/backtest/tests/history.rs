//! Histories: names that return, hosts that start again, journals that are read from the
//! middle.

use super::bench::{ENDED, FAILED, Guest, IDLE, PATIENT, Recorder, SECOND, Trial, offer};
use crate::backtest::{Backtest, Report};
use crate::journal::{Entry, Record};
use crate::store::StateChange;

#[test]
fn an_object_that_history_creates_again_is_another_one() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a1", "Failed");
    recorder.pass(20 * SECOND);
    recorder.remove("a");
    recorder.pod("a", "a2", "Running");
    recorder.pass(200 * SECOND);
    recorder.pod("a", "a2", "Failed");
    recorder.pass(SECOND);
    let report = Trial::of(FAILED).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 2);
    assert_eq!(report.agreement.only_candidate, 2);
    // The first one was created again within a minute.
    assert_eq!(report.candidate.regret.recreated, Some(1));
}

/// It matches a selector again.
#[test]
fn an_object_that_returns_with_its_uid_counts_once() {
    for open_loop in [false, true] {
        let mut recorder = Recorder::start(IDLE);
        recorder.pod("a", "a", "Failed");
        recorder.pass(20 * SECOND);
        recorder.remove("a");
        recorder.pass(200 * SECOND);
        recorder.pod("a", "a", "Failed");
        recorder.pass(SECOND);
        recorder.node("n1", None);
        let mut trial = Trial::of(FAILED);
        trial.settings.open_loop = open_loop;
        let report = trial.run(&recorder.records).unwrap();
        assert_eq!(report.candidate.deletions, 1);
        assert_eq!(report.agreement.only_candidate, 1);
    }
}

#[test]
fn a_pod_whose_node_is_back_soon_is_a_regret() {
    let mut recorder = Recorder::start(IDLE);
    recorder.node("n1", Some("node.kubernetes.io/unreachable"));
    recorder.pod("a", "a", "Failed");
    recorder.pass(60 * SECOND);
    recorder.node("n1", None);
    recorder.pod("b", "b", "Failed");
    recorder.pass(60 * SECOND);
    let report = Trial::of(FAILED).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 2);
    assert_eq!(report.candidate.regret.nodes_back, Some(1));
}

#[test]
fn what_was_deleted_stays_away_when_the_host_starts_again() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pod("b", "b", "Running");
    recorder.pass(30 * SECOND);
    recorder.now.wall.0 += 3_600_000;
    recorder.restart();
    recorder.pass(30 * SECOND);
    recorder.pod("b", "b", "Failed");
    recorder.pass(30 * SECOND);
    let report = Trial::of(FAILED).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 2);
    assert_eq!(report.candidate.by_hour.len(), 2, "{:?}", report.candidate);
    assert_eq!(report.activity.executed_plans, 2);
    assert!(report.notes[0].contains("1 times"), "{:?}", report.notes);
    // The hour between both hosts does not count.
    assert!(report.span.seconds < 100.0, "{:?}", report.span);
}

/// The pod goes meanwhile, before the policy's timer is due.
#[test]
fn no_timer_fires_while_nobody_records() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.stop();
    recorder.now.wall.0 += 3_600_000;
    recorder.remove("a");
    recorder.restart();
    recorder.pass(60 * SECOND);
    recorder.node("n2", None);
    let report = Trial::of(PATIENT).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 0, "{:?}", report.surprising);
}

/// Its lists are not complete yet.
#[test]
fn a_journal_may_end_with_the_start_of_a_host() {
    let mut recorder = Recorder::start(FAILED);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.restart();
    let mut entries = recorder.records.iter();
    let end = entries.rposition(|it| matches!(it.entry, Entry::KeyframeEnd));
    let report = Trial::of(FAILED).run(&recorder.records[..=end.unwrap()]);
    assert_eq!(report.unwrap().agreement.agree, 1);
}

#[test]
fn a_journal_is_tested_from_any_keyframe() {
    let mut recorder = Recorder::start(FAILED);
    recorder.pod("a", "a", "Failed");
    recorder.pod("b", "b", "Succeeded");
    recorder.pass(30 * SECOND);
    recorder.keyframe();
    recorder.pod("c", "c", "Failed");
    recorder.pass(30 * SECOND);
    let records = &recorder.records;
    let is_later = |entry: &Entry| matches!(entry, Entry::Keyframe { is_start: false });
    let middle = records.iter().position(|it| is_later(&it.entry)).unwrap();
    let whole = Trial::of(ENDED).run(records).unwrap();
    assert_eq!(whole.agreement.agree, 2);
    let rest = Trial::of(ENDED).run(&records[middle..]).unwrap();
    assert_eq!(
        (rest.agreement.agree, rest.agreement.only_candidate),
        (1, 1)
    );
    // The same from an entry in the middle.
    let trial = Trial {
        from: middle,
        ..Trial::of(ENDED)
    };
    let span = trial.run(records).unwrap();
    assert_eq!(
        (span.agreement.agree, span.agreement.only_candidate),
        (1, 1)
    );
}

#[test]
fn a_journal_whose_changes_do_not_fit_is_refused() {
    let mut recorder = Recorder::start(FAILED);
    recorder.pod("a", "a", "Running");
    recorder.pass(SECOND);
    let is_segment = |entry: &Entry| format!("{entry:?}").contains("AddSegment");
    recorder.records.retain(|it| !is_segment(&it.entry));
    let error = Trial::of(FAILED).run(&recorder.records).unwrap_err();
    assert!(error.to_string().contains("do not fit"), "{error}");
}

/// The report of a policy over a journal of which these entries cannot be read.
fn damaged(guest: Guest, records: &[Record], unread: std::ops::Range<usize>) -> Report {
    let trial = Trial::of(guest);
    let mut backtest = Backtest::new(trial.settings);
    let mut desired = Some(trial.desired);
    for (position, record) in records.iter().enumerate() {
        if position == unread.start {
            backtest.lose_damaged("segment 1, offset 7: torn".into());
        }
        if unread.contains(&position) {
            continue;
        }
        if backtest.controller().is_some_and(|it| it.stable.is_some())
            && let Some(desired) = desired.take()
        {
            backtest.start(desired);
        }
        offer(&mut backtest, record.clone()).unwrap();
    }
    backtest.finish().unwrap()
}

#[test]
fn damage_is_counted_with_its_cause_and_the_time_that_it_hides() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.node("n1", None);
    let first = recorder.records.len();
    recorder.pod("b", "b", "Running");
    recorder.pass(300 * SECOND);
    recorder.node("n2", None);
    let last = recorder.records.len();
    let report = damaged(FAILED, &recorder.records, first..last);
    assert_eq!((report.damaged_parts, report.damage.len()), (1, 1));
    let hides = |report: &Report| report.span.missing_seconds;
    // Nothing says how long the journal would have been.
    assert!(hides(&report) < 1.0, "{:?}", report.span);
    let note = report.notes.iter().find(|note| note.contains("torn"));
    assert!(note.is_some(), "{:?}", report.notes);

    recorder.pass(20 * SECOND);
    recorder.node("n3", None);
    let report = damaged(FAILED, &recorder.records, first..last);
    assert!(
        (300.0..325.0).contains(&hides(&report)),
        "{:?}",
        report.span
    );
    recorder.keyframe();
    recorder.pod("c", "c", "Failed");
    let report = damaged(FAILED, &recorder.records, first..last);
    assert!(
        (300.0..325.0).contains(&hides(&report)),
        "{:?}",
        report.span
    );
    assert_eq!(report.candidate.deletions, 2);
}

/// The entries between a damaged part and the next keyframe change a state that is not known.
#[test]
fn no_timer_fires_while_the_state_is_unknown() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    recorder.node("n1", None);
    let first = recorder.records.len();
    recorder.remove("a");
    let last = recorder.records.len();
    recorder.pass(300 * SECOND);
    recorder.node("n2", None);
    recorder.keyframe();
    let report = damaged(PATIENT, &recorder.records, first..last);
    assert_eq!(report.candidate.deletions, 0, "{:?}", report.surprising);
}

/// The history continues without it.
#[test]
fn an_entry_that_was_too_large_is_reported_as_damage() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Failed");
    recorder.pass(10 * SECOND);
    let place = recorder.records.len();
    recorder.pod("b", "b", "Failed");
    recorder.pass(10 * SECOND);
    recorder.remove("b");
    recorder.node("n1", None);
    let is_put = |entry: &Entry| matches!(entry, Entry::Cache(StateChange::Put { .. }));
    let later = recorder.records[place..].iter();
    let place = place + later.clone().position(|one| is_put(&one.entry)).unwrap();
    let whole = recorder.records.remove(place);
    let reduced = whole.entry.reduced(300 << 20).into_iter();
    let reduced = reduced.map(|entry| Record {
        now: whole.now,
        entry,
    });
    recorder.records.splice(place..place, reduced);
    let report = Trial::of(FAILED).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 1);
    assert_eq!(report.damaged_parts, 1);
    let what = "an entry of 314572800 bytes was too large for the journal: the object ns/b (b)";
    assert_eq!(report.damage, [what]);
}
