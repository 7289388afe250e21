//! Answers as HTTP.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{self, Stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};

use crate::api::Answer;
use crate::response::{ListWriter, Response};
use crate::status::Status;

/// A fault closed the connection where the protocol does not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connection closed before the message was complete")]
pub struct ConnectionClosed;

/// Bytes, piece by piece.
pub(super) type Pieces = Pin<Box<dyn Stream<Item = Result<Bytes, ConnectionClosed>> + Send>>;

/// The body of an answer: whole, or growing as long as a watch lives.
pub struct SimBody(Inner);

enum Inner {
    Whole(Bytes),
    Pieces(Pieces),
    /// The rest of a body that breaks off after this many bytes.
    Cut(Box<SimBody>, usize),
    /// About to break: the bytes before are sent first.
    Breaking,
    Broken,
}

impl std::fmt::Debug for SimBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match &self.0 {
            Inner::Whole(bytes) => format!("{} bytes", bytes.len()),
            Inner::Pieces(_) => "stream".to_owned(),
            Inner::Cut(_, left) => format!("cut after {left} bytes"),
            Inner::Breaking | Inner::Broken => "broken".to_owned(),
        };
        write!(f, "SimBody({what})")
    }
}

impl SimBody {
    /// A body that is complete.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        SimBody(Inner::Whole(bytes.into()))
    }

    pub(super) fn stream(pieces: Pieces) -> Self {
        SimBody(Inner::Pieces(pieces))
    }

    pub(super) fn cut(self, after: usize) -> Self {
        SimBody(Inner::Cut(Box::new(self), after))
    }
}

impl http_body::Body for SimBody {
    type Data = Bytes;
    type Error = ConnectionClosed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionClosed>>> {
        match &mut self.0 {
            Inner::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Pieces(pieces) => pieces
                .as_mut()
                .poll_next(context)
                .map(|piece| piece.map(|bytes| bytes.map(Frame::data))),
            Inner::Breaking => {
                // A pause flushes the connection.
                self.0 = Inner::Broken;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Inner::Broken => Poll::Ready(Some(Err(ConnectionClosed))),
            Inner::Cut(body, left) => {
                let frame = std::task::ready!(Pin::new(body.as_mut()).poll_frame(context));
                let Some(Ok(Ok(mut bytes))) = frame.map(|frame| frame.map(Frame::into_data)) else {
                    self.0 = Inner::Broken;
                    return Poll::Ready(Some(Err(ConnectionClosed)));
                };
                if bytes.len() < *left {
                    *left -= bytes.len();
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                bytes.truncate(*left);
                self.0 = Inner::Breaking;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.0, Inner::Whole(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            // A cut body claims its full length, as the whole one would have.
            Inner::Cut(body, _) => body.size_hint(),
            Inner::Pieces(_) | Inner::Breaking | Inner::Broken => SizeHint::default(),
        }
    }
}

/// Why a request was denied, noted on its answer for the log.
#[derive(Clone)]
pub(super) struct DenialReason(pub(super) String);

/// Any answer but a watch.
pub(super) fn answer(answer: Answer) -> http::Response<SimBody> {
    match answer {
        Answer::List(page, encoder) => list(ListWriter::new(page, encoder)),
        other => whole(Response::of(other)),
    }
}

/// The response to a failed request.
pub(super) fn failed(status: &Status) -> http::Response<SimBody> {
    whole(Response::failed(status))
}

fn whole(complete: Response) -> http::Response<SimBody> {
    let mut response = http::Response::new(SimBody::whole(complete.body));
    *response.status_mut() =
        StatusCode::from_u16(complete.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let media_type = HeaderValue::from_static(complete.media_type);
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    if let Some(seconds) = complete.retry_after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(why) = complete.denied {
        response.extensions_mut().insert(DenialReason(why));
    }
    response
}

fn list(mut writer: ListWriter) -> http::Response<SimBody> {
    let (first, done) = writer.piece();
    if done {
        return match first {
            Ok(bytes) => whole(Response::new(200, "application/json", bytes.into())),
            Err(status) => failed(&status),
        };
    }
    let rest = stream::unfold(Some(writer), |writer| async {
        let mut writer = writer?;
        let (piece, done) = writer.piece();
        let piece = piece.map(Bytes::from).map_err(|_| ConnectionClosed);
        Some((piece, (!done).then_some(writer)))
    });
    let first = first.map(Bytes::from).map_err(|_| ConnectionClosed);
    let pieces = futures::StreamExt::chain(stream::iter([first]), rest);
    let mut response = http::Response::new(SimBody::stream(Box::pin(pieces)));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
