//! Streams: the objects of one resource, as a watch delivers them.

use crate::object::{ApiResource, ProjectedObject};
use crate::path::FieldTree;
use crate::watch::Condition;

/// A stream's number; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// What a stream watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// The resource.
    pub resource: ApiResource,
    /// Only this namespace; empty for all.
    pub namespace: String,
    /// Kubernetes' label selector; empty for all.
    pub label_selector: String,
    /// Kubernetes' field selector; empty for all.
    pub field_selector: String,
    /// The fields to keep. If they are all metadata, the server is asked for
    /// metadata only.
    pub fields: FieldTree,
}

/// Updates of one stream, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which stream. A batch may arrive after its stream was stopped.
    pub stream: StreamId,
    /// At least one.
    pub updates: Vec<Update>,
}

/// One update of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// These are all objects there were at that version.
    Reset {
        /// The objects, ordered by namespace and name.
        items: Vec<ProjectedObject>,
        /// The version of the list.
        resource_version: Box<str>,
    },
    /// An object was added or modified.
    Apply(ProjectedObject),
    /// An object was deleted; this was its last state.
    Delete(ProjectedObject),
    /// How well the stream follows the server.
    Status(Condition),
}
