//! From the API server's JSON to MessagePack of the declared fields.
//!
//! One pass over the text: the projector skips undeclared fields without parsing them
//! into values, and writes declared fields immediately. There is never a tree of the
//! object.
//!
//! The projection has exactly:
//!
//! - always `metadata.name`, `metadata.namespace` and `metadata.uid`; never
//!   `metadata.resourceVersion`, which is returned separately; `metadata.managedFields`
//!   only if it is declared itself, not as a part of all metadata;
//! - of a map, the declared fields that are present and not null. A map without such
//!   fields is omitted, so that its presence makes no difference;
//! - of a list, the declared parts of every element: an element without them keeps its
//!   place as an empty map or as nil;
//! - where everything below is declared, the value as it is, without the nulls in maps
//!   (but see [`Projector::verbatim`]).

mod envelope;
mod json;
mod write;

#[cfg(test)]
mod tests;

use crate::object::{ProjectedObject, Uid};
use crate::path::FieldTree;
use crate::watch::{Event, Page};

use envelope::{read_frame, read_list};
use json::{ReadError, read_all};
use write::{Identity, Object};

/// Projects objects to one set of fields.
#[derive(Debug)]
pub struct Projector {
    fields: FieldTree,
    keeps_nulls: bool,
    /// The object that is being written, before its size is known; reused.
    buffer: Vec<u8>,
}

/// Why an answer of the API server cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {part}{}", named(object))]
pub struct ProjectError {
    part: &'static str,
    object: String,
    source: ReadError,
}

impl ProjectError {
    /// `namespace/name` of the object that cannot be read, or the known part of it;
    /// empty if nothing is known.
    #[must_use]
    pub fn object(&self) -> &str {
        &self.object
    }
}

impl Projector {
    /// A projector to these fields.
    #[must_use]
    pub fn new(fields: FieldTree) -> Self {
        Self {
            fields,
            keeps_nulls: false,
            buffer: Vec::new(),
        }
    }

    /// A projector to everything but `metadata.managedFields`, with the nulls: a null in a
    /// configuration is not the same as no value.
    #[must_use]
    pub fn verbatim() -> Self {
        Self {
            keeps_nulls: true,
            ..Self::new(FieldTree::All)
        }
    }

    /// The fields.
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
        part: &'static str,
        read: impl FnOnce(&mut Projection<'_>) -> Result<T, ReadError>,
    ) -> Result<T, ProjectError> {
        let mut projecting = Projection {
            fields: &self.fields,
            keeps_nulls: self.keeps_nulls,
            buffer: &mut self.buffer,
            identity: Identity::default(),
        };
        read(&mut projecting).map_err(|source| ProjectError {
            part,
            object: projecting.identity.known(),
            source,
        })
    }
}

/// One pass over a text.
struct Projection<'a> {
    fields: &'a FieldTree,
    keeps_nulls: bool,
    buffer: &'a mut Vec<u8>,
    /// The identity of the object that is being read, as far as it is known.
    identity: Identity,
}

impl Projection<'_> {
    /// Returns the object that was just written.
    fn take<E: serde::de::Error>(&mut self) -> Result<ProjectedObject, E> {
        let identity = std::mem::take(&mut self.identity);
        let Some(name) = identity.name.filter(|name| !name.is_empty()) else {
            return Err(E::custom("the object has no metadata.name"));
        };
        Ok(ProjectedObject {
            namespace: identity.namespace.unwrap_or_default(),
            name,
            uid: Uid::new(identity.uid.as_deref().unwrap_or_default()),
            resource_version: identity.resource_version,
            data: self.buffer.as_slice().into(),
        })
    }
}

fn named(object: &str) -> String {
    if object.is_empty() {
        String::new()
    } else {
        format!(" ({object})")
    }
}
