//! Guardrails of the policy under test.

use super::bench::{FAILED, IDLE, Recorder, SECOND, Trial};
use crate::backtest::{Report, Threshold};
use crate::budget::Guardrails;

#[test]
fn a_guardrail_trips_when_it_would_have() {
    let mut recorder = Recorder::start(IDLE);
    recorder.pass(9 * SECOND);
    for number in 0..10 {
        let name = format!("p{number}");
        recorder.pod(&name, &name, "Failed");
        recorder.pass(SECOND);
    }
    recorder.pass(120 * SECOND);
    let guardrails = Guardrails {
        deletes_per_minute: Some(4),
        ..Guardrails::default()
    };
    let report = Trial::of(FAILED)
        .guardrails(guardrails)
        .run(&recorder.records)
        .unwrap();
    assert_eq!(report.candidate.deletions, 4);
    assert_eq!(report.guardrail_trip_count, 1);
    let trip = &report.guardrail_trips[0];
    assert_eq!((&*trip.guardrail, trip.limit), ("deletesPerMinute", 4));
    assert_eq!(trip.at, "2026-11-20T12:00:14.000Z");
    assert_eq!(trip.until.as_deref(), Some("2026-11-20T12:05:14.000Z"));
    assert!(trip.deferred >= 6, "{trip:?}");
    // Without one, all of them go.
    let report = Trial::of(FAILED).run(&recorder.records).unwrap();
    assert_eq!(report.candidate.deletions, 10);
    assert_eq!(report.candidate.deletes_per_minute, 10);
    for (threshold, is_exceeded) in [
        ("deletes-per-minute>9", true),
        ("deletes-per-minute>10", false),
        ("deletes-per-minute>=10", true),
        ("only-candidate>0", true),
        ("only-recorded>0", false),
        ("guardrail-trips>0", false),
        ("failed-calls>0", false),
    ] {
        let threshold: Threshold = threshold.parse().unwrap();
        assert_eq!(threshold.is_exceeded(&report), is_exceeded, "{threshold}");
    }
}

/// The plans of a trip that is not listed are not those of the last one that is.
#[test]
fn a_report_lists_the_first_trips_with_their_own_plans() {
    let mut recorder = Recorder::start(IDLE);
    // A trip lasts five minutes.
    for number in 0..=Report::MOST_TRIPS {
        let pods = if number == Report::MOST_TRIPS { 50 } else { 3 };
        for pod in 0..pods {
            let name = format!("p{number}-{pod}");
            recorder.pod(&name, &name, "Failed");
        }
        recorder.pass(1_000 * SECOND);
    }
    recorder.node("n1", None);
    let guardrails = Guardrails {
        deletes_per_minute: Some(1),
        ..Guardrails::default()
    };
    let report = Trial::of(FAILED)
        .guardrails(guardrails)
        .run(&recorder.records)
        .unwrap();
    assert!(report.guardrail_trip_count > Report::MOST_TRIPS as u64);
    assert_eq!(report.guardrail_trips.len(), Report::MOST_TRIPS);
    let last = report.guardrail_trips.last().unwrap();
    assert!(last.deferred < 40, "{last:?}");
}
