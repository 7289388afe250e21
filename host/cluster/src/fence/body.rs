//! The body of a request with a term.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use kube::client::Body;
use tower::BoxError;

use super::Pass;

/// Fails if hyper takes it after the term.
pub(crate) struct FencedBody {
    body: Body,
    pass: Option<Arc<Pass>>,
}

impl FencedBody {
    pub(super) fn new(body: Body, pass: Option<Arc<Pass>>) -> Self {
        Self { body, pass }
    }
}

impl http_body::Body for FencedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(pass) = &self.pass
            && let Err(over) = pass.enter()
        {
            return Poll::Ready(Some(Err(over.into())));
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        frame.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
