//! The inputs and effects of the machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::report::Report;
use crate::account::Account;
use crate::circuit::CallFailure;
use crate::controller::{CallId, ControllerId, DecisionId, Outcome, PlanId};
use crate::coverage::UnlistedResourcesByView;
use crate::failure::Failure;
use crate::grant::Grant;
use crate::journal::AnswerCopy;
use crate::live::{ReadAnswer, ReadId, ReadRequest};
use crate::mapping::{Discovery, Mapping};
use crate::notes::Notes;
use crate::plan::{Decision, Plan, WorkItem};
use crate::queue::{EnqueueReason, PendingSnapshot};
use crate::request::plan::Undo;
use crate::rollout::Role;
use crate::store::{Snapshot, ViewId};
use crate::stream::{Batch, StreamId, StreamSpec};
use crate::time::Now;

/// An input of the machine.
#[derive(Debug)]
pub enum Input {
    /// A stream delivered updates.
    Stream(Batch),
    /// Whether the API server answers requests at all. Initially true.
    Reachable(bool),
    /// The answer to [`Effect::Discover`].
    Discovered(Result<Discovery, Failure>),
    /// The answer to [`Effect::Call`]: a decision for each item, in their order.
    Answered {
        /// The call.
        call: CallId,
        /// The decisions, or the failure.
        result: Result<Vec<Decision>, CallFailure>,
        /// The bytes that the guest logged during the call.
        logged: usize,
        /// The duration of the call.
        took: Duration,
        /// A copy for the journal, if [`Call::is_recorded`].
        copy: Option<Box<AnswerCopy>>,
    },
    /// A guest requests a live read during a call.
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
        /// The API server's answer.
        answer: ReadAnswer,
    },
    /// The outcome of [`Effect::Execute`].
    Executed {
        /// The plan.
        plan: PlanId,
        /// The outcome.
        outcome: Outcome,
        /// The duration of the execution, without the wait for its turn.
        took: Duration,
    },
    /// Stop: make no more calls and start no more plans. Plans that have started end.
    Stop,
}

/// An effect. The driver executes it and passes the result as an [`Input`].
#[derive(Debug)]
pub enum Effect<G> {
    /// Start a stream.
    StartStream {
        /// Identifies its updates.
        stream: StreamId,
        /// The resource and selectors.
        spec: StreamSpec,
    },
    /// Stop a stream.
    StopStream(StreamId),
    /// Request discovery from the API server.
    Discover,
    /// Call a guest.
    Call(Box<Call<G>>),
    /// Read from the API server for a guest.
    Read {
        /// Identifies the answer.
        read: ReadId,
        /// The call that reads.
        call: CallId,
        /// The controller of the guest.
        controller: Arc<str>,
        /// The account that reads; none for the host's own.
        account: Option<Account>,
        /// What to read.
        request: ReadRequest,
        /// The resources that the API server serves.
        mapping: Arc<Mapping>,
        /// The most bytes of objects that the machine accepts. The driver may stop as
        /// soon as it has more.
        most_bytes: usize,
    },
    /// Pass the answer of a live read to the guest.
    Resume {
        /// The read.
        read: ReadId,
        /// The API server's answer.
        answer: ReadAnswer,
    },
    /// Execute a plan, unless it is withdrawn before it starts.
    Execute(Execute),
    /// Withdraw the plans of a controller that have not started. Each still ends with
    /// an outcome.
    Withdraw(ControllerId),
    /// Report to the log, the metrics and observers.
    Report(Report),
    /// Drop a guest that is not needed any more, off the machine's thread.
    Release(G),
}

/// A call into a guest.
#[derive(Clone, Debug)]
pub struct Call<G> {
    /// Identifies the answer.
    pub id: CallId,
    /// The name of the controller.
    pub controller: Arc<str>,
    /// The name of the revision.
    pub revision: Arc<str>,
    /// Its role.
    pub role: Role,
    /// The guest.
    pub guest: G,
    /// The time that the guest reads.
    pub now: Now,
    /// The work items.
    pub items: Vec<WorkItem>,
    /// What made each item due; none for a page.
    pub reasons: Vec<EnqueueReason>,
    /// The decision whose next page the call asks for; none for new decisions.
    pub continues: Option<DecisionId>,
    /// The cache.
    pub snapshot: Snapshot,
    /// The view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
    /// The pending items of the queues.
    pub pending: PendingSnapshot,
    /// The controller's notes.
    pub notes: Notes,
    /// What the guest may read live.
    pub grant: Grant,
    /// The resources that the API server serves.
    pub mapping: Arc<Mapping>,
    /// The resources of which views may lack objects.
    pub unlisted: UnlistedResourcesByView,
    /// The bytes that the guest may log.
    pub log_bytes: usize,
    /// Whether a journal has the call: then its answer comes with a copy, and with what the
    /// guest read of its queues and notes.
    pub is_recorded: bool,
}

/// A plan to execute.
#[derive(Debug)]
pub struct Execute {
    /// Identifies the outcome.
    pub id: PlanId,
    /// The name of the controller.
    pub controller: String,
    /// The account that executes it; none for the host's own.
    pub account: Option<Account>,
    /// The name of the revision that decided it.
    pub revision: Arc<str>,
    /// The decision that it is a part of.
    pub decision: DecisionId,
    /// The plan.
    pub plan: Arc<Plan>,
    /// Whether its events are recorded.
    pub records_events: bool,
    /// The resources that the API server serves.
    pub mapping: Arc<Mapping>,
    /// What is kept before it is deleted; none for nothing.
    pub undo: Option<Undo>,
}
