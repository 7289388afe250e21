//! The deletions of both sides, by reason, namespace and so on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use davit_core::backtest::{Against, Report, Side};

use super::text::seconds;

/// The numbers of both sides: a title, the candidate's, the other side's.
pub(super) fn sides(report: &Report) -> [[String; 3]; 5] {
    let row = |title: &str, value: fn(&Side) -> String| {
        [
            title.to_owned(),
            value(&report.candidate),
            value(&report.recorded),
        ]
    };
    [
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
            number(side.regret.nodes_back)
        }),
        row("created again within a minute", |side| {
            number(side.regret.recreated)
        }),
    ]
}

/// A number that the journal may not have.
fn number(number: Option<u64>) -> String {
    number.map_or_else(|| "unknown".to_owned(), |number| number.to_string())
}

/// How much of the span the journal does not have; none if it has all but a second.
pub(super) fn missing(report: &Report) -> Option<String> {
    let span = &report.span;
    let [all, before, after] = [
        span.missing_seconds,
        span.missing_before_seconds,
        span.missing_after_seconds,
    ]
    .map(seconds);
    let asked = |at: &Option<String>, end: &str| at.clone().unwrap_or_else(|| end.to_owned());
    (span.missing_seconds >= 1.0).then(|| {
        format!(
            "missing {all} of {} to {}: {before} before the policy starts, {after} after the last \
             entry",
            asked(&span.asked_from, "the start"),
            asked(&span.asked_to, "the end")
        )
    })
}

/// How many objects count neither as agreement nor as disagreement, and why; none if all count.
pub(super) fn unknown(report: &Report) -> Option<String> {
    let why = match report.against {
        Against::Recorded => {
            "one side alone deletes them, and no recorded list has their kind, or they went while \
             nobody recorded; or they went after a request without a recorded answer"
        }
        Against::Cluster => {
            "nothing shows whether, or by whom, they were deleted; or one side alone deletes them, \
             and no recorded list has their kind, or they went while nobody recorded"
        }
    };
    let count = report.agreement.unknown;
    (count > 0).then(|| format!("{count} unknown: {why}"))
}

/// What [`CountList::title`] calls the list by hour, which is in the order of time.
pub(super) const HOUR: &str = "hour";

/// The deletions of both sides by one property.
#[derive(Debug)]
pub(super) struct CountList<'a> {
    /// The property.
    pub(super) title: &'static str,
    /// Its values, those with the most deletions of the candidate first; hours in their order.
    pub(super) rows: Vec<CountRow<'a>>,
}

/// The deletions of both sides with one value of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountRow<'a> {
    /// The value.
    pub(super) name: &'a str,
    /// The deletions of the candidate.
    pub(super) candidate: u64,
    /// The deletions of the other side.
    pub(super) recorded: u64,
}

/// The lists of a report that are not empty.
pub(super) fn lists(report: &Report) -> Vec<CountList<'_>> {
    let (candidate, recorded) = (&report.candidate, &report.recorded);
    let all = [
        ("reason", &candidate.by_reason, &recorded.by_reason),
        ("namespace", &candidate.by_namespace, &recorded.by_namespace),
        ("kind", &candidate.by_kind, &recorded.by_kind),
        (
            "owner kind",
            &candidate.by_owner_kind,
            &recorded.by_owner_kind,
        ),
        (HOUR, &candidate.by_hour, &recorded.by_hour),
    ];
    let lists = all.map(|(title, candidate, recorded)| CountList {
        title,
        rows: rows(candidate, recorded, title == HOUR),
    });
    let lists = lists.into_iter().filter(|list| !list.rows.is_empty());
    lists.collect()
}

fn rows<'a>(
    candidate: &'a BTreeMap<String, u64>,
    recorded: &'a BTreeMap<String, u64>,
    is_in_order: bool,
) -> Vec<CountRow<'a>> {
    let mut both: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, count) in candidate {
        both.entry(name).or_default().0 = *count;
    }
    for (name, count) in recorded {
        both.entry(name).or_default().1 = *count;
    }
    let mut both: Vec<_> = both.into_iter().collect();
    if !is_in_order {
        both.sort_by_key(|(_, counts)| Reverse(*counts));
    }
    let row = |(name, (candidate, recorded))| CountRow {
        name,
        candidate,
        recorded,
    };
    both.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::backtest::html::html;
    use crate::commands::backtest::testing;
    use crate::commands::backtest::text::text;

    fn report(against: Against, unknown: u64) -> Report {
        let mut report = testing::report(against);
        report.agreement.unknown = unknown;
        report
    }

    #[test]
    fn objects_that_are_unknown_are_in_the_text_and_the_page_with_what_that_means() {
        for (against, meaning) in [
            (
                Against::Recorded,
                "2 unknown: one side alone deletes them, and no recorded list has their kind",
            ),
            (
                Against::Cluster,
                "2 unknown: nothing shows whether, or by whom, they were deleted",
            ),
        ] {
            let shown = [text, html].map(|show| show(&report(against, 2)));
            assert!(shown.iter().all(|one| one.contains(meaning)), "{shown:?}");
            let shown = [text, html].map(|show| show(&report(against, 0)));
            assert!(
                !shown.iter().any(|one| one.contains("unknown")),
                "{shown:?}"
            );
        }
    }

    #[test]
    fn what_the_journal_lacks_of_the_span_is_in_the_text_and_the_page() {
        let mut report = testing::report(Against::Recorded);
        let shown = [text, html].map(|show| show(&report));
        assert!(
            !shown.iter().any(|one| one.contains("missing")),
            "{shown:?}"
        );
        report.span.asked_from = Some("2026-11-18T08:00:00Z".to_owned());
        report.span.missing_seconds = 100.0;
        report.span.missing_before_seconds = 90.0;
        report.span.missing_after_seconds = 3.0;
        let expected = "missing 100.0s of 2026-11-18T08:00:00Z to the end: 90.0s before the \
                        policy starts, 3.0s after the last entry";
        let shown = [text, html].map(|show| show(&report));
        assert!(shown.iter().all(|one| one.contains(expected)), "{shown:?}");
    }

    #[test]
    fn regret_that_nobody_knows_is_unknown_in_the_text_and_the_page() {
        let mut report = testing::report(Against::Recorded);
        report.candidate.regret.nodes_back = None;
        let row = &sides(&report)[3];
        assert_eq!(row[1..], ["unknown", "0"]);
        let shown = [text, html].map(|show| show(&report));
        assert!(shown.iter().all(|one| one.contains("unknown")), "{shown:?}");
    }

    fn counts(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        all.iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn the_most_deletions_of_the_candidate_come_first_but_hours_in_their_order() {
        let candidate = counts(&[("a", 1), ("c", 7)]);
        let recorded = counts(&[("a", 2), ("b", 3)]);
        let names = |is_in_order| {
            let rows = rows(&candidate, &recorded, is_in_order);
            let row =
                |one: &CountRow<'_>| format!("{} {} {}", one.name, one.candidate, one.recorded);
            rows.iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["c 7 0", "a 1 2", "b 0 3"]);
        assert_eq!(names(true), ["a 1 2", "b 0 3", "c 7 0"]);
    }
}
