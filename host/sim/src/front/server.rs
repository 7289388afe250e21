//! The simulator on a socket.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::Version;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::tls::HTTP2;
use super::{Identity, Sim};

/// How long a connection of HTTP/1 may be idle, or send a header: as at kube-apiserver, and longer than
/// a client polls discovery.
const IDLE: Duration = Duration::from_secs(90);

/// How many requests one HTTP/2 connection may have: what a kube-apiserver allows unless
/// `--http2-max-streams-per-connection` says otherwise.
const MOST_STREAMS: u32 = 100;

/// A listener. Dropping it stops listening; connections that are open are
/// closed with it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    scheme: &'static str,
    accepting: JoinHandle<()>,
    /// The most requests at once on an HTTP/2 connection that is opened.
    streams: Arc<AtomicU32>,
    /// Changes when the open connections are to take no more requests.
    drained: watch::Sender<()>,
}

/// One accepted connection.
pub type Connection = TcpStream;

impl Server {
    /// Listens on `address` (port 0: any free one) and serves `sim` there, in
    /// plain HTTP/1.1.
    pub async fn start(address: SocketAddr, sim: Sim) -> std::io::Result<Self> {
        Server::listen(address, sim, None).await
    }

    /// The same with TLS. Clients that speak plain HTTP are served, too.
    pub async fn start_tls(
        address: SocketAddr,
        sim: Sim,
        identity: &Identity,
    ) -> std::io::Result<Self> {
        Server::listen(address, sim, Some(identity.acceptor.clone())).await
    }

    async fn listen(
        address: SocketAddr,
        sim: Sim,
        tls: Option<TlsAcceptor>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let drained = watch::Sender::new(());
        let streams = Arc::new(AtomicU32::new(MOST_STREAMS));
        Ok(Server {
            address: listener.local_addr()?,
            scheme: if tls.is_some() { "https" } else { "http" },
            accepting: tokio::spawn(accept(
                listener,
                sim,
                tls,
                Arc::clone(&streams),
                drained.clone(),
            )),
            streams,
            drained,
        })
    }

    /// Asks every client to open another connection: by GOAWAY in HTTP/2, as an API server
    /// does with `--goaway-chance`. Requests under way continue.
    pub fn drain(&self) {
        self.drained.send_replace(());
    }

    /// Allows so many requests at once on each HTTP/2 connection from now on, as some proxies in
    /// front of an API server do.
    pub fn limit_streams(&self, most: u32) {
        self.streams.store(most, Ordering::Relaxed);
    }

    /// The number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.drained.receiver_count()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    sim: Sim,
    tls: Option<TlsAcceptor>,
    streams: Arc<AtomicU32>,
    drained: watch::Sender<()>,
) {
    // Dropped with this task, and with it every connection.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let drained = drained.subscribe();
                    let streams = streams.load(Ordering::Relaxed);
                    let served = serve(stream, sim.clone(), tls.clone(), streams, drained);
                    connections.spawn(served);
                }
                // Out of file descriptors, most likely: let some close.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(
    stream: Connection,
    sim: Sim,
    tls: Option<TlsAcceptor>,
    streams: u32,
    drained: watch::Receiver<()>,
) {
    // Events are small and must not wait for each other.
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr().ok();
    match tls {
        Some(tls) if speaks_tls(&stream).await => {
            // A client that does not trust the certificate hangs up.
            if let Ok(stream) = tls.accept(stream).await {
                let version = match stream.get_ref().1.alpn_protocol() {
                    Some(HTTP2) => Version::HTTP_2,
                    _ => Version::HTTP_11,
                };
                serve_http(stream, version, peer, sim, streams, drained).await;
            }
        }
        _ => serve_http(stream, Version::HTTP_11, peer, sim, streams, drained).await,
    }
}

/// Whether the connection starts with a TLS handshake.
async fn speaks_tls(stream: &Connection) -> bool {
    const HANDSHAKE: u8 = 22;
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1)) && first == [HANDSHAKE]
}

async fn serve_http(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    version: Version,
    peer: Option<SocketAddr>,
    sim: Sim,
    streams: u32,
    mut drained: watch::Receiver<()>,
) {
    let service = service_fn(move |mut request: http::Request<Incoming>| {
        if let Some(peer) = peer {
            // For the log.
            request.extensions_mut().insert(peer);
        }
        let sim = sim.clone();
        async move { sim.call(request).await }
    });
    let stream = TokioIo::new(stream);
    // The client closed the connection, or a fault did: there is no client to notify.
    if version == Version::HTTP_2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(streams);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let _ = tokio::select! {
            ended = &mut connection => ended,
            Ok(()) = drained.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(IDLE);
        let mut connection = pin!(builder.serve_connection(stream, service));
        let _ = tokio::select! {
            ended = &mut connection => ended,
            Ok(()) = drained.changed() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
    }
}

/// A kubeconfig for a server at `url`, without credentials.
#[must_use]
pub fn kubeconfig(url: &str) -> String {
    kubeconfig_of(&format!("server: {url}"), "{}")
}

/// A kubeconfig for a server at `url` and the user of a token. `certificate` is the
/// server's, in PEM.
#[must_use]
pub fn kubeconfig_with_token(url: &str, certificate: Option<&str>, token: &str) -> String {
    let mut cluster = format!("server: {url}");
    if let Some(certificate) = certificate {
        let data = BASE64_STANDARD.encode(certificate.as_bytes());
        cluster = format!("{cluster}\n    certificate-authority-data: {data}");
    }
    kubeconfig_of(&cluster, &format!("{{token: {token:?}}}"))
}

fn kubeconfig_of(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: davit-sim\nclusters:\n- name: davit-sim\n  cluster:\n    {cluster}\ncontexts:\n- name: davit-sim\n  context:\n    cluster: davit-sim\n    user: davit-sim\nusers:\n- name: davit-sim\n  user: {user}\n"
    )
}
