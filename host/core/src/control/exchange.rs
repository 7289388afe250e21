//! The inputs and effects of [`super::Control`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::declaration::Declaration;
use super::file::{Change, ChangeError};
use super::journal::JournalState;
use super::loading::{Load, LoadId, LoadProblem, LoadResult};
use super::notice::Notice;
use super::reviews::ReviewId;
use crate::account::Account;
use crate::api::{ControllerSpec, HostStatus};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::object::ObjectRef;
use crate::record::{Owner, Record, RecordFailure, RecordId, RecordReceipt, StoredRecord};
use crate::request::review::{AccessReview, ReviewAnswer};
use crate::revision::LoadedRevision;
use crate::throttle::SuppressedCount;
use crate::time::Wall;
use crate::times::precise_time;
use crate::trust::TrustPolicy;

/// The settings of a host.
#[derive(Clone, Debug)]
pub struct ControlSettings {
    /// The namespace of the service accounts of controllers.
    pub namespace: String,
    /// The identity of this host in records, if other hosts may write the same records.
    pub host: Option<HostIdentity>,
    /// Which modules may write.
    pub trust: TrustPolicy,
    /// Whether there are other replicas: this one decides about a controller only while it
    /// holds the controller's lease.
    pub has_leases: bool,
}

/// The identity of one run of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// The id. Each start has another.
    pub id: String,
    /// The pod or machine that the host runs on.
    pub name: String,
}

impl HostIdentity {
    /// The host as its records name it.
    pub(super) fn status(&self, now: Wall) -> HostStatus {
        HostStatus {
            id: self.id.clone(),
            name: self.name.clone(),
            renewed_at: precise_time(now),
        }
    }
}

/// A declared controller, and the revision of its spec if that was loaded before.
#[derive(Clone, Debug)]
pub struct DeclaredController<G> {
    /// The declaration.
    pub declaration: Declaration,
    /// The revision that the spec describes.
    pub loaded: Option<LoadedRevision<G>>,
}

impl<G> DeclaredController<G> {
    pub(super) fn name(&self) -> &str {
        &self.declaration.name
    }
}

/// A controller of a configuration file.
#[derive(Clone, Debug)]
pub struct FileController<G> {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: ControllerSpec,
    /// The revision that the spec describes, if it was loaded before.
    pub loaded: Option<LoadedRevision<G>>,
}

/// The id of a change of a controller of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChangeId(pub u64);

/// An input.
#[derive(Debug)]
pub enum ControlInput<G> {
    /// All declared controllers.
    Declared(Vec<DeclaredController<G>>),
    /// All controllers of the configuration file.
    File(Vec<FileController<G>>),
    /// An operator changes a controller of the file.
    Change {
        /// The id of the answer.
        id: ChangeId,
        /// Which controller.
        controller: String,
        /// The change.
        change: Change,
    },
    /// The host read a record, or failed to read it.
    RecordRead {
        /// The id in [`ControlEffect::ReadRecord`].
        id: RecordId,
        /// The record.
        record: Box<StoredRecord>,
    },
    /// A revision was loaded, or failed to load.
    Loaded {
        /// The id in [`ControlEffect::Load`].
        id: LoadId,
        /// The result.
        result: Result<LoadResult<G>, LoadProblem>,
    },
    /// A write to a record ended.
    Recorded {
        /// The id in [`ControlEffect::Record`].
        id: RecordId,
        /// The result. After an error, the record may or may not be written.
        result: Result<RecordReceipt, RecordFailure>,
    },
    /// The API server answered a review, or did not.
    Reviewed {
        /// The id in [`ControlEffect::Review`].
        id: ReviewId,
        /// The answer, or why there is none.
        result: Result<ReviewAnswer, String>,
    },
    /// The host has a journal, and this is its state.
    Journal(JournalState),
}

/// The next output of the control half.
#[derive(Debug)]
pub(crate) enum Output<G> {
    /// For drivers.
    Effect(ControlEffect),
    /// For the data half: run exactly these controllers.
    Run(Vec<DesiredController<G>>),
    /// For the data half: reset the tripped guardrails of a controller.
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

/// An effect for drivers.
#[derive(Debug)]
pub enum ControlEffect {
    /// Load a revision.
    Load(Load),
    /// Read the record of a controller.
    ReadRecord {
        /// The id of the answer.
        id: RecordId,
        /// The owner of the record.
        owner: Owner,
    },
    /// Write to the record of a controller.
    Record {
        /// The id of the answer.
        id: RecordId,
        /// The owner of the record.
        owner: Owner,
        /// The write.
        record: Record,
    },
    /// Ask the API server what an account may do.
    Review {
        /// The id of the answer.
        id: ReviewId,
        /// The question.
        review: AccessReview,
    },
    /// Modules other than these are not needed any more.
    KeepModules(BTreeSet<ModuleDigest>),
    /// Notify the operator: a line in the log, and a Kubernetes event if there is an
    /// object.
    Event {
        /// The controller.
        controller: String,
        /// Its resource.
        object: Option<ObjectRef>,
        /// The notice.
        notice: Notice,
    },
    /// Answer a change of a controller of the file.
    Answer {
        /// The id of the change.
        id: ChangeId,
        /// The controller after the change.
        result: Result<Value, ChangeError>,
    },
    /// A report for the log and the probes.
    Report(Report),
}

/// A report for the log and the probes.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// A controller was removed.
    Removed {
        /// Its name.
        controller: String,
    },
    /// A controller's decisions are recorded, or cannot be recorded.
    Recording {
        /// Its name.
        controller: String,
        /// Why they cannot be recorded.
        failure: Option<String>,
    },
    /// The record of a controller cannot be read. The host continues from the status of
    /// the resource.
    Unreadable {
        /// Its name.
        controller: String,
        /// The error.
        error: String,
    },
    /// The record of a controller cannot be read, and there is no other source: nothing
    /// runs until the host can read it.
    Unread {
        /// Its name.
        controller: String,
        /// The error.
        error: String,
    },
    /// The API server cannot be asked what an account may do. What was allowed before stays
    /// allowed.
    NotReviewed {
        /// The account.
        account: Account,
        /// The error.
        error: String,
        /// The number of suppressed lines about the same error.
        suppressed: SuppressedCount,
    },
    /// The host cannot read whether an operator paused a rollout: it counts as paused.
    PauseUnreadable {
        /// The controller's name.
        controller: String,
        /// The error.
        error: String,
    },
    /// An operator changed a controller of the file.
    Requested {
        /// Its name.
        controller: String,
        /// The change.
        change: Change,
    },
}
