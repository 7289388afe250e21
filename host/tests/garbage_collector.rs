//! The garbage collector end to end: the component in the host against the API server
//! in memory, on virtual time. With `DAVIT_TEST_KUBECONFIG=FILE`, the tests of the
//! module `conformance` run against that server.
//!
//! The names start with the ids of the specification's cases. If a case checks the
//! inside of kube-controller-manager (a queue's length, a virtual node, the graph), the
//! test checks the outcome instead.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "it serves the tests of every guest")]
#[path = "e2e/bench.rs"]
mod bench;
#[path = "e2e/objects.rs"]
mod objects;

#[path = "garbage_collector/cascade.rs"]
mod cascade;
#[path = "garbage_collector/cluster.rs"]
mod cluster;
#[path = "garbage_collector/conflicting.rs"]
mod conflicting;
#[path = "garbage_collector/conformance.rs"]
mod conformance;
#[path = "garbage_collector/discovery.rs"]
mod discovery;
#[path = "garbage_collector/faults.rs"]
mod faults;
#[path = "garbage_collector/foreground.rs"]
mod foreground;
#[path = "garbage_collector/index.rs"]
mod index;
#[path = "garbage_collector/orphan.rs"]
mod orphan;
#[path = "garbage_collector/progress.rs"]
mod progress;
#[path = "garbage_collector/unserved.rs"]
mod unserved;
