//! The coordinates of objects.

use std::sync::Arc;

use crate::resource::Resource;

/// A resource and the coordinates of an object; a field that the URL does not have is
/// empty.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource, in the version of the URL.
    pub resource: Arc<Resource>,
    /// The namespace.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// The subresource.
    pub subresource: String,
}

impl Target {
    /// An object, or with an empty name a whole collection.
    #[must_use]
    pub fn new(resource: &Arc<Resource>, namespace: &str, name: &str) -> Self {
        Target {
            resource: resource.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
        }
    }

    /// The object's key in its collection.
    #[must_use]
    pub fn key(&self) -> String {
        self.resource.key(&self.namespace, &self.name)
    }

    /// What the keys of all objects in the target's namespace start with.
    #[must_use]
    pub fn prefix(&self) -> String {
        if self.namespace.is_empty() {
            String::new()
        } else {
            format!("{}/", self.namespace)
        }
    }
}
