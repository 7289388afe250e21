//! Accepts connections, and bounds what each may use.

use std::convert::Infallible;
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

/// The most connections of a port. Further clients wait until one ends.
const MOST_CONNECTIONS: usize = 64;
/// How long a client may take for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may take to send the headers of its next request.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The most bytes of the headers of a request.
const MOST_HEADER_BYTES: usize = 64 << 10;
/// How long a connection may last. A client that reads no answer would keep it forever.
const LIFETIME: Duration = Duration::from_mins(10);
/// How long the last request of such a connection may take.
const LAST_REQUEST: Duration = Duration::from_secs(30);

pub(super) type Answer = Response<Full<Bytes>>;

/// Listens, and answers until the task is aborted. `respond` gets each request, and the
/// address that the server listens on.
pub(super) async fn serve<R, A>(
    address: &ListenAddress,
    tls: Option<TlsAcceptor>,
    respond: R,
) -> std::io::Result<(SocketAddr, JoinHandle<()>)>
where
    R: Fn(Request<Incoming>, SocketAddr) -> A + Clone + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let listener = address.listen().await?;
    let address = listener.local_addr()?;
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let task = tokio::spawn(async move {
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // The process is probably out of file descriptors: wait until some
                    // are closed.
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let (tls, respond) = (tls.clone(), respond.clone());
            tokio::spawn(async move {
                if let Err(error) = connection(stream, tls, address, respond).await {
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
    address: SocketAddr,
    respond: R,
) -> Result<(), String>
where
    R: Fn(Request<Incoming>, SocketAddr) -> A + Clone + Send + 'static,
    A: Future<Output = Answer> + Send + 'static,
{
    let Some(tls) = tls else {
        return requests(stream, address, respond).await;
    };
    match timeout(HANDSHAKE, tls.accept(stream)).await {
        Ok(Ok(stream)) => requests(stream, address, respond).await,
        Ok(Err(error)) => Err(format!("no TLS connection: {error}")),
        Err(_) => Err(format!("no TLS connection within {HANDSHAKE:?}")),
    }
}

async fn requests<S, R, A>(stream: S, address: SocketAddr, respond: R) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: Fn(Request<Incoming>, SocketAddr) -> A,
    A: Future<Output = Answer>,
{
    let service = service_fn(move |request| {
        let answer = respond(request, address);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        // Without a timer, hyper waits for the headers of a request forever.
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(MOST_HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended.map_err(|error| error.to_string()),
        () = sleep(LIFETIME) => connection.as_mut().graceful_shutdown(),
    }
    match timeout(LAST_REQUEST, connection).await {
        Ok(ended) => ended.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "its last request took longer than {LAST_REQUEST:?}"
        )),
    }
}
