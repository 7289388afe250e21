//! What goes into a watch and what comes out of it.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use crate::object::ProjectedObject;

/// How one watch behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether to ask for the initial state as a stream of events first. A
    /// server that does not know this is listed in pages instead.
    pub streaming_list: bool,
    /// How many objects one page of a list holds, at most.
    pub page_size: u32,
    /// How long one page may take.
    pub page_timeout: Duration,
    /// How long a watch may be silent. The server sends a bookmark about once
    /// a minute, so a longer silence is a dead connection.
    pub idle_timeout: Duration,
    /// The range of the timeouts that the server is asked to end a watch
    /// after; spread, so that not all watches start again at once.
    pub watch_timeout: Range<Duration>,
    /// The range of the pauses after failures, before jitter. They double.
    pub backoff: Range<Duration>,
    /// A watch that lasted this long makes earlier failures forgotten.
    pub healthy_after: Duration,
    /// The pause before a resource that is not served is asked for again.
    pub not_served_recheck: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            streaming_list: true,
            page_size: 500,
            page_timeout: Duration::from_mins(1),
            idle_timeout: Duration::from_secs(90),
            watch_timeout: Duration::from_mins(5)..Duration::from_mins(10),
            backoff: Duration::from_millis(250)..Duration::from_secs(30),
            healthy_after: Duration::from_secs(10),
            not_served_recheck: Duration::from_mins(1),
        }
    }
}

/// What to ask the API server for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// One page of a list.
    Page {
        /// How many objects, at most.
        limit: u32,
        /// Where the page starts; empty for the first.
        continue_token: Box<str>,
    },
    /// A watch that starts with the whole state (`sendInitialEvents`).
    StreamingList {
        /// When the server is to end it.
        timeout: Duration,
    },
    /// A watch of what comes after a version.
    Watch {
        /// The last version seen.
        resource_version: Box<str>,
        /// When the server is to end it.
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
    /// Where the next page starts; empty at the end.
    pub continue_token: Box<str>,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// `ADDED` or `MODIFIED`.
    Applied(ProjectedObject),
    /// `DELETED`, with the object's last state.
    Deleted(ProjectedObject),
    /// `BOOKMARK`
    Bookmark {
        /// Everything up to this version was sent.
        resource_version: Box<str>,
        /// Whether the initial state of a streaming list is complete.
        initial_events_end: bool,
    },
    /// `ERROR`
    Error(Refusal),
}

/// A `Status` with which the server refused a request or ended a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// What the server said.
    pub message: String,
    /// How long it asked to wait.
    pub retry_after: Option<Duration>,
}

/// Why a request or a stream ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interruption {
    /// The server said no.
    Refused(Refusal),
    /// No connection, or it broke; the text says how.
    Lost(String),
    /// The answer makes no sense; the text says where.
    Malformed(String),
}

/// How well the view follows the server, for status and metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The state is complete, and changes are coming in.
    Synced,
    /// Something went wrong; the view stays as it is until that is over.
    Interrupted {
        /// What.
        reason: String,
    },
    /// The server does not know the resource. The view stays as it is: whether
    /// its objects are gone is for the reader to judge.
    NotServed,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Drop the request under way, if there is one, and send this one.
    Send(Request),
    /// Drop the request under way.
    Abandon,
    /// These are all objects there were at that version.
    Reset {
        /// The objects, ordered by namespace and name.
        items: Vec<ProjectedObject>,
        /// The version of the list.
        resource_version: Box<str>,
    },
    /// An object has come or changed.
    Apply(ProjectedObject),
    /// An object is gone; this was its last state.
    Delete(ProjectedObject),
    /// The condition has changed.
    Condition(Condition),
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
