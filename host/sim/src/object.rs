//! Objects as requests change them, and the metadata of objects and lists.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

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

/// The fields of `metav1.ListMeta` that the server uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListMetadata {
    /// The version of the whole list.
    pub version: u64,
    /// Where the next page starts; empty at the end.
    pub continue_token: String,
    /// The number of remaining objects, if the server knows it.
    pub remaining: Option<usize>,
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

/// An object that a request changes: its metadata, and its other fields without `kind`
/// and `apiVersion`, which its resource has.
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
