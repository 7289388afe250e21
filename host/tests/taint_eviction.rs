//! The guest taint-eviction end to end: its cases that need an API server or time, by
//! the ids of the specification; and the host's additions. With
//! `DAVIT_TEST_KUBECONFIG=FILE`, the tests of the module `conformance` run against that
//! API server, except those on virtual time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[allow(
    dead_code,
    reason = "the bench of all end-to-end tests, of which this one uses a part"
)]
#[path = "e2e/bench.rs"]
mod bench;
#[path = "taint_eviction/cluster.rs"]
mod cluster;
#[path = "taint_eviction/conformance.rs"]
mod conformance;
#[path = "taint_eviction/faults.rs"]
mod faults;
#[path = "taint_eviction/host.rs"]
mod host;
#[path = "taint_eviction/scale.rs"]
mod scale;
#[path = "taint_eviction/speed.rs"]
mod speed;
#[path = "taint_eviction/starts.rs"]
mod starts;
