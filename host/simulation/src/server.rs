//! The API server: requests arrive at the model, and faults hit them.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_core::account::Account;
use davit_core::refusal::ErrorResponse;
use davit_core::request::{Cause, Method, NoAnswer, Request, RequestError, review};
use davit_sim::fault::{Action, Faults, WatchFault};
use davit_sim::model::WatchStart;
use davit_sim::request::Query;
use davit_sim::response::{Reply, Response, respond};
use davit_sim::{Model, RequestInfo, Time, request_info};
use serde_json::{Value, json};

use crate::fault::FaultKind;

/// The host's own user.
const HOST: &str = "system:serviceaccount:davit-system:davit";

/// The API server: its objects and its faults.
#[derive(Debug)]
pub struct Server {
    /// The objects and the rules of the API.
    pub model: Model,
    /// The faults of requests.
    pub faults: Faults,
    /// The users without permissions.
    pub powerless: BTreeSet<String>,
    /// The users whom the host may not impersonate.
    pub unimpersonable: BTreeSet<String>,
}

/// What a request did at the server, and its answer.
#[derive(Debug)]
pub struct Arrival {
    /// The verb and the object of the request.
    pub work: RequestInfo,
    /// The status code; 0 if the connection was closed before the server
    /// read the request.
    pub code: u16,
    /// The additional delay of the answer.
    pub delay: Duration,
    /// The uid of the object that the request changed; empty if it changed none.
    pub written: String,
    /// The faults that hit the request.
    pub faults: Vec<FaultKind>,
    /// The answer.
    pub answer: Answer,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The body of a success, or why there is none.
    Body(Result<Vec<u8>, RequestError>),
    /// A watch, and the fault that hits the watch after so many events.
    Watch(Box<WatchStart>, Option<(usize, WatchFault)>),
}

impl Server {
    /// A server with these objects and without faults.
    #[must_use]
    pub fn new(model: Model, seed: u64) -> Self {
        Self {
            model,
            faults: Faults::new(seed),
            powerless: BTreeSet::new(),
            unimpersonable: BTreeSet::new(),
        }
    }

    /// A request arrives that impersonates this user; empty if none.
    pub fn arrive(&mut self, now: Time, request: &Request, user: &str) -> Arrival {
        let request = received(request);
        let work = request_info(&self.model, &request);
        let actions = self.faults.decide(&work);
        let mut arrival = Arrival {
            work,
            code: 0,
            delay: Duration::ZERO,
            written: String::new(),
            faults: Vec::new(),
            answer: Answer::Body(Err(reset("connection reset"))),
        };
        let refused = self.refused(&request, user);
        for action in &actions {
            arrival.faults.extend(FaultKind::of_request(action));
            match action {
                // No story has requests that wait for each other.
                Action::Delay(delay) | Action::Busy(delay) => arrival.delay += *delay,
                Action::CloseBefore => return arrival,
                Action::Refuse(refusal) => {
                    let response = Response::failed(&refusal.status(&arrival.work));
                    arrival.code = response.code;
                    arrival.answer = Answer::Body(read(response));
                    return arrival;
                }
                Action::CloseAfter | Action::CutBody(_) | Action::Watch(..) => {}
            }
        }
        let lost = actions
            .iter()
            .any(|action| matches!(action, Action::CloseAfter | Action::CutBody(_)));
        if let Some((code, answer)) = refused {
            arrival.code = code;
            arrival.faults.push(FaultKind::Forbidden);
            if !lost {
                arrival.answer = Answer::Body(answer);
            }
            return arrival;
        }
        let reply = respond(&mut self.model, now, &request);
        match reply {
            Reply::Watch(start) => {
                let planned = actions.iter().find_map(|action| match action {
                    Action::Watch(after, fault) => Some((*after, *fault)),
                    _ => None,
                });
                arrival.code = 200;
                if !lost {
                    arrival.answer = Answer::Watch(start, planned);
                }
            }
            Reply::Complete(response) => {
                arrival.code = response.code;
                arrival.written = written(&request.method, &response);
                if !lost {
                    arrival.answer = Answer::Body(read(response));
                }
            }
        }
        arrival
    }
}

