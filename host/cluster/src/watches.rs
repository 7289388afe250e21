//! The connections of watches, which share them by HTTP/2.
//!
//! Other requests stay on HTTP/1.1, where a connection has one request at a time. A request
//! whose term is over, or that gets no answer, ends with its connection: that must not end
//! watches, and a renewal of a lease must not wait behind it.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _, RustlsTlsError};
use kube::config::Config;
use tokio::time::timeout;
use tower::{BoxError, Service};

use crate::connections::tcp;
use crate::paced::PacedConnector;

/// The most watches on one connection. A kube-apiserver allows 100 requests, unless
/// `--http2-max-streams-per-connection` says otherwise. Hyper's client would let more of
/// them wait for the end of another watch.
const MOST_WATCHES: usize = 64;
/// How long a watch waits for the start of its answer before another connection is tried. The
/// server, or a proxy in front of it, may allow fewer requests than expected, and hyper's client
/// says so to nobody. The second wait is twice as long, and so on: a server may be slow.
const FIRST_PATIENCE: Duration = Duration::from_secs(10);
/// How long a watch waits for the first one of its connection to start. Nobody knows before whether
/// the server speaks HTTP/2, and hyper's client opens a connection for each request until then.
const TURN: Duration = Duration::from_secs(1);
/// How often a watch is sent again that the server has refused unread.
const MOST_REFUSALS: usize = 5;
/// How much of one watch may wait to be read, in bytes.
const STREAM_WINDOW: u32 = 512 << 10;
/// How much of all watches of a connection may wait to be read: a watch that is not read for
/// a while does not hold up the others.
const CONNECTION_WINDOW: u32 = 64 * STREAM_WINDOW;
/// A connection that does not answer a ping is dead: its watches start again on another one.
/// That is sooner than the silence which ends a single watch.
const PING_INTERVAL: Duration = Duration::from_secs(10);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

type Connector = TimeoutConnector<HttpsConnector<PacedConnector>>;

/// The connections of watches: those of nodes and Leases, on which kubelets say all the time that
/// nodes are alive, and those of all others, of which no event may wait.
#[derive(Clone)]
pub(crate) struct Watches {
    heartbeats: WatchConnections,
    others: WatchConnections,
}

impl Watches {
    /// The connections to the server of a configuration, without a proxy. The server chooses
    /// between HTTP/2 and HTTP/1.1 in the TLS handshake; none without TLS.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, kube::Error> {
        if config.cluster_url.scheme_str() != Some("https") {
            return Ok(None);
        }
        Ok(Some(Self {
            heartbeats: WatchConnections::new(config, true)?,
            others: WatchConnections::new(config, false)?,
        }))
    }

    fn of(&self, uri: &Uri) -> &WatchConnections {
        if has_heartbeats(uri.path()) {
            &self.heartbeats
        } else {
            &self.others
        }
    }
}

/// Whether a watch is of nodes or of Leases. The server's address may have a path before it.
fn has_heartbeats(path: &str) -> bool {
    let are_leases = path.contains("/apis/coordination.k8s.io/") && path.ends_with("/leases");
    are_leases || path.ends_with("/api/v1/nodes")
}

/// Sends watches over connections of their own.
#[derive(Clone)]
struct WatchConnections {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    builder: Builder,
    pool: Mutex<Pool>,
}

struct Pool {
    connections: Vec<Arc<Connection>>,
    /// The most watches on one of them.
    most: usize,
}

/// One HTTP/2 connection; at a server without HTTP/2, a pool of connections.
struct Connection {
    client: Client<Connector, Body>,
    /// Held by the watch that is sent first.
    first: tokio::sync::Mutex<()>,
    /// The watches whose answer has started.
    open: AtomicUsize,
}

impl Connection {
    /// The turn to send the first watch; none if others are open, or if the first one takes long.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let is_first = || self.open.load(Ordering::Relaxed) == 0;
        if !is_first() {
            return None;
        }
        let turn = timeout(TURN, self.first.lock()).await.ok()?;
        is_first().then_some(turn)
    }
}

/// A watch whose answer has started: it has a place on its connection.
struct OpenWatch(Arc<Connection>);

