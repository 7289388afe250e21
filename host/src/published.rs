//! The fields of resources, as the API server publishes them: its `OpenAPI` documents.
//!
//! A guest whose path has a typing error reads nothing there, on every object. The fields of
//! Kubernetes' own kinds are known without a cluster, in one version; which ones an API server has,
//! and those of custom resources, only from itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use anyhow::{Context as _, Error, Result, anyhow};
use davit_core::object::ApiResource;
use davit_kinds::PublishedType;
use hyper::Request;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::OnceCell;

use crate::resource::describe;

/// How many parts of a schema are read. What is beyond them may be anything.
const MOST_PARTS: usize = 50_000;

/// In how many schemas one may be contained that is read.
const MOST_AROUND: usize = 100;

/// How many resources are kept.
const MOST_KEPT: usize = 200;

/// What an API server publishes.
pub(crate) struct Published {
    client: Client,
    /// Never locked during a request: the document of an aggregated API may hang, and delays
    /// nobody who does not need it.
    kept: Mutex<ReadDocuments>,
}

/// A document while it is read. It is large, so those who need it at the same time read it once; if
/// its reader gives up, the next one reads it.
type Reading = OnceCell<Document>;

/// What of a document is read: two thirds of it describe requests.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    paths: BTreeMap<String, PathItem>,
    components: Components,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Components {
    schemas: Map<String, Value>,
}

/// The requests of a path.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PathItem {
    get: Option<Operation>,
    put: Option<Operation>,
    patch: Option<Operation>,
    delete: Option<Operation>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Operation {
    #[serde(rename = "x-kubernetes-group-version-kind")]
    kind: Option<Value>,
}

impl PathItem {
    fn kind(&self) -> Option<&Value> {
        let requests = [&self.get, &self.put, &self.patch, &self.delete];
        let mut requests = requests.into_iter().flatten();
        requests.find_map(|it| it.kind.as_ref())
    }
}

/// What was read of them.
#[derive(Default)]
struct ReadDocuments {
    /// The fields of a resource are kept for as long as the server publishes the same document:
    /// its URL has the hash of it.
    fields: BTreeMap<ApiResource, PublishedFields>,
    /// The documents that are in use, by URL.
    documents: BTreeMap<String, Weak<Reading>>,
}

/// The fields of a resource, and where they were read.
struct PublishedFields {
    url: String,
    fields: Option<Arc<PublishedType>>,
}

/// The fields of resources. One that the API server does not describe is not among them.
pub(crate) type Fields = BTreeMap<ApiResource, Arc<PublishedType>>;

/// The resources whose fields the API server does not describe, for a text.
pub(crate) fn undescribed(of: &BTreeSet<ApiResource>, fields: &Fields) -> Vec<String> {
    let is_described = |resource: &&ApiResource| {
        let fields = fields.get(*resource);
        fields.is_some_and(|it| **it != PublishedType::Any)
    };
    let undescribed = of.iter().filter(|it| !is_described(it));
    undescribed.map(ToString::to_string).collect()
}

impl Published {
    /// What this API server publishes.
    pub(crate) fn by(client: Client) -> Self {
        Self {
            client,
            kept: Mutex::default(),
        }
    }

    /// The fields of these resources; none if the API server publishes no documents.
    pub(crate) async fn fields(&self, of: &BTreeSet<ApiResource>) -> Result<Option<Fields>> {
        let Some(index) = self.get::<Value>("/openapi/v3").await? else {
            return Ok(None);
        };
        // Several resources may be of one document.
        let mut documents = Vec::new();
        let mut fields = Fields::new();
        for resource in of {
            let Some(url) = url_of(&index, resource) else {
                continue;
            };
            let known = self.kept().known(resource, url).map(|it| it.fields.clone());
            let found = if let Some(known) = known {
                known
            } else {
                let document = self.document(url).await?;
                let found = document.get().and_then(|it| fields_of(it, resource));
                documents.push(document);
                self.kept().insert(resource, url, found.clone());
                found
            };
            fields.extend(found.map(|it| (resource.clone(), it)));
        }
        Ok(Some(fields))
    }

    async fn document(&self, url: &str) -> Result<Arc<Reading>> {
        let document = self.kept().document(url);
        let read = async || Ok::<_, Error>(self.get::<Document>(url).await?.unwrap_or_default());
        document.get_or_try_init(read).await?;
        Ok(document)
    }

    fn kept(&self) -> MutexGuard<'_, ReadDocuments> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<Option<T>> {
        let request = Request::get(url).body(Vec::new());
        let request = request.context("the API server names no URL")?;
        match self.client.request(request).await {
            Ok(answer) => Ok(Some(answer)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(anyhow!("{url} cannot be read: {}", describe(&error))),
        }
    }
}

