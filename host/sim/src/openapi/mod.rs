//! `OpenAPI` v3, as far as kubectl needs it: that requests may ask for field
//! validation, and the schemas of custom resources.

pub(crate) mod v2;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use crate::model::Model;
use crate::resource::Resource;

/// The version that the documents are of.
const VERSION: &str = "v1.36.2";

/// The document at `/openapi/{path}`, if it exists.
#[must_use]
pub(crate) fn document(model: &Model, path: &str) -> Option<Value> {
    let path = path.strip_prefix("v3")?;
    match path.trim_matches('/') {
        "" => Some(index(model)),
        group_version => {
            let resources: Vec<&Resource> = model
                .resources()
                .iter()
                .map(AsRef::as_ref)
                .filter(|resource| root(resource) == group_version)
                .collect();
            (!resources.is_empty()).then(|| of_version(&resources))
        }
    }
}

fn index(model: &Model) -> Value {
    let mut roots: BTreeMap<String, Vec<&Resource>> = BTreeMap::new();
    for resource in model.resources() {
        let known = roots.entry(root(resource)).or_default();
        known.push(resource);
    }
    let paths: Map<String, Value> = roots
        .into_iter()
        .map(|(root, resources)| {
            let hash = hash(&of_version(&resources));
            let url = format!("/openapi/v3/{root}?hash={hash:X}");
            (root, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// The same for the same document: clients keep it for as long.
fn hash(document: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    document.to_string().hash(&mut hasher);
    hasher.finish()
}

/// `api/v1` or `apis/{group}/{version}`.
fn root(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

/// The path of an object.
fn path(resource: &Resource) -> String {
    let scope = if resource.namespaced {
        "namespaces/{namespace}/"
    } else {
        ""
    };
    format!("/{}/{scope}{}/{{name}}", root(resource), resource.plural)
}

fn of_version(resources: &[&Resource]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources {
        let operation = json!({
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind(resource),
            "parameters": [
                {"name": "dryRun", "in": "query", "schema": {"type": "string"}},
                {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
            ],
            "requestBody": {"content": {"application/merge-patch+json": {}}},
            "responses": {},
        });
        paths.insert(path(resource), json!({"patch": operation}));
        let name = format!(
            "{}.{}.{}",
            resource
                .group
                .split('.')
                .rev()
                .collect::<Vec<_>>()
                .join("."),
            resource.version,
            resource.kind
        );
        schemas.insert(name.trim_start_matches('.').to_owned(), schema(resource));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn schema(resource: &Resource) -> Value {
    let declared = resource
        .custom
        .as_ref()
        .and_then(|custom| custom.schema.as_ref());
    let mut schema =
        declared.map_or_else(|| json!({"type": "object"}), |schema| schema.json().clone());
    if let Value::Object(fields) = &mut schema {
        if let Some(Value::Object(properties)) = fields.get_mut("properties") {
            // A definition need not declare what every object has.
            for name in ["apiVersion", "kind"] {
                properties.insert(name.to_owned(), json!({"type": "string"}));
            }
            properties.insert("metadata".to_owned(), json!({"type": "object"}));
        }
        fields.insert(
            "x-kubernetes-group-version-kind".to_owned(),
            json!([kind(resource)]),
        );
    }
    schema
}

fn kind(resource: &Resource) -> Value {
    json!({"group": resource.group, "version": resource.version, "kind": resource.kind})
}
