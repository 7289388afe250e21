//! The inputs and outputs of a watch.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::object::ProjectedObject;

/// The settings of one watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether to request the initial state as a stream of events first. If the server
    /// does not support that, the watch lists in pages.
    pub streaming_list: bool,
    /// The most objects in one page of a list.
    pub page_size: u32,
    /// The range of the pauses after failures, before jitter. They double.
    pub backoff: Range<Duration>,
    /// The pause before the next request for a resource that is not served.
    pub not_served_recheck: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streaming_list: true,
            page_size: 500,
            backoff: Duration::from_millis(250)..Duration::from_secs(30),
            not_served_recheck: Duration::from_mins(1),
        }
    }
}

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// One page of a list.
    Page {
        /// The most objects in the page.
        limit: u32,
        /// The start of the page; empty for the first one.
        continue_token: Box<str>,
    },
    /// A watch that starts with the whole state (`sendInitialEvents`).
    StreamingList {
        /// After this time the server ends the watch.
        timeout: Duration,
    },
    /// A watch of the changes after a version.
    Watch {
        /// The last version seen.
        resource_version: Box<str>,
        /// After this time the server ends the watch.
        timeout: Duration,
    },
}

/// One page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Its objects.
    pub items: Vec<ProjectedObject>,
    /// The version of the list.
    pub resource_version: Box<str>,
    /// The start of the next page; empty at the end.
    pub continue_token: Box<str>,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `ADDED` or `MODIFIED`.
    Applied(ProjectedObject),
    /// `DELETED`, with the object's last state.
    Deleted(ProjectedObject),
    /// `BOOKMARK`.
    Bookmark {
        /// The server has sent every change up to this version.
        resource_version: Box<str>,
        /// Whether the initial state of a streaming list is complete.
        initial_events_end: bool,
    },
    /// `ERROR`.
    Error(Refusal),
}

/// A `Status` with which the server refused a request or ended a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The server's message.
    pub message: String,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// Why a request failed or a stream ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The server refused it.
    Refused(Refusal),
    /// There was no connection, or it broke; the text has the reason.
    Lost(String),
    /// The answer is malformed; the text says where.
    Malformed(String),
}

/// Whether the cache is up to date, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The state is complete, and changes arrive.
    Synced,
    /// The watch is interrupted; the cached state stays until it continues.
    Interrupted {
        /// The reason.
        reason: String,
    },
    /// The server does not serve the resource. The cached state stays: the reader
    /// decides whether the objects are gone.
    NotServed,
}

impl Condition {
    /// Why changes do not arrive; none if they do.
    #[must_use]
    pub fn hindrance(&self) -> Option<&str> {
        match self {
            Self::Synced => None,
            Self::Interrupted { reason } => Some(reason),
            Self::NotServed => Some("the API server does not serve it"),
        }
    }
}

/// An output of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Drop the request under way, if there is one, and send this request.
    Send(Request),
    /// Drop the request under way.
    Abandon,
    /// An update of the stream.
    Update(Update),
}

/// One update of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The complete list of objects at a version.
    Reset {
        /// The objects, ordered by namespace and name.
        items: Vec<ProjectedObject>,
        /// The version of the list.
        resource_version: Box<str>,
    },
    /// An object was added or modified.
    Apply(ProjectedObject),
    /// An object was deleted; this is its last state.
    Delete(ProjectedObject),
    /// The condition of the stream changed.
    Status(Condition),
}

impl fmt::Display for Interruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => {
                write!(
                    f,
                    "the server answered {}: {}",
                    refusal.code, refusal.message
                )
            }
            Self::Lost(reason) | Self::Malformed(reason) => f.write_str(reason),
        }
    }
}
