//! Documents of YAML and JSON files.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::yaml;

/// The documents of a file, in their order. Lists (`kind: List`, `PodList`) are split.
pub(super) fn documents(path: &Path) -> Result<Vec<Value>> {
    let attempt = || format!("{} cannot be read", path.display());
    let text = std::fs::read_to_string(path).with_context(attempt)?;
    let mut documents = Vec::new();
    for document in parsed(&text).with_context(attempt)? {
        split(document, &mut documents);
    }
    Ok(documents)
}

fn parsed(text: &str) -> Result<Vec<Value>> {
    // Lists of kubectl get -o json are large, and YAML's parser bounds its input.
    if text.trim_start().starts_with('{') {
        let values = serde_json::Deserializer::from_str(text).into_iter();
        let values: Result<Vec<Value>, _> = values.collect();
        // A map of YAML may have the same brackets.
        return values.or_else(|error| yaml::all(text).map_err(|_| error.into()));
    }
    Ok(yaml::all(text)?)
}

/// Splits lists. The items of a typed list may leave out their type.
fn split(document: Value, documents: &mut Vec<Value>) {
    let kind = document.get("kind").and_then(Value::as_str);
    let item_kind = kind.and_then(|kind| kind.strip_suffix("List"));
    let item_kind = item_kind.map(str::to_owned);
    let api_version = document.get("apiVersion").cloned();
    match (item_kind, document) {
        (_, Value::Null) => {}
        (Some(kind), Value::Object(mut list)) if list.get("items").is_some_and(Value::is_array) => {
            let Some(Value::Array(items)) = list.remove("items") else {
                return;
            };
            for mut item in items {
                if let (Value::Object(fields), false) = (&mut item, kind.is_empty()) {
                    let kind = || Value::from(kind.as_str());
                    fields.entry("kind").or_insert_with(kind);
                    let version = || api_version.clone().unwrap_or_default();
                    fields.entry("apiVersion").or_insert_with(version);
                }
                split(item, documents);
            }
        }
        (_, document) => documents.push(document),
    }
}

/// The YAML and JSON files of a directory and its directories, in the order of their names; a
/// file itself.
pub(super) fn below(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let attempt = || format!("{} cannot be read", path.display());
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .with_context(attempt)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(attempt)?;
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let extension = entry.extension().and_then(|it| it.to_str());
        if entry.is_dir() {
            files.extend(below(&entry)?);
        } else if extension.is_some_and(|it| matches!(it, "yaml" | "yml" | "json")) {
            files.push(entry);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_and_their_items_get_the_type() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            std::fs::write(directory.path().join(name), text).unwrap();
        };
        write(
            "a.yaml",
            "apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}]\n---\n---\nkind: Node\n",
        );
        write("a.yml", "{kind: Secret} # no JSON\n");
        write(
            "b.json",
            r#"{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "b"}}]} {"kind": "Job"}"#,
        );
        write("c.txt", "no YAML: [");
        let files = below(directory.path()).unwrap();
        let kinds: Vec<String> = files
            .iter()
            .flat_map(|file| documents(file).unwrap())
            .map(|document| format!("{} {}", document["apiVersion"], document["kind"]))
            .collect();
        assert_eq!(
            kinds,
            [
                "\"v1\" \"Pod\"",
                "null \"Node\"",
                "null \"Secret\"",
                "null \"Pod\"",
                "null \"Job\""
            ]
        );
    }
}
