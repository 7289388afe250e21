//! Davit end to end: the host with its guests against an API server.
//!
//! The API server is the one in memory, on virtual time. With
//! `DAVIT_TEST_KUBECONFIG=FILE`, the tests that need no faults run against that server.
//! Use one that holds nothing else, since PodGC reconciles all of its pods.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod against;
#[allow(dead_code, reason = "it serves the tests of every guest")]
mod bench;
mod configuration;
mod disk;
mod docs;
mod faults;
mod fields;
mod hostile;
mod journal;
mod languages;
mod log;
mod parquet;
mod podgc;
mod policy;
mod profile;
mod program;
mod recorded;
mod requests;
mod rollout;
mod secrets;
mod shutdown;
mod stored_journal;
mod streams;
mod traces;
mod undo;
mod website;
