//! The connections of watches, which share them by HTTP/2.
//!
//! Other requests stay on HTTP/1.1, where a connection has one request at a time. A request
//! whose term is over, or that gets no answer, ends with its connection: that must not end
//! watches, and a renewal of a lease must not wait behind it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _, RustlsTlsError};
use kube::config::Config;
use tower::{BoxError, Service};

/// The most watches on one connection. A kube-apiserver allows 100 requests, unless
/// `--http2-max-streams-per-connection` says otherwise. Hyper's client would let more of
/// them wait for the end of another watch.
const MOST_WATCHES: usize = 64;
/// How much of one watch may wait to be read, in bytes.
const STREAM_WINDOW: u32 = 512 << 10;
/// How much of all watches of a connection may wait to be read: a watch that is not read for
/// a while does not hold up the others.
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;
/// A connection that does not answer a ping is dead: its watches start again on another one.
/// That is sooner than the silence which ends a single watch.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

type Connector = TimeoutConnector<HttpsConnector<HttpConnector>>;

/// Sends watches over connections of their own.
#[derive(Clone)]
pub(crate) struct WatchConnections {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    builder: Builder,
    open: Mutex<Vec<Arc<Connection>>>,
}

/// One HTTP/2 connection; at a server without HTTP/2, a pool of connections.
struct Connection(Client<Connector, Body>);

impl WatchConnections {
    /// The connections to the server of a configuration, without a proxy. The server chooses
    /// between HTTP/2 and HTTP/1.1 in the TLS handshake; none without TLS.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, kube::Error> {
        if config.cluster_url.scheme_str() != Some("https") {
            return Ok(None);
        }
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        Ok(Some(Self {
            shared: Arc::new(Shared {
                connector: connector(config)?,
                builder,
                open: Mutex::default(),
            }),
        }))
    }

    fn send(
        &self,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Answer>, BoxError>> {
        let connection = self.connection();
        Box::pin(async move {
            let answer = connection.0.request(request).await?;
            Ok(answer.map(|body| Answer {
                body,
                _connection: Some(connection),
            }))
        })
    }

    /// A connection with room for one more watch.
    fn connection(&self) -> Arc<Connection> {
        let shared = &*self.shared;
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        // Each watch holds its connection, and this list does.
        let has_room = |one: &&Arc<Connection>| Arc::strong_count(one) <= MOST_WATCHES;
        if let Some(connection) = open.iter().find(has_room) {
            return Arc::clone(connection);
        }
        let client = shared.builder.build(shared.connector.clone());
        let connection = Arc::new(Connection(client));
        open.push(Arc::clone(&connection));
        connection
    }
}

/// TCP and TLS, as kube's own client has them.
fn connector(config: &Config) -> Result<Connector, kube::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // HTTP/2 writes small frames, and Nagle's algorithm would hold them for 40 ms.
    tcp.set_nodelay(true);
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_only();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into();
        let name = name.map_err(RustlsTlsError::InvalidServerName);
        let name = name.map_err(kube::Error::RustlsTls)?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let tls = builder.enable_http1().enable_http2().wrap_connector(tcp);
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    Ok(connector)
}

/// Sends watches one way, and all other requests another way.
#[derive(Clone)]
pub(crate) struct Routed<S> {
    watches: Option<WatchConnections>,
    requests: S,
}

impl<S> Routed<S> {
    /// Without connections for watches, these are requests like all others.
    pub(crate) fn new(watches: Option<WatchConnections>, requests: S) -> Self {
        Self { watches, requests }
    }
}

impl<S> Service<Request<Body>> for Routed<S>
where
    S: Service<Request<Body>, Response = Response<Incoming>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.requests.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if let Some(watches) = self.watches.as_ref().filter(|_| is_watch(&request)) {
            return watches.send(request);
        }
        let sent = self.requests.call(request);
        Box::pin(async move {
            let answer = sent.await.map_err(Into::into)?;
            Ok(answer.map(|body| Answer {
                body,
                _connection: None,
            }))
        })
    }
}

fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut parameters = query.split('&');
    parameters.any(|parameter| matches!(parameter, "watch=true" | "watch=1"))
}

/// The body of an answer.
pub(crate) struct Answer {
    body: Incoming,
    /// Held until the watch ends: it takes a place on the connection.
    _connection: Option<Arc<Connection>>,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
