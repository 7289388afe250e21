//! Calls into guests, and the live reads that they make.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use davit_cluster::api::Api;
use davit_cluster::live;
use davit_cluster::tasks::caught;
use davit_core::account::Account;
use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::controller::{CallId, DecisionId};
use davit_core::failure::{Failure, FailureClass};
use davit_core::journal::{AnswerCopy, SnapshotReads};
use davit_core::machine::{Call, Input, ReadAnswer, ReadId, ReadRequest};
use davit_core::mapping::Mapping;
use davit_engine::{CallError, Guest, LazyDecision, LiveReads, LoggedDecision};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use super::decision::DecisionNames;
use super::message::{LiveRead, Message};
use super::traces::ReadTrace;

/// Makes the calls.
pub(super) struct Caller {
    api: Api,
    names: DecisionNames,
    inbox: mpsc::UnboundedSender<Message>,
    /// The guests that wait for a read.
    waiting: BTreeMap<ReadId, oneshot::Sender<ReadAnswer>>,
    last_read: u64,
}

/// Who makes a live read.
pub(super) struct Reader<'a> {
    pub(super) controller: &'a str,
    /// None for the host's own.
    pub(super) account: Option<&'a Account>,
    /// The trace of the read, if there is one.
    pub(super) trace: Option<ReadTrace>,
}

impl Caller {
    pub(super) fn new(
        api: Api,
        names: DecisionNames,
        inbox: mpsc::UnboundedSender<Message>,
    ) -> Self {
        Self {
            api,
            names,
            inbox,
            waiting: BTreeMap::new(),
            last_read: 0,
        }
    }

    pub(super) fn call(&self, call: Call<Arc<Guest>>) {
        let id = call.id;
        let logged = Arc::new(AtomicUsize::new(0));
        let live = CallReads {
            call: id,
            controller: Arc::clone(&call.controller),
            inbox: self.inbox.clone(),
        };
        let first = DecisionId {
            call: id,
            position: 0,
        };
        let decision = call.continues.unwrap_or(first);
        let reads: Option<Arc<Mutex<SnapshotReads>>> = call.is_recorded.then(Arc::default);
        let (guest, call) = davit_engine::Call::of(call, Arc::new(live));
        let call = davit_engine::Call {
            decision: Some(logged_decision(self.names.clone(), decision)),
            logged: Arc::clone(&logged),
            reads: reads.clone(),
            ..call
        };
        let inbox = self.inbox.clone();
        tokio::spawn(async move {
            let started = tokio::time::Instant::now();
            let result = match caught(guest.reconcile(call)).await {
                Ok(result) => result.map_err(|error| call_failure(&error)),
                Err(panic) => Err(CallFailure::new(CallFailureKind::Trap, panic)),
            };
            let took = started.elapsed();
            let copy = reads.map(|reads| {
                let mut reads = reads.lock().unwrap_or_else(PoisonError::into_inner);
                AnswerCopy::of(&result, std::mem::take(&mut reads)).into()
            });
            let input = Input::Answered {
                call: id,
                result,
                logged: logged.load(Ordering::Relaxed),
                took,
                copy,
            };
            // The host may have stopped.
            let _ = inbox.send(input.into());
        });
    }

    /// A guest requests a read.
    pub(super) fn request(&mut self, read: LiveRead) -> Input {
        self.last_read += 1;
        let id = ReadId(self.last_read);
        self.waiting.insert(id, read.answer);
        Input::ReadRequested {
            read: id,
            call: read.call,
            controller: read.controller,
            request: read.request,
        }
    }

    pub(super) fn read(
        &self,
        read: ReadId,
        reader: Reader<'_>,
        request: ReadRequest,
        mapping: Arc<Mapping>,
        most_bytes: usize,
    ) {
        let Reader {
            controller,
            account,
            trace,
        } = reader;
        let journal = trace.as_ref().map(ReadTrace::journal);
        let api = self.api.on_behalf_of(controller, account);
        let (api, inbox) = (api.journaled(journal), self.inbox.clone());
        tokio::spawn(async move {
            let answer = match request {
                ReadRequest::Get(requests) => {
                    let objects = caught(live::get(&api, &mapping, &requests, most_bytes)).await;
                    let each = |panic: String| vec![Err(unanswered(&panic)); requests.len()];
                    ReadAnswer::Get(objects.unwrap_or_else(each))
                }
                ReadRequest::List(request) => {
                    let objects = caught(live::list(&api, &mapping, &request, most_bytes)).await;
                    ReadAnswer::List(objects.unwrap_or_else(|panic| Err(unanswered(&panic))))
                }
            };
            if let Some(trace) = trace {
                trace.end(&answer, api.clock().instant());
            }
            let _ = inbox.send(Input::ReadDone { read, answer }.into());
        });
    }

    pub(super) fn resume(&mut self, read: ReadId, answer: ReadAnswer) {
        if let Some(guest) = self.waiting.remove(&read) {
            // The call may have been cancelled.
            let _ = guest.send(answer);
        }
    }
}

/// A decision as the lines of the guest's log name it.
fn logged_decision(names: DecisionNames, id: DecisionId) -> LazyDecision {
    LazyLock::new(Box::new(move || {
        let name = names.name(id);
        LoggedDecision {
            trace_id: name.ids().trace_text(),
            name: name.into_text(),
        }
    }))
}

/// The failure of a call, by kind.
pub(crate) fn call_failure(error: &CallError) -> CallFailure {
    let kind = match error {
        CallError::Trap(_) => CallFailureKind::Trap,
        CallError::Deadline { .. } => CallFailureKind::Timeout,
        CallError::Memory { .. } => CallFailureKind::Memory,
        CallError::TooLarge { .. } => CallFailureKind::Flood,
        CallError::Malformed(_) => CallFailureKind::Malformed,
        CallError::Restart(_) => CallFailureKind::Start,
    };
    match error {
        CallError::Trap(report) => {
            let message = format!("the guest trapped: {}", report.message);
            CallFailure::new(kind, message).saying(report.guest_message())
        }
        error => CallFailure::new(kind, error.to_string()),
    }
}

/// The live reads of one call.
struct CallReads {
    call: CallId,
    controller: Arc<str>,
    inbox: mpsc::UnboundedSender<Message>,
}

impl LiveReads for CallReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let stopped = request.failed(&unanswered(STOPPED));
        let (answer, answered) = oneshot::channel();
        let read = LiveRead {
            call: self.call,
            controller: Arc::clone(&self.controller),
            request,
            answer,
        };
        let _ = self.inbox.send(Message::Read(read));
        Box::pin(async move { answered.await.unwrap_or(stopped) })
    }
}

/// The failure of a read when the host stops. The call has no answer either, so the guest
/// never sees it.
const STOPPED: &str = "the host has stopped";

fn unanswered(why: &str) -> Failure {
    let message = format!("read from the API server: {why}");
    Failure::new(FailureClass::Server, message)
}
