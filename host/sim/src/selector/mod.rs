//! Label and field selectors.

mod field;
mod label;

pub use field::FieldSelector;
pub(crate) use field::exact_name;
pub use label::LabelSelector;

use crate::resource::Resource;
use crate::status::Result;
use crate::stored::StoredObject;

/// What a list or a watch is narrowed to, beside its namespace.
#[derive(Clone, Debug, Default)]
pub struct Selector {
    /// By labels.
    pub labels: LabelSelector,
    /// By name, namespace and the resource's selectable fields.
    pub fields: FieldSelector,
}

impl Selector {
    /// Parses both; the errors are the API server's.
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self> {
        Ok(Selector {
            labels: LabelSelector::parse(labels)?,
            fields: FieldSelector::parse(resource, fields)?,
        })
    }

    /// Whether every object is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether the object is selected. `key` is its key in the collection.
    pub fn matches(&self, key: &str, object: &StoredObject) -> Result<bool> {
        if !self.fields.matches(key, object)? {
            return Ok(false);
        }
        if self.labels.is_everything() {
            return Ok(true);
        }
        Ok(self.labels.matches(&object.labels()?))
    }
}
