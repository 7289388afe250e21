//! The rules of taint eviction.

#![allow(clippy::indexing_slicing, reason = "a test may fail by panicking")]

mod common;
mod config;
mod evictions;
mod gaps;
mod nodes;
mod pods;
mod proof;
mod starts;
