//! Reports for tests.

use davit_core::backtest::{
    Activity, Against, Agreement, Policy, Report, Side, Span, UndecidedReport,
};

/// The report of an hour in which nobody deletes anything.
pub(super) fn report(against: Against) -> Report {
    Report {
        controller: "podgc".to_owned(),
        against,
        policy: Policy {
            revision: "r".to_owned(),
            module: "sha256:0".to_owned(),
            recorded_revision: String::new(),
            closed_loop: true,
            keep: false,
            tolerance_seconds: 60.0,
        },
        span: Span {
            from: "2026-11-25T08:00:00Z".to_owned(),
            to: "2026-11-25T09:00:00Z".to_owned(),
            asked_from: None,
            asked_to: None,
            seconds: 3600.0,
            missing_seconds: 0.0,
            missing_before_seconds: 0.0,
            missing_after_seconds: 0.0,
            pending_items: 0,
        },
        candidate: Side::default(),
        recorded: Side::default(),
        agreement: Agreement::default(),
        guardrail_trips: vec![],
        guardrail_trip_count: 0,
        surprising: vec![],
        undecided: UndecidedReport::default(),
        damaged_parts: 0,
        damage: vec![],
        activity: Activity::default(),
        notes: vec![],
        not_modelled: vec![],
    }
}
