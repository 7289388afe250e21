//! Accepts connections, and bounds what each may use.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::address::ListenAddress;
use crate::repeat::RepeatedLine;

/// How long a client may take for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The most bytes of the headers of a request.
const MOST_HEADER_BYTES: usize = 64 << 10;

/// What the clients of a port may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The most connections. Further clients wait until one ends.
    pub(super) connections: usize,
    /// How long a client may take to send the headers of its next request.
    pub(super) headers: Duration,
    /// How long a connection may last. A client that reads no answer would keep it
    /// forever.
    pub(super) lifetime: Duration,
    /// How long the request that is under way then may take.
    pub(super) last_request: Duration,
    /// Whether a connection may have several requests.
    pub(super) keep_alive: bool,
}

/// Where to listen, and for whom.
pub(super) struct Port<'a> {
    pub(super) address: &'a ListenAddress,
    pub(super) tls: Option<TlsAcceptor>,
    /// Whether to refuse every address that other machines reach.
    pub(super) only_loopback: bool,
    pub(super) limits: Limits,
}

pub(super) type Answer = Response<Full<Bytes>>;

/// Listens, and answers until the task is aborted. `respond` gets each request, and the
/// address that the server listens on.
pub(super) async fn serve<R, A>(
    port: Port<'_>,
    respond: R,
) -> io::Result<(SocketAddr, JoinHandle<()>)>
where
    R: Fn(Request<Incoming>, SocketAddr) -> A + Clone + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let Port {
        address,
        tls,
        only_loopback,
        limits,
    } = port;
    let listener = address.listen().await?;
    let address = listener.local_addr()?;
    if only_loopback && !address.ip().is_loopback() {
        let reason = format!("{address} is not loopback");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let slots = Arc::new(Semaphore::new(limits.connections));
    let task = tokio::spawn(async move {
        let failures = RepeatedLine::new();
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The process is probably out of file descriptors: wait until some
                    // are closed.
                    if let Some(suppressed) = failures.admit(&error.to_string()) {
                        tracing::warn!(%error, "cannot accept a connection{suppressed}");
                    }
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, respond) = (tls.clone(), respond.clone());
            tokio::spawn(async move {
                let respond = move |request| respond(request, address);
                if let Err(error) = connection(stream, tls, limits, respond).await {
                    tracing::debug!(error, "an HTTP connection failed");
                }
                drop(slot);
            });
        }
    });
    Ok((address, task))
}

async fn connection<R, A>(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    respond: R,
) -> Result<(), String>
where
    R: Fn(Request<Incoming>) -> A,
    A: Future<Output = Answer>,
{
    let Some(tls) = tls else {
        return requests(stream, limits, respond).await;
    };
    match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, limits, respond).await,
        Ok(Err(error)) => Err(format!("no TLS connection: {error}")),
        Err(_) => Err(format!("no TLS connection within {HANDSHAKE:?}")),
    }
}

async fn requests<S, R, A>(stream: S, limits: Limits, respond: R) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: Fn(Request<Incoming>) -> A,
    A: Future<Output = Answer>,
{
    let service = service_fn(move |request| {
        let answer = respond(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        // Without a timer, hyper waits for the headers of a request forever.
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .keep_alive(limits.keep_alive)
        .max_buf_size(MOST_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|error| error.to_string()),
        () = sleep(limits.lifetime) => connection.as_mut().graceful_shutdown(),
    }
    match timeout(limits.last_request, connection).await {
        Ok(ended) => ended.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "its last request took longer than {:?}",
            limits.last_request
        )),
    }
}
