//! What a journal does not have, of the span and of the objects, is not zero.

use super::bench::{FAILED, Guest, IDLE, Recorder, SECOND, START, Trial, watch_nodes};
use crate::backtest::{AskedSpan, Report, Threshold};
use crate::gate::Mode;
use crate::time::Wall;

const HOUR: i64 = 3_600_000;
const WEEK: i64 = 7 * 24 * HOUR;

fn threshold(text: &str) -> Threshold {
    text.parse().unwrap()
}

/// The report about this time over a journal of eleven seconds.
fn asked(asked: AskedSpan) -> Report {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.node("n1", None);
    let trial = Trial {
        asked,
        ..Trial::of(FAILED)
    };
    trial.run(&recorder.records).unwrap()
}

/// What is missing in seconds: before the policy, after the last entry, and all of it.
fn missing(report: &Report) -> [u64; 3] {
    let span = &report.span;
    let all = [
        span.missing_before_seconds,
        span.missing_after_seconds,
        span.missing_seconds,
    ];
    all.map(|seconds| std::time::Duration::from_secs_f64(seconds).as_secs())
}

fn has_note(report: &Report, text: &str) -> bool {
    report.notes.iter().any(|note| note.contains(text))
}

#[test]
fn without_an_asked_span_nothing_is_missing_at_the_ends() {
    let report = asked(AskedSpan::default());
    assert_eq!(missing(&report), [0, 0, 0]);
    assert!(!threshold("missing-seconds>0").is_exceeded(&report));
    assert!(!has_note(&report, "nothing about"), "{:?}", report.notes);
}

#[test]
fn the_asked_time_before_the_journal_is_missing() {
    let report = asked(AskedSpan {
        from: Some(Wall(START - WEEK)),
        ..AskedSpan::default()
    });
    let [before, after, all] = missing(&report);
    assert!((604_800..604_805).contains(&before), "{before}");
    assert_eq!((after, all), (0, before));
    assert_eq!(
        report.span.asked_from.as_deref(),
        Some("2026-11-13T12:00:00.000Z")
    );
    assert!(threshold("missing-seconds>604799").is_exceeded(&report));
    assert!(!threshold("missing-seconds>604810").is_exceeded(&report));
    let note = format!(": {before} of them before the policy starts, 0 after the last entry");
    assert!(has_note(&report, &note), "{:?}", report.notes);
}

#[test]
fn the_asked_time_after_the_last_entry_is_missing_unless_somebody_recorded_then() {
    let to = Some(Wall(START + HOUR));
    let report = asked(AskedSpan {
        to,
        ..AskedSpan::default()
    });
    let [before, after, all] = missing(&report);
    assert!((3_585..3_600).contains(&after), "{after}");
    assert_eq!((before, all), (0, after));
    let reached = asked(AskedSpan {
        to,
        is_reached: true,
        ..AskedSpan::default()
    });
    assert_eq!(missing(&reached), [0, 0, 0]);
}

/// The end of the journal cannot be read.
#[test]
fn the_asked_time_after_damage_is_missing_even_if_somebody_recorded_then() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pod("a", "a", "Running");
    recorder.pass(10 * SECOND);
    recorder.node("n1", None);
    let trial = Trial {
        asked: AskedSpan {
            from: None,
            to: Some(Wall(START + HOUR)),
            is_reached: true,
        },
        ..Trial::of(FAILED)
    };
    let mut backtest = trial.drive(&recorder.records).unwrap();
    backtest.lose_damaged("torn".to_owned());
    let [_, after, _] = missing(&backtest.finish().unwrap());
    assert!((3_585..3_600).contains(&after), "{after}");
}

/// A pod of a node that is away, and is back a minute later, with these fields of nodes.
fn regretted(candidate: Guest, node_fields: &'static [&'static str]) -> Report {
    let mut recorder = Recorder::start_with(Mode::Enforce, IDLE, node_fields);
    recorder.node("n1", Some("node.kubernetes.io/unreachable"));
    recorder.pod("a", "a", "Failed");
    recorder.pass(60 * SECOND);
    recorder.node("n1", None);
    recorder.pod("b", "b", "Running");
    recorder.pass(60 * SECOND);
    let mut trial = Trial::of(candidate);
    watch_nodes(&mut trial.desired, node_fields);
    trial.run(&recorder.records).unwrap()
}

#[test]
fn regret_is_known_with_the_taints_or_the_conditions_of_nodes() {
    let conditions = &["status.conditions[*].type", "status.conditions[*].status"];
    let fields: [&'static [&'static str]; 3] =
        [&["spec.taints"], &["spec.taints[*].key"], conditions];
    for node_fields in fields {
        let report = regretted(FAILED, node_fields);
        assert_eq!(report.candidate.deletions, 1);
        let regret = report.candidate.regret;
        assert_eq!(regret.nodes_back, Some(1), "{node_fields:?}");
        assert_eq!((regret.known, regret.unknown), (1, 0));
        assert!(threshold("regret>0").is_exceeded(&report));
        assert!(!has_note(&report, "regret"), "{:?}", report.notes);
    }
}

#[test]
fn without_the_state_of_nodes_regret_is_unknown() {
    let without: [(&'static [&'static str], &str); 3] = [
        (&["metadata.labels"], "spec.taints[*].key of nodes"),
        (
            &["status.conditions[*].type"],
            "type and status of their status.conditions[*]",
        ),
        (&[], "a list of all nodes"),
    ];
    for (node_fields, lacks) in without {
        let report = regretted(FAILED, node_fields);
        assert_eq!(report.candidate.deletions, 1);
        let regret = report.candidate.regret;
        assert_eq!(regret.nodes_back, None, "{node_fields:?}");
        assert_eq!(regret.recreated, Some(0));
        assert_eq!((regret.known, regret.unknown), (0, 1));
        assert!(has_note(&report, lacks), "{:?}", report.notes);
        let is_unknown = |text| threshold(text).is_unknown(&report);
        assert!(is_unknown("regret>0") && is_unknown("regret>=1"));
        // One deletion is no two regrets.
        assert!(!is_unknown("regret>1"));
        assert!(!threshold("regret>0").is_exceeded(&report));
    }
}

/// It needs no fields of nodes then.
#[test]
fn the_regret_of_no_deletion_is_zero() {
    let report = regretted(IDLE, &[]);
    assert_eq!(report.candidate.regret.nodes_back, Some(0));
    assert!(!threshold("regret>=1").is_unknown(&report));
    assert!(!has_note(&report, "regret"), "{:?}", report.notes);
}
