//! What the collector reads of leases and storage versions.

use davit_guest::{IndexName, Resource, View, WatchName};

use crate::status::Status;

/// The resource of the storage versions.
pub(crate) const STORAGE_VERSIONS: Resource =
    Resource::new("internal.apiserver.k8s.io", "v1alpha1", "storageversions");

pub(crate) const LEASES: WatchName<Lease> = WatchName::new("leases");

pub(crate) const VERSIONS: WatchName<StorageVersion> = WatchName::new("storageversions");
/// Storage versions by the API servers that they name.
pub(crate) const BY_SERVER: IndexName<StorageVersion> = IndexName::new("server");

/// A lease without its renewal times: a renewal triggers no reconcile.
#[derive(Debug, Default, View)]
pub(crate) struct Lease {
    #[view(path = "metadata.labels[\"apiserver.kubernetes.io/identity\"]")]
    pub(crate) identity: String,
}

#[derive(Debug, Default, View)]
pub(crate) struct StorageVersion {
    #[view(path = "metadata.generation")]
    pub(crate) generation: i64,
    pub(crate) status: Status,
}
