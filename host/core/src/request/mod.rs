//! Requests to the API server and the meaning of their answers, without sending them: a
//! driver sends a [`Request`] and passes the answer back.
//!
//! - [`plan`] executes a plan, [`step`] one of its steps.
//! - [`stream`] lists and watches a resource.
//! - [`read`] answers the live reads of a guest.
//! - [`discovery`] asks which resources are served.
//! - [`review`] asks what an account may do.
//! - [`call`] sends one of them when it has its turn, and decides whether it is sent
//!   again.
//! - [`event`] creates and patches events.
//! - [`lease`] reads and writes the leases of leader election.
//! - [`record`] reads and writes the records of controllers.
//! - [`RequestError`] classifies an error as a [`Failure`](crate::failure::Failure),
//!   and decides whether the request may be sent again.

mod attempt;
mod body;
pub mod call;
pub mod discovery;
mod error;
pub mod event;
pub mod lease;
mod parallel;
mod path;
pub mod plan;
pub mod read;
pub mod record;
pub mod review;
pub mod step;
pub mod stream;

use std::fmt;

pub use attempt::Attempt;
pub use error::{Cause, NoAnswer, Repeats, RequestError};
pub use parallel::ParallelAction;
pub use path::{Route, path, with_query};

use crate::traffic::{Access, Urgency};

/// Plain JSON.
pub const JSON: &str = "application/json";
/// The content types of patches.
const MERGE_PATCH: &str = "application/merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";
const JSON_PATCH: &str = "application/json-patch+json";
/// The metadata of one object if the server supports it, otherwise the whole object.
pub const PARTIAL_OBJECT: &str =
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The metadata of a list if the server supports it, otherwise whole objects.
pub const PARTIAL_LIST: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The methods of the API that the host uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates.
    Post,
    /// Changes.
    Patch,
    /// Deletes.
    Delete,
}

impl Method {
    /// The name of the HTTP method.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: String,
    /// `Accept`.
    pub accept: &'static str,
    /// `Content-Type`; empty without a body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// A GET.
    #[must_use]
    pub fn get(uri: String, accept: &'static str) -> Self {
        Self {
            method: Method::Get,
            uri,
            accept,
            content_type: "",
            body: Vec::new(),
        }
    }

    /// The kind of access that a pause of the server holds for.
    #[must_use]
    pub fn access(&self, urgency: Urgency) -> Access {
        match (urgency, self.method) {
            (Urgency::Event, _) => Access::Event,
            (_, Method::Get) => Access::Read,
            _ => Access::Write,
        }
    }

    /// Requests of one kind cause similar work for a server: `PATCH /v1/pods/*/status`.
    #[must_use]
    pub fn kind(&self) -> String {
        format!("{} {}", self.method, Route::of(&self.uri).kind)
    }
}

/// `GET /api/v1/pods`, for the log.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.uri.split('?').next().unwrap_or_default();
        write!(f, "{} {path}", self.method)
    }
}
