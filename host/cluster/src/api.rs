//! Single requests: the rate limit, the timeout, and the meaning of an answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use davit_core::account::Account;
pub use davit_core::failure::chain;
use davit_core::manifest::Rate;
use davit_core::reach::{Absence, Reachability};
use davit_core::refusal::ErrorResponse;
use davit_core::request::call::{Call, CallAction, Course, Sender};
use davit_core::request::{Cause, NoAnswer, Request, RequestError};
use davit_core::time::Instant;
use davit_core::traffic::{TurnRequest, Urgency};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;

use crate::cause::{broken_off, no_answer, unsendable};
use crate::clock::Clock;
use crate::journal::{RequestJournal, RequestTimes};
use crate::limiter::{Limiter, Permit};
use crate::term::Term;

/// The largest answer that is read, in bytes: some hundred of the largest
/// objects that etcd holds.
const LARGEST_ANSWER: usize = 256 << 20;
/// The timeout of a request; watches have their own.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// An API server. Copies share one rate limit.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    clock: Clock,
    limiter: Limiter,
    reach: Arc<Mutex<Reachability>>,
    /// The controller that requests are sent for, and the user to impersonate.
    sender: Sender,
    /// The header with that user; none for the client's own.
    user: Option<HeaderValue>,
    /// Stores the requests that had to wait for a turn.
    journal: Option<RequestJournal>,
}

impl Api {
    /// Wraps a client, which must not retry requests. `rate` is that of writes and live reads
    /// together; none for no limit.
    #[must_use]
    pub fn new(client: kube::Client, clock: Clock, rate: Option<Rate>) -> Self {
        Self {
            client,
            clock,
            limiter: Limiter::new(rate, clock),
            reach: Arc::default(),
            sender: Sender::default(),
            user: None,
            journal: None,
        }
    }

    /// The same API server for the reads and writes of a controller, which take turns
    /// with those of others. With an account, the requests impersonate it: RBAC and the
    /// audit log apply to its user, to whom the server adds the groups of its tokens. The
    /// client then needs the verb `impersonate`.
    #[must_use]
    pub fn on_behalf_of(&self, controller: &str, account: Option<&Account>) -> Self {
        let sender = Sender::new(controller, account);
        // A name that no header can have is refused.
        let refused = HeaderValue::from_static("system:anonymous");
        let header = account.map(|_| HeaderValue::from_str(&sender.user).unwrap_or(refused));
        Self {
            sender,
            user: header,
            ..self.clone()
        }
    }

    /// The same API server. The journal gets every request that waits for a turn.
    #[must_use]
    pub fn journaled(&self, journal: Option<RequestJournal>) -> Self {
        Self {
            journal,
            ..self.clone()
        }
    }

    /// Since when the API server has not answered, and why; none if it answered the
    /// last request.
    #[must_use]
    pub fn absence(&self) -> Option<Absence> {
        self.reach().absence().cloned()
    }

    /// Records whether the API server answered a request. The log reports an absence
    /// once for all requests.
    pub(crate) fn note<T>(&self, request: &Request, sent: &Result<T, RequestError>) {
        let now = self.clock.instant();
        match sent {
            Ok(_) | Err(RequestError::Refused(_)) => {
                if let Some(absence) = self.reach().answered(now) {
                    let lasted = now.since(absence.since).as_secs();
                    tracing::info!("the API server answers again, after {lasted} s");
                }
            }
            Err(RequestError::NoAnswer(reason)) if reason.cause != Cause::Unsendable => {
                let cause = reason.to_string();
                let line = self.reach().no_answer(&cause, &request.to_string(), now);
                if let Some(left_out) = line {
                    tracing::warn!("the API server does not answer: {request}: {cause}{left_out}");
                }
            }
            Err(RequestError::NoAnswer(_) | RequestError::Paused(_)) => {}
        }
    }

