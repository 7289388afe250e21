//! The connections to the API server: TCP, TLS and HTTP, as kube's own client has them. They
//! send no request after its term.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::connect::{Connect, Connection, HttpConnector};
use hyper_util::client::legacy::{Builder, Client, Error};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::Config;
use tower::{BoxError, Service};

use crate::fence::{FencedBody, FencedConnector, fenced};

/// An HTTP client.
#[derive(Clone)]
pub(crate) struct Connections<C> {
    client: Client<C, FencedBody>,
    server: Arc<str>,
}

/// There is no connection to the server. The errors of hyper do not name it.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {server}")]
struct Unconnected {
    server: Arc<str>,
    source: Error,
}

/// Makes TCP connections.
pub(crate) fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // HTTP/2 writes small frames, and Nagle's algorithm would hold them for 40 ms.
    tcp.set_nodelay(true);
    // A server whose machine is gone closes nothing. Each request, also one for a lease, would try
    // another idle connection to it, and time out: after half a minute, there are none.
    tcp.set_keepalive(Some(Duration::from_secs(15)));
    tcp.set_keepalive_interval(Some(Duration::from_secs(5)));
    tcp.set_keepalive_retries(Some(3));
    tcp
}

/// The connections to the server of a configuration, without a proxy, on what `tcp` connects.
pub(crate) fn connections<T>(
    config: &Config,
    tcp: T,
) -> Result<Connections<impl Connect + Clone + Send + Sync + 'static>, kube::Error>
where
    T: Service<Uri> + Clone + Send + Sync + 'static,
    T::Response: Connection + Read + Write + Send + Unpin + 'static,
    T::Future: Send + 'static,
    T::Error: std::error::Error + Send + Sync + 'static,
{
    let tls = config.rustls_https_connector_with_connector(FencedConnector::new(tcp))?;
    let mut connector = TimeoutConnector::new(tls);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let client = Builder::new(TokioExecutor::new()).build(connector);
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/').into();
    Ok(Connections { client, server })
}

impl<C> Service<Request<Body>> for Connections<C>
where
    C: Connect + Clone + Send + Sync + 'static,
{
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Incoming>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (request, passage) = fenced(request);
        let sent = self.client.request(request);
        let server = Arc::clone(&self.server);
        Box::pin(async move {
            let answer = sent.await.map_err(|source| {
                if source.is_connect() {
                    Unconnected { server, source }.into()
                } else {
                    BoxError::from(source)
                }
            })?;
            passage.answered();
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::TcpListener;
    use tower::ServiceExt as _;

    use super::*;

    /// Whether the kernel asks whether the peer of the socket with this local port is there: the
    /// timer of its line in `/proc/net/tcp` is the one of number 2.
    fn is_kept_alive(port: u16) -> bool {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let local = format!(":{port:04X}");
        let mut lines = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line[1].ends_with(&local)).unwrap();
        line[5].starts_with("02:")
    }

    #[tokio::test]
    async fn an_idle_connection_to_a_server_that_is_gone_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let connected = tcp().oneshot(url.parse().unwrap()).await.unwrap();
        let local: SocketAddr = connected.inner().local_addr().unwrap();
        assert!(is_kept_alive(local.port()));
    }
}
