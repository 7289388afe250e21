//! A TCP connection with its pace.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::mem;
use std::ops::Range;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::{set_socket_recv_buffer_size, socket_recv_buffer_size};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tower::Service;

use super::pace::{MOST_BYTES, Pace, Pause, Pauses, SHORTEST_PAUSE};

/// With less memory for a connection, in bytes, pauses would be short: see [`Pauses::next`].
pub(super) const LITTLE_ROOM: usize = 384 << 10;
/// What the kernel is asked for then. It takes twice as much, for what is around the data, but of a
/// user not more than twice `net.core.rmem_max`, which usually are 416 KiB.
const ROOM: usize = 256 << 10;

/// Makes connections. TLS and HTTP are above them.
#[derive(Clone)]
pub(crate) struct PacedConnector {
    connector: HttpConnector,
    is_paced: bool,
}

impl PacedConnector {
    pub(crate) fn new(connector: HttpConnector, is_paced: bool) -> Self {
        Self {
            connector,
            is_paced,
        }
    }
}

impl Service<Uri> for PacedConnector {
    type Response = TokioIo<PacedConnection>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.connector.call(server);
        let is_paced = self.is_paced;
        Box::pin(async move {
            let socket = connecting.await?.into_inner();
            Ok(TokioIo::new(PacedConnection::new(socket, is_paced)))
        })
    }
}

/// Reads at once, or by the clock.
pub(crate) struct PacedConnection {
    socket: Socket,
    /// None if it is always read at once.
    pace: Option<Pace>,
    /// Until then an unwatched socket is not read.
    pause: Pin<Box<Sleep>>,
    /// How long that is.
    length: Duration,
    pauses: Pauses,
    received: Received,
}

/// What came in a pause: TLS asks for 4 KiB at a time, and each read of a socket is a call of the
/// kernel, which reports to the server how much was read.
#[derive(Default)]
struct Received {
    /// Empty unless there are pauses.
    buffer: Vec<u8>,
    unread: Range<usize>,
}

impl Received {
    /// Reads what a socket has, and returns the number of bytes.
    fn read(&mut self, socket: &mut std::net::TcpStream) -> io::Result<usize> {
        self.buffer.resize(MOST_BYTES, 0);
        let length = socket.read(&mut self.buffer)?;
        self.unread = 0..length;
        Ok(length)
    }

    /// Moves as much as there is room for.
    fn take(&mut self, buffer: &mut ReadBuf<'_>) {
        let end = self.unread.end.min(self.unread.start + buffer.remaining());
        let taken = self.buffer.get(self.unread.start..end);
        buffer.put_slice(taken.unwrap_or_default());
        self.unread.start = end;
    }
}

enum Socket {
    /// The runtime wakes the task of the connection for whatever comes.
    Watched(TcpStream),
    /// The runtime does not know of it, so that the kernel wakes no thread.
    Unwatched(std::net::TcpStream),
    /// The runtime has not taken it, or not given it away.
    Lost,
}

