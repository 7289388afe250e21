//! What a host has in flight: requests, plans, live reads, and reads and writes of records.

use std::sync::Arc;

use davit_core::account::Account;
use davit_core::control::ReviewId;
use davit_core::controller::PlanId;
use davit_core::election::LeaseRequestId;
use davit_core::machine::ReadId;
use davit_core::object::ObjectRef;
use davit_core::plan::Plan;
use davit_core::record::{Owner, Record, RecordId};
use davit_core::request::plan::PlanExecution;
use davit_core::request::read::{Listing, ObjectReads};
use davit_core::request::record::RecordUpdate;
use davit_core::request::{Repeats, Request, RequestError, Route};
use davit_core::stream::StreamId;
use davit_core::time::Instant;
use davit_core::traffic::{Destination, Ticket, TurnRequest, Urgency};

use super::Notice;
use crate::server::Answer;

/// Identifies a plan in execution. Unlike a [`PlanId`], it is not used again by the next
/// host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ExecutionId(pub(super) u64);

/// Identifies a request that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallId(pub(super) u64);

/// Identifies a read or a write of a record. Unlike a [`RecordId`], it is not used again by
/// the next host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordWorkId(pub(super) u64);

/// The one who waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A page of a stream.
    Page(StreamId),
    /// A stream that opens a watch.
    Watch(StreamId),
    /// A plan.
    Execution(ExecutionId),
    /// A part of a live read.
    Read(ReadId, usize),
    /// A review of what an account may do.
    Review(ReviewId),
    /// Leader election.
    Lease(LeaseRequestId),
    /// A read or a write of a record.
    Record(RecordWorkId),
}

/// Who sends a request.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    /// The name of the controller; empty for the host itself.
    controller: Arc<str>,
    /// The account; none for the host's own.
    account: Option<Account>,
}

impl Sender {
    pub(super) fn new(controller: &str, account: Option<&Account>) -> Self {
        Self {
            controller: controller.into(),
            account: account.cloned(),
        }
    }

    /// The name of the controller; empty for the host itself.
    pub(super) fn controller(&self) -> &str {
        &self.controller
    }

    /// The host itself.
    pub(super) fn host() -> Self {
        Self::new("", None)
    }

    /// The user whom the request impersonates; empty if none.
    fn user(&self) -> String {
        self.account.as_ref().map(Account::user).unwrap_or_default()
    }
}

/// A request, with its turn in the traffic.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) caller: Caller,
    /// The user whom the request impersonates; empty if none.
    pub(super) user: String,
    pub(super) request: Request,
    pub(super) asked: TurnRequest,
    pub(super) repeats: Repeats,
    pub(super) ticket: Option<Ticket>,
    /// Whether the server may have executed it already.
    pub(super) may_be_executed: bool,
}

impl Call {
    /// A request that was not sent yet and has no turn.
    pub(super) fn new(caller: Caller, sender: &Sender, urgency: Urgency, request: Request) -> Self {
        Self {
            caller,
            user: sender.user(),
            asked: asked(sender, urgency, &request),
            request,
            repeats: Repeats::default(),
            ticket: None,
            may_be_executed: false,
        }
    }
}

/// A request that was sent and its answer.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) call: Call,
    pub(super) incarnation: u64,
    /// When the host sent it.
    pub(super) sent: Instant,
    /// Until when the host waits for the answer.
    pub(super) deadline: Instant,
    /// The answer, once the server has answered.
    pub(super) answer: Option<Answer>,
    /// Whether the host no longer waits for the server.
    pub(super) is_over: bool,
}

impl Exchange {
    /// The host gives up waiting.
    pub(super) fn end(&mut self, error: RequestError) {
        self.answer = Some(Answer::Body(Err(error)));
        self.is_over = true;
    }
}

/// A plan in execution, or waiting for its turn.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) id: PlanId,
    pub(super) sender: Sender,
    pub(super) plan: Arc<Plan>,
    pub(super) steps: PlanExecution,
    /// When the first request had its turn; none before.
    pub(super) started: Option<Instant>,
}

impl Execution {
    /// The target of the plan.
    pub(super) fn target(&self) -> &ObjectRef {
        &self.plan.target
    }
}

/// A live read without an answer yet.
#[derive(Debug)]
pub(super) enum LiveRead {
    Get {
        reader: Sender,
        reads: Box<ObjectReads>,
    },
    List {
        reader: Sender,
        listing: Box<Listing>,
    },
}

/// A read or a write of a record in the cluster, request by request.
#[derive(Debug)]
pub(super) struct RecordWork {
    pub(super) id: RecordId,
    pub(super) owner: Owner,
    /// The write; none for a read.
    pub(super) update: Option<RecordUpdate>,
    /// When the host stops waiting.
    pub(super) ends: Instant,
    /// The number of decisions in the record when the status was read or written.
    pub(super) written: Option<usize>,
}

/// A read or a write of a record in a file without an answer yet.
#[derive(Debug)]
pub(super) struct RecordCall {
    pub(super) incarnation: u64,
    pub(super) id: RecordId,
    pub(super) owner: Owner,
    /// The write; none for a read, and after the write.
    pub(super) record: Option<Record>,
    pub(super) answer: Option<Notice>,
}

impl RecordCall {
    /// Whether the answer is on its way to the host.
    pub(super) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }
}

fn asked(sender: &Sender, urgency: Urgency, request: &Request) -> TurnRequest {
    TurnRequest {
        controller: Arc::clone(&sender.controller),
        urgency,
        destination: Destination {
            user: sender.user().into(),
            group: Route::of(&request.uri).group.into(),
            access: request.access(urgency),
        },
    }
}
