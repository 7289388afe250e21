//! Where rollouts are remembered: what a controller's status says, and the
//! specs that were active.
//!
//! In a cluster, that is the Controller's own status, and a `ControllerRevision`
//! for every spec. A host that was started with a file of its own keeps both in
//! a directory, or only for as long as it runs.

mod book;
mod cluster;
mod directory;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

use book::Book;
use davit_core::api::ControllerSpec;
use davit_core::api::{ControllerStatus, HostStatus};

pub use cluster::ClusterRecords;
pub use directory::Directory;

/// So many specs are kept of each controller, and those of its stable revision
/// and candidate however old they are.
pub const MOST_KEPT: usize = 10;

/// The label of a `ControllerRevision` that names its controller.
pub const CONTROLLER_LABEL: &str = "davit.dev/controller";

/// Where rollouts are remembered. Of each controller, one host alone writes.
pub enum Records {
    /// Nowhere beyond this process.
    Memory(Mutex<BTreeMap<String, Book>>),
    /// In a directory.
    Directory(Directory),
    /// In a cluster.
    Cluster(Box<ClusterRecords>),
}

/// Whose record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// The controller's name.
    pub name: &'a str,
    /// The uid of its resource: nothing of it is read from or written to another
    /// of the same name. None for whichever has the name.
    pub uid: Option<&'a str>,
}

/// A spec that was active. Only its module, configuration and limits are the
/// revision's: the rest is what it said when the revision became active.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Counts the activations of the controller: the highest is the latest.
    pub number: i64,
    /// The revision's name.
    pub revision: String,
    /// When it last became active, RFC 3339: as candidate or stable revision.
    pub at: String,
    /// When it last became stable, RFC 3339 with milliseconds; none of a
    /// candidate that never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_since: Option<String>,
    /// The spec, its module with the digest that it had.
    pub spec: ControllerSpec,
}

