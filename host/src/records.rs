//! The records of controllers: their status, and the specs that were active.
//!
//! In a cluster, these are the Controller's status and a `ControllerRevision` for every
//! spec. A host that runs from a file stores both in a directory, or in memory.

mod cluster;
mod directory;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use davit_core::api::{ControllerSpec, ControllerStatus, HostStatus};
use davit_core::record::{ControllerRecord, Owner, Record, RevisionRecord};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

pub use cluster::ClusterRecords;
pub use directory::Directory;

/// The label of a `ControllerRevision` that names its controller.
pub const CONTROLLER_LABEL: &str = "davit.dev/controller";

/// The records of controllers. Only one host writes the records of a controller.
pub enum Records {
    /// In memory.
    Memory(Mutex<BTreeMap<String, ControllerRecord>>),
    /// In a directory.
    Directory(Directory),
    /// In a cluster.
    Cluster(Arc<ClusterRecords>),
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The API server refused or did not answer.
    #[error("cannot {verb} {object}: {reason}")]
    Cluster {
        /// The attempt.
        verb: &'static str,
        /// The object.
        object: String,
        /// The API server's answer.
        reason: String,
    },
    /// The Controller does not exist.
    #[error(
        "{object} is gone, or another one has its name: it does not run any more, and its record \
         was deleted with it"
    )]
    Gone {
        /// The object.
        object: String,
    },
    /// The file cannot be used.
    #[error("cannot {verb} {path}", path = path.display())]
    File {
        /// The attempt.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The thread that reads and writes the files panicked at this one.
    #[error("cannot use the record of {name}: the thread of the records panicked")]
    Panicked {
        /// The controller.
        name: String,
    },
    /// The content was not written by Davit.
    #[error("{place} is not a record that Davit wrote: {reason}")]
    Unreadable {
        /// The place.
        place: String,
        /// The reason.
        reason: String,
    },
}

impl Records {
    /// Records in memory.
    #[must_use]
    pub fn memory() -> Self {
        Self::Memory(Mutex::default())
    }

    /// Records in a directory, which is created if it does not exist.
    pub fn directory(path: PathBuf) -> Result<Self, RecordError> {
        Directory::open(path).map(Self::Directory)
    }

    /// Records in a cluster, with the specs in Davit's own namespace.
    #[must_use]
    pub fn cluster(client: kube::Client, namespace: &str) -> Self {
        Self::Cluster(Arc::new(ClusterRecords::new(client, namespace)))
    }

    /// The same beside other replicas, which write the same records, each while it holds the
    /// lease: what another one has written since is never replaced.
    #[must_use]
    pub fn of_replica(client: kube::Client, namespace: &str) -> Self {
        let cluster = ClusterRecords::new(client, namespace);
        Self::Cluster(Arc::new(cluster.beside_replicas()))
    }

    /// Reads what a host needs when it first knows a controller: the last status, empty
    /// for an unknown controller of a file, an error for a deleted Controller; and whether an operator has paused the rollout of a
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

    /// The recorded status; the default for an unknown controller of a file.
    pub async fn status(&self, owner: &Owner) -> Result<ControllerStatus, RecordError> {
        Ok(self.read(owner).await?.0)
    }

    /// Whether other hosts may write the same records.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Writes a record. Returns another host that has
    /// written the status since this one did, if there is one. Records of a file's
    /// controllers are written in the order of these calls, whenever they are awaited.
    ///
    /// A write that is not awaited any more may still take place, if it has started.
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
