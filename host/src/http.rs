//! `/metrics`, `/livez` and `/readyz`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::metrics::HostMetrics;

/// What the probes ask for.
#[derive(Debug, Default)]
pub struct Readiness {
    /// The API server answered and every controller has what it waits for.
    ready: AtomicBool,
}

impl Readiness {
    /// Says whether the host is ready.
    pub fn set(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }

    /// Whether the host is ready.
    pub fn get(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

/// Listens and answers until the task is aborted.
pub async fn serve(
    address: SocketAddr,
    metrics: Arc<HostMetrics>,
    readiness: Arc<Readiness>,
) -> std::io::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let task = tokio::spawn(async move {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: let some close.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (metrics, readiness) = (Arc::clone(&metrics), Arc::clone(&readiness));
            let service = service_fn(move |request| {
                let response = answer(&request, &metrics, &readiness);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
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

fn answer(
    request: &Request<Incoming>,
    metrics: &HostMetrics,
    readiness: &Readiness,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET\n".to_owned());
    }
    match request.uri().path() {
        "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" if readiness.get() => text(StatusCode::OK, "ok\n".to_owned()),
        "/readyz" => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "not ready: a controller waits for its watches\n".to_owned(),
        ),
        "/metrics" => text(StatusCode::OK, metrics.render()),
        _ => text(
            StatusCode::NOT_FOUND,
            "there is /metrics, /livez and /readyz\n".to_owned(),
        ),
    }
}

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let plain = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}