impl ReadDocuments {
    /// What was read of a resource, if its document still has this URL.
    fn known(&self, resource: &ApiResource, url: &str) -> Option<&PublishedFields> {
        self.fields.get(resource).filter(|it| it.url == url)
    }

    fn insert(&mut self, resource: &ApiResource, url: &str, fields: Option<Arc<PublishedType>>) {
        if self.fields.len() >= MOST_KEPT {
            self.fields.clear();
        }
        let url = url.to_owned();
        let read = PublishedFields { url, fields };
        self.fields.insert(resource.clone(), read);
    }

    /// The document of a URL, which others may be reading.
    fn document(&mut self, url: &str) -> Arc<Reading> {
        self.documents.retain(|_, it| it.strong_count() > 0);
        let read = self.documents.get(url).and_then(Weak::upgrade);
        read.unwrap_or_else(|| {
            let document = Arc::default();
            let place = url.to_owned();
            self.documents.insert(place, Arc::downgrade(&document));
            document
        })
    }
}

/// `api/v1`, `apis/apps/v1`
fn root_of(resource: &ApiResource) -> String {
    let root = if resource.group.is_empty() {
        "api"
    } else {
        "apis"
    };
    format!("{root}/{}", resource.api_version())
}

fn url_of<'a>(index: &'a Value, resource: &ApiResource) -> Option<&'a str> {
    let entry = index.get("paths")?.get(root_of(resource))?;
    text_of(entry, "serverRelativeURL").filter(|url| url.starts_with('/'))
}

/// The fields of a resource in the document of its version; none if it does not describe them.
fn fields_of(document: &Document, resource: &ApiResource) -> Option<Arc<PublishedType>> {
    let kind = kind_of(document, resource)?;
    let schemas = &document.components.schemas;
    let is_it = |one: &&Value| {
        let kinds = one.get("x-kubernetes-group-version-kind");
        let mut kinds = kinds.and_then(Value::as_array).into_iter().flatten();
        kinds.any(|one| one == kind)
    };
    let schema = schemas.values().find(is_it)?;
    let mut reader = Reader {
        schemas,
        around: Vec::new(),
        parts: MOST_PARTS,
    };
    Some(reader.read(vec![schema]))
}

/// The kind of the objects of a resource, as the requests for one object name it.
fn kind_of<'a>(document: &'a Document, resource: &ApiResource) -> Option<&'a Value> {
    let (root, plural) = (root_of(resource), &resource.plural);
    let mut scopes = ["namespaces/{namespace}/", ""].into_iter();
    scopes.find_map(|scope| {
        let path = format!("/{root}/{scope}{plural}/{{name}}");
        document.paths.get(&path)?.kind()
    })
}

/// Reads the fields that schemas describe.
struct Reader<'a> {
    /// All schemas of the document, by name.
    schemas: &'a Map<String, Value>,
    /// The schemas that are being read: one that contains itself ends there.
    around: Vec<&'a Value>,
    /// How many parts may still be read.
    parts: usize,
}

impl<'a> Reader<'a> {
    /// What objects of these schemas have. They hold together, or one of them does.
    fn read(&mut self, schemas: Vec<&'a Value>) -> Arc<PublishedType> {
        let schemas = expanded(self.schemas, schemas);
        let contains_itself = schemas
            .iter()
            .any(|it| self.around.iter().any(|around| std::ptr::eq(*around, *it)));
        if contains_itself || self.parts == 0 || self.around.len() >= MOST_AROUND {
            return Arc::new(PublishedType::Any);
        }
        self.parts -= 1;
        let outside = self.around.len();
        self.around.extend(&schemas);
        let read = self.read_parts(&schemas);
        self.around.truncate(outside);
        Arc::new(read)
    }

