//! What [`super::Control`] exchanges with its drivers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::declaration::{Declaration, Owner};
use super::file::{Change, ChangeError};
use super::loading::{Load, LoadId, LoadProblem, LoadResult};
use super::notice::Notice;
use super::record::{Record, RecordId, Remembered};
use super::times::time;
use crate::api::{ControllerSpec, HostStatus};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::object::ObjectRef;
use crate::revision::LoadedRevision;
use crate::time::Wall;

/// What stays the same for as long as a host runs.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// The namespace of the service accounts of controllers.
    pub namespace: String,
    /// How records name this host, if other hosts may write there as well.
    pub host: Option<HostIdentity>,
}

/// One host: it differs from any other, and from a former one in the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Another one after each start.
    pub id: String,
    /// The pod or machine that it runs on.
    pub name: String,
}

impl ControlSettings {
    /// What a record says of the host that writes it.
    pub(super) fn host_status(&self, now: Wall) -> Option<HostStatus> {
        let host = self.host.as_ref()?;
        Some(HostStatus {
            id: host.id.clone(),
            name: host.name.clone(),
            renewed_at: time(now),
        })
    }
}

/// What is declared of a controller, and the revision of its spec if that was loaded
/// before.
#[derive(Clone, Debug)]
pub struct Declared<G> {
    /// What is declared.
    pub declaration: Declaration,
    /// The revision that the spec describes.
    pub loaded: Option<LoadedRevision<G>>,
}

impl<G> Declared<G> {
    pub(super) fn name(&self) -> &str {
        &self.declaration.name
    }
}

/// A controller of a configuration file.
#[derive(Clone, Debug)]
pub struct FileController<G> {
    /// Its name.
    pub name: String,
    /// What the file says.
    pub spec: ControllerSpec,
    /// The revision that the spec describes, if it was loaded before.
    pub loaded: Option<LoadedRevision<G>>,
}

/// Names a change of a controller of the file in its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId(pub u64);

/// What happened.
#[derive(Debug)]
pub enum ControlInput<G> {
    /// There are these controllers, and no others.
    Declared(Vec<Declared<G>>),
    /// The configuration file has these controllers, and no others.
    File(Vec<FileController<G>>),
    /// An operator changes a controller of the file.
    Change {
        /// Names it in the answer.
        id: ChangeId,
        /// Which controller.
        controller: String,
        /// What is changed.
        change: Change,
    },
    /// A record was read, or cannot be.
    Remembered {
        /// Of [`ControlEffect::Remember`].
        id: RecordId,
        /// What it holds.
        remembered: Box<Remembered>,
    },
    /// A revision was loaded, or cannot be.
    Loaded {
        /// Of [`ControlEffect::Load`].
        id: LoadId,
        /// What was loaded.
        result: Result<LoadResult<G>, LoadProblem>,
    },
    /// A write to a record ended.
    Recorded {
        /// Of [`ControlEffect::Record`].
        id: RecordId,
        /// Another host that has written since this one did, if there is one. After an
        /// error nobody knows whether it was written.
        result: Result<Option<HostStatus>, String>,
    },
}

/// What the control half wants done next.
#[derive(Debug)]
pub(crate) enum Output<G> {
    /// By drivers.
    Effect(ControlEffect),
    /// By the data half: to run exactly these controllers.
    Run(Vec<DesiredController<G>>),
    /// By the data half: to reset the tripped guardrails of a controller.
    Reset {
        /// Its name.
        controller: String,
    },
}

impl<G> From<ControlEffect> for Output<G> {
    fn from(effect: ControlEffect) -> Self {
        Self::Effect(effect)
    }
}

/// What drivers have to do.
#[derive(Debug)]
pub enum ControlEffect {
    /// Load a revision.
    Load(Load),
    /// Read the record of a controller.
    Remember {
        /// Names it in the answer.
        id: RecordId,
        /// Whose record.
        owner: Owner,
    },
    /// Write to the record of a controller.
    Record {
        /// Names it in the answer.
        id: RecordId,
        /// Whose record.
        owner: Owner,
        /// What to write.
        record: Record,
    },
    /// Modules other than these are not needed any more.
    KeepModules(BTreeSet<ModuleDigest>),
    /// Notify people: a line in the log, and a Kubernetes event if there is an object.
    Event {
        /// The controller.
        controller: String,
        /// Its resource.
        object: Option<ObjectRef>,
        /// What to say.
        notice: Notice,
    },
    /// Answer a change of a controller of the file.
    Answer {
        /// Which change.
        id: ChangeId,
        /// The controller after the change.
        result: Result<Value, ChangeError>,
    },
    /// For the log, and for the probes.
    Report(Report),
}

/// What is reported beside notices.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// A controller is gone.
    Removed {
        /// Its name.
        controller: String,
    },
    /// A controller's decisions are recorded, or cannot be.
    Recording {
        /// Its name.
        controller: String,
        /// Why not.
        failure: Option<String>,
    },
    /// The record of a controller cannot be read: it continues from the status that was
    /// declared with it.
    Unreadable {
        /// Its name.
        controller: String,
        /// Why.
        error: String,
    },
    /// The record of a controller cannot be read, and nothing else says what ran: nothing
    /// runs until it can.
    Unread {
        /// Its name.
        controller: String,
        /// Why.
        error: String,
    },
    /// Whether an operator paused a rollout cannot be read: it counts as paused.
    PauseUnreadable {
        /// The controller's name.
        controller: String,
        /// Why.
        error: String,
    },
    /// An operator changed a controller of the file.
    Requested {
        /// Its name.
        controller: String,
        /// What was changed.
        change: Change,
    },
}
