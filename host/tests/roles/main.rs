//! `davit run` as it is deployed: with its own `ServiceAccount`, and the roles in
//! `deploy/` and no others, on an API server that enforces them.

#![allow(
    clippy::needless_pass_by_value,
    reason = "what the helpers take is made for them alone"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod adoption;
#[path = "../modules/bomb.rs"]
mod bomb;
mod cluster;
mod compared;
mod compiler;
#[path = "../e2e/deploy.rs"]
#[allow(
    dead_code,
    reason = "these tests run the program, and have no client of their own"
)]
mod deploy;
mod grants;
mod log;
mod metrics;
mod policies;
mod ports;
mod recorder;
mod replicas;
mod stories;
mod trust;
