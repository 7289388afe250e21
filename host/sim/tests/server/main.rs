//! The API server in memory.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

mod access;
mod apply;
mod behaviour;
mod bounds;
mod decoding;
mod definitions;
mod faults;
mod hostile;
mod protocol;
mod pure;
mod refusals;
mod socket;
mod support;
mod updates;
