//! Targets that an earlier host, or the former leader, may have counted.

use super::*;

impl Bench {
    /// Early targets: agreements, only-davit.
    fn early(&self) -> (u64, u64) {
        let early = self.comparison.early();
        (early.agree, early.only_davit)
    }

    fn later(&self) -> (u64, u64) {
        let totals = self.comparison.totals();
        (totals.agree, totals.only_davit)
    }
}

/// A host that starts again plans on what it planned on before.
#[test]
fn a_plan_within_the_first_window_is_early() {
    let mut bench = Bench::podgc(&["left", "deleted", "later"]);
    bench.plan("left");
    bench.plan("deleted");
    bench.pass(299 * SECOND);
    bench.collect("deleted");
    bench.pass(SECOND);
    bench.plan("later");
    bench.collect("later");
    bench.end();
    assert_eq!((bench.early(), bench.later()), ((1, 1), (1, 0)));
}

/// What the cluster deletes in view of this host was not counted before it.
#[test]
fn a_deletion_without_a_plan_is_not_early() {
    let mut bench = Bench::podgc(&["a"]);
    bench.collect("a");
    bench.end();
    assert_eq!(bench.comparison.totals().only_cluster, 1);
    assert_eq!(bench.comparison.early().targets(), 0);
}

/// The former leader has counted the same target, or it has not: this replica cannot know.
#[test]
fn what_is_pending_when_a_replica_takes_over_is_early() {
    let mut bench = Bench::podgc(&["before", "pending", "after"]);
    bench.pass(400 * SECOND);
    bench.plan("before");
    bench.collect("before");
    bench.plan("pending");
    bench.comparison.take_over();
    bench.collect("pending");
    bench.plan("after");
    bench.end();
    assert_eq!((bench.early(), bench.later()), ((1, 0), (1, 1)));
}
