#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

use std::sync::LazyLock;

use spdx::{Expression, ParseMode};

use super::*;
use crate::workspace;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The document of this workspace; cargo takes seconds to list the crates.
static TEXT: LazyLock<String> = LazyLock::new(|| document(&workspace().unwrap(), TARGET).unwrap());

fn real() -> Value {
    serde_json::from_str(&TEXT).unwrap()
}

fn id(reference: &str) -> Id {
    let (name, version) = reference.split_once('@').unwrap();
    Id {
        name: name.to_owned(),
        version: version.to_owned(),
    }
}

#[test]
fn the_document_of_the_program_is_valid() {
    let document = real();
    assert_eq!(problems(&document), Vec::<String>::new());
}

/// The problems of a document, by the rules of CycloneDX 1.6 that its schema has for the
/// fields in use.
fn problems(document: &Value) -> Vec<String> {
    let mut problems = Vec::new();
    let mut must = |holds: bool, rule: String| {
        if !holds {
            problems.push(rule);
        }
    };
    must(document["bomFormat"] == "CycloneDX", "bomFormat".into());
    must(document["specVersion"] == "1.6", "specVersion".into());
    must(document["version"] == 1, "version".into());
    let root = &document["metadata"]["component"];
    must(root["type"] == "application", "the root's type".into());
    let mut references = BTreeSet::new();
    for component in list(document, "components").chain([root]) {
        let reference = text(component, "bom-ref").unwrap_or_default();
        must(!reference.is_empty(), format!("bom-ref of {component}"));
        must(references.insert(reference), format!("{reference} twice"));
        for field in ["type", "name", "version"] {
            let value = text(component, field).unwrap_or_default();
            must(!value.is_empty(), format!("{field} of {reference}"));
        }
        // The schema allows one expression and nothing beside it.
        let expression = match component["licenses"].as_array().map(Vec::as_slice) {
            Some([license]) => text(license, "expression").unwrap_or_default(),
            _ => "",
        };
        let parsed = Expression::parse_mode(expression, ParseMode::STRICT);
        must(parsed.is_ok(), format!("the licence of {reference}"));
        let is_external = component.get("purl").is_some();
        for hash in list(component, "hashes") {
            let content = text(hash, "content").unwrap_or_default();
            let is_hexadecimal = content.bytes().all(|byte| byte.is_ascii_hexdigit());
            must(
                hash["alg"] == "SHA-256" && content.len() == 64 && is_hexadecimal,
                format!("the hash of {reference}"),
            );
        }
        must(
            is_external == (list(component, "hashes").count() == 1),
            format!("{reference} has a purl without a hash, or a hash without a purl"),
        );
    }
    let mut relations = BTreeMap::new();
    for relation in list(document, "dependencies") {
        let reference = text(relation, "ref").unwrap_or_default();
        let used: Vec<&str> = list(relation, "dependsOn")
            .filter_map(Value::as_str)
            .collect();
        for used in &used {
            must(references.contains(used), format!("{used} is no component"));
        }
        let distinct: BTreeSet<&str> = used.iter().copied().collect();
        must(distinct.len() == used.len(), format!("{reference} repeats"));
        must(
            references.contains(reference),
            format!("{reference} is no component"),
        );
        must(
            relations.insert(reference, used).is_none(),
            format!("{reference} twice"),
        );
    }
    let mut reached = BTreeSet::new();
    let mut next = vec![text(root, "bom-ref").unwrap_or_default()];
    while let Some(reference) = next.pop() {
        if reached.insert(reference) {
            next.extend(relations.get(reference).into_iter().flatten().copied());
        }
    }
    for reference in references.difference(&reached) {
        must(false, format!("nothing depends on {reference}"));
    }
    problems
}

#[test]
fn a_problem_of_a_document_is_found() {
    let good = real();
    let broken = |change: &dyn Fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        problems(&document).len()
    };
    assert_eq!(broken(&|_| {}), 0);
    assert!(broken(&|document| document["specVersion"] = "1.0".into()) > 0);
    assert!(broken(&|document| document["components"][0]["licenses"] = json!([])) > 0);
    assert!(broken(&|document| document["components"][0]["bom-ref"] = "x".into()) > 0);
    assert!(broken(&|document| document["components"][0]["hashes"] = json!([])) > 0);
    assert!(broken(&|document| document["dependencies"] = json!([])) > 0);
}