    fn read_parts(&mut self, schemas: &[&'a Value]) -> PublishedType {
        let mut named: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        let properties = schemas.iter().filter_map(|it| it.get("properties"));
        for (name, property) in properties.filter_map(Value::as_object).flatten() {
            named.entry(name).or_default().push(property);
        }
        let each = |keyword: &str| -> Vec<&Value> {
            let all = schemas.iter().filter_map(|it| it.get(keyword));
            all.filter(|it| it.is_object()).collect()
        };
        let (elements, others) = (each("items"), each("additionalProperties"));
        if schemas.iter().any(|it| is_open(it)) {
            return if named.is_empty() {
                PublishedType::Any
            } else {
                PublishedType::Object {
                    fields: self.read_fields(named),
                    other: Some(Arc::new(PublishedType::Any)),
                }
            };
        }
        match (named.is_empty() && others.is_empty(), elements.is_empty()) {
            (true, true) if schemas.iter().any(|it| is_of_scalar_type(it)) => PublishedType::Scalar,
            (true, false) => PublishedType::List(self.read(elements)),
            // Nothing is said, or an object and a list are possible.
            (true, true) | (false, false) => PublishedType::Any,
            (false, true) => PublishedType::Object {
                fields: self.read_fields(named),
                other: (!others.is_empty()).then(|| self.read(others)),
            },
        }
    }

    fn read_fields(
        &mut self,
        named: BTreeMap<&'a str, Vec<&'a Value>>,
    ) -> BTreeMap<String, Arc<PublishedType>> {
        let fields = named.into_iter();
        fields
            .map(|(name, schemas)| (name.to_owned(), self.read(schemas)))
            .collect()
    }
}

/// These schemas, with those that they refer to or consist of, each once: schemas may be
/// recursive.
fn expanded<'a>(all: &'a Map<String, Value>, mut schemas: Vec<&'a Value>) -> Vec<&'a Value> {
    let mut place = 0;
    while let Some(schema) = schemas.get(place) {
        for part in parts(all, schema) {
            if !schemas.iter().any(|known| std::ptr::eq(*known, part)) {
                schemas.push(part);
            }
        }
        place += 1;
    }
    schemas
}

fn parts<'a>(all: &'a Map<String, Value>, schema: &'a Value) -> Vec<&'a Value> {
    let referred = text_of(schema, "$ref");
    let referred = referred.and_then(|it| it.strip_prefix("#/components/schemas/"));
    let referred = referred.and_then(|name| all.get(name));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter();
    let listed = lists.filter_map(|list| schema.get(list)?.as_array());
    referred.into_iter().chain(listed.flatten()).collect()
}

fn text_of<'a>(value: &'a Value, field: &str) -> Option<&'a str> {
    value.get(field)?.as_str()
}

/// Whether a schema says that there may be fields which it does not name.
fn is_open(schema: &Value) -> bool {
    // Such as Go's RawExtension and a schema's own JSON.
    let flags = [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "additionalProperties",
    ];
    let mut flags = flags.into_iter();
    flags.any(|flag| schema.get(flag) == Some(&Value::Bool(true)))
}

fn is_of_scalar_type(schema: &Value) -> bool {
    matches!(
        text_of(schema, "type"),
        Some("string" | "integer" | "number" | "boolean")
    ) || schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The form is that of an API server 1.36, of a definition and of its own kinds.
    fn document() -> Document {
        let document = json!({"paths": {
            "/apis/example.dev/v1/namespaces/{namespace}/sites/{name}/status": {"get": {}},
            "/apis/example.dev/v1/namespaces/{namespace}/sites/{name}": {
                "parameters": [],
                "get": {"x-kubernetes-group-version-kind":
                    {"group": "example.dev", "version": "v1", "kind": "Site"}},
            },
        }, "components": {"schemas": {
            "dev.example.v1.Site": {
                "type": "object",
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/ObjectMeta"}]},
                    "spec": {"type": "object", "properties": {
                        "replicas": {"type": "integer"},
                        "hosts": {"type": "array", "items": {"type": "object", "properties": {
                            "name": {"type": "string"},
                        }, "anyOf": [{"required": ["name"]}, {"required": []}]}},
                        "quotas": {"type": "object", "additionalProperties": {
                            "type": "object", "properties": {"most": {"type": "integer"}},
                        }},
                        "port": {"x-kubernetes-int-or-string": true,
                            "anyOf": [{"type": "integer"}, {"type": "string"}]},
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
        serde_json::from_value(document).unwrap()
    }

    fn error(path: &str) -> Option<String> {
        let resource = ApiResource::new("example.dev", "v1", "sites");
        let fields = fields_of(&document(), &resource).unwrap();
        let checked = fields.check(&resource.to_string(), path);
        checked.err().map(|unknown| unknown.to_string())
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
            ("spec.port.name", "spec.port.name", ""),
            (
                "spec.hosts[*].nmae",
                "spec.hosts[*].nmae",
                "; did you mean \"spec.hosts[*].name\"?",
            ),
        ] {
            assert_eq!(error(path), Some(has_none(unknown) + suggestion));
        }
        let other = ApiResource::new("example.dev", "v1", "others");
        assert_eq!(fields_of(&document(), &other), None);
    }

    #[test]
    fn the_url_of_a_document_is_one_of_the_server() {
        let resource = ApiResource::new("example.dev", "v1", "sites");
        let index =
            |url: &str| json!({"paths": {"apis/example.dev/v1": {"serverRelativeURL": url}}});
        let own = index("/openapi/v3/apis/example.dev/v1?hash=A");
        assert_eq!(
            url_of(&own, &resource),
            Some("/openapi/v3/apis/example.dev/v1?hash=A")
        );
        assert_eq!(url_of(&index("http://example.com/"), &resource), None);
    }
}
