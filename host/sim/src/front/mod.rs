//! The model behind HTTP, in process or on a socket: on tokio's clock, with faults and
//! a log of requests.

mod body;
mod direct;
mod live;
mod server;
mod tls;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Response};
use http_body_util::{BodyExt, Limited};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use body::DenialReason;
pub use body::{ConnectionClosed, SimBody};
pub use server::{Connection, Server, kubeconfig, kubeconfig_with_token};
pub use tls::{Identity, IdentityError};

use crate::access::Impersonation;
use crate::api::{self, Answer};
use crate::fault::{Action, Fault, FaultId, Faults, Match, WatchFault};
use crate::model::{Config, Model};
use crate::request::{Query, Request, decode};
use crate::route::{RequestInfo, request_info};
use crate::status::Status;
use crate::time::Time;
use live::{Control, LiveWatch};

/// The largest body that is read, the API server's own limit.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// How many denials are buffered for a slow receiver.
const DENIALS: usize = 256;

/// An API server in memory. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct Sim {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    model: Mutex<Model>,
    /// The wall-clock time at `started`.
    base: jiff::Timestamp,
    started: Instant,
    /// One channel per collection that was ever watched.
    changes: Mutex<BTreeMap<Arc<str>, watch::Sender<u64>>>,
    faults: Mutex<Faults>,
    /// When the server has dealt with the requests that it takes one at a time.
    free_at: Mutex<Option<Instant>>,
    watches: Mutex<Vec<Control>>,
    log: Mutex<Vec<RequestRecord>>,
    log_limit: AtomicUsize,
    denials: broadcast::Sender<String>,
}

/// A request in the log, for assertions.
#[derive(Clone, Debug)]
pub struct RequestRecord {
    /// When the server got it.
    pub at: Time,
    /// The same, as [`Sim::uptime`].
    pub uptime: Duration,
    /// The client's address; none in process.
    pub peer: Option<SocketAddr>,
    /// The verb and the coordinates.
    pub work: RequestInfo,
    /// The method.
    pub method: http::Method,
    /// The path with the query.
    pub path: String,
    /// The request's body.
    pub body: Bytes,
    /// The status of the answer; 0 if the connection was closed without one.
    pub status: u16,
    /// Why authorization denied it, if it did.
    pub denied: Option<String>,
}

impl Sim {
    /// A server that has just started; `now` is the wall-clock time that its
    /// clock starts from. Must be called within a tokio runtime.
    pub fn new(config: Config, now: jiff::Timestamp) -> crate::status::Result<Self> {
        let seed = config.seed;
        Ok(Sim {
            inner: Arc::new(Inner {
                model: Mutex::new(Model::new(config, now.into())?),
                base: now,
                started: Instant::now(),
                changes: Mutex::default(),
                faults: Mutex::new(Faults::new(seed)),
                free_at: Mutex::default(),
                watches: Mutex::default(),
                log: Mutex::default(),
                log_limit: AtomicUsize::new(usize::MAX),
                denials: broadcast::Sender::new(DENIALS),
            }),
        })
    }

    /// The server's time: the base plus what tokio's clock has run since.
    #[must_use]
    pub fn now(&self) -> Time {
        let elapsed = self.inner.started.elapsed();
        let seconds = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
        let fraction =
            i64::from(elapsed.subsec_nanos()) + i64::from(self.inner.base.subsec_nanosecond());
        Time::from_unix(self.inner.base.as_second())
            .after(seconds)
            .after(fraction.div_euclid(1_000_000_000))
    }

