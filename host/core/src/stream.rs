//! Streams: the objects of one resource, as a watch delivers them.

use crate::object::ApiResource;
use crate::path::FieldTree;
pub use crate::watch::Update;

/// The number of a stream; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// The resource and selectors of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// The resource.
    pub resource: ApiResource,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The label selector; empty for all objects.
    pub label_selector: String,
    /// The field selector; empty for all objects.
    pub field_selector: String,
    /// The fields to keep; of whole objects, the nulls too. If all of them are metadata, the server
    /// is asked for metadata only.
    pub fields: FieldTree,
}

/// Updates of one stream, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The stream. A batch may arrive after its stream was stopped.
    pub stream: StreamId,
    /// At least one.
    pub updates: Vec<Update>,
}
