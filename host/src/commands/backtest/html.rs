//! The report as one HTML page that needs nothing else: neither scripts nor other files.
//! Every text of the journal is escaped by `maud`.

use std::time::Duration;

use davit_core::api::HumanDuration;
use davit_core::backtest::{GuardrailTrip, Report, Spread, SpreadBucket, Surprise};
use jiff::{Timestamp, ToSpan as _};
use maud::{DOCTYPE, Markup, html};

use super::counts::{CountList, CountRow, HOUR, lists, missing, sides, unknown};
use super::text::{loop_of, seconds};

/// How many values of each list the page has.
const MOST_VALUES: usize = 20;
/// The most hours whose gaps are filled: a month. A longer chart has only hours with deletions.
const MOST_HOURS: usize = 24 * 31;
/// The size of the chart, in units of the drawing.
const CHART: (usize, usize) = (960, 220);

const STYLE: &str = "\
:root{color-scheme:light dark;--candidate:#c2410c;--recorded:#64748b;--line:#8884}\
body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
table{border-collapse:collapse}\
th,td{padding:.2rem .9rem .2rem 0;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
td.bar{width:20rem}td.bar div{height:.55rem;margin:.1rem 0}\
.candidate{background:var(--candidate);fill:var(--candidate)}\
.recorded{background:var(--recorded);fill:var(--recorded)}\
svg{width:100%;height:auto}svg text{font-size:12px;fill:currentColor}\
.key i{display:inline-block;width:.8rem;height:.8rem;margin:0 .4rem 0 1rem}\
pre{white-space:pre-wrap;overflow-wrap:anywhere}";

/// The report as a page.
pub(super) fn html(report: &Report) -> String {
    let Report {
        controller,
        policy,
        span,
        agreement,
        activity,
        ..
    } = report;
    let other = report.against.as_str();
    let lists = lists(report);
    let (hours, lists): (Vec<_>, Vec<_>) = lists.into_iter().partition(|one| one.title == HOUR);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { "Backtest of " (controller) }
                style { (maud::PreEscaped(STYLE)) }
            }
            body {
                h1 { "Backtest of " (controller) }
                p {
                    "Revision " b { (policy.revision) } " (" code { (policy.module) } "), "
                    (loop_of(policy)) ". " (span.from) " to " (span.to) ": "
                    (activity.entries) " entries, " (activity.calls) " calls, "
                    (activity.failed_calls) " failed."
                }
                @if let Some(text) = missing(report) { p { b { (text) } "." } }
                p {
                    "Both delete " b { (agreement.agree) } " objects, "
                    (agreement.same_time) " of them within a second. Only the candidate deletes "
                    b { (agreement.only_candidate) }
                    @if let Some(count) = agreement.only_cluster {
                        ", only the cluster's controllers deleted " b { (count) }
                        ". Of " (agreement.by_others)
                        " that the candidate deletes, somebody else was the author."
                    } @else {
                        ", only the recorded controller deleted "
                        b { (agreement.only_recorded) } "."
                    }
                }
                (spreads(&agreement.earlier, &agreement.later))
                @if let Some(text) = unknown(report) { p { (text) "." } }
                (table_of_sides(report))
                p.key { i.candidate {} "candidate" i.recorded {} (other) }
                @for list in &hours { (chart(&list.rows, other)) }
                @for list in &lists { (bars(list, other)) }
                (trips(report.guardrail_trip_count, &report.guardrail_trips))
                @if !report.surprising.is_empty() {
                    h2 { "The most surprising objects" }
                    @for one in &report.surprising { (surprise(one, other)) }
                }
                (texts("Notes", &report.notes))
                (texts("Not modelled", &report.not_modelled))
            }
        }
    };
    page.into_string()
}

fn spreads(earlier: &Spread, later: &Spread) -> Markup {
    html! {
        @for (title, spread) in [("earlier", earlier), ("later", later)] {
            @if spread.count > 0 {
                p {
                    (spread.count) " " (title) ": median " (seconds(spread.median_seconds))
                    ", 90th percentile " (seconds(spread.p90_seconds))
                    ", at most " (seconds(spread.max_seconds)) "."
                }
                (histogram(&spread.buckets))
            }
        }
    }
}