    /// How long the server has run, by tokio's clock.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.inner.started.elapsed()
    }

    /// Gives access to the model. Open watches get the changes.
    pub fn with_model<T>(&self, work: impl FnOnce(&mut Model, Time) -> T) -> T {
        let now = self.now();
        let (result, touched, version) = {
            let mut model = self.model();
            let result = work(&mut model, now);
            (result, model.take_touched(), model.version())
        };
        if !touched.is_empty() {
            let changes = lock(&self.inner.changes);
            for sender in touched.iter().filter_map(|store| changes.get(store)) {
                sender.send_replace(version);
            }
        }
        result
    }

    /// Sets a fault.
    #[allow(clippy::must_use_candidate, reason = "most faults are never removed")]
    pub fn add_fault(&self, fault: Fault) -> FaultId {
        lock(&self.inner.faults).add(fault)
    }

    /// Removes a fault.
    pub fn heal(&self, id: FaultId) {
        lock(&self.inner.faults).remove(id);
    }

    /// Removes all faults.
    pub fn heal_all(&self) {
        lock(&self.inner.faults).clear();
    }

    /// Injects a fault into the open watches that match. Returns their number.
    pub fn disturb(&self, matches: &Match, fault: WatchFault) -> usize {
        if fault == WatchFault::Expire {
            self.with_model(|model, _| model.compact());
        }
        let mut watches = lock(&self.inner.watches);
        watches.retain(Control::is_open);
        watches
            .iter()
            .filter(|control| matches.matches(&control.work))
            .map(|control| control.disturb(fault))
            .count()
    }

    /// The number of watches that are open.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        let mut watches = lock(&self.inner.watches);
        watches.retain(Control::is_open);
        watches.len()
    }

    /// Every request so far.
    #[must_use]
    pub fn log(&self) -> Vec<RequestRecord> {
        lock(&self.inner.log).clone()
    }

    /// Receives a message for every request that authorization denies from now on. The
    /// log has these requests too, up to its limit.
    #[must_use]
    pub fn denials(&self) -> broadcast::Receiver<String> {
        self.inner.denials.subscribe()
    }

    /// How many requests so far match.
    #[must_use]
    pub fn count(&self, matches: &Match) -> usize {
        let log = lock(&self.inner.log);
        log.iter()
            .filter(|served| matches.matches(&served.work))
            .count()
    }

    /// Limits the log to that many requests; 0 turns it off. A server that runs for long
    /// needs a limit, a test does not.
    pub fn limit_log(&self, requests: usize) {
        self.inner.log_limit.store(requests, Ordering::Relaxed);
    }

    /// Clears the log.
    pub fn clear_log(&self) {
        lock(&self.inner.log).clear();
    }

    /// Serves one request. The error is the connection's: a fault closed it.
    pub async fn call<B>(
        &self,
        request: http::Request<B>,
    ) -> Result<Response<SimBody>, ConnectionClosed>
    where
        B: http_body::Body<Data = Bytes>,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let mut request = Request {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            content_type: header(&parts.headers, &CONTENT_TYPE),
            accept: header(&parts.headers, &ACCEPT),
            user_agent: header(&parts.headers, &USER_AGENT),
            bearer: bearer(&parts.headers),
            impersonation: impersonation(&parts.headers),
            body: Bytes::new(),
        };
        let url = parts
            .uri
            .path_and_query()
            .map_or_else(|| request.path.clone(), ToString::to_string);
        match Limited::new(body, BODY_LIMIT).collect().await {
            Ok(collected) => request.body = collected.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                return Ok(body::failed(&Status::too_large(format!(
                    "limit is {BODY_LIMIT}"
                ))));
            }
            Err(_) => return Err(ConnectionClosed),
        }
        let work = request_info(&self.model(), &request);
        let entry = RequestRecord {
            at: self.now(),
            uptime: self.uptime(),
            peer: parts.extensions.get().copied(),
            work: work.clone(),
            method: request.method.clone(),
            path: url,
            body: request.body.clone(),
            status: 0,
            denied: None,
        };
        let answered = self.answer(&request, work).await;
        self.record(entry, &answered);
        answered
    }

    async fn answer(
        &self,
        request: &Request,
        work: RequestInfo,
    ) -> Result<Response<SimBody>, ConnectionClosed> {
        let actions = lock(&self.inner.faults).decide(&work);
        for action in &actions {
            match action {
                Action::Delay(duration) => tokio::time::sleep(*duration).await,
                Action::Busy(duration) => tokio::time::sleep_until(self.turn(*duration)).await,
                Action::CloseBefore => return Err(ConnectionClosed),
                Action::Refuse(refusal) => return Ok(body::failed(&refusal.status(&work))),
                Action::CloseAfter | Action::CutBody(_) | Action::Watch(..) => {}
            }
        }
        let answer = self.with_model(|model, now| api::handle(model, now, request));
        if actions.contains(&Action::CloseAfter) {
            return Err(ConnectionClosed);
        }
        let mut response = match answer {
            Answer::Watch(start) => self.open(*start, work, &actions),
            other => body::answer(other),
        };
        for action in actions {
            if let Action::CutBody(bytes) = action {
                response = response.map(|whole| whole.cut(bytes));
            }
        }
        Ok(response)
    }

    /// When the server has dealt with a request that takes this long, after those before it.
    fn turn(&self, duration: Duration) -> Instant {
        let mut free_at = lock(&self.inner.free_at);
        let now = Instant::now();
        let end = free_at.map_or(now, |free| free.max(now)) + duration;
        *free_at = Some(end);
        end
    }

    fn open(
        &self,
        start: crate::model::WatchStart,
        work: RequestInfo,
        actions: &[Action],
    ) -> Response<SimBody> {
        let changes = self.subscribe(start.watch.store());
        let (control, disturbed) = Control::new(work);
        let mut watches = lock(&self.inner.watches);
        // Those that have ended, when there is no room: each opening would else cost a look at all.
        if watches.len() == watches.capacity() {
            watches.retain(Control::is_open);
        }
        watches.push(control);
        drop(watches);
        let planned = actions.iter().find_map(|action| match action {
            Action::Watch(after, fault) => Some((*after, *fault)),
            _ => None,
        });
        let interval = self.model().config().bookmark_interval;
        let live = LiveWatch::new(self.clone(), start, changes, disturbed, planned, interval);
        let mut response = Response::new(SimBody::stream(live.stream()));
        let json = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, json);
        response
    }

    /// Receives the version of every change in a collection (`pods`,
    /// `leases.coordination.k8s.io`).
    pub(crate) fn subscribe(&self, store: &Arc<str>) -> watch::Receiver<u64> {
        let version = self.model().version();
        lock(&self.inner.changes)
            .entry(store.clone())
            .or_insert_with(|| watch::Sender::new(version))
            .subscribe()
    }

    fn record(
        &self,
        mut entry: RequestRecord,
        answered: &Result<Response<SimBody>, ConnectionClosed>,
    ) {
        if let Ok(response) = answered {
            entry.status = response.status().as_u16();
            let denied = response.extensions().get::<DenialReason>();
            entry.denied = denied.map(|denied| denied.0.clone());
        }
        if let Some(why) = &entry.denied {
            // Sending fails without a receiver, which is usual.
            let _ = self.inner.denials.send(why.clone());
        }
        let mut log = lock(&self.inner.log);
        if log.len() < self.inner.log_limit.load(Ordering::Relaxed) {
            log.push(entry);
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.inner.model)
    }
}

fn header(headers: &HeaderMap, name: &http::HeaderName) -> String {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect::<Vec<_>>()
        .join(",")
}

/// The token of `Authorization: Bearer TOKEN`, or nothing.
fn bearer(headers: &HeaderMap) -> String {
    let value = header(headers, &AUTHORIZATION);
    let (scheme, token) = value.split_once(' ').unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") {
        token.trim().to_owned()
    } else {
        String::new()
    }
}

/// The user to impersonate.
fn impersonation(headers: &HeaderMap) -> Option<Impersonation> {
    let mut wanted = Impersonation::default();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match name.as_str() {
            "impersonate-user" => wanted.user = value,
            "impersonate-uid" => wanted.uid = value,
            "impersonate-group" => wanted.groups.push(value),
            other => {
                if let Some(key) = other.strip_prefix("impersonate-extra-") {
                    let key = decode(key);
                    wanted.extra.entry(key).or_default().push(value);
                }
            }
        }
    }
    (wanted != Impersonation::default()).then_some(wanted)
}

/// Ignores poisoning: no data is half-written across a call that can panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
