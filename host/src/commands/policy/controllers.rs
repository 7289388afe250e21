//! The controllers in a file, in each form in which Davit knows them: a Controller, its spec
//! alone, and the file of `davit run --config`.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use super::files;
use crate::commands::print::{part, text_at};

/// The sources that a module may have.
const SOURCES: [&str; 4] = ["builtin", "file", "configMap", "oci"];

/// A controller, or a configuration alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenController {
    /// Empty for a spec or a configuration alone.
    pub(crate) name: String,
    /// A spec, of which a configuration alone has the field `config` only.
    pub(crate) spec: Value,
    pub(crate) form: Form,
}

/// How a controller is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A Controller.
    Resource,
    /// The spec of one.
    Spec,
    /// One of the list of a host's file, beside controllers of other guests.
    Listed,
    /// The configuration of a guest, or another object.
    Other,
}

impl WrittenController {
    /// The guest's configuration.
    pub(crate) fn config(&self) -> &Value {
        part(&self.spec, "/config")
    }

    /// The name of the built-in guest; empty for another module, or none.
    pub(crate) fn builtin(&self) -> &str {
        text_at(&self.spec, "/module/builtin")
    }
}

/// What the documents of a file are. Nothing is checked.
pub(crate) fn in_file(path: &Path) -> Result<Vec<WrittenController>> {
    let documents = files::documents(path)?.into_iter();
    Ok(documents.flat_map(in_document).collect())
}

fn in_document(document: Value) -> Vec<WrittenController> {
    let text = |pointer| text_at(&document, pointer);
    let group = text("/apiVersion").split('/').next().unwrap_or_default();
    if text("/kind") == "Controller" && ["", "davit.dev"].contains(&group) {
        return vec![WrittenController {
            name: text("/metadata/name").to_owned(),
            spec: part(&document, "/spec").clone(),
            form: Form::Resource,
        }];
    }
    if document.get("kind").is_none() && has_module(&document) {
        return vec![WrittenController {
            name: String::new(),
            spec: document,
            form: Form::Spec,
        }];
    }
    match part(&document, "/controllers").as_array() {
        Some(listed) if listed.iter().any(has_module) => listed.iter().map(in_list).collect(),
        _ => vec![WrittenController {
            name: String::new(),
            spec: serde_json::json!({"config": document}),
            form: Form::Other,
        }],
    }
}

fn in_list(listed: &Value) -> WrittenController {
    let mut spec = listed.clone();
    let name = spec.as_object_mut().and_then(|it| it.remove("name"));
    WrittenController {
        name: name
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
        spec,
        form: Form::Listed,
    }
}

/// Whether it names the source of a module. A guest's own configuration may have a field of this
/// name too.
fn has_module(spec: &Value) -> bool {
    let module = part(spec, "/module").as_object();
    module.is_some_and(|it| SOURCES.iter().any(|source| it.contains_key(*source)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_form_has_its_name_its_guest_and_its_configuration() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file.yaml");
        let text = "
kind: Controller
metadata: {name: resource}
spec: {module: {builtin: policy}, config: {a: 1}}
---
module: {builtin: policy}
config: {a: 2}
---
controllers:
  - {name: listed, module: {builtin: podgc}, config: {a: 3}}
  - {name: incomplete, config: {a: 4}}
client: {qps: 5}
---
{module: {name: odd}, controllers: [5]}
---
apiVersion: example.com/v1
kind: Controller
spec: {module: {builtin: policy}}
";
        std::fs::write(&path, text).unwrap();
        let found = in_file(&path).unwrap();
        let facts = found
            .iter()
            .map(|it| (it.form, it.name.as_str(), it.builtin(), it.config().clone()));
        let other = json!({"apiVersion": "example.com/v1", "kind": "Controller",
            "spec": {"module": {"builtin": "policy"}}});
        assert_eq!(
            facts.collect::<Vec<_>>(),
            [
                (Form::Resource, "resource", "policy", json!({"a": 1})),
                (Form::Spec, "", "policy", json!({"a": 2})),
                (Form::Listed, "listed", "podgc", json!({"a": 3})),
                (Form::Listed, "incomplete", "", json!({"a": 4})),
                (
                    Form::Other,
                    "",
                    "",
                    json!({"module": {"name": "odd"}, "controllers": [5]})
                ),
                (Form::Other, "", "", other),
            ]
        );
        assert_eq!(found[2].spec.get("name"), None);
    }
}
