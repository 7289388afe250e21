//! The two ports of a host: one for the probes, and one for `/metrics`, the disagreements
//! of rollouts, and requests to a host that runs from a file.

pub mod access;
pub mod address;
pub mod cluster_comparison;
pub mod disagreements;
mod log;
pub mod requests;
mod server;
pub mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use davit_core::health::STUCK;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::driver::Handle;
use crate::health::Health;
use crate::metrics::HostMetrics;
use crate::telemetry::LogFilter;
use access::Access;
use address::ListenAddress;
use disagreements::Page;
use requests::RequestPolicy;
use server::{Answer, Limits, Port};

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
    /// For `/log`; none if nobody may change it.
    pub log: Option<LogFilter>,
    /// Who may use the port.
    pub access: Access,
}

const LIMITS: Limits = Limits {
    connections: 64,
    headers: Duration::from_secs(10),
    lifetime: Duration::from_mins(10),
    last_request: Duration::from_secs(30),
    keep_alive: true,
};

/// The kubelet restarts a host that does not answer its probe: who holds connections open
/// must not keep it out.
const PROBE_LIMITS: Limits = Limits {
    connections: 1024,
    headers: Duration::from_secs(2),
    lifetime: Duration::from_secs(5),
    last_request: Duration::from_secs(1),
    keep_alive: false,
};

pub use log::PATH as LOG_PATH;

/// The longest path, in bytes.
const LONGEST_PATH: usize = 1024;

/// Listens, and answers until the task is aborted; with TLS if there is an acceptor.
/// Without access control, the address must be on loopback.
pub async fn serve(
    address: &ListenAddress,
    tls: Option<TlsAcceptor>,
    endpoints: Endpoints,
) -> std::io::Result<(SocketAddr, JoinHandle<()>)> {
    let port = Port {
        address,
        tls,
        only_loopback: matches!(endpoints.access, Access::Everyone),
        limits: LIMITS,
    };
    let endpoints = Arc::new(endpoints);
    server::serve(port, move |request, address| {
        let endpoints = Arc::clone(&endpoints);
        async move { answer(request, address, &endpoints).await }
    })
    .await
}

/// Listens, and answers the probes of the kubelet until the task is aborted. They say
/// nothing about the cluster but the names of controllers, and need no token.
pub async fn serve_probes(
    address: &ListenAddress,
    health: Arc<Health>,
) -> std::io::Result<(SocketAddr, JoinHandle<()>)> {
    let port = Port {
        address,
        tls: None,
        only_loopback: false,
        limits: PROBE_LIMITS,
    };
    server::serve(port, move |request, _| {
        let answer = probe(&request, &health);
        let answer =
            answer.unwrap_or_else(|| not_found("the paths of this port are /livez and /readyz\n"));
        std::future::ready(answer)
    })
    .await
}

async fn answer(request: Request<Incoming>, address: SocketAddr, endpoints: &Endpoints) -> Answer {
    if request.uri().path().len() > LONGEST_PATH {
        return text(
            StatusCode::URI_TOO_LONG,
            "the path is too long\n".to_owned(),
        );
    }
    if let Err(refusal) = requests::check_sender(request.headers(), address.ip()) {
        return refusal.answer();
    }
    if let Err(denial) = endpoints.access.check(&request).await {
        return denial.answer();
    }
    if requests::name_in(request.uri().path()).is_some() {
        return requests::answer(request, endpoints).await;
    }
    if let Some(answer) = probe(&request, &endpoints.health) {
        return answer;
    }
    if let (log::PATH, Some(filter)) = (request.uri().path(), &endpoints.log) {
        return log::answer(request, filter).await;
    }
    if let Some(refusal) = not_a_read(&request) {
        return refusal;
    }
    match request.uri().path() {
        "/metrics" => text(StatusCode::OK, endpoints.metrics.render()),
        path => match controller_of(path) {
            Some((controller, "disagreements")) => disagreements(endpoints, controller).await,
            Some((controller, "cluster")) => against_cluster(endpoints, controller).await,
            _ => not_found(
                "not found: the paths are /metrics, /livez, /readyz, /log, \
                 /controllers/NAME/disagreements and /controllers/NAME/cluster\n",
            ),
        },
    }
}

