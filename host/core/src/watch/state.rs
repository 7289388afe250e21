//! Where a watch stands.

use std::time::Duration;

use crate::object::ProjectedObject;
use crate::time::Instant;

/// Where a watch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A back-off: nothing is under way.
    Waiting {
        /// When it is over.
        until: Instant,
        /// What is asked then.
        next: Next,
    },
    /// A page was asked for.
    Listing {
        /// The objects of the pages before it.
        items: Vec<ProjectedObject>,
        /// Where it starts; empty for the first.
        continue_token: Box<str>,
        /// When the request times out.
        deadline: Instant,
    },
    /// A streaming list was asked for, and its end has not come.
    StreamingList {
        /// What came so far, in order.
        changes: Vec<Change>,
        /// The stream.
        stream: Stream,
    },
    /// A watch was asked for.
    Watching {
        /// The last version seen.
        resource_version: Box<str>,
        /// The stream.
        stream: Stream,
    },
    /// The server does not serve the resource.
    NotServed {
        /// When it is asked again.
        until: Instant,
    },
}

/// What a back-off is followed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A list from its start.
    List,
    /// The page of a list that did not come.
    Page {
        /// The objects of the pages before it.
        items: Vec<ProjectedObject>,
        /// Where it starts.
        continue_token: Box<str>,
    },
    /// A watch from this version.
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

/// The signs of life of a stream of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// When the server accepted it; none while it has not answered.
    pub opened: Option<Instant>,
    /// When something last came, or the request was sent.
    pub heard: Instant,
}

impl Stream {
    pub(super) fn asked(now: Instant) -> Self {
        Self {
            opened: None,
            heard: now,
        }
    }

    pub(super) fn lasted(&self, now: Instant) -> Duration {
        self.opened.map_or(Duration::ZERO, |at| now.since(at))
    }
}
