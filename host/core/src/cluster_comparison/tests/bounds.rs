//! The bounds of what a comparison keeps.

use super::*;
use crate::cluster_comparison::held::MOST_HELD;

fn names(count: usize) -> Vec<&'static str> {
    (0..count)
        .map(|number| &*format!("p{number}").leak())
        .collect()
}

/// A dry run repeats its plans with every tick.
#[test]
fn each_target_beyond_the_bound_is_unknown_once() {
    let names = names(MOST_TARGETS + 3);
    let mut bench = Bench::podgc(&names);
    for _ in 0..2 {
        for name in &names {
            bench.plan(name);
        }
        assert_eq!(bench.counts(), [0, 0, 0, 0, 3]);
    }
    let last = names[MOST_TARGETS];
    bench.put(last, last, &terminating(marked(ORPHANED)));
    bench.gone(last);
    assert_eq!(
        bench.counts(),
        [0, 0, 0, 0, 3],
        "that it is gone is no news"
    );
    let only = u64::try_from(MOST_TARGETS).unwrap();
    assert_eq!(bench.end(), [0, only, 0, 0, 3]);
    assert_eq!(bench.comparison.findings().count(), MOST_FINDINGS);
    assert_eq!(
        &*bench.comparison.findings().next().unwrap().object.name,
        "p9999"
    );
}

#[test]
fn more_held_objects_than_the_bound_are_unknown() {
    let names = names(MOST_HELD + 1);
    let mut bench = Bench::podgc(&names);
    for name in &names {
        bench.collect(name);
    }
    assert_eq!(bench.held(), MOST_HELD);
    let only = u64::try_from(MOST_HELD).unwrap();
    assert_eq!(bench.end(), [0, 0, only, 0, 1]);
}

#[test]
fn own_deletions_are_forgotten() {
    let mut own = OwnDeletions::default();
    let at = |minutes| Instant::ZERO.after(Duration::from_mins(minutes));
    own.add(Uid::new("a"), at(0));
    own.add(Uid::new("a"), at(8));
    own.add(Uid::new("b"), at(11));
    assert!(own.contains(&Uid::new("a"), at(17)), "it was planned again");
    assert!(!own.contains(&Uid::new("a"), at(18)));
    assert!(own.contains(&Uid::new("b"), at(18)));
}