/// The numbers of a distribution, each with its bar.
fn histogram(buckets: &[SpreadBucket]) -> Markup {
    let most = buckets.iter().map(|bucket| bucket.count).max();
    let most = most.unwrap_or(0).max(1);
    let width = |count: u64| format!("width:{}%", count.saturating_mul(100).div_ceil(most));
    let before = buckets.iter().map(|bucket| bucket.up_to_seconds);
    let before = std::iter::once(None).chain(before);
    let text = |seconds| HumanDuration(Duration::from_secs(seconds)).to_string();
    html! {
        table {
            @for (bucket, above) in buckets.iter().zip(before) {
                tr {
                    td {
                        @match (above, bucket.up_to_seconds) {
                            (_, Some(end)) => { "up to " (text(end)) }
                            (above, None) => { "more than " (text(above.unwrap_or(0))) }
                        }
                    }
                    td.n { (bucket.count) }
                    td.bar { div.candidate style=(width(bucket.count)) {} }
                }
            }
        }
    }
}

fn table_of_sides(report: &Report) -> Markup {
    html! {
        table {
            tr { th {} th.n { "candidate" } th.n { (report.against.as_str()) } }
            @for [title, candidate, recorded] in sides(report) {
                tr { td { (title) } td.n { (candidate) } td.n { (recorded) } }
            }
        }
    }
}

