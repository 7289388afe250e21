//! The fields of Kubernetes' built-in kinds: the data of `guests/kinds`.

mod openapi;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The file, within the workspace. `guests/kinds/src/data.rs` describes its form.
const FILE: &str = "guests/kinds/src/kinds.txt";

const HEADER: &str = "\
# The fields of Kubernetes' built-in kinds. `cargo xtask kinds` writes this file.
# First the kinds: apiVersion, plural, kind, scope and type. Then the fields of each type.
";

/// What the file holds.
#[derive(Debug, Default, PartialEq, Eq)]
struct BuiltIn {
    /// The version of Kubernetes.
    version: String,
    /// In the order of the file.
    kinds: Vec<Kind>,
    /// The fields of each type by its name, and the spelling of each field's type.
    types: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Kind {
    api_version: String,
    plural: String,
    name: String,
    is_namespaced: bool,
    root: String,
}

/// Writes the kinds of an `OpenAPI` document.
pub(crate) fn write(workspace: &Path, document: &Path) -> Result<()> {
    let text = fs::read_to_string(document);
    let text = text.with_context(|| format!("reading {}", document.display()))?;
    let value: Value = serde_json::from_str(&text)
        .with_context(|| format!("{} is not JSON", document.display()))?;
    let kinds = openapi::kinds(&value)
        .with_context(|| format!("{} is not what an API server prints", document.display()))?;
    let text = kinds.to_string();
    let path = workspace.join(FILE);
    fs::write(&path, &text).with_context(|| format!("writing {}", path.display()))?;
    println!(
        "Kubernetes {}: {} kinds, {} types, {} bytes",
        kinds.version,
        kinds.kinds.len(),
        kinds.types.len(),
        text.len()
    );
    Ok(())
}

impl fmt::Display for BuiltIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}kubernetes {}\n", self.version)?;
        for kind in &self.kinds {
            let scope = if kind.is_namespaced {
                "namespaced"
            } else {
                "cluster"
            };
            let Kind {
                api_version,
                plural,
                name,
                root,
                ..
            } = kind;
            writeln!(f, "{api_version} {plural} {name} {scope} {root}")?;
        }
        writeln!(f)?;
        for (name, fields) in &self.types {
            writeln!(f, "{name}")?;
            for (field, spelling) in fields {
                writeln!(f, " {field} {spelling}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
