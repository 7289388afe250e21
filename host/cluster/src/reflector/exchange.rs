//! One request of a reflector, and its response.

use bytes::Bytes;
use davit_core::failure::chain;
use davit_core::project::Projector;
use davit_core::request::{NoAnswer, RequestError, stream};
use davit_core::stream::StreamSpec;
use davit_core::watch::{Event, Interruption, Page, Request as Wanted};
use futures::future::BoxFuture;
use http::Response;
use http_body_util::BodyExt as _;
use kube::client::Body;

use super::frames::Frames;
use crate::api::{Api, read, send};

/// A part of the response.
pub(super) enum Answer {
    /// A page of a list. Nothing follows.
    Page(Page),
    /// The server accepted a watch.
    Opened,
    /// The stream sent these whole events.
    Events(Vec<Event>),
    /// The stream ended between two events.
    End,
    /// The server refused the request, or the response broke off.
    Interrupted(Interruption),
}

/// A request in progress. Dropping it ends the request: it closes the connection, or its
/// part of a shared one.
pub(super) enum Exchange {
    /// Waits for a whole page.
    Page(BoxFuture<'static, Result<Bytes, RequestError>>),
    /// Waits for the head of a watch's answer.
    Opening(BoxFuture<'static, Result<Response<Body>, RequestError>>),
    /// Reads a watch.
    Streaming(Body, Frames),
}

impl Exchange {
    /// Sends a request.
    pub(super) fn start(api: &Api, spec: &StreamSpec, wanted: &Wanted) -> Self {
        let api = api.clone();
        let request = stream::request(spec, wanted);
        match wanted {
            Wanted::Page { .. } => Self::Page(Box::pin(async move {
                let page = match send(api.client(), &request, None).await {
                    Ok(response) => read(response).await,
                    Err(error) => Err(error),
                };
                api.note(&request, &page);
                page
            })),
            Wanted::StreamingList { .. } | Wanted::Watch { .. } => {
                Self::Opening(Box::pin(async move {
                    let response = send(api.client(), &request, None).await;
                    api.note(&request, &response);
                    let response = response?;
                    if response.status().is_success() {
                        return Ok(response);
                    }
                    // An unsuccessful answer becomes an error. A successful one would
                    // be a watch.
                    read(response).await?;
                    Err(RequestError::NoAnswer(NoAnswer::strange("no watch")))
                }))
            }
        }
    }

    /// The next part. Cancel-safe: dropping the future loses nothing.
    pub(super) async fn next(&mut self, projector: &mut Projector) -> Answer {
        match self {
            Self::Page(page) => match page.await {
                Ok(body) => match projector.list(&body) {
                    Ok(page) => Answer::Page(page),
                    Err(error) => Answer::malformed(chain(&error)),
                },
                Err(error) => Answer::Interrupted(error.into()),
            },
            Self::Opening(head) => match head.await {
                Ok(response) => {
                    *self = Self::Streaming(response.into_body(), Frames::default());
                    Answer::Opened
                }
                Err(error) => Answer::Interrupted(error.into()),
            },
            Self::Streaming(body, frames) => match body.frame().await {
                Some(Ok(chunk)) => match chunk.into_data() {
                    Ok(received) => events(received, frames, projector),
                    // Trailers.
                    Err(_) => Answer::Events(Vec::new()),
                },
                Some(Err(error)) => Answer::lost(format!("the watch broke off: {}", chain(&error))),
                None if frames.is_at_boundary() => Answer::End,
                None => Answer::lost("the watch broke off within an event".to_owned()),
            },
        }
    }
}

fn events(mut received: Bytes, frames: &mut Frames, projector: &mut Projector) -> Answer {
    let mut events = Vec::new();
    loop {
        match frames.next(&mut received) {
            Ok(None) => return Answer::Events(events),
            Ok(Some(frame)) => match projector.event(&frame) {
                Ok(event) => events.push(event),
                Err(error) => return Answer::malformed(chain(&error)),
            },
            Err(_) => {
                let longest = Frames::LONGEST;
                return Answer::malformed(format!("a watch event is longer than {longest} bytes"));
            }
        }
    }
}

impl Answer {
    fn malformed(reason: String) -> Self {
        Self::Interrupted(Interruption::Malformed(reason))
    }

    fn lost(reason: String) -> Self {
        Self::Interrupted(Interruption::Lost(reason))
    }
}
