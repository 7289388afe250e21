//! Single requests: the rate limit, the timeout, and what an answer means.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use davit_core::failure::{Failure, FailureClass};
use davit_core::manifest::Rate;
use davit_core::mapping::{Mapping, Served};
use davit_core::object::ObjectRef;
use davit_core::reach::{Absence, Reachability};
use davit_core::traffic::{Access, Asked, Destination, Ended, PATIENCE, Urgency};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;

use crate::cause::{Cause, NoAnswer};
use crate::clock::Clock;
use crate::limiter::{Limiter, Permit};
use crate::status::Refused;
use crate::url::{Route, is_name, path};

/// Plain JSON.
pub(crate) const JSON: &str = "application/json";
/// One object's metadata, if the server can; the whole object if not.
pub(crate) const PARTIAL_OBJECT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// A list of metadata, if the server can; of whole objects if not.
pub(crate) const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The largest answer that is read, in bytes: some hundred of the largest
/// objects that etcd holds.
const LARGEST_ANSWER: usize = 256 << 20;
/// How often a request that was turned away is sent again.
const MOST_REPEATS: u32 = 5;
/// The longest pause that is kept for others than the request that was refused.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How requests are sent.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiSettings {
    /// The rate of writes and live reads together; none for no limit.
    pub rate: Option<Rate>,
    /// How long one request may take, watches apart.
    pub request_timeout: Duration,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            rate: None,
            request_timeout: Duration::from_secs(30),
        }
    }
}

/// An API server. Copies share one rate limit.
#[derive(Clone)]
pub struct Api {
    client: kube::Client,
    clock: Clock,
    request_timeout: Duration,
    limiter: Limiter,
    reach: Arc<Mutex<Reachability>>,
    /// The controller that requests are sent for; empty for the host itself.
    controller: Arc<str>,
    /// In whose name requests are sent, if not in the client's own.
    user: Option<User>,
}

#[derive(Clone)]
struct User {
    name: Arc<str>,
    header: HeaderValue,
}

/// What requests that belong together ask for their turns as: those of a plan,
/// for instance.
#[derive(Debug)]
pub struct Course {
    urgency: Urgency,
    /// The turn of the next request, if it was given before.
    permit: Option<Permit>,
}

impl Course {
    /// Requests that a guest waits for.
    pub(crate) fn of_reads() -> Self {
        Self::new(Urgency::Read)
    }

    /// Requests that nobody waits for.
    pub(crate) fn of_events() -> Self {
        Self::new(Urgency::Event)
    }

    fn new(urgency: Urgency) -> Self {
        Self {
            urgency,
            permit: None,
        }
    }
}

/// A plan that has no request to wait for.
impl Default for Course {
    fn default() -> Self {
        Self::new(Urgency::Finish)
    }
}

/// A request that is ready to be sent, as often as needed.
pub(crate) struct Request {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) uri: String,
    pub(crate) accept: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

/// `GET /api/v1/pods`, for the log.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.uri.split('?').next().unwrap_or_default();
        write!(f, "{} {path}", self.method)
    }
}

impl Request {
    pub(crate) fn get(uri: String, accept: &'static str) -> Self {
        Self {
            method: Method::GET,
            uri,
            accept,
            content_type: "",
            body: Bytes::new(),
        }
    }
}

/// Why a request brought no success.
#[derive(Debug)]
pub(crate) enum NoSuccess {
    Refused(Refused),
    /// No answer, and why.
    NoAnswer(NoAnswer),
    /// It was not sent: the server asked for a pause that lasts so much longer.
    Paused(Duration),
}

impl Api {
    /// Wraps a client, which must not repeat requests by itself.
    #[must_use]
    pub fn new(client: kube::Client, clock: Clock, settings: &ApiSettings) -> Self {
        Self {
            client,
            clock,
            request_timeout: settings.request_timeout,
            limiter: Limiter::new(settings.rate, clock),
            reach: Arc::default(),
            controller: "".into(),
            user: None,
        }
    }

    /// The same API server, asked in the name of a user, such as
    /// `system:serviceaccount:NAMESPACE:NAME`: the server's own rules and audit
    /// log are about that user. The client needs the permission to impersonate
    /// it. A name that no header can hold is refused by the server.
    #[must_use]
    pub fn impersonating(&self, user: &str) -> Self {
        let refused = HeaderValue::from_static("system:anonymous");
        let user = User {
            name: user.into(),
            header: HeaderValue::from_str(user).unwrap_or(refused),
        };
        Self {
            user: Some(user),
            ..self.clone()
        }
    }

    /// The same API server, asked for a controller: its requests take turns with
    /// those of others.
    #[must_use]
    pub fn on_behalf_of(&self, controller: &str) -> Self {
        Self {
            controller: controller.into(),
            ..self.clone()
        }
    }

    /// Since when the API server has answered no request, and why not; none if it
    /// answered the last one.
    #[must_use]
    pub fn absence(&self) -> Option<Absence> {
        self.reach().absence().cloned()
    }

