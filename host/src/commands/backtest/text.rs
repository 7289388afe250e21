//! The report as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use davit_core::backtest::{Report, Side, Spread, Surprise};
use davit_core::untrusted::line;

use crate::commands::journal::LONGEST;
use crate::commands::print::{span, table};

/// How many values of each list are printed.
const MOST_VALUES: usize = 10;

/// The report as text.
pub(super) fn text(report: &Report) -> String {
    let Report {
        controller,
        policy,
        span,
        agreement,
        activity,
        ..
    } = report;
    let is_loop = match (policy.closed_loop, policy.keep) {
        (false, _) => "open loop",
        (true, false) => "closed loop",
        (true, true) => "closed loop, deleted objects are kept",
    };
    let mut lines = vec![
        format!(
            "{}: revision {} ({}), {is_loop}",
            line(controller, LONGEST),
            policy.revision,
            policy.module
        ),
        format!(
            "{} to {}: {} entries, {} calls, {} failed",
            span.from, span.to, activity.entries, activity.calls, activity.failed_calls
        ),
        String::new(),
        sides(&report.candidate, &report.recorded),
        String::new(),
        format!(
            "agree {} ({} within a second), only the candidate {}, only recorded {}",
            agreement.agree, agreement.same_time, agreement.only_candidate, agreement.only_recorded
        ),
    ];
    lines.extend(spread("earlier", &agreement.earlier));
    lines.extend(spread("later", &agreement.later));
    for (title, candidate, recorded) in lists(report) {
        lines.extend(counts(title, candidate, recorded));
    }
    if report.guardrail_trip_count > 0 {
        lines.push(format!(
            "\nguardrails tripped {} times:",
            report.guardrail_trip_count
        ));
        let trips = report.guardrail_trips.iter().take(MOST_VALUES);
        lines.extend(trips.map(|trip| {
            let until = trip.until.as_deref().unwrap_or("an operator resets it");
            format!(
                "  {} {}: {} in 60 seconds, until {until}, {} plans deferred",
                trip.at, trip.guardrail, trip.limit, trip.deferred
            )
        }));
    }
    if !report.surprising.is_empty() {
        lines.push("\nthe most surprising objects:".to_owned());
        lines.extend(report.surprising.iter().map(surprise));
    }
    for (title, texts) in [
        ("notes", &report.notes),
        ("not modelled", &report.not_modelled),
    ] {
        if !texts.is_empty() {
            lines.push(format!("\n{title}:"));
            lines.extend(
                texts
                    .iter()
                    .map(|text| format!("  - {}", line(text, LONGEST))),
            );
        }
    }
    lines.join("\n")
}

fn sides(candidate: &Side, recorded: &Side) -> String {
    let row = |title: &str, value: fn(&Side) -> String| {
        vec![title.to_owned(), value(candidate), value(recorded)]
    };
    let title = ["", "candidate", "recorded"].map(str::to_owned).to_vec();
    table(&[
        title,
        row("deletions", |side| side.deletions.to_string()),
        row("in the worst minute", |side| {
            side.deletes_per_minute.to_string()
        }),
        row("which ended", |side| {
            side.worst_minute_ends
                .clone()
                .unwrap_or_else(|| "-".to_owned())
        }),
        row("node back within 10 minutes", |side| {
            side.regret.nodes_back.to_string()
        }),
        row("created again within a minute", |side| {
            side.regret.recreated.to_string()
        }),
    ])
}

type Counts = BTreeMap<String, u64>;

fn lists(report: &Report) -> [(&'static str, &Counts, &Counts); 5] {
    let (candidate, recorded) = (&report.candidate, &report.recorded);
    [
        ("reason", &candidate.by_reason, &recorded.by_reason),
        ("namespace", &candidate.by_namespace, &recorded.by_namespace),
        ("kind", &candidate.by_kind, &recorded.by_kind),
        (
            "owner kind",
            &candidate.by_owner_kind,
            &recorded.by_owner_kind,
        ),
        ("hour", &candidate.by_hour, &recorded.by_hour),
    ]
}

/// The counts of both sides, the largest of the candidate first; hours in their order.
fn counts(title: &str, candidate: &Counts, recorded: &Counts) -> Option<String> {
    let mut names: Vec<&String> = candidate.keys().chain(recorded.keys()).collect();
    names.sort();
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let count = |of: &Counts, name: &String| of.get(name).copied().unwrap_or(0);
    if title != "hour" {
        names.sort_by_key(|name| {
            let both = (count(candidate, name), count(recorded, name));
            std::cmp::Reverse(both)
        });
    }
    let most = if title == "hour" {
        usize::MAX
    } else {
        MOST_VALUES
    };
    let mut rows = vec![vec![
        title.to_owned(),
        "candidate".to_owned(),
        "recorded".to_owned(),
    ]];
    rows.extend(names.iter().take(most).map(|name| {
        let (candidate, recorded) = (count(candidate, name), count(recorded, name));
        vec![line(name, 60), candidate.to_string(), recorded.to_string()]
    }));
    if names.len() > most {
        let left = names.len() - most;
        rows.push(vec![format!("and {left} more")]);
    }
    Some(format!("\n{}", table(&rows)))
}

fn spread(title: &str, spread: &Spread) -> Option<String> {
    if spread.count == 0 {
        return None;
    }
    let seconds = |seconds: f64| {
        if seconds < 120.0 {
            format!("{seconds:.1}s")
        } else {
            span(std::time::Duration::from_secs_f64(seconds).as_secs())
        }
    };
    Some(format!(
        "  {} {title}: median {}, p90 {}, max {}",
        spread.count,
        seconds(spread.median_seconds),
        seconds(spread.p90_seconds),
        seconds(spread.max_seconds)
    ))
}

fn surprise(one: &Surprise) -> String {
    let at = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".to_owned());
    let mut text = format!(
        "  {} {}: {} (candidate {}, recorded {})",
        one.difference.as_str(),
        line(&one.object, LONGEST),
        line(&one.reason, LONGEST),
        at(&one.candidate_at),
        at(&one.recorded_at)
    );
    if !one.message.is_empty() {
        let _ = write!(text, "\n    {}", line(&one.message, LONGEST));
    }
    if let Some(saw) = &one.saw {
        let _ = write!(text, "\n    it saw {}", line(&saw.to_string(), LONGEST));
    }
    text
}
