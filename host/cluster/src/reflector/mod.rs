//! Follows one resource: runs a [`davit_core::watch::Watch`] against the API
//! server, and sends what it makes of it to the host's loop.

mod exchange;
mod frames;
mod run;

#[cfg(test)]
mod tests;

use davit_core::object::{ApiResource, Projected};
use davit_core::path::FieldTree;
use davit_core::watch::{Condition, Settings};
use tokio::sync::{mpsc, watch};

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

/// What a reader of several streams tells them apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

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
    /// These are all objects there are, ordered by namespace and name, with
    /// these fields.
    Reset {
        /// The objects.
        items: Vec<Projected>,
        /// The fields of these and of what follows.
        fields: FieldTree,
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
    fields: watch::Sender<FieldTree>,
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
        let (fields, wanted) = watch::channel(spec.fields.clone());
        let run = run::Run::new(api, spec, settings, seed);
        tokio::spawn(run.until_dropped(wanted, id, updates));
        Self { fields }
    }

    /// Lists everything again at once, whatever it waits for.
    pub fn list_again(&self) {
        self.fields.send_modify(|_| {});
    }

    /// Changes the fields to keep. Everything is listed again; until the list
    /// is complete, which a [`Update::Reset`] with these fields tells, the
    /// reader keeps what it has.
    pub fn set_fields(&self, fields: FieldTree) {
        self.fields.send_if_modified(|wanted| {
            let changed = *wanted != fields;
            *wanted = fields;
            changed
        });
    }
}
