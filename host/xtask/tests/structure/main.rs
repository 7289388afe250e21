//! Rules about the project's own structure that no compiler checks: core stays
//! pure, crates depend in one direction only, and so do the modules of a crate.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod cycles;
mod modules;
mod purity;
mod security;
mod unsafe_code;
mod words;

use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
