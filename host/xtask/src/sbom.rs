//! `cargo xtask sbom`: the crates that the program `davit` is linked from, as CycloneDX.
//!
//! The document depends on the sources and `Cargo.lock` alone: it has no time and no
//! serial number, so that the same commit has the same document.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use toml_edit::Document;

use crate::{cargo_output, list, text};

/// The version of CycloneDX.
const SPEC_VERSION: &str = "1.6";

/// The program.
const ROOT: &str = "davit";

/// The sources of crates.io in `Cargo.lock`.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Writes the document for a target, such as `x86_64-unknown-linux-gnu`.
pub(crate) fn write(workspace: &Path, target: &str, path: &Path) -> Result<()> {
    let document = document(workspace, target)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(path, document))
        .with_context(|| format!("writing {}", path.display()))
}

/// Where the document is written if no other path is named.
pub(crate) fn default_path(workspace: &Path) -> PathBuf {
    workspace.join("target/davit.cdx.json")
}

fn document(workspace: &Path, target: &str) -> Result<String> {
    let tree = [
        "tree",
        "--locked",
        "--package",
        ROOT,
        "--target",
        target,
        // What is linked into the program: no macros, no build scripts, no tests.
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "depth",
        "--format",
        "{p}",
    ];
    let metadata = [
        "metadata",
        "--locked",
        "--format-version",
        "1",
        "--filter-platform",
        target,
    ];
    let tree = Tree::read(&cargo_output(workspace, tree)?)?;
    let metadata = serde_json::from_str(&cargo_output(workspace, metadata)?)?;
    let packages = packages(&metadata);
    let lock = fs::read_to_string(workspace.join("Cargo.lock")).context("reading Cargo.lock")?;
    let checksums = checksums(&lock)?;
    let document = compose(&tree, &packages, &checksums)?;
    Ok(format!("{document:#}\n"))
}

/// A version of a crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    name: String,
    version: String,
}

impl Id {
    /// Its identifier within the document.
    fn reference(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// Each crate with the crates that it depends on.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    root: Id,
    edges: BTreeMap<Id, BTreeSet<Id>>,
}

impl Tree {
    /// Reads the output of `cargo tree --prefix depth --format {p}`: lines such as
    /// `2bytes v1.12.1`, with `(*)` at the end if the dependencies were listed before.
    fn read(output: &str) -> Result<Self> {
        let mut edges: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
        let mut above: Vec<Id> = Vec::new();
        for line in output.lines() {
            let (depth, id) =
                read_line(line).with_context(|| format!("cargo tree printed {line:?}"))?;
            ensure!(depth <= above.len(), "cargo tree skipped a level: {line:?}");
            above.truncate(depth);
            if let Some(user) = above.last() {
                edges.entry(user.clone()).or_default().insert(id.clone());
            }
            edges.entry(id.clone()).or_default();
            above.push(id);
        }
        let root = above.into_iter().next();
        let root = root.context("cargo tree printed nothing")?;
        Ok(Self { root, edges })
    }
}

fn read_line(line: &str) -> Option<(usize, Id)> {
    let name = line.find(|character: char| !character.is_ascii_digit())?;
    let (depth, rest) = line.split_at(name);
    let mut words = rest.split(' ');
    let (name, version) = (words.next()?, words.next()?.strip_prefix('v')?);
    let id = Id {
        name: name.to_owned(),
        version: version.to_owned(),
    };
    Some((depth.parse().ok()?, id))
}

/// What `cargo metadata` knows of each crate.
fn packages(metadata: &Value) -> BTreeMap<Id, &Value> {
    let packages = list(metadata, "packages");
    packages
        .filter_map(|package| {
            let id = Id {
                name: text(package, "name")?.to_owned(),
                version: text(package, "version")?.to_owned(),
            };
            Some((id, package))
        })
        .collect()
}

/// The SHA-256 of each crate's archive, from `Cargo.lock`.
fn checksums(lock: &str) -> Result<BTreeMap<Id, String>> {
    let lock = Document::parse(lock).context("reading Cargo.lock")?;
    let packages = lock.get("package");
    let packages = packages.and_then(|packages| packages.as_array_of_tables());
    let packages = packages.context("Cargo.lock lists no packages")?;
    let of = |package: &toml_edit::Table| {
        let field = |name| Some(package.get(name)?.as_str()?.to_owned());
        let id = Id {
            name: field("name")?,
            version: field("version")?,
        };
        Some((id, field("checksum")?))
    };
    Ok(packages.iter().filter_map(of).collect())
}

fn compose(
    tree: &Tree,
    packages: &BTreeMap<Id, &Value>,
    checksums: &BTreeMap<Id, String>,
) -> Result<Value> {
    let component = |id: &Id| {
        let package = packages.get(id);
        let package = package.with_context(|| format!("no metadata of {}", id.reference()))?;
        component(id, package, checksums.get(id))
    };
    let ids = tree.edges.keys().filter(|id| **id != tree.root);
    let components = ids.map(component).collect::<Result<Vec<_>>>()?;
    let mut program = component(&tree.root)?;
    if let Some(program) = program.as_object_mut() {
        program.insert("type".into(), "application".into());
        program.remove("scope");
    }
    let relations = tree.edges.iter().map(|(id, used)| {
        let used: Vec<String> = used.iter().map(Id::reference).collect();
        json!({"ref": id.reference(), "dependsOn": used})
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "version": 1,
        "metadata": {
            "component": program,
            "tools": {"components": [{
                "type": "application",
                "name": "cargo xtask sbom",
                "version": env!("CARGO_PKG_VERSION"),
            }]},
        },
        "components": components,
        "dependencies": relations.collect::<Vec<_>>(),
    }))
}

fn component(id: &Id, package: &Value, checksum: Option<&String>) -> Result<Value> {
    let mut component = Map::new();
    let mut set = |field: &str, value: Value| {
        component.insert(field.to_owned(), value);
    };
    set("type", "library".into());
    set("bom-ref", id.reference().into());
    set("name", id.name.as_str().into());
    set("version", id.version.as_str().into());
    set("scope", "required".into());
    if let Some(description) = text(package, "description") {
        let words: Vec<&str> = description.split_whitespace().collect();
        set("description", words.join(" ").into());
    }
    let license = text(package, "license");
    let license = license.with_context(|| format!("{} names no licence", id.reference()))?;
    set("licenses", json!([{"expression": expression(license)}]));
    if let Some(url) = text(package, "repository") {
        set("externalReferences", json!([{"type": "vcs", "url": url}]));
    }
    // The project's own crates have no source: no registry has them.
    if let Some(source) = text(package, "source") {
        ensure!(
            source == CRATES_IO,
            "{} comes from {source}",
            id.reference()
        );
        let checksum = checksum
            .with_context(|| format!("Cargo.lock has no checksum of {}", id.reference()))?;
        set("hashes", json!([{"alg": "SHA-256", "content": checksum}]));
        // A version's `+` starts its build metadata; in a URL it is a space.
        let version = id.version.replace('+', "%2B");
        set("purl", format!("pkg:cargo/{}@{version}", id.name).into());
    }
    Ok(component.into())
}

/// A licence as an expression of SPDX. Crates may still separate alternatives by `/`.
fn expression(license: &str) -> String {
    let alternatives: Vec<&str> = license.split('/').map(str::trim).collect();
    alternatives.join(" OR ")
}

#[cfg(test)]
mod tests;
