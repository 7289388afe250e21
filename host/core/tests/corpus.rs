//! The corpora of core's fuzz targets.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::float_cmp,
    clippy::indexing_slicing,
    clippy::match_same_arms,
    clippy::panic,
    reason = "modules of a fuzz target as well; a test may fail by panicking"
)]

#[path = "../../fuzz/src/bytes.rs"]
mod bytes;
#[path = "../../fuzz/src/manifest.rs"]
mod manifest;
#[path = "../../fuzz/src/msgpack.rs"]
mod msgpack;
#[path = "../../fuzz/src/project.rs"]
mod project;
#[path = "../../fuzz/src/replay.rs"]
mod replay;
#[path = "../../fuzz/src/spec.rs"]
mod spec;

use replay::replay;

#[test]
fn manifests() {
    replay("manifest", manifest::run);
}

#[test]
fn messagepack() {
    replay("msgpack", msgpack::run);
}

#[test]
fn projections() {
    replay("project", project::run);
}

#[test]
fn specs() {
    replay("spec", spec::run);
}
