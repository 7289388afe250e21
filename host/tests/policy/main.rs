//! `davit policy` as a user starts it, on files and against `davit sim`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

mod cluster;
mod convert;
mod inspect;
mod program;
#[allow(dead_code, reason = "it serves the tests of the server too")]
#[path = "../sim/server.rs"]
mod server;
mod test;
