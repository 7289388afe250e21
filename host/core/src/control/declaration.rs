//! Controllers as operators declare them.

use super::requests::Requests;
use crate::api::{ControllerSpec, ControllerStatus, SpecError};
use crate::object::ObjectRef;

/// A controller as an operator declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct Declaration {
    /// Its name: a DNS label.
    pub name: String,
    /// The generation of its spec; none if it has none.
    pub generation: Option<i64>,
    /// The object of events; none for a controller of a configuration file.
    pub object: Option<ObjectRef>,
    /// Its status, if it can be read.
    pub status: Option<ControllerStatus>,
    /// Its spec, or the error in it.
    pub spec: Result<ControllerSpec, SpecError>,
    /// The requests in its annotations.
    pub requests: Requests,
}

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
