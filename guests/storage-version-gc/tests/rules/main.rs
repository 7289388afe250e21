//! The rules of StorageVersion GC.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may fail by panicking"
)]

mod collect;
mod common_version;
mod config;
