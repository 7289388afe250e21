//! `/metrics`, `/livez` and `/readyz`, and what a rollout is judged by.

pub mod address;
pub mod disagreements;
pub mod requests;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::host::Handle;
use crate::metrics::HostMetrics;
use crate::rollout::RolloutsHandle;
use address::ListenAddress;
use disagreements::Page;
use requests::RequestPolicy;

/// How long the host's task may be silent before it counts as stuck.
const STUCK_AFTER: Duration = Duration::from_mins(1);
const STUCK: &str = "stuck: the host's task has been silent for a minute";

/// How long the API server may be away before the host is not ready.
const AWAY_AFTER: Duration = Duration::from_secs(15);

/// How long a client may take to send the headers of its next request.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// How the host is: what the probes ask for.
#[derive(Debug)]
pub struct Health {
    started: Instant,
    /// The host knows which controllers there are.
    declared: AtomicBool,
    /// What a controller waits for that was declared.
    waits: Mutex<Option<String>>,
    /// How long the API server has answered no request, if it does not, and why.
    absence: Mutex<Option<(Duration, String)>>,
    /// When the host's task last said that it goes on, in milliseconds since
    /// the start.
    last_beat: AtomicU64,
    /// Why it does not know them.
    unknown: Mutex<Option<String>>,
    /// What keeps controllers from being ready, by their names.
    troubles: Mutex<BTreeMap<String, String>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            declared: AtomicBool::new(false),
            waits: Mutex::new(Some("the controllers were not looked at yet".to_owned())),
            absence: Mutex::default(),
            last_beat: AtomicU64::new(0),
            unknown: Mutex::default(),
            troubles: Mutex::default(),
        }
    }
}

impl Health {
    /// Says that the host goes on, and what its controllers wait for.
    pub fn beat(&self, waits: Option<String>) {
        *self.waits() = waits;
        self.last_beat.store(self.millis(), Ordering::Relaxed);
    }

    fn waits(&self) -> MutexGuard<'_, Option<String>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says how long the API server has answered no request, if it does not, and
    /// why.
    pub fn set_absence(&self, absence: Option<(Duration, String)>) {
        *self.absence() = absence;
    }

    fn absence(&self) -> MutexGuard<'_, Option<(Duration, String)>> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that the host knows which controllers there are: until then there
    /// are none that could wait for anything.
    pub fn declared(&self) {
        self.declared.store(true, Ordering::Relaxed);
    }

    /// Says why the host does not know which controllers there are.
    pub fn set_unknown(&self, reason: String) {
        *self.unknown() = Some(reason);
    }

    fn unknown(&self) -> MutexGuard<'_, Option<String>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the host goes on.
    #[must_use]
    pub fn is_live(&self) -> bool {
        let silent = self.millis() - self.last_beat.load(Ordering::Relaxed).min(self.millis());
        u128::from(silent) < STUCK_AFTER.as_millis()
    }

    /// Whether the host knows its controllers, each has what it waited for, and the
    /// API server answers.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.obstacles().is_empty()
    }

    /// Why the host is not ready, a line each; nothing if it is.
    #[must_use]
    pub fn obstacles(&self) -> Vec<String> {
        let troubles = self.troubles();
        let troubles = troubles.iter();
        let troubles = troubles.map(|(controller, trouble)| format!("{controller}: {trouble}"));
        self.obstacle().into_iter().chain(troubles).collect()
    }

    fn obstacle(&self) -> Option<String> {
        if !self.is_live() {
            return Some(STUCK.to_owned());
        }
        if let Some((lasts, last)) = &*self.absence()
            && *lasts >= AWAY_AFTER
        {
            let seconds = lasts.as_secs();
            return Some(format!(
                "the API server has not answered for {seconds} s: {last}"
            ));
        }
        if !self.declared.load(Ordering::Relaxed) {
            let reason = self.unknown().clone();
            return Some(reason.unwrap_or_else(|| "the controllers are not known yet".to_owned()));
        }
        self.waits().clone()
    }

    /// Says what keeps a controller from being ready; nothing if none.
    pub fn set_trouble(&self, controller: &str, trouble: Option<String>) {
        let mut troubles = self.troubles();
        match trouble {
            Some(trouble) => drop(troubles.insert(controller.to_owned(), trouble)),
            None => drop(troubles.remove(controller)),
        }
    }

    /// Forgets the controllers that there are no more.
    pub fn retain_troubles(&self, is_there: impl Fn(&str) -> bool) {
        self.troubles().retain(|controller, _| is_there(controller));
    }

    fn troubles(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What is served.
#[derive(Clone)]
pub struct Served {
    /// For `/metrics`.
    pub metrics: Arc<HostMetrics>,
    /// For the probes.
    pub health: Arc<Health>,
    /// For what a rollout is judged by.
    pub host: Handle,
    /// For how far rollouts are, and for requests about them.
    pub rollouts: RolloutsHandle,
    /// Whose requests are taken.
    pub requests: RequestPolicy,
}

/// Listens and answers until the task is aborted.
pub async fn serve(
    address: &ListenAddress,
    served: Served,
) -> std::io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = address.listen().await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: let some close.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let served = served.clone();
            let service = service_fn(move |request| {
                let served = served.clone();
                async move { Ok::<_, Infallible>(answer(request, address, &served).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                // Without a timer it waits for a request's headers for ever.
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to the metrics endpoint ended");
                }
            });
        }
    });
    Ok((address, task))
}

async fn answer(
    request: Request<Incoming>,
    address: SocketAddr,
    served: &Served,
) -> Response<Full<Bytes>> {
    let Served {
        metrics, health, ..
    } = served;
    if request.uri().path().starts_with(requests::PATH) {
        return requests::answer(request, address, served).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    match request.uri().path() {
        "/livez" if health.is_live() => text(StatusCode::OK, "ok\n".to_owned()),
        "/livez" => text(StatusCode::SERVICE_UNAVAILABLE, format!("{STUCK}\n")),
        "/readyz" => readiness(health),
        "/metrics" => text(StatusCode::OK, metrics.render()),
        path => match controller_of(path) {
            Some(controller) => disagreements(served, controller).await,
            None => text(
                StatusCode::NOT_FOUND,
                "there is /metrics, /livez, /readyz and /controllers/NAME/disagreements\n"
                    .to_owned(),
            ),
        },
    }
}

fn readiness(health: &Health) -> Response<Full<Bytes>> {
    let obstacles = health.obstacles();
    if obstacles.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    let lines = obstacles.iter().map(|line| format!("not ready: {line}\n"));
    text(StatusCode::SERVICE_UNAVAILABLE, lines.collect())
}

fn controller_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/controllers/")?;
    name.strip_suffix("/disagreements")
}

async fn disagreements(served: &Served, controller: &str) -> Response<Full<Bytes>> {
    let Some(found) = served.host.disagreements(controller).await else {
        let sentence = format!("no candidate of a controller \"{controller}\" is being tried\n");
        return text(StatusCode::NOT_FOUND, sentence);
    };
    let progress = served.rollouts.progress(controller).await;
    match serde_json::to_string(&Page::new(&found, progress.as_ref())) {
        Ok(page) => with_type("application/json", StatusCode::OK, page),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    with_type("text/plain; version=0.0.4; charset=utf-8", status, body)
}

fn with_type(kind: &'static str, status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
