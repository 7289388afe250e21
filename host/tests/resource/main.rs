//! The custom resource `controllers.davit.dev` on the API server in memory: its
//! definition, records, the watch, and the commands. The host has the roles in `deploy/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod access;
mod answers;
mod check;
mod cluster;
mod commands;
mod definition;
#[path = "../e2e/deploy.rs"]
#[allow(dead_code, reason = "it serves the tests of the host too")]
mod deploy;
#[path = "../roles/cluster.rs"]
#[allow(dead_code, reason = "it serves the tests of the roles too")]
mod deployed;
mod get;
mod grant;
#[path = "../e2e/host.rs"]
mod host;
mod http;
mod manifests;
mod monitoring;
mod overlays;
mod program;
mod promql;
mod records;
mod stop;
mod watch;
