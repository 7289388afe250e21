//! What a host has in flight: requests, plans, live reads, and reads and writes of records.

use davit_core::control::ReviewId;
use davit_core::controller::PlanId;
use davit_core::election::LeaseRequestId;
use davit_core::events::{Decision, SendId};
use davit_core::machine::ReadId;
use davit_core::object::ObjectRef;
use davit_core::record::{Owner, Record, RecordId};
use davit_core::request::call::{self, Course, Sender};
use davit_core::request::plan::PlanExecution;
use davit_core::request::read::{Listing, ObjectReads};
use davit_core::request::record::RecordUpdate;
use davit_core::request::{Request, RequestError};
use davit_core::stream::StreamId;
use davit_core::time::Instant;
use davit_core::traffic::Ticket;
use davit_core::undo::KeptObject;

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
    /// The recorder of events.
    Event(SendId),
}

/// What waits for its turn.
#[derive(Debug)]
pub(super) enum Waiter {
    /// A request.
    Call(Box<Call>),
    /// A plan that has not started.
    Plan(ExecutionId),
}

/// A request, with its turns in the traffic.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) caller: Caller,
    pub(super) sender: Sender,
    pub(super) request: Request,
    /// Decides when it is sent; none for a request without a turn.
    pub(super) turns: Option<call::Call<Ticket, Vec<u8>>>,
    /// Whether the server may have executed it already.
    pub(super) may_be_executed: bool,
}

impl Call {
    /// A request that was not sent yet and needs no turn.
    pub(super) fn new(caller: Caller, sender: &Sender, request: Request) -> Self {
        Self {
            caller,
            sender: sender.clone(),
            request,
            turns: None,
            may_be_executed: false,
        }
    }

    /// A request that was not sent yet and needs turns: the next one of a course.
    pub(super) fn in_turn(
        caller: Caller,
        sender: &Sender,
        course: &mut Course<Ticket>,
        request: Request,
    ) -> Self {
        Self {
            turns: Some(call::Call::new(&request, sender, course)),
            ..Self::new(caller, sender, request)
        }
    }

    /// The next request of a plan.
    pub(super) fn of_plan(
        caller: Caller,
        steps: &mut PlanExecution<Ticket>,
        request: Request,
    ) -> Self {
        Self {
            turns: Some(steps.call(&request)),
            ..Self::new(caller, steps.sender(), request)
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
    /// The decision that its events name; none if they are not recorded.
    pub(super) decision: Option<Decision>,
    pub(super) steps: PlanExecution<Ticket>,
    /// The copy of its target, while the disk does not have it.
    pub(super) copy: Option<Box<KeptObject>>,
}

impl Execution {
    /// The target of the plan.
    pub(super) fn target(&self) -> &ObjectRef {
        &self.steps.plan().target
    }

    /// The controller that decided it.
    pub(super) fn controller(&self) -> &str {
        &self.steps.sender().controller
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
