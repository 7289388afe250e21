//! Observation of the requests that a client sends, also of those that kube sends itself.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use http::header::DATE;
use http::{Method, Request, Response};
use kube::client::Body;
use tokio::time::Instant;
use tower::{Layer, Service};

/// Observes requests.
pub trait RequestObserver: Send + Sync + 'static {
    /// The head of an answer arrived, or there was none.
    fn ended(&self, request: &RequestObservation<'_>);
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestObservation<'a> {
    /// The method.
    pub method: &'a Method,
    /// The server's name or address, and its port.
    pub host: &'a str,
    /// The status of the answer; none without an answer.
    pub code: Option<u16>,
    /// The time from the request to the head of the answer, or to its failure.
    pub took: Duration,
    /// How far this machine's clock is off the server's at least; none without an answer, or where the
    /// answer may be an aggregated API server's.
    pub clock: Option<ClockOffset>,
}

/// How far a clock is off another one, in seconds: positive if it is ahead. It is off by at least as
/// much, whatever an answer took and the server's seconds leave out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockOffset(pub f64);

impl ClockOffset {
    /// By the `Date` of an answer to a request that was sent and answered at these times.
    fn of(date: SystemTime, sent: SystemTime, answered: SystemTime) -> Self {
        let since = |one: SystemTime, other: SystemTime| {
            one.duration_since(other).unwrap_or_default().as_secs_f64()
        };
        let ahead = since(sent, date + Duration::from_secs(1));
        let behind = since(date, answered);
        Self(ahead - behind)
    }
}

/// Observes the requests of a client to this server.
#[derive(Clone)]
pub(crate) struct ObserveLayer {
    observer: Arc<dyn RequestObserver>,
    host: Arc<str>,
}

impl ObserveLayer {
    pub(crate) fn new(observer: Arc<dyn RequestObserver>, server: &http::Uri) -> Self {
        let host = server.authority().map_or("", |server| server.as_str());
        Self {
            observer,
            host: host.into(),
        }
    }
}

impl<S> Layer<S> for ObserveLayer {
    type Service = ObservedService<S>;

    fn layer(&self, inner: S) -> ObservedService<S> {
        ObservedService {
            inner,
            layer: self.clone(),
        }
    }
}

/// A client whose requests are observed.
pub(crate) struct ObservedService<S> {
    inner: S,
    layer: ObserveLayer,
}

impl<S, B> Service<Request<Body>> for ObservedService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let exchange = Exchange {
            layer: self.layer.clone(),
            method: request.method().clone(),
            started: Instant::now(),
            sent: SystemTime::now(),
            code: None,
            is_own: is_own(request.uri().path()),
            clock: None,
        };
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if let Ok(answer) = &answer {
                exchange.end(answer);
            }
            answer
        })
    }
}

/// A request on its way. A caller that stops waiting drops it: then there is no answer.
struct Exchange {
    layer: ObserveLayer,
    method: Method,
    started: Instant,
    sent: SystemTime,
    code: Option<u16>,
    /// Whether the server answers itself.
    is_own: bool,
    clock: Option<ClockOffset>,
}

/// Whether a path is of a group that no aggregated API server serves.
fn is_own(path: &str) -> bool {
    const GROUPS: [&str; 4] = ["apps", "batch", "coordination.k8s.io", "davit.dev"];
    let group = path
        .strip_prefix("/apis/")
        .and_then(|rest| rest.split('/').next());
    path.starts_with("/api/") || group.is_some_and(|group| GROUPS.contains(&group))
}

impl Exchange {
    fn end<B>(mut self, answer: &Response<B>) {
        self.code = Some(answer.status().as_u16());
        let date = answer
            .headers()
            .get(DATE)
            .filter(|_| self.is_own)
            .and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        self.clock = date.map(|date| ClockOffset::of(date, self.sent, SystemTime::now()));
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.layer.observer.ended(&RequestObservation {
            method: &self.method,
            host: &self.layer.host,
            code: self.code,
            took: self.started.elapsed(),
            clock: self.clock,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;
    use std::time::Duration;

    use http::StatusCode;
    use tokio::time::{sleep, timeout};
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    type LogEntry = (String, String, Option<u16>, Duration);

    #[derive(Default)]
    struct Log(Mutex<Vec<LogEntry>>);

    impl RequestObserver for Log {
        fn ended(&self, request: &RequestObservation<'_>) {
            self.0.lock().unwrap().push((
                request.method.to_string(),
                request.host.to_owned(),
                request.code,
                request.took,
            ));
        }
    }

    #[test]
    fn a_clock_is_off_by_what_neither_the_way_nor_the_seconds_of_a_date_explain() {
        let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
        // The server's clock is between 100.000 and 100.999 s.
        let off = |sent, answered| ClockOffset::of(at(100_000), at(sent), at(answered));
        assert_eq!(off(100_000, 100_010), ClockOffset(0.0));
        assert_eq!(off(100_990, 101_020), ClockOffset(0.0));
        assert_eq!(off(98_000, 103_000), ClockOffset(0.0));
        assert_eq!(off(111_000, 113_000), ClockOffset(10.0));
        assert_eq!(off(88_000, 90_000), ClockOffset(-10.0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_and_a_request_that_nobody_waits_for_are_observed() {
        let log = Arc::new(Log::default());
        let server = "https://10.96.0.1:443/prefix".parse().unwrap();
        let layer = ObserveLayer::new(Arc::clone(&log) as Arc<dyn RequestObserver>, &server);
        let service = layer.layer(service_fn(|request: Request<Body>| async move {
            sleep(Duration::from_secs(2)).await;
            let mut answer = Response::new(Body::empty());
            if request.method() == Method::POST {
                *answer.status_mut() = StatusCode::CONFLICT;
            }
            Ok::<_, Infallible>(answer)
        }));
        let mut service = service;
        for method in [Method::GET, Method::POST] {
            let request = Request::builder().method(method);
            let request = request.body(Body::empty()).unwrap();
            let ready = service.ready().await.unwrap();
            ready.call(request).await.unwrap();
        }
        let request = Request::delete("/").body(Body::empty()).unwrap();
        let waiting = service.ready().await.unwrap().call(request);
        timeout(Duration::from_secs(1), waiting).await.unwrap_err();
        let host = || "10.96.0.1:443".to_owned();
        let seconds = Duration::from_secs;
        assert_eq!(
            *log.0.lock().unwrap(),
            [
                ("GET".to_owned(), host(), Some(200), seconds(2)),
                ("POST".to_owned(), host(), Some(409), seconds(2)),
                ("DELETE".to_owned(), host(), None, seconds(1)),
            ]
        );
    }
}
