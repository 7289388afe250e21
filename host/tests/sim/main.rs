//! `davit sim` as a user starts it: its flags, and kubectl as its client.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail by panicking"
)]

mod flags;
mod http2;
mod kubectl;
mod server;
