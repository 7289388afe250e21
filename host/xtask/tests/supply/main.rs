//! The rules of `deny.toml` that need no cargo-deny: licences, duplicate versions and
//! sources. `cargo xtask supply` checks the rest.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use spdx::{Expression, Licensee, ParseMode};
use toml_edit::{Document, Item, Table, Value};

#[test]
fn every_licence_is_allowed() {
    let allowed = allowed();
    let crates = crates("normal,build,dev");
    assert!(crates.len() > 300, "{}", crates.len());
    let refused: Vec<String> = crates
        .iter()
        .filter(|used| !used.is_own && !is_allowed(&used.license, &allowed))
        .map(|used| format!("{} {}: {}", used.name, used.version, used.license))
        .collect();
    assert!(refused.is_empty(), "deny.toml allows not: {refused:#?}");
}

#[test]
fn a_licence_that_is_not_allowed_is_found() {
    let allowed = allowed();
    for (license, is_fine) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
        ("MPL-2.0+", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-3.0-only", false),
        ("AGPL-3.0-or-later", false),
        ("MPL-1.1", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(license, &allowed), is_fine, "{license:?}");
    }
}

#[test]
fn every_duplicate_version_is_listed_with_its_reason() {
    let skipped = skipped();
    // As cargo-deny counts: without the dependencies of tests.
    let refused = unlisted(&crates("normal,build"), &skipped);
    assert!(
        refused.is_empty(),
        "unify the versions, or list the older one under `skip` in deny.toml: {refused:?}"
    );
    for (skipped, reason) in &skipped {
        assert!(!reason.is_empty(), "{skipped} has no reason");
    }
}

#[test]
fn a_duplicate_version_is_found() {
    let two = |versions: &[&str]| -> Vec<Crate> {
        let of = |version: &&str| Crate {
            name: "a".to_owned(),
            version: (*version).to_owned(),
            license: String::new(),
            is_own: false,
        };
        versions.iter().map(of).collect()
    };
    let skipped = BTreeMap::from([("a@1.0.0".to_owned(), "b".to_owned())]);
    assert!(unlisted(&two(&["2.0.0"]), &skipped).is_empty());
    assert!(unlisted(&two(&["1.0.0", "2.0.0"]), &skipped).is_empty());
    assert_eq!(unlisted(&two(&["2.0.0", "3.0.0"]), &skipped), ["a"]);
    assert_eq!(
        unlisted(&two(&["1.0.0", "2.0.0", "3.0.0"]), &skipped),
        ["a"]
    );
}

#[test]
fn every_crate_is_the_projects_own_or_a_locked_one_of_crates_io() {
    let registry = list(&deny(), "sources", "allow-registry");
    let [registry] = registry.as_slice() else {
        panic!("deny.toml allows the registries {registry:?}");
    };
    assert!(list(&deny(), "sources", "allow-git").is_empty());
    let lock = read("Cargo.lock");
    assert_eq!(strangers(&lock, registry), Vec::<String>::new());
    // The test finds what it looks for.
    for (from, to) in [
        (
            "registry+https://github.com",
            "registry+https://example.com",
        ),
        ("registry+https", "git+https"),
        ("checksum = ", "sum = "),
    ] {
        assert!(!strangers(&lock.replacen(from, to, 1), registry).is_empty());
    }
}

/// Crates that are neither the project's own nor of the registry, with a checksum.
fn strangers(lock: &str, registry: &str) -> Vec<String> {
    let lock = Document::parse(lock).unwrap();
    let packages = lock.get("package").and_then(Item::as_array_of_tables);
    let source = format!("registry+{registry}");
    let field = |package: &Table, field: &str| -> Option<String> {
        Some(package.get(field)?.as_str()?.to_owned())
    };
    packages
        .unwrap()
        .iter()
        .filter(|package| match field(package, "source") {
            None => false,
            Some(found) => found != source || field(package, "checksum").is_none(),
        })
        .map(|package| field(package, "name").unwrap())
        .collect()
}

/// A version of a crate that is built on this platform.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    name: String,
    version: String,
    license: String,
    is_own: bool,
}

/// The crates of the workspace with all features, over these kinds of dependencies.
fn crates(edges: &str) -> BTreeSet<Crate> {
    // The platform of the tests: its crates are there without a network.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--workspace", "--all-features"])
        .args(["--target", &target, "--edges", edges])
        .args(["--prefix", "none", "--format", "{p}|{l}"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    // `a v1.0.0|MIT`, `b v1.0.0 (proc-macro)|MIT (*)`, `own v0.1.0 (/directory)|MIT`
    let read = |line: &str| {
        let (package, license) = line.trim_end_matches(" (*)").split_once('|').unwrap();
        let mut words = package.split(' ');
        Crate {
            name: words.next().unwrap().to_owned(),
            version: words.next().unwrap().trim_start_matches('v').to_owned(),
            license: license.to_owned(),
            is_own: words.any(|word| word.starts_with("(/")),
        }
    };
    lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(read)
        .collect()
}

/// The crates with more than one version that is not listed.
fn unlisted<'a>(
    crates: impl IntoIterator<Item = &'a Crate>,
    skipped: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut versions: BTreeMap<&str, u32> = BTreeMap::new();
    for used in crates {
        let is_listed = skipped.contains_key(&format!("{}@{}", used.name, used.version));
        *versions.entry(&used.name).or_default() += u32::from(!is_listed);
    }
    let duplicates = versions.into_iter().filter(|(_, count)| *count > 1);
    duplicates.map(|(name, _)| name.to_owned()).collect()
}

/// The versions under `skip`, such as `base64@0.22.1`, with their reasons.
fn skipped() -> BTreeMap<String, String> {
    let deny = deny();
    let skip = deny.get("bans").and_then(|bans| bans.get("skip"));
    let skip = skip.and_then(Item::as_array).unwrap();
    let entry = |entry: &Value| {
        let entry = entry.as_inline_table().unwrap();
        let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        (text("crate").to_owned(), text("reason").to_owned())
    };
    skip.iter().map(entry).collect()
}

fn allowed() -> Vec<Licensee> {
    let allowed = list(&deny(), "licenses", "allow");
    let parse = |license: &String| Licensee::parse(license).unwrap();
    allowed.iter().map(parse).collect()
}

fn is_allowed(license: &str, allowed: &[Licensee]) -> bool {
    // Crates may still separate alternatives by `/`.
    let expression = Expression::parse_mode(license, ParseMode::LAX);
    expression.is_ok_and(|expression| {
        expression.evaluate(|required| allowed.iter().any(|allowed| allowed.satisfies(required)))
    })
}

fn deny() -> Document<String> {
    Document::parse(read("deny.toml")).unwrap()
}

fn list(deny: &Document<String>, table: &str, field: &str) -> Vec<String> {
    let list = deny.get(table).and_then(|table| table.get(field));
    let list = list.and_then(Item::as_array);
    let list = list.unwrap_or_else(|| panic!("deny.toml has no {table}.{field}"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    list.iter().map(text).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(workspace().join(file)).unwrap()
}

fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}
