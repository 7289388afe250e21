//! Objects in the storage and in every answer: bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::json::{Dictionary, Json};
use crate::object::{Metadata, Object};
use crate::resource::Resource;
use crate::status::{Result, Status};

/// A stored version of an object: the JSON as it is served, shared by the
/// store, the watch log and every answer that carries it.
#[derive(Clone, Debug)]
pub struct StoredObject {
    json: Json,
    metadata: (u32, u32),
    version: u64,
    selectable: Box<str>,
}

impl StoredObject {
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
        Ok(StoredObject {
            // Without spare capacity: this is what stays in memory.
            json: Json::Plain(json.into_boxed_slice().into()),
            metadata: (range(start)?, range(end)?),
            version: object.metadata.resource_version.parse().unwrap_or(0),
            selectable: resource.selectable_values(object).into(),
        })
    }

    /// The whole object, as served in its storage version.
    pub fn json(&self) -> Result<Cow<'_, [u8]>> {
        self.json.bytes()
    }

    /// The length of the whole object.
    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// The bytes of `metadata`'s value.
    pub fn metadata_json(&self) -> Result<Cow<'_, [u8]>> {
        let (start, end) = self.metadata;
        self.part(start as usize..end as usize)
    }

    /// The object without `kind` and `apiVersion`, from `"metadata":` on to
    /// and with the closing brace.
    pub fn untyped_json(&self) -> Result<Cow<'_, [u8]>> {
        let start = (self.metadata.0 as usize).saturating_sub("\"metadata\":".len());
        self.part(start..self.len())
    }

    fn part(&self, range: Range<usize>) -> Result<Cow<'_, [u8]>> {
        Ok(match self.json()? {
            Cow::Borrowed(json) => Cow::Borrowed(json.get(range).unwrap_or_default()),
            Cow::Owned(mut json) => {
                json.truncate(range.end);
                json.drain(..range.start.min(range.end));
                Cow::Owned(json)
            }
        })
    }

    /// The same object in less memory. Each read of it decompresses it.
    #[must_use]
    pub(crate) fn compressed(mut self, dictionary: &Dictionary) -> Self {
        self.json = self.json.compressed(dictionary);
        self
    }

    /// The version that this write got.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The values of a built-in resource's selectable fields, in the resource's
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
        let former = self.json()?;
        let head = former.get(..start as usize).unwrap_or_default();
        let tail = former.get(end as usize..).unwrap_or_default();
        let mut json = Vec::with_capacity(former.len() + 20);
        json.extend_from_slice(head);
        serde_json::to_writer(&mut json, &metadata)
            .map_err(|error| Status::internal(error.to_string()))?;
        let end =
            u32::try_from(json.len()).map_err(|_| Status::internal("object larger than 4 GiB"))?;
        json.extend_from_slice(tail);
        Ok(StoredObject {
            json: Json::Plain(json.into_boxed_slice().into()),
            metadata: (start, end),
            version,
            selectable: self.selectable.clone(),
        })
    }

    /// Parses the metadata.
    pub fn metadata(&self) -> Result<Metadata> {
        serde_json::from_slice(&self.metadata_json()?)
            .map_err(|error| Status::internal(format!("stored metadata: {error}")))
    }

    /// Parses the whole object.
    pub fn object(&self) -> Result<Object> {
        let value = serde_json::from_slice(&self.json()?)
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
        let parsed: Labels = serde_json::from_slice(&self.metadata_json()?)
            .map_err(|error| Status::internal(format!("stored labels: {error}")))?;
        Ok(parsed.labels)
    }
}

/// `{"kind":…,"apiVersion":…,`: how every served object starts.
#[must_use]
pub fn type_prefix(kind: &str, api_version: &str) -> Vec<u8> {
    // Kinds and versions are DNS names: nothing needs escaping. The capacity fits a
    // typical small object.
    let mut json = Vec::with_capacity(512);
    json.extend_from_slice(b"{\"kind\":\"");
    json.extend_from_slice(kind.as_bytes());
    json.extend_from_slice(b"\",\"apiVersion\":\"");
    json.extend_from_slice(api_version.as_bytes());
    json.extend_from_slice(b"\",");
    json
}
