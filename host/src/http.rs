//! The HTTP server of a host: `/metrics`, `/livez`, `/readyz`, the disagreements of
//! rollouts, and requests to a host that runs from a file.

pub mod address;
pub mod disagreements;
pub mod requests;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinHandle;

use crate::driver::Handle;
use crate::health::{Health, STUCK};
use crate::metrics::HostMetrics;
use address::ListenAddress;
use disagreements::Page;
use requests::RequestPolicy;

/// How long a client may take to send the headers of its next request.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);

/// The state that the server reads.
#[derive(Clone)]
pub struct Endpoints {
    /// For `/metrics`.
    pub metrics: Arc<HostMetrics>,
    /// For the probes.
    pub health: Arc<Health>,
    /// For the paths below `/controllers`, and for requests.
    pub host: Handle,
    /// Which requests the host accepts.
    pub requests: RequestPolicy,
}

/// Listens, and answers until the task is aborted.
pub async fn serve(
    address: &ListenAddress,
    endpoints: Endpoints,
) -> std::io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = address.listen().await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The process is probably out of file descriptors: wait until some
                    // are closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let endpoints = endpoints.clone();
            let service = service_fn(move |request| {
                let endpoints = endpoints.clone();
                async move { Ok::<_, Infallible>(answer(request, address, &endpoints).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                // Without a timer, hyper waits for the headers of a request forever.
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_WITHIN)
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "an HTTP connection failed");
                }
            });
        }
    });
    Ok((address, task))
}

async fn answer(
    request: Request<Incoming>,
    address: SocketAddr,
    endpoints: &Endpoints,
) -> Response<Full<Bytes>> {
    let Endpoints {
        metrics, health, ..
    } = endpoints;
    if request.uri().path().starts_with(requests::PATH) {
        return requests::answer(request, address, endpoints).await;
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET is allowed\n".to_owned(),
        );
    }
    match request.uri().path() {
        "/livez" if health.is_live() => text(StatusCode::OK, "ok\n".to_owned()),
        "/livez" => text(StatusCode::SERVICE_UNAVAILABLE, format!("{STUCK}\n")),
        "/readyz" => readiness(health),
        "/metrics" => text(StatusCode::OK, metrics.render()),
        path => match controller_of(path) {
            Some(controller) => disagreements(endpoints, controller).await,
            None => text(
                StatusCode::NOT_FOUND,
                "not found: the paths are /metrics, /livez, /readyz and \
                 /controllers/NAME/disagreements\n"
                    .to_owned(),
            ),
        },
    }
}

fn readiness(health: &Health) -> Response<Full<Bytes>> {
    let reasons = health.not_ready();
    if reasons.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    let lines = reasons.iter().map(|line| format!("not ready: {line}\n"));
    text(StatusCode::SERVICE_UNAVAILABLE, lines.collect())
}

fn controller_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/controllers/")?;
    name.strip_suffix("/disagreements")
}

async fn disagreements(endpoints: &Endpoints, controller: &str) -> Response<Full<Bytes>> {
    let Some(found) = endpoints.host.disagreements(controller).await else {
        let sentence = format!("the controller \"{controller}\" has no candidate\n");
        return text(StatusCode::NOT_FOUND, sentence);
    };
    let progress = endpoints.host.progress(controller).await;
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
