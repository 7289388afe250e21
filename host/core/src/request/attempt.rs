//! An attempt on an object: its path, and the failures of the attempt.

use std::fmt;

use super::path::{is_name, path};
use crate::failure::{Failure, FailureClass};
use crate::mapping::{Mapping, ServedResource};
use crate::object::ObjectRef;

/// An attempt on an object, for failures: `patch status of v1 Pod ns/name`.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The attempt: `delete`, `patch status of`.
    pub verb: &'a str,
    /// The object.
    pub object: &'a ObjectRef,
}

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

impl<'a> Attempt<'a> {
    /// A failure that was found before the request was sent, or in the answer.
    pub fn failure(&self, class: FailureClass, reason: impl fmt::Display) -> Failure {
        Failure::new(class, format!("{self}: {reason}"))
    }

    /// The path of the object, if its kind is served and a path can name it.
    pub fn object_path(&self, mapping: &Mapping, subresource: &str) -> Result<String, Failure> {
        let name = &self.object.name;
        // Without a name, this would be the path of the whole collection.
        if !is_name(name) {
            return Err(self.failure(
                FailureClass::Invalid,
                format_args!("\"{name}\" is not a valid object name"),
            ));
        }
        let served = self.served(mapping)?;
        Ok(path(
            &served.resource,
            &self.object.namespace,
            name,
            subresource,
        ))
    }

    /// The resource of the object, if it is served in the scope of the object.
    pub fn served<'m>(&self, mapping: &'m Mapping) -> Result<&'m ServedResource, Failure> {
        let object = self.object;
        let Some(served) = mapping.by_kind(&object.api_version, &object.kind) else {
            return Err(self.failure(
                FailureClass::Unmappable,
                "the API server does not serve this kind",
            ));
        };
        let problem = match (served.namespaced, object.namespace.as_str()) {
            (true, "") => "the kind is namespaced, and the object has no namespace",
            (true, namespace) if !is_name(namespace) => "the namespace is not a valid name",
            (true, _) | (false, "") => return Ok(served),
            (false, _) => "the kind is cluster-scoped, and the object has a namespace",
        };
        Err(self.failure(FailureClass::Invalid, problem))
    }

    /// The uid that was decided on: no write is sent without one.
    pub(super) fn required_uid(&self) -> Result<&'a str, Failure> {
        let uid = self.object.uid.as_str();
        if uid.is_empty() {
            return Err(self.failure(
                FailureClass::Invalid,
                "the target has no uid, so it could be another object by now",
            ));
        }
        Ok(uid)
    }

    /// Another object has the name by now.
    pub(super) fn other_object(&self, uid: &str) -> Failure {
        self.failure(
            FailureClass::UidMismatch,
            format_args!("another object, {uid}, has this name now"),
        )
    }
}
