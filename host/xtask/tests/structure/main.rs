//! Rules about the project's own structure that no compiler checks: core stays
//! pure, crates depend in one direction only, and so do the modules of a crate.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod cycles;
mod fragments;
mod links;
mod modules;
mod purity;
mod security;
mod unsafe_code;
mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The packages of the workspace, as cargo describes them.
fn metadata() -> Value {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version=1"]);
    serde_json::from_str(&metadata).unwrap()
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--locked")
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo {arguments:?} failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// docs/writing-a-guest.md promises it to those who copy the example.
#[test]
fn the_example_of_a_custom_resource_has_less_than_150_lines() {
    let sources = workspace().join("guests/examples/website/src");
    let files = std::fs::read_dir(sources).unwrap();
    let lines = files.map(|file| read(&file.unwrap().path()).lines().count());
    let lines: usize = lines.sum();
    assert!((1..150).contains(&lines), "{lines} lines");
}