/// Why something cannot be remembered, or recalled.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The API server does not do it.
    #[error("cannot {verb} {object}: {reason}")]
    Cluster {
        /// What was attempted.
        verb: &'static str,
        /// On which object.
        object: String,
        /// What the API server said.
        reason: String,
    },
    /// The file cannot be used.
    #[error("cannot {verb} {path}", path = path.display())]
    File {
        /// What was attempted.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// What lies there is nothing that Davit wrote.
    #[error("{place} cannot be understood, as if not Davit had written it: {reason}")]
    Unreadable {
        /// Where it lies.
        place: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// How a spec becomes active.
#[derive(Clone, Copy)]
struct Activation<'a> {
    /// When.
    at: &'a str,
    /// When its revision became stable, if it is.
    stable_since: Option<&'a str>,
}

impl<'a> Owner<'a> {
    /// Whichever controller has that name.
    #[must_use]
    pub fn named(name: &'a str) -> Self {
        Self { name, uid: None }
    }
}

impl Records {
    /// Nowhere beyond this process.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// In a directory, which is made if it is not there.
    pub fn directory(path: PathBuf) -> Result<Self, RecordError> {
        Directory::open(path).map(Self::Directory)
    }

    /// In a cluster, with the specs in Davit's own namespace.
    #[must_use]
    pub fn cluster(client: kube::Client, namespace: &str) -> Self {
        Self::Cluster(Box::new(ClusterRecords::new(client, namespace)))
    }

    /// What was said of a controller last; nothing of one that is not known.
    /// To be asked for when a controller is seen for the first time, or again.
    pub async fn load(&self, owner: Owner<'_>) -> Result<ControllerStatus, RecordError> {
        match self {
            Self::Memory(books) => Ok(read(books, owner.name, |book| book.status.clone())),
            Self::Directory(directory) => Ok(directory.read(owner.name)?.status),
            Self::Cluster(cluster) => cluster.status(owner).await,
        }
    }

    /// Whether other hosts may write here too.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Remembers what is said of a controller now, if that is another than what
    /// was loaded or saved last. One that is gone needs no status. Returns
    /// another host that has written since this one did, if there is one.
    pub async fn save(
        &self,
        owner: Owner<'_>,
        status: &ControllerStatus,
    ) -> Result<Option<HostStatus>, RecordError> {
        match self {
            Self::Memory(books) => {
                write(books, owner.name, |book| book.status = status.clone());
                Ok(None)
            }
            Self::Directory(directory) => {
                directory.change(owner.name, |book| book.status = status.clone())?;
                Ok(None)
            }
            Self::Cluster(cluster) => Box::pin(cluster.save(owner, status)).await,
        }
    }

    /// Whether an operator has paused the rollout of a controller of a file. In a
    /// cluster, the spec says so.
    pub fn is_paused(&self, owner: Owner<'_>) -> Result<bool, RecordError> {
        match self {
            Self::Memory(books) => Ok(read(books, owner.name, |book| book.paused)),
            Self::Directory(directory) => Ok(directory.read(owner.name)?.paused),
            Self::Cluster(_) => Ok(false),
        }
    }

    /// Remembers that.
    pub fn set_paused(&self, owner: Owner<'_>, paused: bool) -> Result<(), RecordError> {
        match self {
            Self::Memory(books) => {
                write(books, owner.name, |book| book.paused = paused);
                Ok(())
            }
            Self::Directory(directory) => directory.change(owner.name, |book| book.paused = paused),
            Self::Cluster(_) => Ok(()),
        }
    }

    /// Keeps a spec that becomes active, its module pinned, under the name of
    /// its revision, and since when that is stable if it is. One that was kept
    /// before counts as the latest again.
    pub async fn keep(
        &self,
        owner: Owner<'_>,
        revision: &str,
        spec: &ControllerSpec,
        stable_since: Option<&str>,
    ) -> Result<(), RecordError> {
        let activation = Activation {
            at: &now(),
            stable_since,
        };
        match self {
            Self::Memory(books) => {
                write(books, owner.name, |book| {
                    book.keep(revision, spec, activation);
                });
                Ok(())
            }
            Self::Directory(directory) => {
                directory.change(owner.name, |book| book.keep(revision, spec, activation))
            }
            Self::Cluster(cluster) => cluster.keep(owner, revision, spec, activation).await,
        }
    }

    /// What a revision was made of, if that was kept.
    pub async fn spec(
        &self,
        owner: Owner<'_>,
        revision: &str,
    ) -> Result<Option<ControllerSpec>, RecordError> {
        match self {
            Self::Memory(books) => Ok(read(books, owner.name, |book| book.spec(revision))),
            Self::Directory(directory) => Ok(directory.read(owner.name)?.spec(revision)),
            Self::Cluster(cluster) => cluster.spec(owner, revision).await,
        }
    }

    /// Every spec that is kept, the latest first.
    pub async fn history(&self, owner: Owner<'_>) -> Result<Vec<Kept>, RecordError> {
        match self {
            Self::Memory(books) => Ok(read(books, owner.name, Book::history)),
            Self::Directory(directory) => Ok(directory.read(owner.name)?.history()),
            Self::Cluster(cluster) => cluster.history(owner).await,
        }
    }
}

fn read<T: Default>(
    books: &Mutex<BTreeMap<String, Book>>,
    name: &str,
    look: impl FnOnce(&Book) -> T,
) -> T {
    let books = books.lock().unwrap_or_else(PoisonError::into_inner);
    books.get(name).map(look).unwrap_or_default()
}

fn write(books: &Mutex<BTreeMap<String, Book>>, name: &str, change: impl FnOnce(&mut Book)) {
    let mut books = books.lock().unwrap_or_else(PoisonError::into_inner);
    change(books.entry(name.to_owned()).or_default());
}

/// As Kubernetes writes times: to the second.
fn now() -> String {
    let now = Timestamp::now();
    now.round(Unit::Second).unwrap_or(now).to_string()
}
