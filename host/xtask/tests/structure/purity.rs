//! What the crates' manifests and core's `clippy.toml` hold.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{cargo, metadata, read, workspace};

/// What core may depend on. A crate belongs here only if it does no I/O, reads no
/// clock and starts no thread, or if `host/core/clippy.toml` bans the functions
/// that do.
const CORE_MAY_USE: &[&str] = &[
    "imbl",
    "jiff",
    "lz4_flex",
    // It parses references to artefacts.
    "oci-spec",
    "rand_xoshiro",
    "rmp",
    "rmp-serde",
    "schemars",
    "serde",
    "serde_json",
    "sha2",
    "thiserror",
    "wide",
];

/// What core must not depend on through another crate either.
const NEVER_IN_CORE: &[&str] = &[
    "getrandom",
    "hyper",
    "kube",
    "kube-client",
    "mio",
    "rand",
    "tokio",
    "wasmtime",
];

/// Which of the project's crates each may depend on, outside its tests.
const ARROWS: [(&str, &[&str]); 14] = [
    ("davit-core", &[]),
    ("davit-engine", &["davit-core"]),
    ("davit-cluster", &["davit-core"]),
    ("davit-journal", &[]),
    ("davit-sim", &[]),
    ("davit-simulation", &["davit-core", "davit-sim"]),
    (
        "davit-stories",
        &[
            "davit-core",
            "davit-guest",
            "davit-sim",
            "davit-simulation",
            "garbage-collector",
            "node-eviction",
            "podgc",
            "storage-version-gc",
            "taint-eviction",
        ],
    ),
    (
        "davit-bench",
        &[
            "davit",
            "davit-cluster",
            "davit-core",
            "davit-engine",
            "davit-guest",
            "davit-sim",
            "davit-simulation",
            "garbage-collector",
            "node-eviction",
            "podgc",
            "storage-version-gc",
            "taint-eviction",
        ],
    ),
    ("davit-kinds", &[]),
    // The host's crates and the kinds for its feature `testing` alone, which no component has.
    (
        "davit-guest",
        &[
            "davit-core",
            "davit-guest-derive",
            "davit-kinds",
            "davit-sim",
            "davit-simulation",
        ],
    ),
    ("davit-guest-derive", &[]),
    // Its rules are checked against the fields of the kinds when they are configured.
    ("policy", &["davit-guest", "davit-kinds"]),
    ("xtask", &[]),
    (
        "davit",
        &[
            "davit-core",
            "davit-engine",
            "davit-cluster",
            "davit-journal",
            // For the suggestion of `davit check`.
            "davit-kinds",
            "davit-sim",
            // For `davit policy`, which judges objects by rules without a component.
            "policy",
        ],
    ),
];

#[test]
fn core_depends_on_pure_crates_only() {
    let used = dependencies(&metadata(), "davit-core");
    let refused: Vec<&String> = used
        .iter()
        .filter(|name| !CORE_MAY_USE.contains(&name.as_str()))
        .collect();
    assert!(refused.is_empty(), "host/core depends on {refused:?}");
}

#[test]
fn core_depends_on_no_runtime_through_another_crate() {
    let tree = cargo(&["tree", "-p", "davit-core", "-e", "normal", "--prefix=none"]);
    let tree: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(tree.contains("davit-core"), "{tree:?}");
    let refused: Vec<&&str> = NEVER_IN_CORE
        .iter()
        .filter(|name| tree.contains(*name))
        .collect();
    assert!(
        refused.is_empty(),
        "host/core depends indirectly on {refused:?}"
    );
}

/// A guest depends on the SDK alone, a crate of the host on those below it.
#[test]
fn crates_of_the_project_depend_in_one_direction() {
    let metadata = metadata();
    let own: BTreeSet<String> = packages(&metadata)
        .map(|package| name(package).to_owned())
        .collect();
    for package in &own {
        let allowed = ARROWS.iter().find(|(from, _)| from == package);
        let allowed = allowed.map_or(&["davit-guest"][..], |(_, to)| to);
        for used in dependencies(&metadata, package).intersection(&own) {
            assert!(
                allowed.contains(&used.as_str()),
                "{package} must not depend on {used}"
            );
        }
    }
}

/// Clippy reads the nearest `clippy.toml` only, so core's repeats the workspace's.
#[test]
fn core_has_the_settings_of_the_workspace_and_bans_of_its_own() {
    let everywhere = read(&workspace().join("clippy.toml"));
    let core = read(&workspace().join("host/core/clippy.toml"));
    for line in everywhere.lines() {
        assert!(
            core.lines().any(|of_core| of_core == line),
            "host/core/clippy.toml lacks the workspace's setting `{line}`"
        );
    }
    for banned in [
        "std::time::Instant",
        "std::collections::HashMap",
        "std::env::var",
        "std::thread::spawn",
        "std::fs::read",
        "jiff::Timestamp::now",
    ] {
        assert!(
            core.contains(&format!("{{ path = \"{banned}\", reason = ")),
            "host/core/clippy.toml allows {banned}"
        );
    }
}

fn packages(metadata: &Value) -> impl Iterator<Item = &Value> {
    metadata["packages"].as_array().unwrap().iter()
}

/// The crates that a package's own code uses, also on other platforms, but neither
/// in its tests nor in its build script.
fn dependencies(metadata: &Value, package: &str) -> BTreeSet<String> {
    let package = packages(metadata)
        .find(|candidate| name(candidate) == package)
        .unwrap_or_else(|| panic!("the workspace has no package {package}"));
    let dependencies = package["dependencies"].as_array().unwrap().iter();
    dependencies
        .filter(|dependency| dependency["kind"].is_null())
        .map(|dependency| name(dependency).to_owned())
        .collect()
}

fn name(package: &Value) -> &str {
    package["name"].as_str().unwrap()
}
