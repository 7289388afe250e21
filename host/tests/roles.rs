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

#[path = "roles/adoption.rs"]
mod adoption;
#[path = "modules/bomb.rs"]
mod bomb;
#[path = "roles/cluster.rs"]
mod cluster;
#[path = "roles/compared.rs"]
mod compared;
#[path = "roles/compiler.rs"]
mod compiler;
#[path = "e2e/deploy.rs"]
#[allow(
    dead_code,
    reason = "these tests run the program, and have no client of their own"
)]
mod deploy;
#[path = "roles/grants.rs"]
mod grants;
#[path = "roles/log.rs"]
mod log;
#[path = "roles/metrics.rs"]
mod metrics;
#[path = "roles/policies.rs"]
mod policies;
#[path = "roles/ports.rs"]
mod ports;
#[path = "roles/recorder.rs"]
mod recorder;
#[path = "roles/replicas/mod.rs"]
mod replicas;
#[path = "roles/stories.rs"]
mod stories;
#[path = "roles/trust.rs"]
mod trust;
