//! The corpus of the fuzz targets, on stable Rust: regressions of earlier findings.

#![allow(clippy::expect_used, reason = "a test may fail by panicking")]

#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).expect("a corpus") {
        let path = entry.expect("a file").path();
        // Printed if the test fails: this input caused it.
        println!("{}", path.display());
        run(&std::fs::read(&path).expect("it can be read"));
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", directory.display());
}

#[test]
fn parser() {
    replay("parser", fuzz::parser);
}

#[test]
fn patches() {
    replay("patches", fuzz::patches);
}

#[test]
fn selectors() {
    replay("selectors", fuzz::selectors);
}

#[test]
fn requests() {
    replay("requests", fuzz::requests);
}
