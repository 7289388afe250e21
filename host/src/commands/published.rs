//! The fields of resources, as the API server publishes them: its `OpenAPI` documents.
//!
//! A guest whose path has a typing error reads nothing there, on every object. The fields of
//! Kubernetes' own kinds are known without a cluster; those of custom resources only from the API
//! server.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use davit_core::mapping::Mapping;
use davit_core::object::ApiResource;
use davit_core::path::{FieldPath, Segment};
use davit_core::untrusted;
use davit_kinds::nearest;
use hyper::Request;
use kube::Client;
use serde_json::Value;

use super::print::{part, text_at};
use crate::resource::describe;

/// How deep references of schemas are followed: they may be recursive.
const DEEPEST: usize = 32;
/// The longest name that is quoted, in bytes.
const LONGEST: usize = 100;

/// The documents of some group versions.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// By `v1`, `apps/v1`, …
    documents: BTreeMap<String, Value>,
}

/// A path to a field that no object has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource} has no field \"{path}\"{suggestion}")]
pub(super) struct UnknownField {
    resource: String,
    /// Up to the step that does not exist.
    path: String,
    /// `; did you mean "spec.size"?`, or empty.
    suggestion: String,
}

impl Published {
    /// Reads the documents about some resources; none if the API server publishes none.
    pub(super) async fn read<'a>(
        client: &Client,
        resources: impl IntoIterator<Item = &'a ApiResource>,
    ) -> Result<Option<Self>> {
        let Some(index) = get(client, "/openapi/v3").await? else {
            return Ok(None);
        };
        let mut published = Self::default();
        for resource in resources {
            let version = resource.api_version();
            let root = if resource.group.is_empty() {
                "api"
            } else {
                "apis"
            };
            let entry = part(&index, "/paths").get(format!("{root}/{version}"));
            let url = entry.map(|entry| text_at(entry, "/serverRelativeURL"));
            if let Some(url) = url
                && !published.documents.contains_key(&version)
            {
                let document = get(client, url).await?.unwrap_or_default();
                published.documents.insert(version, document);
            }
        }
        Ok(Some(published))
    }

    /// The first step of a path that objects of a resource do not have; none if they have all, or
    /// if the API server does not say what they have.
    pub(super) fn unknown(
        &self,
        served: &Mapping,
        resource: &ApiResource,
        path: &FieldPath,
    ) -> Option<UnknownField> {
        let document = self.documents.get(&resource.api_version())?;
        let kind = &served.by_resource(resource)?.kind;
        let mut schemas = vec![schema_of(document, resource, kind)?];
        let steps = path.segments();
        for (index, step) in steps.iter().enumerate() {
            let above = expanded(document, &schemas);
            let next: Vec<&Value> = above.iter().filter_map(|one| below(one, step)).collect();
            if next.is_empty() {
                if above.iter().any(|one| is_open(one)) {
                    return None;
                }
                return Some(unknown(resource, steps.get(..=index)?, &above));
            }
            schemas = next;
        }
        None
    }
}

async fn get(client: &Client, url: &str) -> Result<Option<Value>> {
    let request = Request::get(url).body(Vec::new());
    let request = request.context("the API server names no URL")?;
    match client.request(request).await {
        Ok(answer) => Ok(Some(answer)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(anyhow!("{url} cannot be read: {}", describe(&error))),
    }
}

fn schema_of<'a>(document: &'a Value, resource: &ApiResource, kind: &str) -> Option<&'a Value> {
    let schemas = part(document, "/components/schemas").as_object()?;
    let is_it = |one: &&Value| {
        let kinds = one.get("x-kubernetes-group-version-kind");
        let mut kinds = kinds.and_then(Value::as_array).into_iter().flatten();
        kinds.any(|one| {
            text_at(one, "/group") == resource.group
                && text_at(one, "/version") == resource.version
                && text_at(one, "/kind") == kind
        })
    };
    schemas.values().find(is_it)
}

/// These schemas, with those that they refer to or consist of.
fn expanded<'a>(document: &'a Value, schemas: &[&'a Value]) -> Vec<&'a Value> {
    let mut all: Vec<&Value> = schemas.to_vec();
    let mut latest = all.clone();
    for _ in 0..DEEPEST {
        latest = latest.iter().flat_map(|one| parts(document, one)).collect();
        if latest.is_empty() {
            break;
        }
        all.extend(&latest);
    }
    all
}

fn parts<'a>(document: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let referred = text_at(schema, "/$ref").strip_prefix('#');
    let referred = referred.and_then(|pointer| document.pointer(pointer));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter();
    let listed = lists.filter_map(|list| schema.get(list)?.as_array());
    referred.into_iter().chain(listed.flatten()).collect()
}

/// The schema of what is at a step.
fn below<'a>(schema: &'a Value, step: &Segment) -> Option<&'a Value> {
    match step {
        Segment::Each => schema.get("items"),
        Segment::Field(name) => {
            let declared = schema.get("properties").and_then(|it| it.get(&**name));
            declared.or_else(|| {
                schema
                    .get("additionalProperties")
                    .filter(|it| it.is_object())
            })
        }
    }
}

