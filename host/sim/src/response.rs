//! Complete responses to requests, without a transport.

use bytes::Bytes;

use crate::api::{self, Answer};
use crate::encode::Encoder;
use crate::model::{Model, Page, WatchStart};
use crate::request::Request;
use crate::status::{self, Status};
use crate::time::Time;

const JSON: &str = "application/json";

/// A response with its whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub code: u16,
    /// `Content-Type`.
    pub media_type: &'static str,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
    /// The body.
    pub body: Bytes,
    /// Why authorization denied the request, if it did.
    pub denied: Option<String>,
}

/// The reply to a request.
#[derive(Debug)]
pub enum Reply {
    /// A response.
    Complete(Response),
    /// A watch, for its driver.
    Watch(Box<WatchStart>),
}

/// Answers one request.
pub fn respond(model: &mut Model, now: Time, request: &Request) -> Reply {
    match api::handle(model, now, request) {
        Answer::Watch(start) => Reply::Watch(start),
        other => Reply::Complete(Response::of(other)),
    }
}

impl Response {
    /// The response to a failed request.
    #[must_use]
    pub fn failed(status: &Status) -> Self {
        Response {
            code: status.code,
            retry_after: status.retry_after(),
            ..Response::new(200, JSON, status.to_json().to_string().into())
        }
    }

    pub(crate) fn new(code: u16, media_type: &'static str, body: Bytes) -> Self {
        Response {
            code,
            media_type,
            retry_after: None,
            body,
            denied: None,
        }
    }

    /// Any answer but a watch.
    pub(crate) fn of(answer: Answer) -> Self {
        match answer {
            Answer::Json(code, bytes) => Response::new(code, JSON, bytes),
            Answer::Typed(media_type, bytes) => Response::new(200, media_type, bytes),
            Answer::Text(code, text) => {
                let bytes = Bytes::from_static(text.as_bytes());
                Response::new(code, "text/plain; charset=utf-8", bytes)
            }
            Answer::Failed(status) => Response::failed(&status),
            Answer::Denied(status) => {
                let denied = Some(status.message.clone());
                Response {
                    denied,
                    ..Response::failed(&status)
                }
            }
            Answer::List(page, encoder) => match ListWriter::new(page, encoder).whole() {
                Ok(bytes) => Response::new(200, JSON, bytes.into()),
                Err(status) => Response::failed(&status),
            },
            Answer::Watch(_) => Response::failed(&Status::internal("a watch has no single answer")),
        }
    }
}

/// Lists are written in pieces of about this size: a full list of a large
/// cluster is a gigabyte.
const PIECE: usize = 256 * 1024;

/// Writes a list piece by piece.
pub(crate) struct ListWriter {
    page: Page,
    encoder: Encoder,
    at: usize,
}

impl ListWriter {
    pub(crate) fn new(page: Page, encoder: Encoder) -> Self {
        ListWriter {
            page,
            encoder,
            at: 0,
        }
    }

    fn whole(mut self) -> status::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let (piece, done) = self.piece();
            bytes.append(&mut piece?);
            if done {
                return Ok(bytes);
            }
        }
    }

    /// The next piece, and whether it is the last.
    pub(crate) fn piece(&mut self) -> (status::Result<Vec<u8>>, bool) {
        let mut bytes = Vec::new();
        if self.at == 0 {
            bytes = self.encoder.list_head(&self.page.metadata);
        }
        while let Some(object) = self.page.items.get(self.at) {
            if self.at > 0 {
                bytes.push(b',');
            }
            if let Err(status) = self.encoder.item(object, &mut bytes) {
                return (Err(status), true);
            }
            self.at += 1;
            if bytes.len() >= PIECE {
                return (Ok(bytes), false);
            }
        }
        bytes.extend_from_slice(Encoder::LIST_TAIL);
        (Ok(bytes), true)
    }
}
