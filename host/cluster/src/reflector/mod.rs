//! Follows one resource: runs a [`davit_core::watch::Watch`] against the API
//! server, and sends what it makes of it to the host's loop.

mod exchange;
mod frames;
mod run;

#[cfg(test)]
mod tests;

use davit_core::object::{ApiResource, Projected};
use davit_core::path::FieldTree;
pub use davit_core::store::StreamId;
use davit_core::watch::{Condition, Settings};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::api::Api;

/// What to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// The resource.
    pub resource: ApiResource,
    /// Only this namespace; empty for all.
    pub namespace: String,
    /// Kubernetes' label selector; empty for all.
    pub label_selector: String,
    /// Kubernetes' field selector; empty for all.
    pub field_selector: String,
    /// The fields to keep. If they are all metadata, the server is asked for
    /// metadata only.
    pub fields: FieldTree,
}

/// News of one stream: everything that had come when there was room in the
/// channel, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Which stream. A batch of a stream that was dropped may still be in the
    /// channel.
    pub stream: StreamId,
    /// At least one.
    pub updates: Vec<Update>,
}

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// These are all objects there were at that version.
    Reset {
        /// The objects, ordered by namespace and name.
        items: Vec<Projected>,
        /// The version of the list.
        resource_version: Box<str>,
    },
    /// An object has come or changed.
    Apply(Projected),
    /// An object is gone; this was its last state.
    Delete(Projected),
    /// How well the stream follows the server.
    Status(Condition),
}

/// A running reflector. It stops when this is dropped.
#[derive(Debug)]
pub struct Reflector {
    task: AbortHandle,
}

impl Reflector {
    /// Starts following a stream, in a task of tokio's. `seed` spreads its timers; give every stream
    /// of every replica another one.
    #[must_use]
    pub fn start(
        api: &Api,
        spec: StreamSpec,
        settings: Settings,
        seed: u64,
        id: StreamId,
        updates: mpsc::Sender<Batch>,
    ) -> Self {
        let run = run::Run::new(api, spec, settings, seed);
        let task = tokio::spawn(run.until_unread(id, updates)).abort_handle();
        Self { task }
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
