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
    /// The object that events are about; none for one of a configuration file.
    pub object: Option<ObjectRef>,
    /// What its status says, as far as it can be read.
    pub status: Option<ControllerStatus>,
    /// What its spec says, or what is wrong with it.
    pub spec: Result<ControllerSpec, SpecError>,
    /// What its annotations ask for.
    pub requests: Requests,
}

/// Whose records they are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The controller's name.
    pub name: String,
    /// The uid of its resource: a record of another resource of the same name is
    /// neither read nor written. None for whichever has the name.
    pub uid: Option<String>,
}

impl Owner {
    /// Whichever controller has that name.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            uid: None,
        }
    }

    /// The controller of that name, and its resource alone if it has one.
    #[must_use]
    pub fn of(name: &str, object: Option<&ObjectRef>) -> Self {
        let uid = object.map(|object| object.uid.clone());
        Self {
            name: name.to_owned(),
            uid: uid.filter(|uid| !uid.is_empty()),
        }
    }
}
