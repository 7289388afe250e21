//! Guests in the engine: the fixtures in `guests/fixtures/` do their worst, and
//! the host continues.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what a test cannot set up fails the test"
)]

mod answers;
mod artifacts;
mod conditions;
mod encoding;
mod harness;
mod hostile;
mod load;
mod log;
mod policy;
mod pool;
mod reads;
