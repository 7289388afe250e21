//! The deletions of both sides, by reason, namespace and so on.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use davit_core::backtest::{Against, Report, Side};

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
            side.regret.nodes_back.to_string()
        }),
        row("created again within a minute", |side| {
            side.regret.recreated.to_string()
        }),
    ]
}

/// How many objects count neither as agreement nor as disagreement, and why; none if all count.
pub(super) fn unknown(report: &Report) -> Option<String> {
    let why = match report.against {
        Against::Recorded => "one side alone deletes them, and no recorded list has their kind",
        Against::Cluster => {
            "only somebody in the cluster deleted them, and nothing shows who; or one side alone \
             deletes them, and no recorded list has their kind"
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
    use davit_core::backtest::{Activity, Agreement, Policy, Span, UndecidedReport};

    use super::*;
    use crate::commands::backtest::html::html;
    use crate::commands::backtest::text::text;

    fn report(against: Against, unknown: u64) -> Report {
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
                seconds: 3600.0,
                missing_seconds: 0.0,
                pending_items: 0,
            },
            candidate: Side::default(),
            recorded: Side::default(),
            agreement: Agreement {
                unknown,
                ..Agreement::default()
            },
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

    #[test]
    fn objects_that_are_unknown_are_in_the_text_and_the_page_with_what_that_means() {
        for (against, meaning) in [
            (
                Against::Recorded,
                "2 unknown: one side alone deletes them, and no recorded list has their kind",
            ),
            (
                Against::Cluster,
                "2 unknown: only somebody in the cluster deleted them, and nothing shows who",
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
