//! From stored objects to the bytes of answers and watch events, in the form
//! that the client accepts.

use std::sync::Arc;

use serde_json::json;

use crate::events;
use crate::model::Page;
use crate::object::{Stored, type_prefix};
use crate::resource::Resource;
use crate::status::{Result, Status};

/// The form of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole objects.
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
}

/// The type of a watch event about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It came, or came to be selected.
    Added,
    /// It changed.
    Modified,
    /// It went, or is no longer selected.
    Deleted,
}

/// Writes the objects of one resource in one form.
#[derive(Clone, Debug)]
pub struct Encoder {
    resource: Arc<Resource>,
    form: Form,
    prefix: Arc<[u8]>,
}

const META_VERSION: &str = "meta.k8s.io/v1";

impl Encoder {
    /// An encoder for objects of `resource`.
    #[must_use]
    pub fn new(resource: Arc<Resource>, form: Form) -> Self {
        let prefix = match form {
            Form::Full => type_prefix(&resource.kind, &resource.api_version()),
            Form::Metadata => type_prefix("PartialObjectMetadata", META_VERSION),
        };
        Encoder { resource, form, prefix: prefix.into() }
    }

    /// Writes one object with its type.
    pub fn object(&self, object: &Stored, out: &mut Vec<u8>) -> Result<()> {
        match self.form {
            Form::Metadata => {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(b"\"metadata\":");
                out.extend_from_slice(object.metadata_json());
                out.push(b'}');
            }
            Form::Full if events::is_new_api(&self.resource) => {
                let mut event = object.object()?;
                events::from_core(&mut event);
                out.extend_from_slice(Stored::new(&self.resource, &event)?.json());
            }
            Form::Full => {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(object.untyped_json());
            }
        }
        Ok(())
    }

    /// Writes one object of a list: built-in kinds leave the type out there.
    pub fn item(&self, object: &Stored, out: &mut Vec<u8>) -> Result<()> {
        let untyped = self.form == Form::Full
            && self.resource.custom.is_none()
            && !events::is_new_api(&self.resource);
        if untyped {
            out.push(b'{');
            out.extend_from_slice(object.untyped_json());
            return Ok(());
        }
        self.object(object, out)
    }

    /// What a list begins with, up to the first item.
    #[must_use]
    pub fn list_head(&self, page: &Page) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": page.version.to_string()});
        if let Some(fields) = metadata.as_object_mut() {
            // Lists of custom resources spell the end out.
            if !page.continue_token.is_empty() || self.resource.custom.is_some() {
                fields.insert("continue".to_owned(), page.continue_token.clone().into());
            }
            if let Some(remaining) = page.remaining {
                fields.insert("remainingItemCount".to_owned(), remaining.into());
            }
        }
        let mut head = match self.form {
            Form::Full => type_prefix(&self.resource.list_kind, &self.resource.api_version()),
            Form::Metadata => type_prefix("PartialObjectMetadataList", META_VERSION),
        };
        head.extend_from_slice(format!("\"metadata\":{metadata},\"items\":[").as_bytes());
        head
    }

    /// What a list ends with.
    pub const LIST_TAIL: &'static [u8] = b"]}";

    /// Writes one watch event.
    pub fn event(&self, kind: EventKind, object: &Stored, out: &mut Vec<u8>) -> Result<()> {
        let head: &[u8] = match kind {
            EventKind::Added => b"{\"type\":\"ADDED\",\"object\":",
            EventKind::Modified => b"{\"type\":\"MODIFIED\",\"object\":",
            EventKind::Deleted => b"{\"type\":\"DELETED\",\"object\":",
        };
        out.extend_from_slice(head);
        self.object(object, out)?;
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    /// Writes a bookmark.
    pub fn bookmark(&self, version: u64, initial_events_end: bool, out: &mut Vec<u8>) {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if let (true, Some(fields)) = (initial_events_end, metadata.as_object_mut()) {
            fields.insert(
                "annotations".to_owned(),
                json!({"k8s.io/initial-events-end": "true"}),
            );
        }
        out.extend_from_slice(b"{\"type\":\"BOOKMARK\",\"object\":");
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(format!("\"metadata\":{metadata}}}}}\n").as_bytes());
    }

    /// Writes the event that ends a watch.
    pub fn error(status: &Status, out: &mut Vec<u8>) {
        let event = json!({"type": "ERROR", "object": status.to_json()});
        out.extend_from_slice(event.to_string().as_bytes());
        out.push(b'\n');
    }
}