impl Server {
    /// The answer to a request of a user without permissions, or whom the host may not
    /// impersonate, or to a review of one.
    fn refused(
        &self,
        request: &davit_sim::request::Request,
        user: &str,
    ) -> Option<(u16, Result<Vec<u8>, RequestError>)> {
        if self.unimpersonable.contains(user) {
            let message = format!("{HOST} cannot impersonate {user}");
            return Some((403, Err(forbidden(&message))));
        }
        if self.powerless.contains(user) {
            let message = format!("User \"{user}\" has no permissions");
            return Some((403, Err(forbidden(&message))));
        }
        let question = || -> Value { serde_json::from_slice(&request.body).unwrap_or_default() };
        let is_denied = match &*request.path {
            review::PATH => {
                let question = question();
                let user = question.pointer("/spec/user").and_then(Value::as_str)?;
                self.powerless.contains(user)
            }
            review::OWN_PATH => {
                let question = question();
                let asked = question.pointer("/spec/resourceAttributes")?;
                let account = Account {
                    namespace: asked.get("namespace")?.as_str()?.to_owned(),
                    name: asked.get("name")?.as_str()?.to_owned(),
                };
                self.unimpersonable.contains(&account.user())
            }
            _ => false,
        };
        let denied = json!({"status": {"allowed": false}}).to_string();
        is_denied.then(|| (201, Ok(denied.into_bytes())))
    }
}

/// A user lacks the permission for a request.
fn forbidden(message: &str) -> RequestError {
    refused(403, "Forbidden", message)
}

/// The server refuses a request.
pub(crate) fn refused(code: u16, reason: &str, message: &str) -> RequestError {
    let status = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
    let refused = ErrorResponse::read(code, None, status.to_string().as_bytes());
    RequestError::Refused(Box::new(refused))
}

/// The uid of the object that a patch or a deletion changed.
fn written(method: &http::Method, response: &Response) -> String {
    let changes = matches!(*method, http::Method::PATCH | http::Method::DELETE);
    if !changes || !(200..300).contains(&response.code) {
        return String::new();
    }
    let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
    let uid = ["/metadata/uid", "/details/uid"].map(|at| body.pointer(at).and_then(Value::as_str));
    let uid = uid.into_iter().flatten().next();
    uid.unwrap_or_default().to_owned()
}

/// The request as the server sees it.
pub(crate) fn received(request: &Request) -> davit_sim::request::Request {
    let (path, query) = request.uri.split_once('?').unwrap_or((&request.uri, ""));
    davit_sim::request::Request {
        method: match request.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Patch => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        },
        path: path.to_owned(),
        query: Query::parse(query),
        content_type: request.content_type.to_owned(),
        accept: request.accept.to_owned(),
        user_agent: "davit".to_owned(),
        body: request.body.clone().into(),
        ..davit_sim::request::Request::default()
    }
}

/// The response as a client reads it.
pub(crate) fn read(response: Response) -> Result<Vec<u8>, RequestError> {
    if (200..300).contains(&response.code) {
        return Ok(response.body.into());
    }
    let retry_after = response
        .retry_after
        .map(|seconds| Duration::from_secs(u64::from(seconds)));
    let refused = ErrorResponse::read(response.code, retry_after, &response.body);
    Err(RequestError::Refused(Box::new(refused)))
}

/// The connection broke: the server may have executed the request.
pub(crate) fn reset(detail: &str) -> RequestError {
    RequestError::NoAnswer(NoAnswer {
        cause: Cause::Reset,
        unsent: false,
        detail: detail.to_owned(),
    })
}

/// There was no connection: the server has certainly not seen the request.
pub(crate) fn unreachable() -> RequestError {
    RequestError::NoAnswer(NoAnswer {
        cause: Cause::Refused,
        unsent: true,
        detail: String::new(),
    })
}
