//! The custom resource `controllers.davit.dev` on the API server in memory: its
//! definition, records, the watch, and the commands. The host has the roles in `deploy/`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "resource/access.rs"]
mod access;
#[path = "resource/answers.rs"]
mod answers;
#[path = "resource/check.rs"]
mod check;
#[path = "resource/cluster.rs"]
mod cluster;
#[path = "resource/commands.rs"]
mod commands;
#[path = "resource/definition.rs"]
mod definition;
#[path = "e2e/deploy.rs"]
#[allow(dead_code, reason = "it serves the tests of the host too")]
mod deploy;
#[path = "roles/cluster.rs"]
#[allow(dead_code, reason = "it serves the tests of the roles too")]
mod deployed;
#[path = "resource/get.rs"]
mod get;
#[path = "resource/grant.rs"]
mod grant;
#[path = "e2e/host.rs"]
mod host;
#[path = "resource/http.rs"]
mod http;
#[path = "resource/manifests.rs"]
mod manifests;
#[path = "resource/monitoring.rs"]
mod monitoring;
#[path = "resource/overlays.rs"]
mod overlays;
#[path = "resource/program.rs"]
mod program;
#[path = "resource/promql.rs"]
mod promql;
#[path = "resource/records.rs"]
mod records;
#[path = "resource/stop.rs"]
mod stop;
#[path = "resource/watch.rs"]
mod watch;
