//! Calls into guests.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::controller::CallId;
use davit_core::journal::{AnswerCopy, SnapshotReads};
use davit_core::machine::{Call, Input, ReadAnswer, ReadId};
use davit_core::time::Instant;

use super::{Driver, Reminder};
use crate::fault::FaultKind;
use crate::guest::{Guest, Reconciliation};

/// A call without an answer yet.
#[derive(Debug)]
pub(super) struct CallInFlight {
    call: Box<Call<Guest>>,
    answers: Vec<ReadAnswer>,
    started: Instant,
    next: Option<Reconciliation>,
    /// What the guest read of queues and notes, if a journal has the call.
    reads: Option<RefCell<SnapshotReads>>,
}

impl Driver<'_> {
    pub(super) fn call(&mut self, call: Box<Call<Guest>>) {
        let Guest {
            revision, manifest, ..
        } = &call.guest;
        let records = self.world.records();
        for problem in self
            .host
            .watchdog
            .calls(&call.controller, revision, manifest, records)
        {
            self.world.violated(problem);
        }
        let id = call.id;
        let reads = call.is_recorded.then(RefCell::default);
        if let Some(recording) = &mut self.host.recording {
            recording.add_guest(&call.guest);
        }
        let in_flight = CallInFlight {
            call,
            answers: Vec::new(),
            started: self.world.instant(),
            next: None,
            reads,
        };
        self.host.calls.insert(id, in_flight);
        self.compute(id);
    }

    /// Lets the guest decide. The result arrives after a while.
    fn compute(&mut self, id: CallId) {
        let traps = self.host.trap > 0.0 && self.world.dice().chance(self.host.trap);
        let Some(in_flight) = self.host.calls.get_mut(&id) else {
            return;
        };
        in_flight.next = Some(if traps {
            self.world.count(FaultKind::Trap);
            let trap = CallFailure::new(CallFailureKind::Trap, "a fault of the simulation");
            Reconciliation::Failed(trap)
        } else {
            let native = &in_flight.call.guest.native;
            let reads = in_flight.reads.as_ref();
            native.reconcile(&in_flight.call, &in_flight.answers, reads)
        });
        // Some calls last while other things happen.
        let longest = if self.world.dice().chance(0.1) {
            Duration::from_secs(2)
        } else {
            Duration::from_millis(5)
        };
        let range = Duration::from_micros(50)..longest;
        let took = self.world.dice().duration(&range);
        self.remind(took, Reminder::Computed(id));
    }

    pub(super) fn resume(&mut self, read: ReadId, answer: ReadAnswer) {
        if let Some(id) = self.host.reads.remove(&read)
            && let Some(in_flight) = self.host.calls.get_mut(&id)
        {
            in_flight.answers.push(answer);
            self.compute(id);
        }
    }

    /// The guest's result arrives.
    pub(super) fn computed(&mut self, id: CallId) {
        let now = self.world.instant();
        let Some(in_flight) = self.host.calls.get_mut(&id) else {
            return;
        };
        let took = now.since(in_flight.started);
        let result = match in_flight.next.take() {
            Some(Reconciliation::Reads(request)) => {
                self.host.last_id += 1;
                let read = ReadId(self.host.last_id);
                let controller = Arc::clone(&in_flight.call.controller);
                self.host.reads.insert(read, id);
                self.handle(Input::ReadRequested {
                    read,
                    call: id,
                    controller,
                    request,
                });
                return;
            }
            Some(Reconciliation::Decided(decisions)) => Ok(decisions),
            Some(Reconciliation::Failed(failure)) => Err(failure),
            None => return,
        };
        let ended = self.host.calls.remove(&id);
        let reads = ended.and_then(|ended| ended.reads);
        let copy = reads.map(|reads| AnswerCopy::of(&result, reads.into_inner()).into());
        self.handle(Input::Answered {
            call: id,
            result,
            logged: 0,
            took,
            copy,
        });
    }
}
