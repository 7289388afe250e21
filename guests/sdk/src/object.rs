//! Objects of the API, read through a view.

use serde::de::DeserializeOwned;

use crate::bindings::davit::controller::types;
use crate::{ApiResource, Instant, ObjectRef, View, msgpack};

/// An object, with the fields that a view reads.
#[derive(Clone, Debug, PartialEq)]
pub struct Object<T> {
    /// The object by its coordinates, with its uid: what a plan targets.
    pub reference: ObjectRef,
    /// The version that the view was read from.
    pub resource_version: String,
    /// When a field that the watch declares last changed; for a live read, the
    /// time of the read.
    pub changed_at: Instant,
    /// The fields.
    pub view: T,
}

/// The view of a guest that needs only the identity of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, View)]
pub struct Identity {}

impl ApiResource {
    /// A resource by group (empty for core), version and plural name.
    #[must_use]
    pub fn new(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
        }
    }
}

impl ObjectRef {
    /// An object of which only the name is known.
    #[must_use]
    pub fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
        }
    }
}

impl ObjectRef {
    /// The object's key in a watch of its resource: `namespace/name`, or `name` for a
    /// cluster-scoped one.
    #[must_use]
    pub fn key(&self) -> String {
        if self.namespace.is_empty() {
            self.name.clone()
        } else {
            format!("{}/{}", self.namespace, self.name)
        }
    }
}

impl std::fmt::Display for ObjectRef {
    /// `v1 Pod namespace/name`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ", self.api_version, self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// Reads an object through a view.
pub(crate) fn decode<T: DeserializeOwned>(object: types::Object) -> Object<T> {
    let identity = msgpack::identity(&object.data);
    let (namespace, name, uid) = match &identity {
        Ok(found) => (found.namespace, found.name, found.uid),
        Err(error) => undecodable(&object.kind, "", error),
    };
    match msgpack::decode(&object.data) {
        Ok(view) => Object {
            reference: ObjectRef {
                api_version: object.api_version,
                kind: object.kind,
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: uid.to_owned(),
            },
            resource_version: object.resource_version,
            changed_at: Instant::from_millis(object.changed_at),
            view,
        },
        Err(error) => undecodable(&object.kind, name, &error),
    }
}

#[allow(
    clippy::panic,
    reason = "no decision is right about an object that cannot be read: end the call"
)]
fn undecodable(kind: &str, name: &str, error: &msgpack::Error) -> ! {
    panic!("the {kind} \"{name}\" does not fit the view it is read through: {error}");
}
