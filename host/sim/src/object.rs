//! Objects: what requests work on ([`Object`]) and what the store keeps
//! ([`Stored`], the bytes that are served).

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::resource::Resource;
use crate::status::{Result, Status};
use crate::time::Time;

/// `metav1.ObjectMeta`. Unknown fields are dropped and empty ones left out, as
/// the API server's typed round trip does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are ObjectMeta's own")]
pub struct Metadata {
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub generate_name: String,
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub namespace: String,
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uid: String,
    #[serde(
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub resource_version: String,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "is_zero")]
    pub generation: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(
        deserialize_with = "string_map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub labels: BTreeMap<String, String>,
    #[serde(
        deserialize_with = "string_map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<Value>,
}

impl Metadata {
    /// Drops owner references that are the same in every field.
    pub fn drop_repeated_owners(&mut self) {
        let mut kept: Vec<OwnerReference> = Vec::new();
        for reference in std::mem::take(&mut self.owner_references) {
            if !kept.contains(&reference) {
                kept.push(reference);
            }
        }
        self.owner_references = kept;
    }
}

/// `metav1.OwnerReference`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[allow(missing_docs, reason = "the fields are OwnerReference's own")]
pub struct OwnerReference {
    #[serde(deserialize_with = "or_default")]
    pub api_version: String,
    #[serde(deserialize_with = "or_default")]
    pub kind: String,
    #[serde(deserialize_with = "or_default")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_owner_deletion: Option<bool>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(n: &i64) -> bool {
    *n == 0
}

/// JSON `null` is the zero value, as in Go.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> std::result::Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn string_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<BTreeMap<String, String>, D::Error> {
    let map: Option<BTreeMap<String, Option<String>>> = Option::deserialize(deserializer)?;
    Ok(map
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| (key, value.unwrap_or_default()))
        .collect())
}

/// An object under work: its metadata, and everything else but `kind` and
/// `apiVersion`, which the resource it belongs to knows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Object {
    /// `metadata`.
    pub metadata: Metadata,
    /// The other fields: `spec`, `status`, `data` and so on.
    pub body: Map<String, Value>,
}

impl Object {
    /// Splits a whole JSON object. Fails with Go's kind of message if
    /// `metadata` has fields of a wrong type.
    pub fn from_value(value: Value) -> std::result::Result<Self, String> {
        let Value::Object(mut body) = value else {
            return Err("json: cannot unmarshal into an object".to_owned());
        };
        body.remove("kind");
        body.remove("apiVersion");
        let metadata = match body.remove("metadata") {
            None | Some(Value::Null) => Metadata::default(),
            Some(value) => serde_json::from_value(value)
                .map_err(|error| format!("json: cannot unmarshal ObjectMeta: {error}"))?,
        };
        Ok(Object { metadata, body })
    }

    /// The whole object as JSON, with the given type.
    #[must_use]
    pub fn to_value(&self, api_version: &str, kind: &str) -> Value {
        let mut whole = self.body.clone();
        whole.insert("apiVersion".to_owned(), api_version.into());
        whole.insert("kind".to_owned(), kind.into());
        let metadata = serde_json::to_value(&self.metadata).unwrap_or_default();
        whole.insert("metadata".to_owned(), metadata);
        Value::Object(whole)
    }

