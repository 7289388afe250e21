//! `davit sim` as a user starts it: its flags, and kubectl as its client.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

#[path = "sim/flags.rs"]
mod flags;
#[path = "sim/http2.rs"]
mod http2;
#[path = "sim/kubectl.rs"]
mod kubectl;
#[path = "sim/server.rs"]
mod server;