/// Whether anything may be below a schema.
fn is_open(schema: &Value) -> bool {
    let is = |flag: &str| schema.get(flag) == Some(&Value::Bool(true));
    let is_silent = [
        "properties",
        "additionalProperties",
        "items",
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
    ]
    .into_iter()
    .all(|keyword| schema.get(keyword).is_none());
    let may_be_deep = matches!(text_at(schema, "/type"), "" | "object" | "array");
    // Such as Go's RawExtension and a schema's own JSON.
    is("x-kubernetes-preserve-unknown-fields")
        || is("x-kubernetes-embedded-resource")
        || is("additionalProperties")
        || (is_silent && may_be_deep)
}

fn unknown(resource: &ApiResource, steps: &[Segment], above: &[&Value]) -> UnknownField {
    let (last, before) = match steps.split_last() {
        Some((last, before)) => (Some(last), text(before)),
        None => (None, String::new()),
    };
    let suggestion = match last {
        Some(Segment::Field(name)) => {
            let is_list = above.iter().any(|one| one.get("items").is_some());
            let properties = above
                .iter()
                .filter_map(|one| one.get("properties")?.as_object());
            let names = properties.flat_map(|all| all.keys()).map(String::as_str);
            let near = nearest(name, names).map(|name| joined(&before, name));
            near.or_else(|| is_list.then(|| format!("{before}[*].{name}")))
        }
        Some(Segment::Each) | None => None,
    };
    let quoted = |text: &str| untrusted::line(text, LONGEST);
    UnknownField {
        resource: resource.to_string(),
        path: quoted(&text(steps)),
        suggestion: suggestion
            .map(|it| format!("; did you mean \"{}\"?", quoted(&it)))
            .unwrap_or_default(),
    }
}

fn text(steps: &[Segment]) -> String {
    let mut text = String::new();
    for step in steps {
        match step {
            Segment::Each => text.push_str("[*]"),
            Segment::Field(name) => text = joined(&text, name),
        }
    }
    text
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

#[cfg(test)]
mod tests {
    use davit_core::mapping::ServedResource;
    use serde_json::json;

    use super::*;

    /// The form is that of an API server 1.36, of a definition and of its own kinds.
    fn published() -> Published {
        let document = json!({"components": {"schemas": {
            "dev.example.v1.Site": {
                "type": "object",
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/ObjectMeta"}]},
                    "spec": {"type": "object", "properties": {
                        "replicas": {"type": "integer"},
                        "hosts": {"type": "array", "items": {"type": "object", "properties": {
                            "name": {"type": "string"},
                        }}},
                        "quotas": {"type": "object", "additionalProperties": {
                            "type": "object", "properties": {"most": {"type": "integer"}},
                        }},
                        "template": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "raw": {"type": "object"},
                        "tree": {"$ref": "#/components/schemas/Tree"},
                    }},
                },
                "x-kubernetes-group-version-kind": [
                    {"group": "example.dev", "version": "v1", "kind": "Site"},
                ],
            },
            "ObjectMeta": {"type": "object", "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            }},
            "Tree": {"type": "object", "allOf": [{"$ref": "#/components/schemas/Tree"}],
                "properties": {"left": {"$ref": "#/components/schemas/Tree"}}},
        }}});
        Published {
            documents: [("example.dev/v1".to_owned(), document)].into(),
        }
    }

    fn error(path: &str) -> Option<String> {
        let resource = ApiResource::new("example.dev", "v1", "sites");
        let served = ServedResource {
            resource: resource.clone(),
            kind: "Site".to_owned(),
            namespaced: true,
            verbs: Vec::new(),
            preferred: true,
        };
        let mapping = Mapping::new([served]);
        let path = path.parse().unwrap();
        let unknown = published().unknown(&mapping, &resource, &path);
        unknown.map(|it| it.to_string())
    }

    #[test]
    fn a_path_that_objects_have_is_known() {
        for path in [
            "metadata.labels[\"a/b\"]",
            "spec.replicas",
            "spec.hosts[*].name",
            "spec.quotas.pods.most",
            "spec.template.anything[*].below",
            "spec.raw.anything",
            "spec.tree.left.left.left",
        ] {
            assert_eq!(error(path), None, "{path}");
        }
    }

    #[test]
    fn a_path_that_no_object_has_is_named_with_the_nearest_one() {
        let has_none = |path: &str| format!("example.dev/v1/sites has no field \"{path}\"");
        for (path, unknown, suggestion) in [
            (
                "spec.replica",
                "spec.replica",
                "; did you mean \"spec.replicas\"?",
            ),
            ("stauts.phase", "stauts", ""),
            (
                "spec.hosts.name",
                "spec.hosts.name",
                "; did you mean \"spec.hosts[*].name\"?",
            ),
            ("spec.quotas.pods.least", "spec.quotas.pods.least", ""),
            ("spec.replicas[*]", "spec.replicas[*]", ""),
            ("metadata.labels.a.b", "metadata.labels.a.b", ""),
            ("spec.tree.right", "spec.tree.right", ""),
        ] {
            assert_eq!(error(path), Some(has_none(unknown) + suggestion));
        }
        let other = ApiResource::new("example.dev", "v2", "sites");
        let path = "spec.replica".parse().unwrap();
        assert_eq!(
            published().unknown(&Mapping::default(), &other, &path),
            None
        );
    }
}