    fn reach(&self) -> MutexGuard<'_, Reachability> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only events are left: from now on they are sent immediately.
    pub(crate) fn flush_events(&self) {
        self.limiter.flush_events();
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &kube::Client {
        &self.client
    }

    /// The host's clock.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Who sends the requests.
    pub(crate) fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Waits for a turn. Fails with the rest of the server's pause if that is too long to
    /// wait.
    pub(crate) async fn turn(&self, turn: TurnRequest) -> Result<Permit, Duration> {
        self.limiter.turn(turn).await
    }

    /// Sends a read when it has its turn.
    pub(crate) async fn read(&self, request: &Request) -> Result<Bytes, RequestError> {
        self.send_in_turn(request, Urgency::Read).await
    }

    /// Sends a request when it has its turn, and again as [`Call`] decides.
    pub(crate) async fn send_in_turn(
        &self,
        request: &Request,
        urgency: Urgency,
    ) -> Result<Bytes, RequestError> {
        let call = Call::new(request, &self.sender, &mut Course::new(urgency));
        self.execute(request, call, &Term::unlimited()).await
    }

    /// Executes a call for the request within a term, which may end while the request waits
    /// for its turn.
    pub(crate) async fn execute(
        &self,
        request: &Request,
        call: Call<Permit, Bytes>,
        term: &Term,
    ) -> Result<Bytes, RequestError> {
        self.execute_while(request, call, term, || true).await
    }

    /// The same, unless `may_send` is false when the request has its turn.
    pub(crate) async fn execute_while(
        &self,
        request: &Request,
        mut call: Call<Permit, Bytes>,
        term: &Term,
        mut may_send: impl FnMut() -> bool,
    ) -> Result<Bytes, RequestError> {
        let mut asked = self.clock.instant();
        let mut next = call.proceed();
        loop {
            next = match next {
                CallAction::Wait(turn) => {
                    asked = self.clock.instant();
                    call.handle_turn(self.turn(turn).await)
                }
                CallAction::CheckTerm => call.handle_term(term.holds() && may_send()),
                CallAction::Send => {
                    call.handle_answer(self.exchange_journaled(request, term, asked).await)
                }
                CallAction::EndTurn(end) => {
                    if let Some((destination, pause)) = end.pause {
                        self.limiter.pause(destination, pause);
                    }
                    end.permit.end(&request.kind(), end.signal);
                    call.proceed()
                }
                CallAction::Done(result) => return result,
            };
        }
    }

    /// Sends a request that was asked for at this time, and notes its times.
    async fn exchange_journaled(
        &self,
        request: &Request,
        term: &Term,
        asked: Instant,
    ) -> Result<Bytes, RequestError> {
        let sent = self.clock.instant();
        let answer = self.exchange(request, term).await;
        if let Some(journal) = &self.journal {
            let times = RequestTimes {
                asked,
                sent,
                answered: self.clock.instant(),
            };
            journal.add(request, times, &answer);
        }
        answer.map(|(_, body)| body)
    }

    /// Sends a request once, without waiting for a turn.
    pub(crate) async fn send(&self, request: &Request) -> Result<Bytes, RequestError> {
        let sent = self.exchange(request, &Term::unlimited()).await;
        sent.map(|(_, body)| body)
    }

    /// The same within a term.
    pub(crate) async fn send_in_term(
        &self,
        request: &Request,
        term: &Term,
    ) -> Result<Bytes, RequestError> {
        let sent = async { self.exchange(request, term).await.map(|(_, body)| body) };
        term.send(sent).await
    }

    async fn exchange(
        &self,
        request: &Request,
        term: &Term,
    ) -> Result<(StatusCode, Bytes), RequestError> {
        let exchange = async {
            let mut encoded = encode(request, self.user.as_ref())?;
            if term.is_limited() {
                // For the last check, at the connection.
                encoded.extensions_mut().insert(term.clone());
            }
            let response = answer(&self.client, encoded).await?;
            let status = response.status();
            Ok((status, read(response).await?))
        };
        let sent = match tokio::time::timeout(REQUEST_TIMEOUT, exchange).await {
            Ok(result) => result,
            Err(_) => Err(RequestError::NoAnswer(NoAnswer::silence(REQUEST_TIMEOUT))),
        };
        self.note(request, &sent);
        sent
    }
}

/// Sends a request and waits for the head of the answer.
pub(crate) async fn send(
    client: &kube::Client,
    request: &Request,
    user: Option<&HeaderValue>,
) -> Result<Response<Body>, RequestError> {
    answer(client, encode(request, user)?).await
}

async fn answer(
    client: &kube::Client,
    request: http::Request<Body>,
) -> Result<Response<Body>, RequestError> {
    let answer = client.send(request).await;
    answer.map_err(|error| RequestError::NoAnswer(no_answer(&error)))
}

fn encode(
    request: &Request,
    user: Option<&HeaderValue>,
) -> Result<http::Request<Body>, RequestError> {
    let mut builder = http::Request::builder()
        .method(request.method.as_str())
        .uri(&request.uri)
        .header(ACCEPT, request.accept)
        .header(ACCEPT_ENCODING, "identity");
    if !request.content_type.is_empty() {
        builder = builder.header(CONTENT_TYPE, request.content_type);
    }
    if let Some(user) = user {
        builder = builder.header("impersonate-user", user);
    }
    builder
        .body(Body::from(request.body.clone()))
        .map_err(|error| RequestError::NoAnswer(unsendable(&error)))
}

/// Reads a whole answer.
pub(crate) async fn read(response: Response<Body>) -> Result<Bytes, RequestError> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST_ANSWER)
        .collect()
        .await
        .map_err(|error| RequestError::NoAnswer(broken_off(&*error)))?
        .to_bytes();
    if head.status.is_success() {
        return Ok(body);
    }
    Err(RequestError::Refused(Box::new(refused(
        head.status,
        &head.headers,
        &body,
    ))))
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ErrorResponse {
    // Kubernetes writes seconds. The other form of the header, a date, depends on
    // clocks that may be wrong.
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    ErrorResponse::read(status.as_u16(), retry_after, body)
}
