//! The states of a watch.

use std::time::Duration;

use crate::object::ProjectedObject;
use crate::time::Instant;

/// The state of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A back-off: no request is under way.
    Waiting {
        /// Its end.
        until: Instant,
        /// The request after it.
        next: NextRequest,
    },
    /// The watch requested a page.
    Listing {
        /// The objects of the pages before it.
        items: Vec<ProjectedObject>,
        /// The start of the page; empty for the first one.
        continue_token: Box<str>,
        /// When the request times out.
        deadline: Instant,
    },
    /// The watch requested a streaming list, which is not complete.
    StreamingList {
        /// The changes so far, in order.
        changes: Vec<Change>,
        /// The stream.
        stream: Stream,
    },
    /// The watch follows the resource.
    Watching {
        /// The last version seen.
        resource_version: Box<str>,
        /// The stream.
        stream: Stream,
    },
    /// The server does not serve the resource.
    NotServed {
        /// The time of the next check.
        until: Instant,
    },
}

/// The request after a back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// A list from its start.
    List,
    /// The page of a list that failed.
    Page {
        /// The objects of the pages before it.
        items: Vec<ProjectedObject>,
        /// The start of the page.
        continue_token: Box<str>,
    },
    /// A watch from a version.
    Watch {
        /// The last version seen.
        resource_version: Box<str>,
    },
}

/// One change of a streaming list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub object: ProjectedObject,
    /// Whether it is gone.
    pub deleted: bool,
}

/// When a stream of events was last active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// When the server accepted it; none until it answers.
    pub opened: Option<Instant>,
    /// When bytes last arrived, or the request was sent.
    pub heard: Instant,
}

impl Stream {
    pub(super) fn requested(now: Instant) -> Self {
        Self {
            opened: None,
            heard: now,
        }
    }

    pub(super) fn lasted(&self, now: Instant) -> Duration {
        self.opened.map_or(Duration::ZERO, |at| now.since(at))
    }

    /// How long nothing has come since the server accepted it.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        self.opened
            .map_or(Duration::ZERO, |_| now.since(self.heard))
    }
}
