//! The report as text.

use std::fmt::Write as _;
use std::time::Duration;

use davit_core::backtest::{Policy, Report, Spread, Surprise};
use davit_core::untrusted::line;

use super::counts::{CountList, HOUR, lists, missing, sides, unknown};
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
    let mut lines = vec![
        format!(
            "{}: revision {} ({}), {}",
            line(controller, LONGEST),
            policy.revision,
            policy.module,
            loop_of(policy)
        ),
        format!(
            "{} to {}: {} entries, {} calls, {} failed",
            span.from, span.to, activity.entries, activity.calls, activity.failed_calls
        ),
    ];
    lines.extend(missing(report));
    lines.extend([
        String::new(),
        table_of_sides(report),
        String::new(),
        format!(
            "agree {} ({} within a second), only the candidate {}, {}",
            agreement.agree,
            agreement.same_time,
            agreement.only_candidate,
            only_other(report)
        ),
    ]);
    lines.extend(spread("earlier", &agreement.earlier));
    lines.extend(spread("later", &agreement.later));
    lines.extend(unknown(report).map(|text| format!("  {text}")));
    let other = report.against.as_str();
    lines.extend(lists(report).iter().map(|list| counts(list, other)));
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
        lines.extend(report.surprising.iter().map(|one| surprise(one, other)));
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

/// What only the other side deleted.
fn only_other(report: &Report) -> String {
    let agreement = &report.agreement;
    match agreement.only_cluster {
        None => format!("only recorded {}", agreement.only_recorded),
        Some(count) => format!(
            "only the cluster {count}, the candidate and somebody else {}",
            agreement.by_others
        ),
    }
}

fn table_of_sides(report: &Report) -> String {
    let title = ["", "candidate", report.against.as_str()].map(str::to_owned);
    let rows = [title].into_iter().chain(sides(report));
    let rows: Vec<Vec<String>> = rows.map(Vec::from).collect();
    table(&rows)
}

/// The deletions of both sides by a property.
fn counts(list: &CountList<'_>, other: &'static str) -> String {
    let most = if list.title == HOUR {
        usize::MAX
    } else {
        MOST_VALUES
    };
    let title = [list.title, "candidate", other];
    let mut rows = vec![title.map(str::to_owned).to_vec()];
    rows.extend(list.rows.iter().take(most).map(|row| {
        let counts = [row.candidate, row.recorded].map(|count| count.to_string());
        [vec![line(row.name, 60)], counts.to_vec()].concat()
    }));
    let left = list.rows.len().saturating_sub(most);
    if left > 0 {
        rows.push(vec![format!("and {left} more")]);
    }
    format!("\n{}", table(&rows))
}

/// Whether the deletions of a policy take effect for itself.
pub(super) fn loop_of(policy: &Policy) -> String {
    let is_open = if policy.closed_loop { "closed" } else { "open" };
    if policy.keep {
        format!("{is_open} loop, objects that the other side deleted stay")
    } else {
        let tolerance = seconds(policy.tolerance_seconds);
        format!("{is_open} loop, tolerance {tolerance}")
    }
}

/// A time between two deletions.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 120.0 {
        format!("{seconds:.1}s")
    } else {
        span(Duration::from_secs_f64(seconds).as_secs())
    }
}

fn spread(title: &str, spread: &Spread) -> Option<String> {
    if spread.count == 0 {
        return None;
    }
    Some(format!(
        "  {} {title}: median {}, p90 {}, max {}",
        spread.count,
        seconds(spread.median_seconds),
        seconds(spread.p90_seconds),
        seconds(spread.max_seconds)
    ))
}

fn surprise(one: &Surprise, other: &str) -> String {
    let at = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".to_owned());
    let mut text = format!(
        "  {} {}: {} (candidate {}, {other} {})",
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
