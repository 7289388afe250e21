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
