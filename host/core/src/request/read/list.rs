//! Lists of a resource.

use std::fmt;

use super::record;
use crate::failure::{Failure, FailureClass, chain};
use crate::mapping::Mapping;
use crate::object::{Kind, ObjectRecord, ProjectedObject};
use crate::plan::ListRequest;
use crate::project::Projector;
use crate::request::path::{path, with_query};
use crate::request::{JSON, PARTIAL_LIST, Request, RequestError};
use crate::time::Instant;

/// The number of objects in a page of a list, at most.
const PAGE_SIZE: &str = "500";
/// How often a list restarts because its continue token expired.
const MOST_RESTARTS: u32 = 3;

/// A list of a resource, page by page. A list whose continue token expired restarts.
#[derive(Debug)]
pub struct Listing {
    read: ListRequest,
    kind: Kind,
    projector: Projector,
    objects: Vec<ProjectedObject>,
    /// The bytes of their data.
    bytes: usize,
    most_bytes: usize,
    restarts: u32,
}

/// The next action.
#[derive(Debug)]
pub enum ReadAction {
    /// Send this request, and pass its answer to [`Listing::handle`].
    Send(Request),
    /// The list has ended.
    Done(Result<Vec<ObjectRecord>, Failure>),
}

impl Listing {
    /// Starts a list: the first request. The list ends early, with what it has, as soon as
    /// its objects have more than `most_bytes`: the machine refuses it.
    pub fn start(
        mapping: &Mapping,
        read: &ListRequest,
        most_bytes: usize,
    ) -> Result<(Self, Request), Failure> {
        let Some(served) = mapping.by_resource(&read.resource) else {
            return Err(failure(
                read,
                FailureClass::Unmappable,
                "the API server serves no such resource",
            ));
        };
        let listing = Self {
            kind: Kind {
                api_version: served.resource.api_version().into(),
                kind: served.kind.as_str().into(),
            },
            projector: Projector::new(read.fields.iter().collect()),
            read: read.clone(),
            objects: Vec::new(),
            bytes: 0,
            most_bytes,
            restarts: 0,
        };
        let first = listing.page("");
        Ok((listing, first))
    }

    /// Handles the answer to the last request.
    pub fn handle(&mut self, answer: Result<&[u8], &RequestError>, now: Instant) -> ReadAction {
        let body = match answer {
            Ok(body) => body,
            Err(RequestError::Refused(refused))
                if refused.code == 410 && self.restarts < MOST_RESTARTS =>
            {
                self.restarts += 1;
                self.objects.clear();
                self.bytes = 0;
                return ReadAction::Send(self.page(""));
            }
            Err(error) => return ReadAction::Done(Err(error.failure(&ListAttempt(&self.read)))),
        };
        match self.projector.list(body) {
            Ok(page) => {
                self.bytes += page.items.iter().map(|it| it.data.len()).sum::<usize>();
                self.objects.extend(page.items);
                if page.continue_token.is_empty() || self.bytes > self.most_bytes {
                    let objects = std::mem::take(&mut self.objects).into_iter();
                    let record = |object| record(&self.kind, object, now);
                    return ReadAction::Done(Ok(objects.map(record).collect()));
                }
                ReadAction::Send(self.page(&page.continue_token))
            }
            Err(error) => ReadAction::Done(Err(failure(
                &self.read,
                FailureClass::Server,
                &chain(&error),
            ))),
        }
    }

    fn page(&self, continue_token: &str) -> Request {
        let accept = if self.projector.fields().is_metadata_only() {
            PARTIAL_LIST
        } else {
            JSON
        };
        let uri = with_query(
            path(&self.read.resource, &self.read.namespace, "", ""),
            &[
                ("labelSelector", &self.read.label_selector),
                ("fieldSelector", &self.read.field_selector),
                ("limit", PAGE_SIZE),
                ("continue", continue_token),
            ],
        );
        Request::get(uri, accept)
    }
}

fn failure(read: &ListRequest, class: FailureClass, reason: &str) -> Failure {
    Failure::new(class, format!("{}: {reason}", ListAttempt(read)))
}

struct ListAttempt<'a>(&'a ListRequest);

impl fmt::Display for ListAttempt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list {}", self.0.resource)?;
        if !self.0.namespace.is_empty() {
            write!(f, " in {}", self.0.namespace)?;
        }
        Ok(())
    }
}
