//! The rules of node eviction.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod common;
mod config;
mod health;
mod pods;
mod queue;
mod zones;
