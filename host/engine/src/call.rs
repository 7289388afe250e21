//! The inputs of a call.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock, Mutex};

use davit_core::coverage::UnlistedResource;
use davit_core::grant::Grant;
use davit_core::journal::SnapshotReads;
use davit_core::live::{ReadAnswer, ReadRequest};
use davit_core::machine;
use davit_core::mapping::Mapping;
use davit_core::notes::Notes;
use davit_core::plan::WorkItem;
use davit_core::queue::PendingSnapshot;
use davit_core::store::{Snapshot, ViewId};
use davit_core::time::Now;
use futures::future::BoxFuture;

/// One call of `reconcile`: the items to decide about, and everything that the
/// guest may read meanwhile. All of it is a snapshot, except live reads.
pub struct Call {
    /// The time of the call. The guest's clocks stand still at this time.
    pub now: Now,
    /// The items to decide about.
    pub items: Vec<WorkItem>,
    /// The cache, at least as new as the changes that enqueued the items.
    pub snapshot: Snapshot,
    /// The store's view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
    /// The controller's queues.
    pub pending: PendingSnapshot,
    /// The controller's notes, MessagePack by key.
    pub notes: Notes,
    /// What the operator grants: live reads are checked against it.
    pub grant: Grant,
    /// What the API server serves.
    pub mapping: Arc<Mapping>,
    /// The resources of which views may lack objects, as of the snapshot.
    pub unlisted: Arc<BTreeMap<ViewId, Vec<UnlistedResource>>>,
    /// Makes the live reads.
    pub live: Arc<dyn LiveReads>,
    /// The decision that the guest's log lines name: that of the first item. The host does
    /// not know which of its items a guest writes about.
    pub decision: Option<LazyDecision>,
    /// How many bytes the guest may log, if that is less than its limit for one call.
    pub log_bytes: usize,
    /// Counts the bytes that the guest logs.
    pub logged: Arc<AtomicUsize>,
    /// Gets what the guest reads of queues and notes, for a journal; none if there is none.
    pub reads: Option<Arc<Mutex<SnapshotReads>>>,
}

impl Call {
    /// A call of the machine, and its guest. Nothing of it is logged with a decision, counted or
    /// kept for a journal.
    #[must_use]
    pub fn of<G>(call: machine::Call<G>, live: Arc<dyn LiveReads>) -> (G, Self) {
        let of_guest = Self {
            now: call.now,
            items: call.items,
            snapshot: call.snapshot,
            views: call.views,
            pending: call.pending,
            notes: call.notes,
            grant: call.grant,
            mapping: call.mapping,
            unlisted: call.unlisted,
            live,
            decision: None,
            log_bytes: call.log_bytes,
            logged: Arc::default(),
            reads: None,
        };
        (call.guest, of_guest)
    }
}

/// A decision as log lines name it.
#[derive(Clone, Debug)]
pub struct LoggedDecision {
    /// Its name.
    pub name: String,
    /// The id of its trace.
    pub trace_id: String,
}

/// Computed for the first line: most calls log nothing.
pub type LazyDecision = LazyLock<LoggedDecision, Box<dyn FnOnce() -> LoggedDecision + Send>>;

/// Quorum reads from the API server.
///
/// Only reads that the manifest declares and the operator grants arrive here. The implementation bounds
/// the time of a read: a call waits for it without a limit of its own.
pub trait LiveReads: Send + Sync {
    /// Reads objects in parallel, or lists a resource. The answer is of the request's kind, with
    /// a result for each object of the request, in their order.
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer>;
}
