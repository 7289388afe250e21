//! `cargo xtask docs`: the reference of the SDK, as rustdoc.
//!
//! Its examples are documentation tests, which `cargo test --workspace` runs.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cargo_with;

/// What a guest is written and tested with. The other crates are parts of the host.
const PACKAGES: [&str; 3] = ["davit-guest", "davit-guest-derive", "davit-kinds"];
/// A guest enables it for its tests.
const HARNESS: &str = "davit-guest/testing";

/// Builds the reference. A broken link and an item without a description are errors.
pub(crate) fn build(workspace: &Path) -> Result<()> {
    let doc = ["doc", "--locked", "--no-deps", "--features", HARNESS];
    let packages = PACKAGES.iter().flat_map(|package| ["-p", *package]);
    cargo_with(workspace, doc.into_iter().chain(packages), |command| {
        command.env("RUSTDOCFLAGS", "-D warnings");
    })
}

/// The first page.
pub(crate) fn index(workspace: &Path) -> PathBuf {
    workspace.join("target/doc/davit_guest/index.html")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{cargo_output, list, text, workspace};

    /// `doctest = false` in a manifest would hide an example that does not compile.
    #[test]
    fn examples_of_the_reference_are_tests() {
        let metadata = ["metadata", "--no-deps", "--format-version=1", "--locked"];
        let metadata = cargo_output(&workspace().unwrap(), metadata).unwrap();
        let metadata: Value = serde_json::from_str(&metadata).unwrap();
        let libraries = list(&metadata, "packages").filter_map(|package| {
            let name = text(package, "name").filter(|name| PACKAGES.contains(name))?;
            let mut targets = list(package, "targets");
            let library = targets.find(|target| {
                list(target, "kind").any(|kind| kind == "lib" || kind == "proc-macro")
            })?;
            Some((name, library.get("doctest").and_then(Value::as_bool)))
        });
        let mut libraries: Vec<_> = libraries.collect();
        libraries.sort_unstable();
        assert_eq!(libraries, PACKAGES.map(|name| (name, Some(true))));
    }
}
