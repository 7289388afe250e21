//! The controllers end to end, but for PodGC: the components in the host against the API
//! server in memory, on virtual time where they can. With `DAVIT_TEST_KUBECONFIG=FILE`, the
//! tests of the modules `conformance` run against that server, except those on virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[allow(
    dead_code,
    reason = "the bench of all end-to-end tests, of which these use a part"
)]
#[path = "../e2e/bench.rs"]
mod bench;
#[allow(dead_code, reason = "it serves the tests of every guest")]
#[path = "../e2e/objects.rs"]
mod objects;

mod garbage_collector;
mod node_eviction;
mod storage_version_gc;
mod taint_eviction;
