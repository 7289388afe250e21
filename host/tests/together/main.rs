//! All five controllers together, on one cluster with many changes and faults, compared
//! with a record of the expected objects.
//!
//! A run has some hundred random steps: objects are created, owned, tainted, deleted in
//! the three ways and created again under their names; nodes are deleted, return and
//! fall silent; watches break and writes fail. Then all faults end, and when the
//! cluster is at rest, the API server is compared with the record.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "it serves the tests of every guest")]
#[path = "../e2e/bench.rs"]
mod bench;

/// The stories of the simulation keep the same record.
#[path = "../../stories/src/fate.rs"]
#[allow(dead_code, reason = "owners of these objects do not change")]
mod fate;
mod story;

use bench::on_the_sim;

/// Each run has this many steps.
const STEPS: u32 = 300;

/// Seeds that failed once, and why.
const ONCE_FAILED: [u64; 0] = [];

/// `DAVIT_TEST_SEEDS=7-100` runs these instead.
#[test]
fn five_controllers_delete_what_has_to_go_and_nothing_else() {
    let chosen = std::env::var("DAVIT_TEST_SEEDS").unwrap_or_else(|_| "1-6".to_owned());
    let (first, last) = chosen.split_once('-').expect("DAVIT_TEST_SEEDS=FIRST-LAST");
    let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
    for seed in ONCE_FAILED.into_iter().chain(first..=last) {
        on_the_sim(|bench| story::run(bench, seed, STEPS));
    }
}
