//! `davit policy` as a user starts it, on files and against `davit sim`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

#[path = "policy/cluster.rs"]
mod cluster;
#[path = "policy/convert.rs"]
mod convert;
#[path = "policy/inspect.rs"]
mod inspect;
#[path = "policy/program.rs"]
mod program;
#[allow(dead_code, reason = "it serves the tests of the server too")]
#[path = "sim/server.rs"]
mod server;
#[path = "policy/test.rs"]
mod test;
