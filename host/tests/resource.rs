//! The custom resource `controllers.davit.dev` on the API server in memory: its
//! definition, records, the watch, and the commands.

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
#[path = "resource/deploy.rs"]
mod deploy;
#[path = "resource/get.rs"]
mod get;
#[path = "resource/grant.rs"]
mod grant;
#[path = "resource/http.rs"]
mod http;
#[path = "resource/program.rs"]
mod program;
#[path = "resource/records.rs"]
mod records;
#[path = "resource/watch.rs"]
mod watch;
