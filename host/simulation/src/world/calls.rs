//! Requests: their turns, their way to the server, and the way of the answers.

use std::sync::Arc;
use std::time::Duration;

use davit_core::election::LeaseTiming;
use davit_core::request::call::{self, Course, Sender};
use davit_core::request::{Method, NoAnswer, Request, RequestError};
use davit_core::time::Instant;
use davit_core::traffic::{LoadSignal, Ticket, Turn, TurnRequest, Urgency};

use super::in_flight::{Call, CallId, Caller, Exchange, Execution, Waiter};
use super::{Link, Notice, ScheduledEvent, Write};
use crate::fault::FaultKind;
use crate::server::{Answer, unreachable};

/// How long the host waits for an answer. An open watch has no limit.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time between two checks for turns.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

type CallAction = call::CallAction<Ticket, Vec<u8>>;
/// What the caller learns.
type CallResult = (Caller, Result<Vec<u8>, RequestError>);

impl Link<'_> {
    /// Sends a request of a stream, which waits for no turn.
    pub(super) fn send_at_once(&mut self, caller: Caller, request: Request) {
        self.send(Call::new(caller, &Sender::default(), request));
    }

    /// Sends a request when it has its turn.
    pub(super) fn ask(
        &mut self,
        caller: Caller,
        sender: &Sender,
        urgency: Urgency,
        request: Request,
    ) {
        let call = Call::in_turn(caller, sender, &mut Course::new(urgency), request);
        self.start_call(call);
    }

    /// Starts a call.
    pub(super) fn start_call(&mut self, mut call: Call) {
        let Some(next) = call.turns.as_mut().map(call::Call::proceed) else {
            return;
        };
        if let Some((caller, result)) = self.proceed_with(call, next) {
            self.deliver_answer(caller, &result);
        }
    }

    /// Joins a line.
    pub(super) fn wait(&mut self, turn: TurnRequest, waiting: Waiter) {
        let ticket = self.client.traffic.ask(turn, self.shared.instant);
        self.client.waiting.insert(ticket, waiting);
        self.give_turns();
    }

    /// Ends a turn in which nothing was sent.
    pub(super) fn end_unused(&mut self, ticket: Ticket) {
        let (now, unknown) = (self.shared.instant, LoadSignal::Unknown);
        self.client.traffic.end(ticket, "", unknown, now);
    }

    /// Executes the actions of a call until it needs a turn, an answer or nothing more.
    /// Returns its result if it has ended.
    fn proceed_with(&mut self, mut call: Call, mut next: CallAction) -> Option<CallResult> {
        let now = self.shared.instant;
        loop {
            let turns = call.turns.as_mut()?;
            next = match next {
                CallAction::Wait(turn) => {
                    self.wait(turn, Waiter::Call(call.into()));
                    return None;
                }
                CallAction::CheckTerm => turns.handle_term(self.may_send(call.caller)),
                CallAction::Send => {
                    self.send(call);
                    return None;
                }
                CallAction::EndTurn(end) => {
                    let traffic = &mut self.client.traffic;
                    if let Some((destination, pause)) = end.pause {
                        traffic.pause(destination, pause, now);
                    }
                    traffic.end(end.permit, &call.request.kind(), end.signal, now);
                    turns.proceed()
                }
                CallAction::Done(result) => return Some((call.caller, result)),
            };
        }
    }

    /// What is gone waits no more.
    pub(super) fn leave_lines(&mut self, leaves: impl Fn(&Waiter) -> bool) {
        let waiting = &mut self.client.waiting;
        let gone: Vec<Ticket> = waiting
            .extract_if(.., |_, waiting| leaves(waiting))
            .map(|(ticket, _)| ticket)
            .collect();
        for ticket in gone {
            self.end_unused(ticket);
        }
        self.give_turns();
    }

    /// Sends the requests that have their turn.
    pub(super) fn give_turns(&mut self) {
        let now = self.shared.instant;
        while let Some((ticket, turn)) = self.client.traffic.poll_turn(now) {
            let turn = match turn {
                Turn::Go => Ok(ticket),
                Turn::Paused(left) => Err(left),
            };
            match self.client.waiting.remove(&ticket) {
                Some(Waiter::Plan(id)) => self.plan_turn(id, turn),
                Some(Waiter::Call(mut call)) => {
                    let Some(turns) = &mut call.turns else {
                        continue;
                    };
                    let next = turns.handle_turn(turn);
                    if let Some((caller, result)) = self.proceed_with(*call, next) {
                        self.deliver_answer(caller, &result);
                    }
                }
                None => {}
            }
        }
        if let Some(at) = self.client.traffic.poll_timeout(now) {
            let at = at.min(now.after(LONGEST_SLEEP));
            self.schedule_at(at, ScheduledEvent::Turns);
        }
    }

    pub(super) fn send(&mut self, call: Call) {
        self.check_lease(&call);
        let id = CallId(self.shared.fresh_id());
        let mut way = match call.caller {
            Caller::Record(_) => self.record_latency(),
            _ => self.shared.latency(),
        };
        if self.shared.dice.chance(self.shared.conditions.hold_up) {
            way += self.shared.dice.duration(&self.shared.conditions.holdup);
            self.shared.count(FaultKind::LateRequest);
        }
        let deadline = self.deadline(&call);
        let mut exchange = Exchange {
            call,
            incarnation: self.client.incarnation,
            sent: self.shared.instant,
            deadline,
            answer: None,
            is_over: false,
        };
        let is_lost =
            self.shared.conditions.no_leases && matches!(exchange.call.caller, Caller::Lease(_));
        if self.shared.dice.chance(self.shared.conditions.unreachable) || is_lost {
            exchange.end(unreachable());
            self.shared.count(FaultKind::NoConnection);
            self.schedule(way, ScheduledEvent::Answer(id));
        } else if self.client.cut.requests {
            exchange.end(silence());
            self.shared.count(FaultKind::LostRequest);
            self.schedule_at(deadline, ScheduledEvent::Answer(id));
        } else {
            let is_record = matches!(exchange.call.caller, Caller::Record(_));
            if is_record && self.shared.instant.after(way) > deadline {
                let late = (exchange.call.request.clone(), exchange.sent);
                self.client.late_records.insert(id, late);
                exchange.end(silence());
                self.schedule_at(deadline, ScheduledEvent::Answer(id));
            }
            self.schedule(way, ScheduledEvent::Arrive(id));
        }
        self.client.exchanges.insert(id, exchange);
    }

    /// Until when the host waits for the answer to a request that is sent now.
    fn deadline(&self, call: &Call) -> Instant {
        let now = self.shared.instant;
        match call.caller {
            Caller::Lease(_) => now.after(LeaseTiming::default().retry_period),
            Caller::Execution(_) => {
                let end = self.work_ends(&call.sender.controller);
                now.after(REQUEST_TIMEOUT).min(end)
            }
            Caller::Record(work) => self.record_deadline(work),
            _ => now.after(REQUEST_TIMEOUT),
        }
    }

    /// A request reaches the server, even if the host has crashed since.
    pub(super) fn arrive(&mut self, id: CallId) {
        if let Some((request, sent)) = self.client.late_records.remove(&id) {
            self.execute_record(None, &request, sent);
            return;
        }
        let time = self.shared.time();
        let Some(exchange) = self.client.exchanges.get_mut(&id) else {
            return;
        };
        if exchange.call.may_be_executed {
            let what = format!(
                "{} is sent again, and the server may have executed it",
                exchange.call.request
            );
            self.shared.violated(what);
            return;
        }
        if let Caller::Record(work) = exchange.call.caller {
            self.record_arrives(id, work);
            return;
        }
        let call = &exchange.call;
        let arrival = self
            .shared
            .server
            .arrive(time, &call.request, &call.sender.user);
        for fault in &arrival.faults {
            self.shared.count(*fault);
        }
        self.shared.trace.note(
            self.shared.instant,
            format_args!(
                "{}{} {} {}",
                if call.sender.controller.is_empty() {
                    ""
                } else {
                    "> "
                },
                call.sender.controller,
                call.request,
                arrival.code
            ),
        );
        if matches!(call.caller, Caller::Execution(_)) && call.request.method != Method::Get {
            self.shared.writes.push(Write {
                at: self.shared.instant,
                controller: Arc::clone(&call.sender.controller),
                work: arrival.work,
                code: arrival.code,
            });
        }
        if let Caller::Execution(id) = call.caller
            && let Some(target) = self.client.executions.get(&id).map(Execution::target)
            && !arrival.written.is_empty()
            && arrival.written != target.uid
        {
            let what = format!("a plan for {target} changes the uid {}", arrival.written);
            self.shared.violations.push(what);
        }
        let is_watch = matches!(arrival.answer, Answer::Watch(..));
        // Of all answers, only 429 says that the server did not execute the request.
        exchange.call.may_be_executed = call_is_write(exchange) && arrival.code != 429;
        exchange.answer = Some(arrival.answer);
        let back = self.shared.latency() + arrival.delay;
        let mut at = self.shared.instant.after(back);
        if !is_watch && at > exchange.deadline {
            exchange.end(silence());
            at = exchange.deadline.max(self.shared.instant);
        }
        self.schedule_at(at, ScheduledEvent::Answer(id));
    }

    /// An answer reaches the host.
    pub(super) fn answer(&mut self, id: CallId) {
        let Some(mut exchange) = self.client.exchanges.remove(&id) else {
            return;
        };
        if exchange.incarnation != self.client.incarnation {
            return;
        }
        if self.client.cut.answers && !exchange.is_over {
            self.shared.count(FaultKind::LostAnswer);
            let at = exchange.deadline.max(self.shared.instant);
            exchange.end(silence());
            self.client.exchanges.insert(id, exchange);
            self.schedule_at(at, ScheduledEvent::Answer(id));
            return;
        }
        let Some(answer) = exchange.answer else {
            return;
        };
        let mut call = exchange.call;
        let result = match answer {
            Answer::Watch(start, planned) => {
                self.note_answer();
                if let Caller::Watch(stream) = call.caller {
                    self.watch_opened(stream, id, *start, planned);
                }
                return;
            }
            Answer::Body(result) => result,
        };
        self.note_result(&result);
        if let Caller::Record(work) = call.caller {
            let answer = Notice::RecordAnswered {
                work,
                answer: result,
            };
            self.client.notices.push_back(answer);
            return;
        }
        if let Caller::Page(stream) | Caller::Watch(stream) = call.caller {
            self.stream_answered(stream, id, call.caller, result);
            return;
        }
        let Some(turns) = &mut call.turns else {
            return;
        };
        let next = turns.handle_answer(result);
        if let Some((caller, result)) = self.proceed_with(call, next) {
            self.deliver_answer(caller, &result);
            self.give_turns();
        }
    }

    fn deliver_answer(&mut self, caller: Caller, result: &Result<Vec<u8>, RequestError>) {
        match caller {
            Caller::Execution(execution) => self.execution_answered(execution, result.as_ref()),
            Caller::Read(read, part) => self.read_answered(read, part, result),
            Caller::Review(id) => self.review_answered(id, result),
            Caller::Lease(id) => self.lease_answered(id, result),
            Caller::Event(id) => self.event_answered(id, result),
            Caller::Page(_) | Caller::Watch(_) | Caller::Record(_) => {}
        }
    }

    /// The last request that was sent.
    pub(super) fn last_call(&self) -> CallId {
        CallId(self.shared.last_id)
    }
}

fn call_is_write(exchange: &Exchange) -> bool {
    exchange.call.request.method != Method::Get
}

pub(super) fn silence() -> RequestError {
    RequestError::NoAnswer(NoAnswer::silence(REQUEST_TIMEOUT))
}
