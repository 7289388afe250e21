//! What the collector reads of an object: the metadata about ownership.

use davit_guest::{IndexName, Object, View, WatchName};
use serde::Serialize;

/// Every object that can be deleted, by its uid.
pub(crate) const OBJECTS: WatchName<Meta> = WatchName::new("objects");

/// The index of [`OBJECTS`] from an owner's uid to its dependents.
pub(crate) const BY_OWNER: IndexName<Meta> = IndexName::new("owner");
/// The path of that index.
pub(crate) const OWNER_UIDS: &str = "metadata.ownerReferences[*].uid";

/// The finalizer of an owner that waits until its blocking dependents are
/// deleted.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that waits until its dependents are orphaned.
pub(crate) const ORPHAN: &str = "orphan";

/// An object, as the collector reads it.
pub(crate) type Item = Object<Meta>;

#[derive(Clone, Debug, Default, View)]
pub(crate) struct Meta {
    pub(crate) metadata: Metadata,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, View)]
pub(crate) struct Metadata {
    pub(crate) owner_references: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deletion_timestamp: String,
}

/// Kubernetes' `OwnerReference` with all fields: a merge patch writes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, View, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwnerReference {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block_owner_deletion: Option<bool>,
}

impl Metadata {
    pub(crate) fn is_terminating(&self) -> bool {
        !self.deletion_timestamp.is_empty()
    }

    pub(crate) fn has_finalizer(&self, name: &str) -> bool {
        self.finalizers.iter().any(|it| it == name)
    }

    /// Whether it is terminating and waits until its dependents are deleted.
    /// With both finalizers the dependents are orphaned first, and none is
    /// deleted.
    pub(crate) fn waits_for_dependents(&self) -> bool {
        self.is_terminating() && self.has_finalizer(FOREGROUND) && !self.has_finalizer(ORPHAN)
    }

    /// Whether it is terminating and waits until its dependents are orphaned.
    pub(crate) fn lets_dependents_go(&self) -> bool {
        self.is_terminating() && self.has_finalizer(ORPHAN)
    }
}

impl OwnerReference {
    /// Whether the owner must not be deleted before the dependent.
    pub(crate) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }

    /// Whether a reference from this namespace (empty for a cluster-scoped
    /// dependent) means this object. Only the group of the API version counts:
    /// an object is served in several versions.
    pub(crate) fn means(&self, owner: &Item, namespace: &str) -> bool {
        let found = &owner.reference;
        self.uid == found.uid
            && self.kind == found.kind
            && self.name == found.name
            && group(&self.api_version) == group(&found.api_version)
            && (found.namespace.is_empty() || found.namespace == namespace)
    }
}

/// The group of an API version; empty for core.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
