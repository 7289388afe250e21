//! The fields of resources, as the API server publishes them: its `OpenAPI` documents.
//!
//! A guest whose path has a typing error reads nothing there, on every object. The fields of
//! Kubernetes' own kinds are known without a cluster; those of custom resources only from the API
//! server.

use std::collections::{BTreeMap, BTreeSet};

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

/// The longest name that is quoted, in bytes.
const LONGEST: usize = 100;

/// The documents of an API server. Each is read once, when it is needed.
pub(super) struct Published<'a> {
    client: &'a Client,
    /// The index of the documents, null if the API server has none; none before it is read.
    index: Option<Value>,
    documents: Documents,
}

/// Documents by `v1`, `apps/v1`, …
#[derive(Default)]
struct Documents(BTreeMap<String, Value>);

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

impl<'a> Published<'a> {
    /// What this API server publishes.
    pub(super) fn by(client: &'a Client) -> Self {
        Self {
            client,
            index: None,
            documents: Documents::default(),
        }
    }

    /// The fields that no object of their resource has, as far as the API server says what they
    /// have; none if it publishes no documents.
    pub(super) async fn unknown(
        &mut self,
        served: &Mapping,
        fields: &BTreeSet<(ApiResource, FieldPath)>,
    ) -> Result<Option<Vec<UnknownField>>> {
        let index = match self.index.take() {
            Some(index) => index,
            None => get(self.client, "/openapi/v3").await?.unwrap_or_default(),
        };
        let index = self.index.insert(index);
        if index.is_null() {
            return Ok(None);
        }
        for (resource, _) in fields {
            self.documents.read(self.client, index, resource).await?;
        }
        let unknown = |(resource, path)| self.documents.unknown(served, resource, path);
        let fields = fields.iter().map(|(resource, path)| (resource, path));
        Ok(Some(fields.filter_map(unknown).collect()))
    }
}

impl Documents {
    async fn read(&mut self, client: &Client, index: &Value, of: &ApiResource) -> Result<()> {
        let version = of.api_version();
        if self.0.contains_key(&version) {
            return Ok(());
        }
        let root = if of.group.is_empty() { "api" } else { "apis" };
        let entry = part(index, "/paths").get(format!("{root}/{version}"));
        if let Some(entry) = entry {
            let document = get(client, text_at(entry, "/serverRelativeURL")).await?;
            self.0.insert(version, document.unwrap_or_default());
        }
        Ok(())
    }

    /// The first step of a path that objects of a resource do not have; none if they have all, or
    /// if no document says what they have.
    fn unknown(
        &self,
        served: &Mapping,
        resource: &ApiResource,
        path: &FieldPath,
    ) -> Option<UnknownField> {
        let document = self.0.get(&resource.api_version())?;
        let kind = &served.by_resource(resource)?.kind;
        let mut schemas = vec![schema_of(document, resource, kind)?];
        let steps = path.segments();
        for (index, step) in steps.iter().enumerate() {
            let above = expanded(document, schemas);
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

/// These schemas, with those that they refer to or consist of, each once: schemas may be
/// recursive.
fn expanded<'a>(document: &'a Value, mut schemas: Vec<&'a Value>) -> Vec<&'a Value> {
    let mut place = 0;
    while let Some(schema) = schemas.get(place) {
        for part in parts(document, schema) {
            if !schemas.iter().any(|known| std::ptr::eq(*known, part)) {
                schemas.push(part);
            }
        }
        place += 1;
    }
    schemas
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
    let suggestion = match steps.split_last() {
        Some((Segment::Field(name), before)) => suggested(name, before, above),
        _ => None,
    };
    let quoted = |path: FieldPath| untrusted::line(&path.to_string(), LONGEST);
    UnknownField {
        resource: resource.to_string(),
        path: quoted(FieldPath::of(steps.to_vec())),
        suggestion: suggestion
            .map(|path| format!("; did you mean \"{}\"?", quoted(path)))
            .unwrap_or_default(),
    }
}

/// The path that was probably meant: a field of another name, or of the elements of a list.
fn suggested(name: &str, before: &[Segment], above: &[&Value]) -> Option<FieldPath> {
    let properties = above.iter().filter_map(|one| one.get("properties"));
    let names = properties
        .filter_map(Value::as_object)
        .flat_map(|all| all.keys());
    let field = |name: &str| Segment::Field(name.into());
    let steps = match nearest(name, names.map(String::as_str)) {
        Some(near) => vec![field(near)],
        None if above.iter().any(|one| one.get("items").is_some()) => {
            vec![Segment::Each, field(name)]
        }
        None => return None,
    };
    Some(FieldPath::of([before, &steps].concat()))
}

#[cfg(test)]
mod tests {
    use davit_core::mapping::ServedResource;
    use serde_json::json;

    use super::*;

    /// The form is that of an API server 1.36, of a definition and of its own kinds.
    fn documents() -> Documents {
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
        Documents([("example.dev/v1".to_owned(), document)].into())
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
        let unknown = documents().unknown(&mapping, &resource, &path);
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
            documents().unknown(&Mapping::default(), &other, &path),
            None
        );
    }
}