#[test]
fn the_program_has_what_is_linked_and_nothing_else() {
    let document = real();
    let components = || list(&document, "components");
    let named = |name: &str| components().any(|component| component["name"] == name);
    for linked in [
        "davit-core",
        "davit-engine",
        "wasmtime",
        "ring",
        "kube-client",
        "tokio",
    ] {
        assert!(named(linked), "{linked}");
    }
    // Macros, build scripts, tests, other platforms.
    for other in [
        "syn",
        "serde_derive",
        "cc",
        "proptest",
        "xtask",
        "windows-sys",
        "podgc",
    ] {
        assert!(!named(other), "{other}");
    }
    let lock = fs::read_to_string(workspace().unwrap().join("Cargo.lock")).unwrap();
    for component in components().filter(|component| component.get("purl").is_some()) {
        let hash = text(&component["hashes"][0], "content").unwrap();
        let name = text(component, "name").unwrap();
        let version = text(component, "version").unwrap();
        let entry = format!(
            "name = \"{name}\"\nversion = \"{version}\"\nsource = \"{CRATES_IO}\"\nchecksum = \
             \"{hash}\"\n"
        );
        assert!(lock.contains(&entry), "{name} {version}");
    }
}

#[test]
fn the_same_sources_have_the_same_document() {
    let workspace = workspace().unwrap();
    assert_eq!(*TEXT, document(&workspace, TARGET).unwrap());
    // No path of the machine that wrote it.
    assert!(!TEXT.contains(&workspace.display().to_string()));
}

#[test]
fn a_tree_is_read_from_its_depths() {
    let output = "0davit v0.1.0 (/x)\n1a v1.0.0\n2b v2.0.0+c.1\n1d v3.0.0\n2a v1.0.0 (*)\n";
    let tree = Tree::read(output).unwrap();
    let used =
        |of: &str| -> Vec<String> { tree.edges[&id(of)].iter().map(Id::reference).collect() };
    assert_eq!(tree.root, id("davit@0.1.0"));
    assert_eq!(used("davit@0.1.0"), ["a@1.0.0", "d@3.0.0"]);
    assert_eq!(used("a@1.0.0"), ["b@2.0.0+c.1"]);
    assert_eq!(used("d@3.0.0"), ["a@1.0.0"]);
    assert!(used("b@2.0.0+c.1").is_empty());
    for odd in ["", "0davit", "davit v0.1.0", "0davit v0.1.0\n2a v1.0.0"] {
        assert!(Tree::read(odd).is_err(), "{odd:?}");
    }
}

/// A crate that was published elsewhere, changed after it was locked, or without a
/// licence is no component.
#[test]
fn what_cannot_be_described_is_an_error() {
    let a = id("a@1.0.0");
    let package = json!({"license": "MIT/Apache-2.0", "source": CRATES_IO});
    let checksum = "ab".repeat(32);
    let found = component(&a, &package, Some(&checksum)).unwrap();
    assert_eq!(found["purl"], "pkg:cargo/a@1.0.0");
    assert_eq!(
        found["licenses"],
        json!([{"expression": "MIT OR Apache-2.0"}])
    );
    let build = component(&id("a@1.0.0+b"), &package, Some(&checksum)).unwrap();
    assert_eq!(build["purl"], "pkg:cargo/a@1.0.0%2Bb");
    assert!(component(&a, &package, None).is_err());
    assert!(component(&a, &json!({"source": CRATES_IO}), Some(&checksum)).is_err());
    let git = json!({"license": "MIT", "source": "git+https://example.com/a"});
    assert!(component(&a, &git, Some(&checksum)).is_err());
    // The project's own.
    let own = component(&a, &json!({"license": "MIT"}), None).unwrap();
    assert_eq!(own.get("purl"), None);
}
