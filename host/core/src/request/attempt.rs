//! An attempt on an object: where it is, and what a failure says of it.

use std::fmt;

use super::path::{is_name, path};
use crate::failure::{Failure, FailureClass};
use crate::mapping::{Mapping, ServedResource};
use crate::object::ObjectRef;

/// An attempt on an object, for failures: `patch status of v1 Pod ns/name`.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// What is attempted: `delete`, `patch status of`.
    pub verb: &'a str,
    /// On which object.
    pub object: &'a ObjectRef,
}

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

impl<'a> Attempt<'a> {
    /// A failure that was found before anything was sent, or in the answer.
    pub fn failure(&self, class: FailureClass, reason: impl fmt::Display) -> Failure {
        Failure::new(class, format!("{self}: {reason}"))
    }

    /// The path of the object, if its kind is served and it can be named in a
    /// path.
    pub fn object_path(&self, mapping: &Mapping, subresource: &str) -> Result<String, Failure> {
        let name = &self.object.name;
        // Without a name the path would be that of the whole collection.
        if !is_name(name) {
            return Err(self.failure(
                FailureClass::Invalid,
                format_args!("\"{name}\" is no object's name"),
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

    /// The resource of the object, if it is served where the object is said to
    /// be.
    pub fn served<'m>(&self, mapping: &'m Mapping) -> Result<&'m ServedResource, Failure> {
        let object = self.object;
        let Some(served) = mapping.by_kind(&object.api_version, &object.kind) else {
            return Err(self.failure(
                FailureClass::Unmappable,
                "the API server does not serve this kind",
            ));
        };
        let problem = match (served.namespaced, object.namespace.as_str()) {
            (true, "") => "the kind lives in namespaces, and none is given",
            (true, namespace) if !is_name(namespace) => "the namespace is no name",
            (true, _) | (false, "") => return Ok(served),
            (false, _) => "the kind lives in no namespace, and one is given",
        };
        Err(self.failure(FailureClass::Invalid, problem))
    }

    /// The uid that was decided on: no write goes without one.
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

    /// The name leads to another object than the one that was decided on.
    pub(super) fn other_object(&self, uid: &str) -> Failure {
        self.failure(
            FailureClass::UidMismatch,
            format_args!("the name belongs to another object by now, {uid}"),
        )
    }
}