impl PacedConnection {
    pub(super) fn new(socket: TcpStream, is_paced: bool) -> Self {
        Self {
            socket: Socket::Watched(socket),
            pace: is_paced.then(|| Pace::new(Instant::now())),
            pause: Box::pin(sleep(SHORTEST_PAUSE)),
            length: SHORTEST_PAUSE,
            pauses: Pauses::default(),
            received: Received::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn is_watched(&self) -> bool {
        matches!(self.socket, Socket::Watched(_))
    }

    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        match &self.socket {
            Socket::Watched(socket) => room(socket),
            Socket::Unwatched(socket) => room(socket),
            Socket::Lost => 0,
        }
    }

    /// The socket, of which the runtime knows from now on.
    fn watched(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.socket = match mem::replace(&mut self.socket, Socket::Lost) {
            Socket::Unwatched(socket) => {
                self.pace = Some(Pace::new(Instant::now()));
                Socket::Watched(TcpStream::from_std(socket)?)
            }
            other => other,
        };
        match &mut self.socket {
            Socket::Watched(socket) => Ok(Pin::new(socket)),
            _ => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Takes the socket from the runtime.
    fn unwatch(&mut self) -> io::Result<()> {
        self.socket = match mem::replace(&mut self.socket, Socket::Lost) {
            Socket::Watched(socket) => {
                let socket = socket.into_std()?;
                make_room(&socket);
                Socket::Unwatched(socket)
            }
            other => other,
        };
        self.pauses = Pauses::default();
        self.start_pause(SHORTEST_PAUSE);
        Ok(())
    }

    fn start_pause(&mut self, length: Duration) {
        self.length = length;
        self.pause.as_mut().reset(Instant::now() + length);
    }

    /// Reads an unwatched socket, if no pause is left; none if the socket has to be watched,
    /// because nothing came.
    fn poll_unwatched(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Option<io::Result<()>>> {
        let Socket::Unwatched(socket) = &mut self.socket else {
            return Poll::Ready(None);
        };
        ready!(self.pause.as_mut().poll(context));
        let bytes = match self.received.read(socket) {
            Ok(bytes) => bytes,
            Err(error) if is_not_ready(&error) => return Poll::Ready(None),
            Err(error) => return Poll::Ready(Some(Err(error))),
        };
        self.received.take(buffer);
        let room = room(&*socket);
        let length = self.length;
        let done = match self.pauses.next(Pause { length, bytes }, room) {
            Some(length) => {
                self.start_pause(length);
                Ok(())
            }
            None => self.watched().map(|_| ()),
        };
        Poll::Ready(Some(done))
    }

    /// Writes to an unwatched socket; none if it has to be watched, because it takes nothing now.
    fn write_unwatched(
        &mut self,
        write: impl FnOnce(&mut std::net::TcpStream) -> io::Result<usize>,
    ) -> Option<io::Result<usize>> {
        let Socket::Unwatched(socket) = &mut self.socket else {
            return None;
        };
        match write(socket) {
            Err(error) if is_not_ready(&error) => None,
            written => Some(written),
        }
    }
}

/// The kernel gives a connection more memory while a list is read, or not: that depends on who is
/// faster. Small events never bring it more.
fn make_room(socket: &std::net::TcpStream) {
    if room(socket) < LITTLE_ROOM
        && let Err(error) = set_socket_recv_buffer_size(socket, ROOM)
    {
        tracing::debug!(%error, "the kernel gives a connection no more memory");
    }
}

/// The memory that the kernel has for what it receives, in bytes.
fn room(socket: impl AsFd) -> usize {
    socket_recv_buffer_size(socket).unwrap_or_default()
}

fn is_not_ready(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Connection for PacedConnection {
    fn connected(&self) -> Connected {
        match &self.socket {
            Socket::Watched(socket) => socket.connected(),
            _ => Connected::new(),
        }
    }
}

impl AsyncRead for PacedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.received.unread.is_empty() {
            self.received.take(buffer);
            return Poll::Ready(Ok(()));
        }
        if let Some(read) = ready!(self.poll_unwatched(context, buffer)) {
            return Poll::Ready(read);
        }
        // There is no pause any more.
        self.received = Received::default();
        let before = buffer.filled().len();
        ready!(self.watched()?.poll_read(context, buffer))?;
        let length = buffer.filled().len() - before;
        // A full buffer may not be all.
        let is_all = buffer.remaining() > 0;
        if let Some(pace) = &mut self.pace
            && pace.is_pause_due(Instant::now(), length, is_all)
            && length > 0
        {
            self.unwatch()?;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for PacedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.write_unwatched(|socket| socket.write(bytes)) {
            Some(written) => Poll::Ready(written),
            None => self.watched()?.poll_write(context, bytes),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.write_unwatched(|socket| socket.write_vectored(bytes)) {
            Some(written) => Poll::Ready(written),
            None => self.watched()?.poll_write_vectored(context, bytes),
        }
    }

    /// A socket has no buffer of its own.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watched()?.poll_shutdown(context)
    }
}
