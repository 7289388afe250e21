//! The lease of the controller changes hands.

use std::collections::BTreeSet;
use std::time::Duration;

use super::bench::{Bench, NAME};
use super::revisions::spec;
use crate::api::ControllerSpec;
use crate::control::requests::abort;
use crate::control::{ControlInput, Load, LoadResult, LoadTarget};

impl Bench {
    /// This replica holds the lease, or not. It passes the lease on if it is `passing`.
    fn lead(&mut self, holds: bool, passing: &[&str]) {
        let held = holds.then(|| NAME.to_owned()).into_iter().collect();
        let passing: BTreeSet<&str> = passing.iter().copied().collect();
        self.control.lead(self.now, held, &passing);
        self.look();
    }

    /// The revision of another spec is loaded, and its decision waits to be written.
    fn decide(&mut self, config: u32) {
        self.change(spec(config, &[]));
        self.look();
        while self.writes.is_empty() && self.execute_one() {
            self.look();
        }
        assert_eq!(self.writes.len(), 1);
    }
}

/// What it would read meanwhile is older than what it writes.
#[test]
fn a_leader_that_leads_again_reads_the_record_after_its_own_write() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.lead(true, &[]);
    bench.decide(2);
    bench.lead(false, &[]);
    bench.lead(true, &[]);
    assert!(bench.pending.is_empty());
    assert!(bench.write_one());
    bench.look();
    assert_eq!(bench.pending.len(), 1);
}

/// A replica that has read a tag before it was moved, and has the record of one that has read
/// it since, after `then`.
fn behind(spec: &ControllerSpec, then: impl FnOnce(&mut Bench)) -> (Bench, Bench) {
    let mut behind = Bench::running(spec.clone());
    behind.lead(true, &[]);
    behind.settle();
    behind.lead(false, &[]);
    let mut other = behind.crash();
    other.replaced = 1;
    other.settle();
    other.pass(5);
    then(&mut other);
    behind.record = other.record.clone();
    (behind, other)
}

/// The former leader could read the registry when this replica could not, or a moment later.
#[test]
fn a_replica_that_takes_over_continues_with_the_module_that_the_record_names() {
    let once = spec(1, &[]);
    let (mut bench, other) = behind(&once, |_| {});
    assert_eq!(other.stable(), other.name_at_source(&once));
    for is_source_away in [true, false] {
        bench.is_source_away = is_source_away;
        bench.replaced = 1;
        bench.lead(true, &[]);
        bench.settle();
        bench.pass(70);
        assert_eq!(bench.stable(), other.stable(), "away: {is_source_away}");
        assert_eq!(bench.runs(), Some((other.stable(), None)));
        bench.lead(false, &[]);
    }
}

/// A registry may take minutes: what it says to a question from before is as old.
#[test]
fn an_answer_to_a_question_from_before_the_takeover_does_not_count() {
    let once = spec(1, &[]);
    for is_known in [true, false] {
        let (mut bench, other) = behind(&once, |_| {});
        if !is_known {
            // It has just started, and knows nothing yet.
            bench = other.crash();
            bench.replaced = 0;
            bench.lead(false, &[]);
        }
        bench.now.instant = bench.now.instant.after(Duration::from_secs(3));
        bench.look();
        let is_about_source = |load: &Load| matches!(load.target, LoadTarget::Desired { .. });
        let position = loop {
            if let Some(position) = bench.loads.iter().position(is_about_source) {
                break position;
            }
            assert!(bench.execute_one(), "the source is due");
            bench.look();
        };
        let asked = bench.loads.remove(position);
        bench.replaced = 1;
        bench.lead(true, &[]);
        while bench.execute_one() {
            bench.look();
        }
        if is_known {
            let id = asked.id;
            let result = Ok(LoadResult::Unchanged);
            bench.handle(ControlInput::Loaded { id, result });
        } else {
            bench.answer(asked.id, &once);
        }
        bench.look();
        assert_eq!(bench.stable(), other.stable(), "known: {is_known}");
        bench.pass(5);
        assert_eq!(bench.runs(), Some((other.stable(), None)));
        assert_eq!(bench.condition("Ready").1, "DryRun");
    }
}

#[test]
fn a_replica_that_takes_over_ends_no_rollout_of_a_module_that_it_has_not_read_yet() {
    let steps = spec(1, &["shadow until promoted"]);
    let (mut bench, other) = behind(&steps, |_| {});
    assert_eq!(other.candidate().revision, other.name_at_source(&steps));
    bench.is_source_away = true;
    bench.lead(true, &[]);
    bench.settle();
    bench.pass(5);
    assert_eq!(bench.candidate().since, other.candidate().since);
    (bench.is_source_away, bench.replaced) = (false, 1);
    bench.pass(70);
    assert_eq!(bench.candidate().since, other.candidate().since);
    assert!(bench.candidate().elapsed_seconds > 0);

    let (mut bench, other) = behind(&steps, |other| {
        let value = abort(&other.candidate());
        other.ask(|requests| requests.abort = Some(value));
        other.settle();
    });
    assert!(other.status().rejected.is_some());
    bench.is_source_away = true;
    bench.lead(true, &[]);
    bench.settle();
    bench.pass(5);
    (bench.is_source_away, bench.replaced) = (false, 1);
    bench.pass(70);
    assert_eq!(bench.status().rejected, other.status().rejected);
    assert_eq!(bench.status().candidate, None);
}

/// The data half forgets it once it leads again.
#[test]
fn a_share_that_tripped_in_a_former_term_rolls_no_candidate_back() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.lead(true, &[]);
    bench.change(spec(2, &["shadow until promoted"]));
    bench.settle();
    let candidate = bench.candidate();
    bench.lead(false, &[]);
    bench.observed.trip = Some("deletesPerMinute of 4".into());
    bench.pass(2);
    bench.lead(true, &[]);
    bench.settle();
    bench.pass(2);
    assert_eq!(bench.candidate().since, candidate.since);
    assert_eq!(bench.observed.trip, None);
}
