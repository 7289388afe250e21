//! What a call is made with.

use std::collections::BTreeMap;
use std::sync::Arc;

use davit_core::controller::Notes;
use davit_core::coverage::Unlisted;
use davit_core::failure::Failure;
use davit_core::mapping::Mapping;
use davit_core::object::ObjectRecord;
use davit_core::plan::{GetRequest, ListRequest, WorkItem};
use davit_core::queue::PendingSnapshot;
use davit_core::store::{Snapshot, ViewId};
use davit_core::time::Now;
use futures::future::BoxFuture;

/// One call of `reconcile`: the items to decide about, and everything that the
/// guest may look at meanwhile. All of it is a snapshot; live reads are the
/// exception.
pub struct Call {
    /// When the call is made. The guest's clocks stand still at this time.
    pub now: Now,
    /// What to decide about.
    pub items: Vec<WorkItem>,
    /// The cache, at least as new as what triggered the items.
    pub snapshot: Snapshot,
    /// The store's view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
    /// The controller's queues.
    pub pending: PendingSnapshot,
    /// The controller's notes, MessagePack by key.
    pub notes: Notes,
    /// What the API server serves.
    pub mapping: Arc<Mapping>,
    /// The resources of which views may lack objects, as of the snapshot.
    pub unlisted: Arc<BTreeMap<ViewId, Vec<Unlisted>>>,
    /// How live reads are made.
    pub live: Arc<dyn LiveReads>,
}

/// Quorum reads from the API server.
///
/// Only what the manifest permits arrives here. How long a read may take is
/// this trait's matter: a call waits for it without a limit of its own.
pub trait LiveReads: Send + Sync {
    /// Reads objects, in parallel; one result for each request, in its order.
    fn get(&self, requests: Vec<GetRequest>) -> BoxFuture<'_, Vec<Result<ObjectRecord, Failure>>>;

    /// Lists a resource.
    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Vec<ObjectRecord>, Failure>>;
}
