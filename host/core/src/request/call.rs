//! One request and its repeats: when it waits for its turn, when it is sent, what its
//! answer means for the traffic, and whether it is sent again.

use std::sync::Arc;
use std::time::Duration;

use super::{Method, Repeats, Request, RequestError, Route};
use crate::account::Account;
use crate::traffic::{Access, Destination, LoadSignal, TurnRequest, Urgency};

/// Who sends a request.
#[derive(Clone, Debug)]
pub struct Sender {
    /// The controller; empty for the host itself.
    pub controller: Arc<str>,
    /// The user whom the request impersonates; empty for the host's own.
    pub user: Arc<str>,
}

/// The host itself.
impl Default for Sender {
    fn default() -> Self {
        Self::new("", None)
    }
}

impl Sender {
    /// The controller of this name, which writes and reads as the account.
    #[must_use]
    pub fn new(controller: &str, account: Option<&Account>) -> Self {
        Self {
            controller: controller.into(),
            user: account.map_or_else(|| "".into(), |account| account.user().into()),
        }
    }

    /// The turn of a plan whose first request writes to this API group.
    #[must_use]
    pub fn beginning(&self, group: &str) -> TurnRequest {
        self.turn(group.into(), Access::Write, Urgency::Begin)
    }

    fn turn(&self, group: Arc<str>, access: Access, urgency: Urgency) -> TurnRequest {
        TurnRequest {
            controller: Arc::clone(&self.controller),
            urgency,
            destination: Destination {
                user: Arc::clone(&self.user),
                group,
                access,
            },
        }
    }
}

/// The priority of requests that belong together, such as those of a plan, and the
/// permit of the first one.
#[derive(Debug)]
pub struct Course<P> {
    urgency: Urgency,
    /// The permit of the next request, if it was given in advance.
    permit: Option<P>,
}

impl<P> Course<P> {
    /// Each request waits for its own turn.
    #[must_use]
    pub fn new(urgency: Urgency) -> Self {
        Self {
            urgency,
            permit: None,
        }
    }

    /// A plan has had its turn: the permit is that of its first request.
    #[must_use]
    pub fn started(permit: P) -> Self {
        Self {
            urgency: Urgency::Finish,
            permit: Some(permit),
        }
    }

    /// Takes the permit that no request has used.
    pub(super) fn take_permit(&mut self) -> Option<P> {
        self.permit.take()
    }
}

/// One request and its repeats.
///
/// The driver executes a [`CallAction`] and passes its result to [`Call::handle_turn`],
/// [`Call::handle_term`] or [`Call::handle_answer`], until the call is done. `P` is the
/// driver's permit for a turn: each comes back in [`CallAction::EndTurn`].
#[derive(Debug)]
pub struct Call<P, B> {
    method: Method,
    turn: TurnRequest,
    repeats: Repeats,
    state: State<P, B>,
}

#[derive(Debug)]
enum State<P, B> {
    /// The request waits for its turn.
    Waiting,
    /// It has its turn. The term may have ended meanwhile.
    Granted(P),
    /// It is under way.
    Sent(P),
    /// Its turn is over. It is sent again unless there is a result.
    TurnOver(TurnEnd<P>, Option<Result<B, RequestError>>),
    /// It is not sent again.
    Ended(Result<B, RequestError>),
    /// The driver has the result.
    Done,
}

/// The end of a turn.
#[derive(Debug)]
pub struct TurnEnd<P> {
    /// The permit.
    pub permit: P,
    /// What the request shows about the server's load.
    pub signal: LoadSignal,
    /// How long requests to a destination have to wait. The pause starts before the permit
    /// ends: the next request may have the same destination.
    pub pause: Option<(Destination, Duration)>,
}

