//! What the collector reads of an object: the metadata that ownership is made
//! of.

use davit_guest::{Object, WatchName};
use serde::{Deserialize, Serialize};

/// Every object that can be deleted, by its uid.
pub(crate) const OBJECTS: WatchName<Meta> = WatchName::new("objects");

/// The index of [`OBJECTS`] that tells an owner's dependents by its uid.
pub(crate) const BY_OWNER: &str = "owner";
/// The path of that index.
pub(crate) const OWNER_UIDS: &str = "metadata.ownerReferences[*].uid";

/// The finalizer of an owner that waits for its blocking dependents to go.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner that waits for its dependents to be let go.
pub(crate) const ORPHAN: &str = "orphan";

/// An object, as the collector knows it.
pub(crate) type Item = Object<Meta>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Meta {
    pub(crate) metadata: Metadata,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Metadata {
    pub(crate) owner_references: Vec<OwnerReference>,
    pub(crate) finalizers: Vec<String>,
    pub(crate) deletion_timestamp: String,
}

/// Kubernetes' `OwnerReference`, whole: a merge patch writes it back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
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

    /// Whether it is being deleted and waits for its dependents to be deleted.
    /// With both finalizers they are let go first, and none is deleted.
    pub(crate) fn waits_for_dependents(&self) -> bool {
        self.is_terminating() && self.has_finalizer(FOREGROUND) && !self.has_finalizer(ORPHAN)
    }

    /// Whether it is being deleted and waits for its dependents to be let go.
    pub(crate) fn lets_dependents_go(&self) -> bool {
        self.is_terminating() && self.has_finalizer(ORPHAN)
    }
}

impl OwnerReference {
    /// Whether the owner may not go before the dependent.
    pub(crate) fn blocks(&self) -> bool {
        self.block_owner_deletion == Some(true)
    }

    /// Whether this object is the one that a reference from this namespace
    /// (empty for a cluster-scoped dependent) means. Of the API version only
    /// the group counts: an object is served in several versions.
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
