//! Where controllers are recorded: their status, and the specs that were active.
//!
//! In a cluster, that is the Controller's own status, and a `ControllerRevision`
//! for every spec. A host that was started with a file of its own keeps both in
//! a directory, or only for as long as it runs.

mod cluster;
mod directory;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use davit_core::api::{ControllerSpec, ControllerStatus, HostStatus};
use davit_core::control::{ControllerRecord, Owner, Record, RevisionRecord};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

pub use cluster::ClusterRecords;
pub use directory::Directory;

/// The label of a `ControllerRevision` that names its controller.
pub const CONTROLLER_LABEL: &str = "davit.dev/controller";

/// Where controllers are recorded. One host alone writes of each.
pub enum Records {
    /// Nowhere beyond this process.
    Memory(Mutex<BTreeMap<String, ControllerRecord>>),
    /// In a directory.
    Directory(Directory),
    /// In a cluster.
    Cluster(Arc<ClusterRecords>),
}

/// Why a record cannot be read or written.
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
    /// The thread that reads and writes the files has panicked over this one.
    #[error("cannot use the record of {name}: the thread of the records panicked")]
    Panicked {
        /// The controller.
        name: String,
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
        Self::Cluster(Arc::new(ClusterRecords::new(client, namespace)))
    }

    /// Reads what a host needs when it first knows a controller: the last status, empty
    /// for an unknown controller; and whether an operator has paused the rollout of a
    /// controller of a file, none in a cluster, where the spec says so. A read of a file
    /// follows every write that was called before it, whenever it is awaited.
    pub fn read(
        &self,
        owner: &Owner,
    ) -> BoxFuture<'static, Result<(ControllerStatus, Option<bool>), RecordError>> {
        let both = |record: &ControllerRecord| (record.status.clone(), Some(record.paused));
        match self {
            Self::Memory(records) => ready(Ok(read(records, owner, both))).boxed(),
            Self::Directory(directory) => {
                let record = directory.read(owner);
                async move { record.await.map(|record| both(&record)) }.boxed()
            }
            Self::Cluster(cluster) => {
                let (cluster, owner) = (Arc::clone(cluster), owner.clone());
                async move { Ok((cluster.status(&owner).await?, None)) }.boxed()
            }
        }
    }

    /// The status that was recorded last; nothing of a controller that is not known.
    pub async fn status(&self, owner: &Owner) -> Result<ControllerStatus, RecordError> {
        Ok(self.read(owner).await?.0)
    }

    /// Whether other hosts may write here too.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Writes. A controller that is gone needs no record. Returns another host that has
    /// written the status since this one did, if there is one. Records of a file's
    /// controllers are written in the order of these calls, whenever they are awaited.
    ///
    /// A write that nobody awaits any more may still take place, if it has begun.
    pub fn write(
        &self,
        owner: &Owner,
        record: Record,
    ) -> BoxFuture<'static, Result<Option<HostStatus>, RecordError>> {
        match self {
            Self::Memory(records) => {
                let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
                records.entry(owner.name.clone()).or_default().write(record);
                ready(Ok(None)).boxed()
            }
            Self::Directory(directory) => {
                let written = directory.write(owner, record);
                async move { written.await.map(|()| None) }.boxed()
            }
            Self::Cluster(cluster) => {
                let (cluster, owner) = (Arc::clone(cluster), owner.clone());
                async move {
                    match record {
                        Record::Revision(activation) => {
                            cluster.activate(&owner, &activation).await.map(|()| None)
                        }
                        Record::Status(status) => Box::pin(cluster.save(&owner, &status)).await,
                        // The spec says so.
                        Record::Paused(_) => Ok(None),
                    }
                }
                .boxed()
            }
        }
    }

    /// The recorded spec of a revision.
    pub async fn spec(
        &self,
        owner: &Owner,
        revision: &str,
    ) -> Result<Option<ControllerSpec>, RecordError> {
        match self {
            Self::Memory(records) => Ok(read(records, owner, |record| record.spec(revision))),
            Self::Directory(directory) => Ok(directory.read(owner).await?.spec(revision)),
            Self::Cluster(cluster) => cluster.spec(owner, revision).await,
        }
    }

    /// Every recorded spec, the latest first.
    pub async fn history(&self, owner: &Owner) -> Result<Vec<RevisionRecord>, RecordError> {
        match self {
            Self::Memory(records) => Ok(read(records, owner, ControllerRecord::history)),
            Self::Directory(directory) => Ok(directory.read(owner).await?.history()),
            Self::Cluster(cluster) => cluster.history(owner).await,
        }
    }
}

fn read<T: Default>(
    records: &Mutex<BTreeMap<String, ControllerRecord>>,
    owner: &Owner,
    look: impl FnOnce(&ControllerRecord) -> T,
) -> T {
    let records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.get(&owner.name).map(look).unwrap_or_default()
}