/// The next action.
#[derive(Debug)]
pub enum CallAction<P, B> {
    /// Wait for this turn, and pass the permit to [`Call::handle_turn`].
    Wait(TurnRequest),
    /// Check whether requests may be sent now, and pass that to [`Call::handle_term`].
    CheckTerm,
    /// Send the request, and pass its answer to [`Call::handle_answer`].
    Send,
    /// End this turn, and continue with [`Call::proceed`].
    EndTurn(TurnEnd<P>),
    /// The call has ended.
    Done(Result<B, RequestError>),
}

impl<P, B> Call<P, B> {
    /// The next request of a course. [`Self::proceed`] returns the first action.
    #[must_use]
    pub fn new(request: &Request, sender: &Sender, course: &mut Course<P>) -> Self {
        let group = Route::of(&request.uri).group.into();
        let urgency = course.urgency;
        Self {
            method: request.method,
            turn: sender.turn(group, request.access(urgency), urgency),
            repeats: Repeats::default(),
            state: course.permit.take().map_or(State::Waiting, State::Granted),
        }
    }

    /// The next action. Until the input that it asks for, the action stays the same.
    pub fn proceed(&mut self) -> CallAction<P, B> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Waiting => {
                self.state = State::Waiting;
                CallAction::Wait(self.turn.clone())
            }
            State::Granted(permit) => {
                self.state = State::Granted(permit);
                CallAction::CheckTerm
            }
            State::Sent(permit) => {
                self.state = State::Sent(permit);
                CallAction::Send
            }
            State::TurnOver(end, result) => {
                self.state = result.map_or(State::Waiting, State::Ended);
                CallAction::EndTurn(end)
            }
            State::Ended(result) => CallAction::Done(result),
            State::Done => CallAction::Done(Err(RequestError::over())),
        }
    }

    /// The request has its turn, or would have to wait too long: for the rest of a pause
    /// of the server.
    pub fn handle_turn(&mut self, turn: Result<P, Duration>) -> CallAction<P, B> {
        if matches!(self.state, State::Waiting) {
            self.state = match turn {
                Ok(permit) => State::Granted(permit),
                Err(left) => State::Ended(Err(RequestError::Paused(left))),
            };
        }
        self.proceed()
    }

    /// Whether this replica may send requests for the controller now.
    pub fn handle_term(&mut self, holds: bool) -> CallAction<P, B> {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Granted(permit) if holds => State::Sent(permit),
            State::Granted(permit) => {
                let end = TurnEnd {
                    permit,
                    signal: LoadSignal::Unknown,
                    pause: None,
                };
                State::TurnOver(end, Some(Err(RequestError::term_over(true))))
            }
            other => other,
        };
        self.proceed()
    }

    /// The answer to the request.
    pub fn handle_answer(&mut self, answer: Result<B, RequestError>) -> CallAction<P, B> {
        self.state = match std::mem::replace(&mut self.state, State::Done) {
            State::Sent(permit) => {
                let signal = RequestError::ended(&answer);
                let error = answer.as_ref().err();
                let pause = error.and_then(RequestError::overload_pause);
                let pause = pause.map(|pause| (self.turn.destination.clone(), pause));
                let may_repeat =
                    error.is_some_and(|error| self.repeats.may_repeat(self.method, error));
                let end = TurnEnd {
                    permit,
                    signal,
                    pause,
                };
                State::TurnOver(end, (!may_repeat).then_some(answer))
            }
            other => other,
        };
        self.proceed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::ErrorResponse;
    use crate::request::{Cause, JSON, NoAnswer};

    /// A permit is a number: the tests see which one ends.
    type TestCall = Call<u32, &'static str>;
    type Action = CallAction<u32, &'static str>;

    fn request(method: Method) -> Request {
        Request {
            method,
            uri: "/apis/example.com/v1/namespaces/shop/things/a".to_owned(),
            accept: JSON,
            content_type: "",
            body: Vec::new(),
        }
    }

    fn sender() -> Sender {
        let account = Account {
            namespace: "shop".to_owned(),
            name: "cleaner".to_owned(),
        };
        Sender::new("podgc", Some(&account))
    }

    fn call(method: Method, course: &mut Course<u32>) -> TestCall {
        Call::new(&request(method), &sender(), course)
    }

    fn finish(method: Method) -> TestCall {
        call(method, &mut Course::new(Urgency::Finish))
    }

    /// A call whose request is under way, with this permit.
    fn sent(mut call: TestCall, permit: u32) -> TestCall {
        assert!(matches!(call.proceed(), CallAction::Wait(_)));
        send(&mut call, permit);
        call
    }

    fn send(call: &mut TestCall, permit: u32) {
        assert!(matches!(
            call.handle_turn(Ok(permit)),
            CallAction::CheckTerm
        ));
        assert!(matches!(call.handle_term(true), CallAction::Send));
    }

    fn end(action: Action) -> TurnEnd<u32> {
        let CallAction::EndTurn(end) = action else {
            panic!("{action:?} ends no turn");
        };
        end
    }

    fn result(action: Action) -> Result<&'static str, RequestError> {
        let CallAction::Done(result) = action else {
            panic!("{action:?} is not the end");
        };
        result
    }

    fn refused(code: u16, retry_after: Option<u64>) -> RequestError {
        let pause = retry_after.map(Duration::from_secs);
        RequestError::Refused(Box::new(ErrorResponse::read(code, pause, b"")))
    }

    fn no_answer(cause: Cause, unsent: bool) -> RequestError {
        RequestError::NoAnswer(NoAnswer {
            cause,
            unsent,
            detail: String::new(),
        })
    }

    #[test]
    fn a_request_waits_for_its_turn_and_ends_with_its_answer() {
        let mut call = finish(Method::Patch);
        let CallAction::Wait(turn) = call.proceed() else {
            panic!("it waits for no turn");
        };
        let expected = TurnRequest {
            controller: "podgc".into(),
            urgency: Urgency::Finish,
            destination: Destination {
                user: "system:serviceaccount:shop:cleaner".into(),
                group: "example.com".into(),
                access: Access::Write,
            },
        };
        assert_eq!(turn, expected);
        send(&mut call, 1);
        let end = end(call.handle_answer(Ok("body")));
        assert_eq!((end.permit, end.signal), (1, LoadSignal::Answered));
        assert_eq!(end.pause, None);
        assert_eq!(result(call.proceed()).unwrap(), "body");
    }

    #[test]
    fn without_a_turn_in_time_nothing_is_sent() {
        let mut call = finish(Method::Delete);
        call.proceed();
        let left = Duration::from_secs(30);
        let result = result(call.handle_turn(Err(left)));
        assert!(matches!(result, Err(RequestError::Paused(for_long)) if for_long == left));
    }

    /// The permit ends although nothing was sent, and proves nothing about the server.
    #[test]
    fn after_the_term_nothing_is_sent() {
        for mut call in [
            finish(Method::Delete),
            call(Method::Delete, &mut Course::started(7)),
        ] {
            if matches!(call.proceed(), CallAction::Wait(_)) {
                call.handle_turn(Ok(7));
            }
            let end = end(call.handle_term(false));
            assert_eq!((end.permit, end.signal), (7, LoadSignal::Unknown));
            assert_eq!(end.pause, None);
            let Err(RequestError::NoAnswer(error)) = result(call.proceed()) else {
                panic!("the term is over");
            };
            assert!(error.unsent);
        }
    }

    /// The term may end between a request and its repeat.
    #[test]
    fn a_repeat_waits_for_a_turn_and_is_checked_like_the_first_request() {
        let mut call = sent(finish(Method::Delete), 1);
        end(call.handle_answer(Err(refused(429, Some(1)))));
        assert!(matches!(call.proceed(), CallAction::Wait(_)));
        assert!(matches!(call.handle_turn(Ok(2)), CallAction::CheckTerm));
        assert_eq!(end(call.handle_term(false)).permit, 2);
        assert!(result(call.proceed()).is_err());
    }

    #[test]
    fn the_servers_pause_holds_for_the_destination_before_the_repeat() {
        let mut call = sent(finish(Method::Delete), 1);
        for permit in 1..=5 {
            let end = end(call.handle_answer(Err(refused(429, Some(2)))));
            assert_eq!((end.permit, end.signal), (permit, LoadSignal::Overloaded));
            let (destination, pause) = end.pause.unwrap();
            assert_eq!(pause, Duration::from_secs(2));
            let CallAction::Wait(turn) = call.proceed() else {
                panic!("it is not sent again");
            };
            assert_eq!(turn.destination, destination);
            send(&mut call, permit + 1);
        }
        let end = end(call.handle_answer(Err(refused(429, Some(2)))));
        assert!(end.pause.is_some());
        assert_eq!(result(call.proceed()).unwrap_err().code(), Some(429));
    }

    /// The rest of a long pause is for other requests: this one is decided again.
    #[test]
    fn a_long_pause_holds_without_a_repeat() {
        let mut call = sent(finish(Method::Get), 1);
        let end = end(call.handle_answer(Err(refused(503, Some(50)))));
        let (destination, pause) = end.pause.unwrap();
        assert_eq!(destination.access, Access::Read);
        assert_eq!(pause, Duration::from_secs(50));
        assert_eq!(result(call.proceed()).unwrap_err().code(), Some(503));
    }

    #[test]
    fn without_a_connection_a_request_is_sent_again_immediately_and_once() {
        let mut call = sent(finish(Method::Delete), 1);
        let first = end(call.handle_answer(Err(no_answer(Cause::Refused, true))));
        assert_eq!((first.signal, first.pause), (LoadSignal::Unknown, None));
        assert!(matches!(call.proceed(), CallAction::Wait(_)));
        send(&mut call, 2);
        let second = end(call.handle_answer(Err(no_answer(Cause::Refused, true))));
        assert_eq!(second.permit, 2);
        assert!(result(call.proceed()).is_err());
    }

    #[test]
    fn a_write_that_the_server_may_have_executed_is_never_sent_again() {
        for method in [Method::Post, Method::Patch, Method::Delete] {
            for error in [
                no_answer(Cause::Reset, false),
                no_answer(Cause::TimedOut, false),
                refused(500, Some(1)),
                refused(503, Some(1)),
                refused(504, Some(1)),
                refused(409, Some(1)),
            ] {
                let mut call = sent(finish(method), 1);
                assert_eq!(end(call.handle_answer(Err(error))).permit, 1);
                assert!(result(call.proceed()).is_err());
            }
        }
    }

    #[test]
    fn the_permit_of_a_course_is_that_of_its_first_request_only() {
        let mut course = Course::started(1);
        let mut first = call(Method::Patch, &mut course);
        assert!(matches!(first.proceed(), CallAction::CheckTerm));
        assert!(matches!(first.handle_term(true), CallAction::Send));
        let ended = end(first.handle_answer(Err(refused(429, Some(1)))));
        assert_eq!(ended.permit, 1);
        assert_eq!(course.permit, None);
        // Neither its repeat nor the next request has it.
        for mut later in [first, call(Method::Delete, &mut course)] {
            let CallAction::Wait(turn) = later.proceed() else {
                panic!("it has a turn");
            };
            assert_eq!(turn.urgency, Urgency::Finish);
        }
    }

    /// A driver that passes an answer twice, or an answer that nobody asked for, sends
    /// nothing twice.
    #[test]
    fn an_input_that_nobody_asked_for_changes_nothing() {
        let mut call = finish(Method::Delete);
        assert!(matches!(call.handle_answer(Ok("?")), CallAction::Wait(_)));
        assert!(matches!(call.handle_term(true), CallAction::Wait(_)));
        send(&mut call, 1);
        assert!(matches!(call.handle_turn(Ok(2)), CallAction::Send));
        assert_eq!(end(call.handle_answer(Ok("body"))).permit, 1);
        assert_eq!(result(call.proceed()).unwrap(), "body");
        assert!(result(call.proceed()).is_err());
    }
}
