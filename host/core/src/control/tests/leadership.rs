//! The lease of the controller changes hands.

use std::collections::BTreeSet;

use super::bench::{Bench, NAME, spec};

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
