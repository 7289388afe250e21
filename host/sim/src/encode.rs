//! Encodes stored objects for answers and watch events, in the form that the client
//! accepts.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::events;
use crate::object::ListMetadata;
use crate::resource::Resource;
use crate::status::{Result, Status};
use crate::stored::{StoredObject, type_prefix};
use crate::table::{self, Include};
use crate::time::Time;

/// The form of objects in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Whole objects.
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
    /// Rows of a `Table`.
    Table(Include),
}

/// The type of a watch event about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The object was created, or starts to match the selectors.
    Added,
    /// The object changed.
    Modified,
    /// The object was deleted, or stops matching the selectors.
    Deleted,
}

/// Writes the objects of one resource in one form.
#[derive(Clone, Debug)]
pub struct Encoder {
    resource: Arc<Resource>,
    form: Form,
    prefix: Arc<[u8]>,
    now: Time,
}

const META_VERSION: &str = "meta.k8s.io/v1";

impl Encoder {
    /// An encoder for objects of `resource`. Tables show ages as of `now`.
    #[must_use]
    pub fn new(resource: Arc<Resource>, form: Form, now: Time) -> Self {
        let prefix = match form {
            Form::Full => type_prefix(&resource.kind, &resource.api_version()),
            Form::Metadata => type_prefix("PartialObjectMetadata", META_VERSION),
            Form::Table(_) => type_prefix("Table", META_VERSION),
        };
        Encoder {
            resource,
            form,
            prefix: prefix.into(),
            now,
        }
    }

    /// Moves the time as of which tables show ages.
    pub fn set_now(&mut self, now: Time) {
        self.now = now;
    }

    /// Writes one object with its type.
    pub fn object(&self, object: &StoredObject, out: &mut Vec<u8>) -> Result<()> {
        match self.form {
            Form::Metadata => {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(b"\"metadata\":");
                out.extend_from_slice(&object.metadata_json()?);
                out.push(b'}');
            }
            Form::Table(include) => {
                let metadata = json!({"resourceVersion": object.version().to_string()});
                out.extend_from_slice(&self.table_head(&metadata));
                self.row(object, include, out)?;
                out.extend_from_slice(Encoder::LIST_TAIL);
            }
            Form::Full if events::is_new_api(&self.resource) => {
                let mut event = object.object()?;
                events::from_core(&mut event);
                out.extend_from_slice(&StoredObject::new(&self.resource, &event)?.json()?);
            }
            Form::Full => {
                out.extend_from_slice(&self.prefix);
                out.extend_from_slice(&object.untyped_json()?);
            }
        }
        Ok(())
    }

    /// Writes one object of a list: built-in kinds leave the type out there.
    pub fn item(&self, object: &StoredObject, out: &mut Vec<u8>) -> Result<()> {
        if let Form::Table(include) = self.form {
            return self.row(object, include, out);
        }
        let untyped = self.form == Form::Full
            && self.resource.custom.is_none()
            && !events::is_new_api(&self.resource);
        if untyped {
            out.push(b'{');
            out.extend_from_slice(&object.untyped_json()?);
            return Ok(());
        }
        self.object(object, out)
    }

    /// The start of a list, up to the first item.
    #[must_use]
    pub fn list_head(&self, list: &ListMetadata) -> Vec<u8> {
        let mut metadata = json!({"resourceVersion": list.version.to_string()});
        if let Some(fields) = metadata.as_object_mut() {
            // Lists of custom resources spell the end out.
            if !list.continue_token.is_empty() || self.resource.custom.is_some() {
                fields.insert("continue".to_owned(), list.continue_token.clone().into());
            }
            if let Some(remaining) = list.remaining {
                fields.insert("remainingItemCount".to_owned(), remaining.into());
            }
        }
        let mut head = match self.form {
            Form::Table(_) => return self.table_head(&metadata),
            Form::Full => type_prefix(&self.resource.list_kind, &self.resource.api_version()),
            Form::Metadata => type_prefix("PartialObjectMetadataList", META_VERSION),
        };
        head.extend_from_slice(format!("\"metadata\":{metadata},\"items\":[").as_bytes());
        head
    }

    fn table_head(&self, metadata: &Value) -> Vec<u8> {
        let mut head = self.prefix.to_vec();
        let columns = table::definitions(&self.resource);
        head.extend_from_slice(
            format!("\"metadata\":{metadata},\"columnDefinitions\":{columns},\"rows\":[")
                .as_bytes(),
        );
        head
    }

    fn row(&self, stored: &StoredObject, include: Include, out: &mut Vec<u8>) -> Result<()> {
        let object = stored.object()?;
        let cells = table::cells(&self.resource, &object, self.now);
        out.extend_from_slice(format!("{{\"cells\":{cells},\"object\":").as_bytes());
        let form = match include {
            Include::None => {
                out.extend_from_slice(b"null}");
                return Ok(());
            }
            Include::Metadata => Form::Metadata,
            Include::Object => Form::Full,
        };
        Encoder::new(self.resource.clone(), form, self.now).object(stored, out)?;
        out.push(b'}');
        Ok(())
    }

    /// The end of a list.
    pub const LIST_TAIL: &'static [u8] = b"]}";

    /// Writes one watch event.
    pub fn event(&self, kind: EventKind, object: &StoredObject, out: &mut Vec<u8>) -> Result<()> {
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
