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
    Command, ConfigError, Context, Controller, Decision, Index, LiveFields, Manifest, QueueName,
    QueueSpec, Retry, Trigger, Watch, WorkItem, resources,
};
use serde::Deserialize;

/// The queue of the leases that changed, by `namespace/name`. Its name is
/// kube-controller-manager's.
pub const LEASES: QueueName = QueueName::new("storage_version_garbage_collector_leases");
/// The queue of the storage versions, by name. Its name is
/// kube-controller-manager's.
pub const VERSIONS: QueueName = QueueName::new("storage_version_garbage_collector_storageversions");

/// How many storage versions one call decides about at most. A call reads each
/// lease once: all storage versions name an API server that is gone.
const BATCH: u32 = 50;

/// The operator's configuration: there is nothing to configure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
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
        let by_server = Index::new(view::BY_SERVER, "status.storageVersions[*].apiServerID");
        Manifest::new("storage-version-gc", env!("CARGO_PKG_VERSION"), summary)
            .watch(Watch::of(view::LEASES, resources::LEASES).namespace(lease::NAMESPACE))
            .watch(
                Watch::of(view::VERSIONS, view::STORAGE_VERSIONS)
                    .index(by_server)
                    .optional(),
            )
            .trigger(Trigger::own_key(view::LEASES, LEASES))
            .trigger(Trigger::own_key(view::VERSIONS, VERSIONS))
            .queue(QueueSpec::new(LEASES))
            .queue(QueueSpec::new(VERSIONS).workers(BATCH).batch(BATCH))
            .reads_live(resources::LEASES)
            .patches_status(view::STORAGE_VERSIONS)
            .deletes(view::STORAGE_VERSIONS)
            .config_schema(include_str!("../config.schema.json"))
    }

    fn live_reads(&self) -> Vec<LiveFields> {
        vec![LiveFields::of::<view::Lease>(resources::LEASES)]
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        match item.queue {
            VERSIONS => collect::reconcile(cx, slice::from_ref(item))
                .pop()
                .unwrap_or_else(|| Ok(Decision::done())),
            _ => Ok(enqueue_versions(cx, &item.key)),
        }
    }

    /// All items of a call belong to one queue.
    fn reconcile_batch(
        &self,
        cx: &Context<'_>,
        items: &[WorkItem],
    ) -> Vec<Result<Decision, Retry>> {
        match items.first() {
            Some(first) if first.queue == VERSIONS => collect::reconcile(cx, items),
            _ => items.iter().map(|item| self.reconcile(cx, item)).collect(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_schema_is_current() {
        davit_guest::testing::assert_config_schema_is_current::<Config>(
            env!("CARGO_MANIFEST_DIR"),
            env!("CARGO_PKG_NAME"),
        );
    }
}
