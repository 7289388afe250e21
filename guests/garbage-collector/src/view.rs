//! What the collector reads of an object: the metadata about ownership.

use davit_guest::views::OwnerReference;
use davit_guest::{IndexName, Object, View, WatchName};

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
