//! The corpora of the fuzz targets, on stable Rust: each input must pass its target.

use std::path::Path;
use std::{fs, panic};

/// Runs a target on its corpus.
pub fn replay(target: &str, run: fn(&[u8])) {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let corpora = workspace.map(|directory| directory.join("host/fuzz/corpus"));
    let mut corpora = corpora.filter(|directory| directory.exists());
    let corpus = corpora.next().expect("host/fuzz/corpus").join(target);
    let (mut count, mut failed) = (0, Vec::new());
    for entry in fs::read_dir(&corpus).expect("a corpus") {
        let path = entry.expect("a file").path();
        let input = fs::read(&path).expect("a readable file");
        if panic::catch_unwind(|| run(&input)).is_err() {
            failed.push(path);
        }
        count += 1;
    }
    assert!(count > 0, "no corpus in {}", corpus.display());
    assert!(failed.is_empty(), "these inputs fail: {failed:#?}");
}
