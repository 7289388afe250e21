//! Objects of the API and their names.

use std::fmt;
use std::sync::Arc;

use crate::time::Instant;

/// A resource of the API: `apps/v1 deployments`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiResource {
    /// Empty for the core group.
    pub group: String,
    /// `v1`, `v1beta1`, …
    pub version: String,
    /// The plural name in URLs: `pods`.
    pub plural: String,
}

impl ApiResource {
    /// The resource with this group (empty for core), version and plural name.
    #[must_use]
    pub fn new(group: &str, version: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
        }
    }

    /// The group and version as objects carry them: `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether these are the Leases with which kubelets and others show that they are alive.
    #[must_use]
    pub fn are_leases(&self) -> bool {
        self.group == "coordination.k8s.io" && self.plural == "leases"
    }

    /// Whether these are the nodes.
    #[must_use]
    pub fn are_nodes(&self) -> bool {
        self.group.is_empty() && self.plural == "nodes"
    }
}

impl fmt::Display for ApiResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            write!(f, "{}/{}", self.version, self.plural)
        } else {
            write!(f, "{}/{}/{}", self.group, self.version, self.plural)
        }
    }
}

/// A kind of the API: `apps/v1 Deployment`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// `v1`, `apps/v1`, …
    pub api_version: Arc<str>,
    /// `Deployment`
    pub kind: Arc<str>,
}

impl Kind {
    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }
}

/// The API group of an `apiVersion`; empty for the core group.
#[must_use]
pub fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// The identity of an object in the API server, never reused.
///
/// Uids are almost always UUIDs, which take 16 bytes here. Any other text stays as it
/// is. Only the lower-case form with dashes that Kubernetes writes counts as a UUID, so
/// that the exact text can be restored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uid {
    /// A UUID's bits.
    Uuid(u128),
    /// Any other text.
    Text(Arc<str>),
}

impl Uid {
    /// Reads the text of a uid.
    #[must_use]
    pub fn new(text: &str) -> Self {
        match parse_uuid(text.as_bytes()) {
            Some(bits) => Self::Uuid(bits),
            None => Self::Text(text.into()),
        }
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Text(text) if text.is_empty())
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bits) => write!(
                f,
                "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
                bits >> 96,
                (bits >> 80) & 0xffff,
                (bits >> 64) & 0xffff,
                (bits >> 48) & 0xffff,
                bits & 0xffff_ffff_ffff
            ),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uid({self})")
    }
}

fn parse_uuid(text: &[u8]) -> Option<u128> {
    if text.len() != 36 {
        return None;
    }
    let mut bits = 0_u128;
    for (position, byte) in text.iter().enumerate() {
        let digit = match (position, byte) {
            (8 | 13 | 18 | 23, b'-') => continue,
            (8 | 13 | 18 | 23, _) => return None,
            (_, b'0'..=b'9') => byte - b'0',
            (_, b'a'..=b'f') => byte - b'a' + 10,
            _ => return None,
        };
        bits = bits << 4 | u128::from(digit);
    }
    Some(bits)
}

/// The coordinates of an object, as in owner references, plans and live reads. They are
/// text, because they come from guests and go into URLs and logs.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// `v1`, `apps/v1`, …
    pub api_version: String,
    /// `Pod`
    pub kind: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// The object's name.
    pub name: String,
    /// Empty if the uid is not known.
    pub uid: String,
}

impl ObjectRef {
    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(&self) -> &str {
        group_of(&self.api_version)
    }
}

impl fmt::Display for ObjectRef {
    /// `v1 Pod ns/name (uid)`, for logs and errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.api_version, self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)?;
        if !self.uid.is_empty() {
            write!(f, " ({})", self.uid)?;
        }
        Ok(())
    }
}

/// An object as a guest reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Its kind.
    pub kind: Kind,
    /// The version of the data.
    pub resource_version: Arc<str>,
    /// When the fields that the reader declared last changed; for a live read,
    /// the time of the read.
    pub changed_at: Instant,
    /// MessagePack of the declared fields.
    pub data: Arc<[u8]>,
}

/// An object of a list or watch, reduced to the declared fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectedObject {
    /// Empty for a cluster-scoped object.
    pub namespace: Box<str>,
    /// The object's name.
    pub name: Box<str>,
    /// The object's uid.
    pub uid: Uid,
    /// The version of the data.
    pub resource_version: Box<str>,
    /// MessagePack of the declared fields, with `metadata.name`,
    /// `metadata.namespace` and `metadata.uid`, without
    /// `metadata.resourceVersion`.
    pub data: Box<[u8]>,
}

impl ProjectedObject {
    /// `namespace/name`, or `name` for a cluster-scoped object.
    #[must_use]
    pub fn key(&self) -> String {
        object_key(&self.namespace, &self.name)
    }
}

/// `namespace/name`, or `name` for a cluster-scoped object.
#[must_use]
pub fn object_key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() {
        name.to_owned()
    } else {
        format!("{namespace}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_keeps_its_text() {
        for text in [
            "0b4f6a4e-8a4c-4f2e-9d56-0123456789ab",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "00000000-0000-0000-0000-000000000000",
            "0B4F6A4E-8A4C-4F2E-9D56-0123456789AB",
            "u-1",
            "",
            "0b4f6a4e-8a4c-4f2e-9d56-0123456789a",
            "0b4f6a4e18a4c-4f2e-9d56-0123456789ab",
        ] {
            assert_eq!(Uid::new(text).to_string(), text);
        }
        assert!(matches!(
            Uid::new("0b4f6a4e-8a4c-4f2e-9d56-0123456789ab"),
            Uid::Uuid(_)
        ));
        assert!(Uid::new("").is_empty());
    }
}