/// The answer to a probe; none if the request is no probe.
fn probe(request: &Request<Incoming>, health: &Health) -> Option<Answer> {
    let answer = match request.uri().path() {
        "/livez" if health.is_live() => text(StatusCode::OK, "ok\n".to_owned()),
        "/livez" => text(StatusCode::SERVICE_UNAVAILABLE, format!("{STUCK}\n")),
        "/readyz" => readiness(health),
        _ => return None,
    };
    Some(not_a_read(request).unwrap_or(answer))
}

/// The refusal of a request that is neither GET nor HEAD.
fn not_a_read(request: &Request<Incoming>) -> Option<Answer> {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    let sentence = "only GET is allowed\n".to_owned();
    (!is_read).then(|| text(StatusCode::METHOD_NOT_ALLOWED, sentence))
}

fn not_found(sentence: &str) -> Answer {
    text(StatusCode::NOT_FOUND, sentence.to_owned())
}

fn readiness(health: &Health) -> Answer {
    let (status, lines) = readiness_lines(&health.not_ready(), health.is_journal_stopped());
    text(status, lines)
}

/// A journal that records nothing makes no host unready: its controllers are not affected.
fn readiness_lines(reasons: &[String], is_journal_stopped: bool) -> (StatusCode, String) {
    let (status, mut lines) = if reasons.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        let lines = reasons.iter().map(|line| format!("not ready: {line}\n"));
        (StatusCode::SERVICE_UNAVAILABLE, lines.collect())
    };
    if is_journal_stopped {
        // Everyone may read this: the error names a path.
        lines.push_str("the journal records nothing: see the log of the host\n");
    }
    (status, lines)
}

/// The name of a controller in a path, and what is asked about it.
fn controller_of(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("/controllers/")?.rsplit_once('/')
}

async fn against_cluster(endpoints: &Endpoints, controller: &str) -> Answer {
    let Some((found, counts)) = endpoints.host.cluster_comparison(controller).await else {
        let sentence = format!(
            "the controller \"{controller}\" is not compared with the cluster: set \
             spec.compareWith to Cluster, with the mode DryRun\n"
        );
        return text(StatusCode::NOT_FOUND, sentence);
    };
    json(&cluster_comparison::Page::new(&found, counts))
}

async fn disagreements(endpoints: &Endpoints, controller: &str) -> Answer {
    let Some(found) = endpoints.host.disagreements(controller).await else {
        let is_known = endpoints.host.specs().await.contains_key(controller);
        let sentence = if is_known {
            format!("the controller \"{controller}\" has no candidate\n")
        } else {
            format!("the host has no controller \"{controller}\"\n")
        };
        return text(StatusCode::NOT_FOUND, sentence);
    };
    let progress = endpoints.host.progress(controller).await;
    json(&Page::new(&found, progress.as_ref()))
}

fn json(page: &impl Serialize) -> Answer {
    match serde_json::to_string(page) {
        Ok(page) => with_type("application/json", StatusCode::OK, page),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

fn text(status: StatusCode, body: String) -> Answer {
    with_type("text/plain; version=0.0.4; charset=utf-8", status, body)
}

fn with_type(kind: &'static str, status: StatusCode, body: String) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_that_records_nothing_is_named_and_the_host_stays_ready() {
        let stopped = "the journal records nothing: see the log of the host\n";
        let reasons = ["no lists".to_owned()];
        for (reasons, is_stopped, status, lines) in [
            (&[][..], false, 200, "ok\n".to_owned()),
            (&[], true, 200, format!("ok\n{stopped}")),
            (
                &reasons,
                true,
                503,
                format!("not ready: no lists\n{stopped}"),
            ),
        ] {
            let (found, text) = readiness_lines(reasons, is_stopped);
            assert_eq!((found.as_u16(), text), (status, lines));
        }
    }
}
