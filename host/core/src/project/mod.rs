//! From the API server's JSON to MessagePack of the declared fields.
//!
//! One pass over the text drives everything: what is not declared is skipped
//! without being built, what is kept is written at once. No tree of the object
//! ever exists.
//!
//! What is kept, exactly:
//!  - always `metadata.name`, `metadata.namespace` and `metadata.uid`; never
//!    `metadata.resourceVersion`, which is lifted out; `metadata.managedFields`
//!    only if it is declared itself, not as a part of all metadata;
//!  - of a map the declared fields that are there and not null. A map of which
//!    nothing is left is left out, so that it does not matter whether it is
//!    there at all;
//!  - of a list its declared elements, every one of them: an element keeps its
//!    place as an empty map or as nil when nothing of it is left;
//!  - where everything below is declared, the value as it is, but for nulls in
//!    maps.

mod envelope;
mod write;

#[cfg(test)]
mod tests;

use crate::object::{ProjectedObject, Uid};
use crate::path::FieldTree;
use crate::watch::{Event, Page};

use envelope::{read_frame, read_list};
use write::{Identity, Object};

/// Keeps one set of fields of the objects that pass through it.
#[derive(Debug)]
pub struct Projector {
    fields: FieldTree,
    /// Where an object is written before its size is known; used again and
    /// again.
    buffer: Vec<u8>,
}

/// Why an answer of the API server cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {what}{}", named(object))]
pub struct ProjectError {
    what: &'static str,
    object: String,
    source: serde_json::Error,
}

impl ProjectError {
    /// `namespace/name` of the object that cannot be read, or what is known of
    /// it; empty if nothing is.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }
}

impl Projector {
    /// A projector that keeps these fields.
    #[must_use]
    pub fn new(fields: FieldTree) -> Self {
        Self {
            fields,
            buffer: Vec::new(),
        }
    }

    /// The fields it keeps.
    #[must_use]
    pub fn fields(&self) -> &FieldTree {
        &self.fields
    }

    /// Reads a single object: the answer to a GET.
    pub fn object(&mut self, json: &[u8]) -> Result<ProjectedObject, ProjectError> {
        self.read("an object", |projecting| read_all(json, Object(projecting)))
    }

    /// Reads one event of a watch.
    pub fn event(&mut self, json: &[u8]) -> Result<Event, ProjectError> {
        self.read("a watch event", |projecting| read_frame(json, projecting))
    }

    /// Reads a LIST, or one page of it, object by object.
    pub fn list(&mut self, json: &[u8]) -> Result<Page, ProjectError> {
        self.read("a list", |projecting| read_list(json, projecting))
    }

    fn read<T>(
        &mut self,
        what: &'static str,
        read: impl FnOnce(&mut Projection<'_>) -> Result<T, serde_json::Error>,
    ) -> Result<T, ProjectError> {
        let mut projecting = Projection {
            fields: &self.fields,
            buffer: &mut self.buffer,
            identity: Identity::default(),
        };
        read(&mut projecting).map_err(|source| ProjectError {
            what,
            object: projecting.identity.known(),
            source,
        })
    }
}

/// One pass over one text.
struct Projection<'a> {
    fields: &'a FieldTree,
    buffer: &'a mut Vec<u8>,
    /// What is known of the object that is being read.
    identity: Identity,
}

impl Projection<'_> {
    /// Takes the object that was just written.
    fn take<E: serde::de::Error>(&mut self) -> Result<ProjectedObject, E> {
        let identity = std::mem::take(&mut self.identity);
        if identity.name.is_empty() {
            return Err(E::custom("the object has no metadata.name"));
        }
        Ok(ProjectedObject {
            namespace: identity.namespace,
            name: identity.name,
            uid: Uid::new(&identity.uid),
            resource_version: identity.resource_version,
            data: self.buffer.as_slice().into(),
        })
    }
}

/// Reads a whole text: what follows the value is an error.
fn read_all<'de, S: serde::de::DeserializeSeed<'de>>(
    json: &'de [u8],
    seed: S,
) -> Result<S::Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = seed.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

fn named(object: &str) -> String {
    if object.is_empty() {
        String::new()
    } else {
        format!(" ({object})")
    }
}