/// The deletions of both sides in each hour.
fn chart(hours: &[CountRow<'_>], other: &str) -> Markup {
    let hours = without_gaps(hours);
    let counts = hours
        .iter()
        .map(|(_, candidate, recorded)| (*candidate).max(*recorded));
    let most = counts.max().unwrap_or(0).max(1);
    let (width, height) = CHART;
    let (left, top, below) = (48, 12, 24);
    let room = height - top - below;
    // Hundredths of a unit: a chart of a month has narrow bars.
    let slot = (width - left) * 100 / hours.len().max(1);
    let at = |number: usize| left * 100 + number * slot;
    let units = |hundredths: usize| format!("{}.{:02}", hundredths / 100, hundredths % 100);
    let tall = |count: u64| {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        (count.saturating_mul(room)).div_ceil(most)
    };
    let first = hours.first().map_or("", |hour| hour.0.as_str());
    let last = hours.last().map_or("", |hour| hour.0.as_str());
    html! {
        h2 { "Deletions by hour" }
        svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label="Deletions by hour" {
            line x1=(left) x2=(width) y1=(top + room) y2=(top + room) stroke="currentColor" {}
            text x=(left - 6) y=(top + 10) text-anchor="end" { (most) }
            text x=(left - 6) y=(top + room) text-anchor="end" { "0" }
            text x=(left) y=(height - 6) { (first) }
            text x=(width) y=(height - 6) text-anchor="end" { (last) }
            @for (number, (hour, candidate, recorded)) in hours.iter().enumerate() {
                g {
                    title { (hour) ": candidate " (candidate) ", " (other) " " (recorded) }
                    @for (part, count, class) in [(0, *candidate, "candidate"), (1, *recorded, "recorded")] {
                        rect.(class) x=(units(at(number) + part * slot * 2 / 5)) width=(units(slot * 2 / 5))
                            y=(top + room - tall(count)) height=(tall(count)) {}
                    }
                }
            }
        }
    }
}

/// The hours, with those between them that have no deletions.
fn without_gaps(hours: &[CountRow<'_>]) -> Vec<(String, u64, u64)> {
    let mut all: Vec<(String, u64, u64)> = Vec::new();
    let mut expected: Option<Timestamp> = None;
    for row in hours {
        let at: Option<Timestamp> = row.name.parse().ok();
        while let (Some(next), Some(at)) = (expected, at)
            && next < at
            && all.len() < MOST_HOURS
        {
            all.push((next.to_string(), 0, 0));
            expected = next.checked_add(1.hour()).ok();
        }
        all.push((row.name.to_owned(), row.candidate, row.recorded));
        expected = at.and_then(|at| at.checked_add(1.hour()).ok());
    }
    all
}

/// The deletions of both sides by a property, each with its bars.
fn bars(list: &CountList<'_>, other: &str) -> Markup {
    let counts = list.rows.iter().map(|row| row.candidate.max(row.recorded));
    let most = counts.max().unwrap_or(0).max(1);
    let width = |count: u64| format!("width:{}%", count.saturating_mul(100).div_ceil(most));
    let left = list.rows.len().saturating_sub(MOST_VALUES);
    html! {
        h2 { "Deletions by " (list.title) }
        table {
            tr { th { (list.title) } th.n { "candidate" } th.n { (other) } th {} }
            @for row in list.rows.iter().take(MOST_VALUES) {
                tr {
                    td { (row.name) }
                    td.n { (row.candidate) }
                    td.n { (row.recorded) }
                    td.bar {
                        div.candidate style=(width(row.candidate)) {}
                        div.recorded style=(width(row.recorded)) {}
                    }
                }
            }
        }
        @if left > 0 { p { "and " (left) " more" } }
    }
}

fn trips(count: u64, listed: &[GuardrailTrip]) -> Markup {
    html! {
        @if count > 0 {
            h2 { "Guardrails that would have tripped: " (count) }
            table {
                tr { th { "at" } th { "guardrail" } th.n { "limit" } th { "until" } th.n { "plans deferred" } }
                @for trip in listed.iter().take(MOST_VALUES) {
                    tr {
                        td { (trip.at) }
                        td { (trip.guardrail) }
                        td.n { (trip.limit) " in 60 seconds" }
                        td { (trip.until.as_deref().unwrap_or("an operator resets it")) }
                        td.n { (trip.deferred) }
                    }
                }
            }
        }
    }
}

fn surprise(one: &Surprise, other: &str) -> Markup {
    let at = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".to_owned());
    html! {
        details {
            summary { b { (one.difference.as_str()) } " " (one.object) ": " (one.reason) }
            p { "candidate " (at(&one.candidate_at)) ", " (other) " " (at(&one.recorded_at)) ", uid " (one.uid) }
            @if !one.message.is_empty() { p { (one.message) } }
            @if let Some(saw) = &one.saw {
                p { "The guest saw" }
                pre { (format!("{saw:#}")) }
            }
        }
    }
}

fn texts(title: &str, texts: &[String]) -> Markup {
    html! {
        @if !texts.is_empty() {
            h2 { (title) }
            ul { @for text in texts { li { (text) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use davit_core::backtest::{Against, Difference};
    use serde_json::json;

    use super::*;
    use crate::commands::backtest::testing;

    fn row(name: &str, candidate: u64, recorded: u64) -> CountRow<'_> {
        CountRow {
            name,
            candidate,
            recorded,
        }
    }

    #[test]
    fn a_chart_has_the_hours_without_deletions_too() {
        let rows = [
            row("2026-11-25T08:00:00Z", 3, 0),
            row("2026-11-25T11:00:00Z", 0, 1),
        ];
        let all = without_gaps(&rows);
        let names: Vec<&str> = all.iter().map(|one| one.0.as_str()).collect();
        let expected = ["08", "09", "10", "11"].map(|hour| format!("2026-11-25T{hour}:00:00Z"));
        assert_eq!(names, expected);
        assert_eq!((all[1].1, all[3].2), (0, 1));
        // Years apart: it has a bound.
        let rows = [
            row("2020-01-01T00:00:00Z", 1, 0),
            row("2026-11-25T11:00:00Z", 1, 0),
        ];
        assert_eq!(without_gaps(&rows).len(), MOST_HOURS + 1);
    }

    #[test]
    fn a_distribution_has_a_bar_for_each_range() {
        let bucket = |up_to_seconds, count| SpreadBucket {
            up_to_seconds,
            count,
        };
        let buckets = [bucket(Some(1), 2), bucket(Some(60), 8), bucket(None, 0)];
        let page = histogram(&buckets).into_string();
        let rows = [
            ("up to 1s", 2, 25),
            ("up to 1m", 8, 100),
            ("more than 1m", 0, 0),
        ];
        let mut rest = page.as_str();
        for (title, count, percent) in rows {
            let row = format!(
                "<tr><td>{title}</td><td class=\"n\">{count}</td><td class=\"bar\">\
                 <div class=\"candidate\" style=\"width:{percent}%\"></div></td></tr>"
            );
            let at = rest.find(&row);
            rest = &rest[at.unwrap_or_else(|| panic!("{row}: {page}"))..];
        }
    }

    #[test]
    fn a_text_of_the_journal_is_no_markup() {
        let rows = [row("<script>alert(1)</script>", 2, 1)];
        let list = CountList {
            title: "reason",
            rows: rows.to_vec(),
        };
        let page = bars(&list, "recorded").into_string();
        assert!(page.contains("&lt;script&gt;"), "{page}");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn no_text_of_a_report_is_markup() {
        let hostile = || "<script>alert('1')</script>".to_owned();
        let mut report = testing::report(Against::Recorded);
        report.controller = hostile();
        report.notes = vec![hostile()];
        report.guardrail_trips = vec![GuardrailTrip {
            guardrail: hostile(),
            limit: 1,
            at: hostile(),
            until: Some(hostile()),
            deferred: 1,
        }];
        report.guardrail_trip_count = 1;
        report.surprising = vec![Surprise {
            difference: Difference::OnlyCandidate,
            object: hostile(),
            uid: hostile(),
            reason: hostile(),
            message: hostile(),
            candidate_at: None,
            recorded_at: None,
            saw: Some(json!({"name": hostile()})),
        }];
        let page = html(&report);
        // The title and the heading, a note, three cells of the trip, five texts of the surprise.
        assert_eq!(page.matches("&lt;script&gt;").count(), 11, "{page}");
        assert!(!page.contains("<script"), "{page}");
    }
}
