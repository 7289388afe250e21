//! The rules of the garbage collector.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

mod common;
mod config;
mod deletion;
mod identity;
mod patches;
mod waiting;
