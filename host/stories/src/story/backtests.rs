//! The recorded policies over their own journals: they delete what they deleted.

use davit_simulation::HostIndex;

use super::*;
use crate::plot::Size;

/// What the backtests of several stories found.
#[derive(Debug, Default)]
struct Totals {
    agree: u64,
    only_candidate: u64,
    only_recorded: u64,
    failed_calls: u64,
    recorded_reads: u64,
    undecided: u64,
}

/// Tests these controllers over the journals of stories with faults.
fn test(controllers: &[&str]) -> Totals {
    let mut totals = Totals::default();
    for seed in 0..20 {
        let size = Size {
            replays: true,
            ..Size::default()
        };
        let plot = Plot::draw(seed, size);
        let mut story = Story::new(&plot, false).unwrap();
        story.play(&plot.steps);
        let host = story.simulation.host(HostIndex::FIRST);
        let recording = host.recording().unwrap();
        for controller in controllers {
            let report = recording.backtest(controller, None);
            let report = report.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let Some(report) = report else {
                continue;
            };
            totals.agree += report.agreement.agree;
            totals.only_candidate += report.agreement.only_candidate;
            totals.only_recorded += report.agreement.only_recorded;
            totals.failed_calls += report.activity.failed_calls;
            totals.recorded_reads += report.activity.recorded_reads;
            totals.undecided += report.undecided.items;
        }
    }
    totals
}

/// The stories have faults: requests that fail, restarts and modes in which nothing is
/// executed. What a backtest does not know of them is at most a fifth.
#[test]
fn recorded_policies_agree_with_what_they_did() {
    let totals = test(&["podgc", "garbage-collector", "taint-eviction"]);
    assert!(totals.agree >= 50, "{totals:?}");
    assert!(totals.only_candidate * 5 <= totals.agree, "{totals:?}");
    assert!(totals.only_recorded * 5 <= totals.agree, "{totals:?}");
    assert_eq!(totals.failed_calls, 0, "{totals:?}");
}

/// They read live what nobody watches. The recorded answers serve where the recorded state does
/// not say it.
#[test]
fn recorded_policies_that_read_live_are_tested_with_the_recorded_answers() {
    let totals = test(&["node-eviction", "storage-version-gc"]);
    assert!(totals.recorded_reads >= 15, "{totals:?}");
    assert!(totals.agree >= 1, "{totals:?}");
    assert_eq!(totals.failed_calls, 0, "{totals:?}");
}
