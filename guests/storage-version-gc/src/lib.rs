//! Kubernetes' StorageVersion garbage collector as a Davit guest.
//!
//! Every API server writes the version in which it encodes a resource into a
//! `StorageVersion`, and holds a lease in `kube-system`. When an API server is
//! gone, and with it its lease, its entries remain. This collector removes
//! them, and deletes a `StorageVersion` without entries. A storage migration
//! waits until all entries agree: the entry of an API server that is gone would
//! block it forever.
//!
//! The rules are kube-controller-manager's (pkg/controller/storageversiongc,
//! v1.36), except: only a lease that the API server does not have, or that is
//! not an API server's, counts as gone; every write carries the resourceVersion
//! that was decided on; there is no feature gate: while the API is not served
//! there is nothing to do.

mod collect;
mod lease;
pub mod status;
mod view;

use std::slice;
use std::time::Duration;

use davit_guest::{
    ApiResource, Command, ConfigError, Context, Controller, Decision, Index, Manifest, Permission,
    QueueSpec, Trigger, TriggerKey, Watch, WorkItem,
};
use serde::Deserialize;

/// The queue of the leases that changed, by `namespace/name`. Its name is
/// kube-controller-manager's.
pub const LEASES: &str = "storage_version_garbage_collector_leases";
/// The queue of the storage versions, by name. Its name is
/// kube-controller-manager's.
pub const VERSIONS: &str = "storage_version_garbage_collector_storageversions";

/// How many storage versions one call decides about at most. A call reads each
/// lease once: all storage versions name an API server that is gone.
const BATCH: u32 = 50;

/// The operator's configuration: there is nothing to configure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Config {}

/// The `StorageVersion` garbage collector.
#[derive(Debug)]
pub struct StorageVersionGc;

davit_guest::export!(StorageVersionGc);

impl Controller for StorageVersionGc {
    type Config = Config;

    fn new(_: Config) -> Result<Self, ConfigError> {
        Ok(Self)
    }

    fn manifest(&self) -> Manifest {
        let summary = "Removes the entries of API servers that are gone from storage versions.";
        Manifest {
            watches: watches(),
            triggers: vec![
                Trigger::new(view::LEASES, LEASES, TriggerKey::OwnKey),
                Trigger::new(view::VERSIONS, VERSIONS, TriggerKey::OwnKey),
            ],
            queues: vec![
                QueueSpec::new(LEASES),
                QueueSpec::new(VERSIONS).workers(BATCH).batch(BATCH),
            ],
            permissions: vec![
                Permission::new("get", "coordination.k8s.io", "leases"),
                Permission::new("patch", view::GROUP, "storageversions/status"),
                Permission::new("delete", view::GROUP, "storageversions"),
            ],
            config_schema: include_str!("../config.schema.json").to_owned(),
            ..Manifest::new("storage-version-gc", env!("CARGO_PKG_VERSION"), summary)
        }
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Decision {
        let decisions = self.reconcile_batch(cx, slice::from_ref(item));
        decisions.into_iter().next().unwrap_or_else(Decision::done)
    }

    fn reconcile_batch(&self, cx: &Context<'_>, items: &[WorkItem]) -> Vec<Decision> {
        match items.first() {
            Some(first) if first.queue == VERSIONS => collect::reconcile(cx, items),
            _ => items
                .iter()
                .map(|it| enqueue_versions(cx, &it.key))
                .collect(),
        }
    }
}

/// Enqueues the storage versions that name an API server, if its lease is gone.
fn enqueue_versions(cx: &Context<'_>, key: &str) -> Decision {
    let Some(server) = lease::server_of(key) else {
        return Decision::done();
    };
    if lease::is_cached(cx, server) {
        return Decision::done();
    }
    let naming = cx.watch(view::VERSIONS).by_index(view::BY_SERVER, server);
    let names = naming.map(|version| version.reference.name);
    Decision::done().commands(names.map(|it| Command::enqueue(VERSIONS, &it, Duration::ZERO)))
}

fn watches() -> Vec<Watch> {
    let leases = ApiResource::new("coordination.k8s.io", "v1", "leases");
    let versions = ApiResource::new(view::GROUP, "v1alpha1", "storageversions");
    vec![
        Watch::of(view::LEASES, leases).namespace(lease::NAMESPACE),
        Watch::of(view::VERSIONS, versions)
            .index(Index::new(
                view::BY_SERVER,
                "status.storageVersions[*].apiServerID",
            ))
            .optional(),
    ]
}
