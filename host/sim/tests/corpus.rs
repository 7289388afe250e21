//! The corpora of the simulator's fuzz targets.

#![allow(
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "modules of a fuzz target as well; a test may fail by panicking"
)]

#[path = "../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../fuzz/src/sim.rs"]
mod sim;

use replay::replay;

#[test]
fn parser() {
    replay("sim_parser", sim::parser);
}

#[test]
fn patches() {
    replay("sim_patches", sim::patches);
}

#[test]
fn selectors() {
    replay("sim_selectors", sim::selectors);
}

#[test]
fn requests() {
    replay("sim_requests", sim::requests);
}