    /// Takes note of whether the API server answered a request. That it does not
    /// is told here, once for all requests.
    pub(crate) fn note<T>(&self, request: &Request, sent: &Result<T, NoSuccess>) {
        let now = self.clock.instant();
        match sent {
            Ok(_) | Err(NoSuccess::Refused(_)) => {
                if let Some(absence) = self.reach().answered(now) {
                    let lasted = now.since(absence.since).as_secs();
                    tracing::info!("the API server answers again, after {lasted} s");
                }
            }
            Err(NoSuccess::NoAnswer(reason)) if reason.cause != Cause::Unsendable => {
                let cause = reason.to_string();
                let line = self.reach().no_answer(&cause, &request.to_string(), now);
                if let Some(left_out) = line {
                    tracing::warn!("the API server does not answer: {request}: {cause}{left_out}");
                }
            }
            Err(NoSuccess::NoAnswer(_) | NoSuccess::Paused(_)) => {}
        }
    }

    fn reach(&self) -> MutexGuard<'_, Reachability> {
        self.reach.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing but events is to come: they go at once from now on.
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

    /// Waits for the turn of a plan's first request, which writes to this API
    /// group.
    pub(crate) async fn begin(&self, group: &str) -> Result<Course, NoSuccess> {
        let asked = self.asked(group, Access::Write, Urgency::Begin);
        let permit = self.limiter.turn(asked).await.map_err(NoSuccess::Paused)?;
        Ok(Course {
            urgency: Urgency::Finish,
            permit: Some(permit),
        })
    }

    /// Sends a read in its turn.
    pub(crate) async fn read(&self, request: &Request) -> Result<Bytes, NoSuccess> {
        self.call(request, &mut Course::of_reads()).await
    }

    /// Sends a request in its turn. A request that the server certainly did not
    /// carry out is sent again, once the pause that it asked for is over or at
    /// once if there was no connection.
    pub(crate) async fn call(
        &self,
        request: &Request,
        course: &mut Course,
    ) -> Result<Bytes, NoSuccess> {
        let route = Route::of(&request.uri);
        let access = match (course.urgency, &request.method) {
            (Urgency::Event, _) => Access::Event,
            (_, &Method::GET) => Access::Read,
            _ => Access::Write,
        };
        let asked = self.asked(&route.group, access, course.urgency);
        let kind = format!("{} {}", request.method, route.kind);
        let mut repeats = 0;
        loop {
            let permit = if let Some(permit) = course.permit.take() {
                permit
            } else {
                let turn = self.limiter.turn(asked.clone()).await;
                turn.map_err(NoSuccess::Paused)?
            };
            let sent = self.send(request).await;
            permit.end(&kind, ended(&sent));
            let may_repeat = match &sent {
                Err(NoSuccess::Refused(refused)) => {
                    let Some(pause) = overload_pause(refused) else {
                        return sent;
                    };
                    self.limiter.pause(asked.destination.clone(), pause);
                    let not_carried_out = refused.code == 429 || request.method == Method::GET;
                    not_carried_out && pause <= PATIENCE && repeats < MOST_REPEATS
                }
                // Another server may listen at the address, or this one again.
                Err(NoSuccess::NoAnswer(reason)) => reason.unsent && repeats == 0,
                _ => false,
            };
            if !may_repeat {
                return sent;
            }
            repeats += 1;
        }
    }

    fn asked(&self, group: &str, access: Access, urgency: Urgency) -> Asked {
        let user = self.user.as_ref();
        Asked {
            controller: Arc::clone(&self.controller),
            urgency,
            destination: Destination {
                user: user.map_or_else(|| "".into(), |user| Arc::clone(&user.name)),
                group: group.into(),
                access,
            },
        }
    }

    /// Sends a request at once, and only once.
    pub(crate) async fn send(&self, request: &Request) -> Result<Bytes, NoSuccess> {
        let exchange = async {
            let user = self.user.as_ref().map(|user| &user.header);
            let response = send(&self.client, request, user).await?;
            read(response).await
        };
        let sent = match tokio::time::timeout(self.request_timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(NoSuccess::NoAnswer(NoAnswer::silence(self.request_timeout))),
        };
        self.note(request, &sent);
        sent
    }
}

/// What the end of a request says of the server's load.
fn ended(sent: &Result<Bytes, NoSuccess>) -> Ended {
    match sent {
        Err(NoSuccess::Refused(refused)) if is_overload(refused) => Ended::Overloaded,
        Ok(_) | Err(NoSuccess::Refused(_)) => Ended::Answered,
        Err(NoSuccess::NoAnswer(reason)) if reason.cause == Cause::TimedOut => Ended::Overloaded,
        Err(NoSuccess::NoAnswer(_) | NoSuccess::Paused(_)) => Ended::Unknown,
    }
}

