//! What the machine takes and gives.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::report::Report;
use crate::circuit::CallFailure;
use crate::controller::{CallId, ControllerId, Notes, Outcome, PlanId};
use crate::coverage::Unlisted;
use crate::failure::Failure;
use crate::mapping::{Discovery, Mapping};
use crate::object::ObjectRecord;
use crate::plan::{Decision, GetRequest, ListRequest, Plan, WorkItem};
use crate::queue::PendingSnapshot;
use crate::store::{Snapshot, ViewId};
use crate::stream::{Batch, StreamId, StreamSpec};
use crate::time::Now;

/// The resources of which each view may lack objects.
pub type UnlistedByView = Arc<BTreeMap<ViewId, Vec<Unlisted>>>;

/// Identifies one live read. The driver chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(pub u64);

/// Something that happened.
#[derive(Debug)]
pub enum Input {
    /// A stream delivered updates.
    Stream(Batch),
    /// Whether the API server answers requests at all. It does until this says
    /// otherwise.
    Reachable(bool),
    /// The answer to [`Effect::Discover`].
    Discovered(Result<Discovery, Failure>),
    /// The answer to [`Effect::Call`]: a decision for each item, in their order.
    Answered {
        /// The call.
        call: CallId,
        /// The decisions, or why there are none.
        result: Result<Vec<Decision>, CallFailure>,
        /// How long it took.
        took: Duration,
    },
    /// A guest that is being called asks for a live read.
    ReadRequested {
        /// Identifies the read.
        read: ReadId,
        /// The call.
        call: CallId,
        /// The controller that calls.
        controller: Arc<str>,
        /// What to read.
        request: ReadRequest,
    },
    /// The answer to [`Effect::Read`].
    ReadDone {
        /// The read.
        read: ReadId,
        /// What the API server holds.
        answer: ReadAnswer,
    },
    /// The outcome of [`Effect::Execute`].
    Executed {
        /// The plan.
        plan: PlanId,
        /// What became of it.
        outcome: Outcome,
        /// How long it took, without the time that it waited for its turn.
        took: Duration,
    },
    /// Whether this replica may write. It may until this says otherwise.
    Leadership {
        /// Whether it may.
        held: bool,
    },
    /// Stop: no more calls, and no more plans than those that have begun.
    Stop,
}

/// Something to do. The driver carries it out and reports the result as an
/// [`Input`].
#[derive(Debug)]
pub enum Effect<G> {
    /// Start a stream.
    StartStream {
        /// Identifies its updates.
        stream: StreamId,
        /// What it watches.
        spec: StreamSpec,
    },
    /// Stop a stream.
    StopStream(StreamId),
    /// Ask the API server what it serves.
    Discover,
    /// Call a guest.
    Call(Box<Call<G>>),
    /// Read from the API server for a guest.
    Read {
        /// Identifies the answer.
        read: ReadId,
        /// The controller whose guest asks.
        controller: Arc<str>,
        /// What to read.
        request: ReadRequest,
        /// What the API server serves.
        mapping: Arc<Mapping>,
    },
    /// Give a guest the answer to its read.
    Resume {
        /// The read.
        read: ReadId,
        /// What the API server holds.
        answer: ReadAnswer,
    },
    /// Execute a plan, unless it is withdrawn before it begins.
    Execute(Execute),
    /// Plans of a controller that have not begun must not begin any more. Each
    /// ends with an outcome nevertheless.
    Withdraw(ControllerId),
    /// Report to the log, the metrics, and whoever listens.
    Report(Report),
    /// Drop a guest that is not needed any more, off the machine's thread.
    Release(G),
}

/// A call into a guest.
#[derive(Debug)]
pub struct Call<G> {
    /// Identifies the answer.
    pub id: CallId,
    /// The name of the controller.
    pub controller: Arc<str>,
    /// The guest.
    pub guest: G,
    /// The time that the guest is shown.
    pub now: Now,
    /// What to decide about.
    pub items: Vec<WorkItem>,
    /// The cache.
    pub snapshot: Snapshot,
    /// The view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
    /// What waits in the queues.
    pub pending: PendingSnapshot,
    /// The controller's notes.
    pub notes: Notes,
    /// What the API server serves.
    pub mapping: Arc<Mapping>,
    /// The resources of which views may lack objects.
    pub unlisted: UnlistedByView,
}

/// A plan that is to be executed.
#[derive(Debug)]
pub struct Execute {
    /// Identifies the outcome.
    pub id: PlanId,
    /// The name of the controller.
    pub controller: String,
    /// The user in whose name it writes; the host's own if none.
    pub user: Option<String>,
    /// The name of the revision that decided it.
    pub revision: Arc<str>,
    /// Identifies the decision in logs and events.
    pub decision: String,
    /// The plan.
    pub plan: Arc<Plan>,
    /// What the API server serves.
    pub mapping: Arc<Mapping>,
}

/// A live read of a guest.
#[derive(Clone, Debug)]
pub enum ReadRequest {
    /// Some objects.
    Get(Vec<GetRequest>),
    /// A resource.
    List(ListRequest),
}

/// The answer to a live read.
#[derive(Clone, Debug)]
pub enum ReadAnswer {
    /// One result for each object, in their order.
    Get(Vec<Result<ObjectRecord, Failure>>),
    /// The objects of a resource.
    List(Result<Vec<ObjectRecord>, Failure>),
}
