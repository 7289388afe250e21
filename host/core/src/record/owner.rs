//! Whose record it is.

use crate::object::ObjectRef;

/// The owner of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The controller's name.
    pub name: String,
    /// The uid of its resource: the host neither reads nor writes records of another
    /// resource of the same name. None for any controller of that name.
    pub uid: Option<String>,
}

impl Owner {
    /// Any controller of that name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: None,
        }
    }

    /// The controller of that name; if there is a resource, only that of this resource.
    #[must_use]
    pub fn of(name: &str, object: Option<&ObjectRef>) -> Self {
        let uid = object.map(|object| object.uid.clone());
        Self {
            name: name.to_owned(),
            uid: uid.filter(|uid| !uid.is_empty()),
        }
    }
}
