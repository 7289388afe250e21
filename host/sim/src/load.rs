//! Loading what `kubectl get -o json` or `-o yaml` printed.

use serde_json::Value;

use crate::model::Model;
use crate::time::Time;

/// Why a text could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It is neither JSON nor YAML.
    #[error("reading objects: {0}; expected JSON or YAML as kubectl prints it")]
    Syntax(String),
    /// An object in it cannot be stored.
    #[error("loading {object}: {why}")]
    Object {
        /// Kind and name.
        object: String,
        /// What the server says.
        why: String,
    },
}

/// Stores every object of `text`: one object, a list, or several documents.
/// Names, uids, times, owner references and status are kept. Answers how many
/// there were.
pub fn load(model: &mut Model, now: Time, text: &str) -> Result<usize, LoadError> {
    let mut objects = Vec::new();
    for document in documents(text)? {
        flatten(document, &mut objects);
    }
    // Kinds before their objects, and what a list means in its own order.
    objects.sort_by_key(|object| match kind(object) {
        "CustomResourceDefinition" => 0,
        "Namespace" => 1,
        _ => 2,
    });
    let count = objects.len();
    for object in objects {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        let label = format!("{} {:?}", kind(&object), name.unwrap_or_default());
        model
            .import(now, object)
            .map_err(|status| LoadError::Object {
                object: label,
                why: status.message,
            })?;
    }
    Ok(count)
}

fn documents(text: &str) -> Result<Vec<Value>, LoadError> {
    if text.trim_start().starts_with('{') {
        return serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .map_err(|error: serde_json::Error| LoadError::Syntax(error.to_string()));
    }
    serde_saphyr::from_multiple(text).map_err(|error| LoadError::Syntax(error.to_string()))
}

fn kind(object: &Value) -> &str {
    object
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Takes lists apart. The items of a typed list (`PodList`) may leave out
/// their type.
fn flatten(document: Value, objects: &mut Vec<Value>) {
    let list_kind = kind(&document).to_owned();
    let version = document.get("apiVersion").cloned();
    match document {
        Value::Null => {}
        Value::Object(mut fields)
            if list_kind.ends_with("List") && fields.contains_key("items") =>
        {
            let Some(Value::Array(items)) = fields.remove("items") else {
                return;
            };
            let item_kind = list_kind.strip_suffix("List").unwrap_or_default();
            for mut item in items {
                if let (Value::Object(fields), false) = (&mut item, item_kind.is_empty()) {
                    fields.entry("kind").or_insert_with(|| item_kind.into());
                    if let Some(version) = &version {
                        fields
                            .entry("apiVersion")
                            .or_insert_with(|| version.clone());
                    }
                }
                flatten(item, objects);
            }
        }
        object => objects.push(object),
    }
}