fn is_overload(refused: &Refused) -> bool {
    matches!(refused.code, 429 | 503 | 504) && !refused.is_disruption_budget()
}

/// How long requests like this one have to wait because of this answer; none if
/// it is not about the server's load.
fn overload_pause(refused: &Refused) -> Option<Duration> {
    let overload = matches!(refused.code, 429 | 503) && !refused.is_disruption_budget();
    let pause = refused.retry_after?;
    (overload && pause <= LONGEST_PAUSE).then_some(pause)
}

/// Sends a request and waits for the head of the answer.
pub(crate) async fn send(
    client: &kube::Client,
    request: &Request,
    user: Option<&HeaderValue>,
) -> Result<Response<Body>, NoSuccess> {
    let mut builder = http::Request::builder()
        .method(&request.method)
        .uri(&request.uri)
        .header(ACCEPT, request.accept)
        .header(ACCEPT_ENCODING, "identity");
    if !request.content_type.is_empty() {
        builder = builder.header(CONTENT_TYPE, request.content_type);
    }
    if let Some(user) = user {
        builder = builder.header("impersonate-user", user);
    }
    let request = builder
        .body(Body::from(request.body.clone()))
        .map_err(|error| NoSuccess::NoAnswer(NoAnswer::unsendable(&error)))?;
    client
        .send(request)
        .await
        .map_err(|error| NoSuccess::NoAnswer(NoAnswer::of(&error)))
}

/// Reads an answer to its end.
pub(crate) async fn read(response: Response<Body>) -> Result<Bytes, NoSuccess> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, LARGEST_ANSWER)
        .collect()
        .await
        .map_err(|error| NoSuccess::NoAnswer(NoAnswer::broken_off(&*error)))?
        .to_bytes();
    if head.status.is_success() {
        return Ok(body);
    }
    Err(NoSuccess::Refused(refused(
        head.status,
        &head.headers,
        &body,
    )))
}

fn refused(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Refused {
    // Kubernetes writes seconds; the header's other form, a date, is of no use
    // to a clock that may be wrong.
    let retry_after = headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    Refused::read(status.as_u16(), retry_after, body)
}

impl NoSuccess {
    /// The failure of an attempt: `get v1 Pod ns/name`.
    pub(crate) fn failure(&self, attempt: &dyn fmt::Display) -> Failure {
        match self {
            Self::Refused(refused) => Failure {
                class: refused.class(),
                message: format!("{attempt}: {}", refused.describe()),
                retry_after: refused.retry_after,
            },
            Self::NoAnswer(reason) => {
                Failure::new(FailureClass::Timeout, format!("{attempt}: {reason}"))
            }
            Self::Paused(left) => Failure {
                class: FailureClass::Throttled,
                message: format!(
                    "{attempt}: not sent: the API server asked requests like this one to wait, \
                     for another {left:?}"
                ),
                retry_after: Some(*left),
            },
        }
    }
}

/// An attempt on an object, for failures: `patch status of v1 Pod ns/name`.
#[derive(Clone, Copy)]
pub(crate) struct Attempt<'a> {
    pub(crate) verb: &'a str,
    pub(crate) object: &'a ObjectRef,
}

impl fmt::Display for Attempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.object)
    }
}

impl Attempt<'_> {
    /// A failure that was found before anything was sent, or in the answer.
    pub(crate) fn failure(&self, class: FailureClass, reason: impl fmt::Display) -> Failure {
        Failure::new(class, format!("{self}: {reason}"))
    }

    /// The path of the object, if its kind is served and it can be named in a
    /// path.
    pub(crate) fn object_path(
        &self,
        mapping: &Mapping,
        subresource: &str,
    ) -> Result<String, Failure> {
        let name = &self.object.name;
        // Without a name the path would be that of the whole collection.
        if !is_name(name) {
            return Err(self.failure(
                FailureClass::Invalid,
                format_args!("\"{name}\" is no object's name"),
            ));
        }
        let served = self.served(mapping)?;
        Ok(path(
            &served.resource,
            &self.object.namespace,
            name,
            subresource,
        ))
    }

    /// The resource of the object, if it is served where the object is said to
    /// be.
    pub(crate) fn served<'m>(&self, mapping: &'m Mapping) -> Result<&'m Served, Failure> {
        let object = self.object;
        let Some(served) = mapping.by_kind(&object.api_version, &object.kind) else {
            return Err(self.failure(
                FailureClass::Unmappable,
                "the API server serves no such kind",
            ));
        };
        let problem = match (served.namespaced, object.namespace.as_str()) {
            (true, "") => "the kind lives in namespaces, and none is given",
            (true, namespace) if !is_name(namespace) => "the namespace is no name",
            (true, _) | (false, "") => return Ok(served),
            (false, _) => "the kind lives in no namespace, and one is given",
        };
        Err(self.failure(FailureClass::Invalid, problem))
    }
}

/// An error with its causes, as one line.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some libraries repeat the cause in their own text, and that of its
        // cause.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
