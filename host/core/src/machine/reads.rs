//! Live reads of guests, and the refusals of the API server.

use std::sync::Arc;

use super::Machine;
use super::exchange::Effect;
use super::hosted::HostedController;
use super::report::Report;
use crate::account::Account;
use crate::controller::{CallId, ControllerId, Outcome, PlanId};
use crate::failure::{Failure, FailureClass};
use crate::live::{ReadAnswer, ReadId, ReadRequest};
use crate::rollout::Role;
use crate::time::Instant;

/// A live read whose answer is awaited.
#[derive(Debug)]
pub(super) struct Awaited {
    call: CallId,
    /// How many bytes of objects it may have. What reads ends early beyond it.
    room: usize,
}

impl<G: Clone> Machine<G> {
    /// A guest reads during a call. The read of a void call is not sent: its revision may
    /// have stopped because its account may not read.
    pub(super) fn handle_read_request(
        &mut self,
        now: Instant,
        read: ReadId,
        call: CallId,
        controller: Arc<str>,
        request: ReadRequest,
    ) {
        let hosted = self.controllers.get(&*controller);
        let caller = hosted.and_then(|hosted| Some((hosted, hosted.controller.as_ref()?)));
        let caller = caller.and_then(|(hosted, caller)| {
            let mapping = caller.mapping_of(call)?;
            let room = caller.live_read_room(call);
            Some((hosted.account.clone(), room, mapping))
        });
        if let Some(journal) = &mut self.outbox.journal {
            journal.note_read_request(read, call, &request);
        }
        let Some((account, room, mapping)) = caller else {
            self.resume(read, request.void());
            return;
        };
        // The guest has read that mapping during the call.
        let mapping = Arc::clone(mapping);
        self.note_live_read(now, &controller, &request);
        self.reads.insert(read, Awaited { call, room });
        self.outbox.push(Effect::Read {
            read,
            call,
            controller,
            account,
            request,
            mapping,
            most_bytes: room,
        });
    }

    /// A guest whose call is void gets its answer too: its instance is reused afterwards.
    /// Objects beyond the controller's bound are dropped, and the call fails when it ends.
    pub(super) fn handle_read(&mut self, now: Instant, read: ReadId, mut answer: ReadAnswer) {
        if let Some(Awaited { call, room }) = self.reads.remove(&read)
            && let Some((name, hosted)) = hosted(self.controllers.iter_mut(), call.controller)
        {
            answer.explain(hosted.account.as_ref());
            if let Some(failure) = answer.forbidden() {
                hosted.forbidden += 1;
                let caller = hosted.controller.as_ref();
                let caller = caller.and_then(|controller| controller.caller(call));
                if caller == Some(Role::Stable) {
                    hosted.note_refusal(&failure.message, now);
                }
                let log = &mut self.outbox.log;
                if let Some(suppressed) = log.read_failure(name, failure.class, now) {
                    self.outbox.report(Report::ReadForbidden {
                        controller: name.clone(),
                        failure: failure.clone(),
                        suppressed,
                    });
                }
            }
            if let Some(controller) = &mut hosted.controller {
                if let Some(pause) = answer.throttled_for() {
                    controller.handle_throttled_read(call, now.after(pause));
                }
                if let Err(exceeded) = controller.handle_live_read(call, answer.bytes(), room) {
                    let failure = Failure::new(FailureClass::Server, exceeded.to_string());
                    answer = answer.refused(&failure);
                }
            }
        }
        self.resume(read, answer);
    }

    fn resume(&mut self, read: ReadId, answer: ReadAnswer) {
        if let Some(journal) = &mut self.outbox.journal {
            journal.note_read(read, &answer);
        }
        self.outbox.push(Effect::Resume { read, answer });
    }

    /// Notes that the API server refused a write, and adds what an operator has to do.
    pub(super) fn note_refusal(&mut self, plan: PlanId, outcome: &mut Outcome, now: Instant) {
        let decided_by = self.outbox.revision_of(plan);
        if let Some((_, failure)) = &mut outcome.failed
            && failure.class == FailureClass::Forbidden
            && let Some((_, hosted)) = hosted(self.controllers.iter_mut(), plan.controller)
        {
            hosted.forbidden += 1;
            explain(failure, hosted.account.as_ref());
            let stable = hosted.controller.as_ref().map(|one| one.stable().name());
            if stable.is_some_and(|stable| decided_by.as_ref() == Some(stable)) {
                hosted.note_refusal(&failure.message, now);
            }
        }
    }
}

/// The controller of that id, with its name; none if it was removed.
fn hosted<'a, G: Clone + 'a>(
    mut all: impl Iterator<Item = (&'a String, &'a mut HostedController<G>)>,
    id: ControllerId,
) -> Option<(&'a String, &'a mut HostedController<G>)> {
    all.find(|(_, hosted)| hosted.controller.as_ref().is_some_and(|one| one.id() == id))
}

fn explain(failure: &mut Failure, account: Option<&Account>) {
    if let Some(account) = account {
        *failure = account.explain(failure.clone());
    }
}

impl ReadRequest {
    /// The answer to a read that is not sent.
    fn void(&self) -> ReadAnswer {
        let failure = || Failure::new(FailureClass::Server, "not read: the revision has stopped");
        match self {
            Self::Get(requests) => ReadAnswer::Get(vec![Err(failure()); requests.len()]),
            Self::List(_) => ReadAnswer::List(Err(failure())),
        }
    }
}

impl ReadAnswer {
    fn explain(&mut self, account: Option<&Account>) {
        let failures: Vec<&mut Failure> = match self {
            Self::Get(results) => results
                .iter_mut()
                .filter_map(|one| one.as_mut().err())
                .collect(),
            Self::List(result) => result.as_mut().err().into_iter().collect(),
        };
        for failure in failures {
            explain(failure, account);
        }
    }

    /// The first refusal because of permissions.
    fn forbidden(&self) -> Option<&Failure> {
        let is_it = |failure: &&Failure| failure.class == FailureClass::Forbidden;
        match self {
            Self::Get(results) => results
                .iter()
                .filter_map(|one| one.as_ref().err())
                .find(is_it),
            Self::List(result) => result.as_ref().err().filter(is_it),
        }
    }
}
