//! What the collector reads of leases and storage versions.

use davit_guest::WatchName;
use serde::Deserialize;

use crate::status::Status;

/// The API group of storage versions.
pub(crate) const GROUP: &str = "internal.apiserver.k8s.io";

pub(crate) const LEASES: WatchName<Lease> = WatchName::new("leases");

pub(crate) const VERSIONS: WatchName<StorageVersion> = WatchName::new("storageversions");
/// Storage versions by the API servers that they name.
pub(crate) const BY_SERVER: &str = "server";

/// A lease without its renewal times: a renewal triggers no reconcile.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Lease {
    pub(crate) metadata: LeaseMetadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseMetadata {
    pub(crate) labels: LeaseLabels,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LeaseLabels {
    #[serde(rename = "apiserver.kubernetes.io/identity")]
    pub(crate) identity: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct StorageVersion {
    pub(crate) metadata: Metadata,
    pub(crate) status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub(crate) generation: i64,
}