    /// The text at a path of field names, or `""`.
    #[must_use]
    pub fn text(&self, path: &[&str]) -> &str {
        self.at(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The value at a path of field names (never in `metadata`).
    #[must_use]
    pub fn at(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter()
            .try_fold(self.body.get(*first)?, |value, field| value.get(*field))
    }

    /// The object-valued field of that name, made if it is missing or of
    /// another type.
    pub fn section(&mut self, name: &str) -> &mut Map<String, Value> {
        section(&mut self.body, name)
    }
}

/// The object-valued field `name` of `map`, made if it is missing or of
/// another type.
pub fn section<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let slot = map.entry(name).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    match slot {
        Value::Object(inner) => inner,
        _ => unreachable!("just made an object"),
    }
}

/// A stored version of an object: the JSON as it is served, shared by the
/// store, the watch log and every answer that carries it.
#[derive(Clone, Debug)]
pub struct Stored {
    json: Bytes,
    metadata: (u32, u32),
    version: u64,
    selectable: Box<str>,
}

impl Stored {
    /// Serialises `object` with the type of `resource`.
    pub fn new(resource: &Resource, object: &Object) -> Result<Self> {
        let mut json = type_prefix(&resource.kind, &resource.api_version());
        json.extend_from_slice(b"\"metadata\":");
        let start = json.len();
        let failed = |error: serde_json::Error| Status::internal(error.to_string());
        serde_json::to_writer(&mut json, &object.metadata).map_err(failed)?;
        let end = json.len();
        for (name, value) in &object.body {
            json.push(b',');
            serde_json::to_writer(&mut json, name).map_err(failed)?;
            json.push(b':');
            serde_json::to_writer(&mut json, value).map_err(failed)?;
        }
        json.push(b'}');
        let range =
            |at: usize| u32::try_from(at).map_err(|_| Status::internal("object larger than 4 GiB"));
        Ok(Stored {
            // Without spare capacity: this is what stays in memory.
            json: json.into_boxed_slice().into(),
            metadata: (range(start)?, range(end)?),
            version: object.metadata.resource_version.parse().unwrap_or(0),
            selectable: resource.selectable_values(object).into(),
        })
    }

    /// The whole object, as served in its storage version.
    #[must_use]
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The bytes of `metadata`'s value.
    #[must_use]
    pub fn metadata_json(&self) -> &[u8] {
        let (start, end) = self.metadata;
        self.json
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    /// The object without `kind` and `apiVersion`, from `"metadata":` on to
    /// and with the closing brace.
    #[must_use]
    pub fn untyped_json(&self) -> &[u8] {
        let start = (self.metadata.0 as usize).saturating_sub("\"metadata\":".len());
        self.json.get(start..).unwrap_or_default()
    }

    /// The version that this write got.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The values of the resource's selectable fields, in the resource's
    /// order, each ended by a NUL.
    #[must_use]
    pub fn selectable(&self) -> &str {
        &self.selectable
    }

    /// The same object under another version.
    pub fn at_version(&self, version: u64) -> Result<Self> {
        let mut metadata = self.metadata()?;
        metadata.resource_version = version.to_string();
        let (start, end) = self.metadata;
        let head = self.json.get(..start as usize).unwrap_or_default();
        let tail = self.json.get(end as usize..).unwrap_or_default();
        let mut json = Vec::with_capacity(self.json.len() + 20);
        json.extend_from_slice(head);
        serde_json::to_writer(&mut json, &metadata)
            .map_err(|error| Status::internal(error.to_string()))?;
        let end =
            u32::try_from(json.len()).map_err(|_| Status::internal("object larger than 4 GiB"))?;
        json.extend_from_slice(tail);
        Ok(Stored {
            json: json.into_boxed_slice().into(),
            metadata: (start, end),
            version,
            selectable: self.selectable.clone(),
        })
    }

    /// Parses the metadata.
    pub fn metadata(&self) -> Result<Metadata> {
        serde_json::from_slice(self.metadata_json())
            .map_err(|error| Status::internal(format!("stored metadata: {error}")))
    }

    /// Parses the whole object.
    pub fn object(&self) -> Result<Object> {
        let value = serde_json::from_slice(&self.json)
            .map_err(|error| Status::internal(format!("stored object: {error}")))?;
        Object::from_value(value).map_err(Status::internal)
    }

    /// Parses just the labels.
    pub fn labels(&self) -> Result<BTreeMap<String, String>> {
        #[derive(Deserialize)]
        struct Labels {
            #[serde(default)]
            labels: BTreeMap<String, String>,
        }
        let parsed: Labels = serde_json::from_slice(self.metadata_json())
            .map_err(|error| Status::internal(format!("stored labels: {error}")))?;
        Ok(parsed.labels)
    }
}

/// `{"kind":…,"apiVersion":…,`: how every served object begins.
#[must_use]
pub fn type_prefix(kind: &str, api_version: &str) -> Vec<u8> {
    // Kinds and versions are DNS-like names: nothing to escape. Room for a
    // typical small object.
    let mut json = Vec::with_capacity(512);
    json.extend_from_slice(b"{\"kind\":\"");
    json.extend_from_slice(kind.as_bytes());
    json.extend_from_slice(b"\",\"apiVersion\":\"");
    json.extend_from_slice(api_version.as_bytes());
    json.extend_from_slice(b"\",");
    json
}