impl OpenWatch {
    fn new(connection: Arc<Connection>) -> Self {
        connection.open.fetch_add(1, Ordering::Relaxed);
        Self(connection)
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WatchConnections {
    fn new(config: &Config, is_paced: bool) -> Result<Self, kube::Error> {
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        Ok(Self {
            shared: Arc::new(Shared {
                connector: connector(config, is_paced)?,
                builder,
                pool: Mutex::new(Pool {
                    connections: Vec::new(),
                    most: MOST_WATCHES,
                }),
            }),
        })
    }

    fn send(
        &self,
        request: Request<Body>,
    ) -> BoxFuture<'static, Result<Response<Answer>, BoxError>> {
        let connections = self.clone();
        // A watch has no body.
        let (parts, _) = request.into_parts();
        Box::pin(async move {
            let mut patience = FIRST_PATIENCE;
            let mut refusals = 0;
            'connections: loop {
                let connection = connections.connection();
                let _turn = connection.turn().await;
                let request = Request::from_parts(parts.clone(), Body::empty());
                let mut sent = pin!(connection.client.request(request));
                loop {
                    if let Ok(answer) = timeout(patience, &mut sent).await {
                        if answer.as_ref().is_err_and(|error| is_refused(error))
                            && refusals < MOST_REFUSALS
                        {
                            refusals += 1;
                            continue 'connections;
                        }
                        let place = OpenWatch::new(Arc::clone(&connection));
                        return Ok(answer?.map(|body| Answer {
                            body,
                            _place: Some(place),
                        }));
                    }
                    patience *= 2;
                    if connections.learn_limit(&connection) {
                        break;
                    }
                }
            }
        })
    }

    /// An answer does not start on a connection. If the server answers others there, it may have
    /// no room for more: no connection gets more watches from now on. Returns whether that is so.
    fn learn_limit(&self, connection: &Connection) -> bool {
        let open = connection.open.load(Ordering::Relaxed);
        let mut pool = self.pool();
        if open > 0 && open < pool.most {
            tracing::warn!(
                "the API server answers only {open} watches on one HTTP/2 connection: the others \
                 get connections of their own (davit run --http1 gives each watch one)"
            );
            pool.most = open;
        }
        open > 0
    }

    /// A connection with room for one more watch.
    fn connection(&self) -> Arc<Connection> {
        let mut pool = self.pool();
        let most = pool.most;
        // Each watch holds its connection, and this list does.
        let watches = |one: &Arc<Connection>| Arc::strong_count(one).saturating_sub(1);
        let mut room = pool.connections.iter().filter(|one| watches(one) < most);
        if let Some(connection) = room.next() {
            return Arc::clone(connection);
        }
        let connection = Arc::new(Connection {
            client: self.shared.builder.build(self.shared.connector.clone()),
            first: tokio::sync::Mutex::default(),
            open: AtomicUsize::new(0),
        });
        pool.connections.push(Arc::clone(&connection));
        connection
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        let pool = self.shared.pool.lock();
        pool.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the server has refused a request unread, because the connection has too many. It
/// says how many it allows only after the first ones were sent; hyper heeds that afterwards.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(cause) = cause.downcast_ref::<h2::Error>() {
            return cause.reason() == Some(h2::Reason::REFUSED_STREAM);
        }
        next = cause.source();
    }
    false
}

/// TCP and TLS, as kube's own client has them.
fn connector(config: &Config, is_paced: bool) -> Result<Connector, kube::Error> {
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_only();
    if let Some(name) = &config.tls_server_name {
        let name = name.clone().try_into();
        let name = name.map_err(RustlsTlsError::InvalidServerName);
        let name = name.map_err(kube::Error::RustlsTls)?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    let tls = builder.enable_http1().enable_http2();
    let tls = tls.wrap_connector(PacedConnector::new(tcp(), is_paced));
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
    watches: Option<Watches>,
    requests: S,
}

impl<S> Routed<S> {
    /// Without connections for watches, these are requests like all others.
    pub(crate) fn new(watches: Option<Watches>, requests: S) -> Self {
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
            return watches.of(request.uri()).send(request);
        }
        let sent = self.requests.call(request);
        Box::pin(async move {
            let answer = sent.await.map_err(Into::into)?;
            Ok(answer.map(|body| Answer { body, _place: None }))
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
    /// Held until the watch ends.
    _place: Option<OpenWatch>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_leases_have_heartbeats() {
        for path in [
            "/api/v1/nodes",
            "/k8s/clusters/c-1/api/v1/nodes",
            "/apis/coordination.k8s.io/v1/leases",
            "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        ] {
            assert!(has_heartbeats(path), "{path}");
        }
        for path in [
            "/api/v1/pods",
            "/api/v1/namespaces/nodes/pods",
            "/apis/metrics.k8s.io/v1beta1/nodes",
            "/apis/example.com/v1/leases",
            "/apis/coordination.k8s.io/v1alpha2/leasecandidates",
        ] {
            assert!(!has_heartbeats(path), "{path}");
        }
    }
}
