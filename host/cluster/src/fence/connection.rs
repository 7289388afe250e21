//! A connection that does not send a request after its term.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};
use tower::Service;

use super::Fence;

/// Makes connections. TLS and HTTP are above them, so that nothing is buffered below.
#[derive(Clone)]
pub(crate) struct FencedConnector<C>(C);

impl<C> FencedConnector<C> {
    pub(crate) fn new(connector: C) -> Self {
        Self(connector)
    }
}

impl<C> Service<Uri> for FencedConnector<C>
where
    C: Service<Uri>,
    C::Response: Connection,
    C::Future: Send + 'static,
{
    type Response = FencedConnection<C::Response>;
    type Error = C::Error;
    type Future = BoxFuture<'static, Result<Self::Response, C::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let connecting = self.0.call(server);
        Box::pin(async move {
            let io = connecting.await?;
            Ok(FencedConnection::new(io))
        })
    }
}

/// Writes nothing once the term of an unanswered request is over.
pub(crate) struct FencedConnection<I> {
    io: I,
    fence: Fence,
}

impl<I> FencedConnection<I> {
    fn new(io: I) -> Self {
        Self {
            io,
            fence: Fence::default(),
        }
    }
}

impl<I: Connection> Connection for FencedConnection<I> {
    fn connected(&self) -> Connected {
        self.io.connected().extra(self.fence.clone())
    }
}

impl<I: Read + Unpin> Read for FencedConnection<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: Write + Unpin> Write for FencedConnection<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.fence.check().map_err(io::Error::other)?;
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.fence.check().map_err(io::Error::other)?;
        Pin::new(&mut self.io).poll_write_vectored(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
