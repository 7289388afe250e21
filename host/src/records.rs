//! The records of controllers: their status, and the specs that were active.
//!
//! In a cluster, these are the Controller's status and a `ControllerRevision` for every
//! spec. A host that runs from a file stores both in a directory, or in memory.

mod directory;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use davit_cluster::api::{Api, chain};
use davit_cluster::clock::Clock;
pub use davit_cluster::records::ClusterRecords;
use davit_cluster::term::Term;
use davit_core::api::{ControllerSpec, ControllerStatus};
use davit_core::record::{
    ControllerRecord, Owner, Record, RecordFailure, RecordReceipt, RecordState, RevisionRecord,
};
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};

pub use directory::Directory;

/// The records of controllers.
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
    /// The record in the cluster cannot be read, or is not there. The text says which part,
    /// and why.
    #[error("{0}")]
    Cluster(String),
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
        let api = Api::new(client, Clock::start(), None);
        Self::Cluster(Arc::new(ClusterRecords::new(api, namespace)))
    }

    /// The same records, over the connection of a host: its log reports once for all requests
    /// that the API server does not answer.
    #[must_use]
    pub fn over(self: Arc<Self>, api: &Api) -> Arc<Self> {
        match &*self {
            Self::Memory(_) | Self::Directory(_) => self,
            Self::Cluster(records) => {
                let records = records.over(api.clone());
                Arc::new(Self::Cluster(Arc::new(records)))
            }
        }
    }

    /// Reads a record. It is an error if the Controller was deleted. A read of a file follows
    /// every write that was called before it, whenever it is awaited.
    pub fn read(&self, owner: &Owner) -> BoxFuture<'static, Result<RecordState, RecordError>> {
        let state = |record: &ControllerRecord| RecordState {
            status: record.status.clone(),
            version: None,
            paused: Some(record.paused),
        };
        match self {
            Self::Memory(records) => ready(Ok(read(records, owner, state))).boxed(),
            Self::Directory(directory) => {
                let record = directory.read(owner);
                async move { record.await.map(|record| state(&record)) }.boxed()
            }
            Self::Cluster(cluster) => {
                let (cluster, owner) = (Arc::clone(cluster), owner.clone());
                async move {
                    let (status, version) = in_cluster(cluster.status(&owner).await)?;
                    Ok(RecordState {
                        status,
                        version: Some(version),
                        paused: None,
                    })
                }
                .boxed()
            }
        }
    }

    /// The recorded status; the default for an unknown controller of a file.
    pub async fn status(&self, owner: &Owner) -> Result<ControllerStatus, RecordError> {
        Ok(self.read(owner).await?.status)
    }

    /// Whether other hosts may write the same records.
    #[must_use]
    pub fn are_shared(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// Writes a record within a term. Records of a file's controllers are written in the order
    /// of these calls, whenever they are awaited.
    ///
    /// A write that is not awaited any more may still take place, if it has started.
    pub fn write(
        &self,
        owner: &Owner,
        record: Record,
        term: Term,
    ) -> BoxFuture<'static, Result<RecordReceipt, RecordFailure>> {
        match self {
            Self::Memory(records) => {
                let mut records = records.lock().unwrap_or_else(PoisonError::into_inner);
                records.entry(owner.name.clone()).or_default().write(record);
                ready(Ok(RecordReceipt::default())).boxed()
            }
            Self::Directory(directory) => {
                let written = directory.write(owner, record);
                async move {
                    let written = written.await;
                    let failed = |error| RecordFailure::Failed(chain(&error));
                    written.map(|()| RecordReceipt::default()).map_err(failed)
                }
                .boxed()
            }
            Self::Cluster(cluster) => {
                let (cluster, owner) = (Arc::clone(cluster), owner.clone());
                async move { cluster.write(&owner, record, &term).await }.boxed()
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
            Self::Cluster(cluster) => in_cluster(cluster.spec(owner, revision).await),
        }
    }

    /// Every recorded spec, the latest first.
    pub async fn history(&self, owner: &Owner) -> Result<Vec<RevisionRecord>, RecordError> {
        match self {
            Self::Memory(records) => Ok(read(records, owner, ControllerRecord::history)),
            Self::Directory(directory) => Ok(directory.read(owner).await?.history()),
            Self::Cluster(cluster) => in_cluster(cluster.history(owner).await),
        }
    }
}

fn in_cluster<T>(answer: Result<T, String>) -> Result<T, RecordError> {
    answer.map_err(RecordError::Cluster)
}

fn read<T: Default>(
    records: &Mutex<BTreeMap<String, ControllerRecord>>,
    owner: &Owner,
    look: impl FnOnce(&ControllerRecord) -> T,
) -> T {
    let records = records.lock().unwrap_or_else(PoisonError::into_inner);
    records.get(&owner.name).map(look).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use davit_cluster::connect;

    use super::*;

    #[tokio::test]
    async fn requests_for_records_say_whether_the_api_server_answers() {
        // Nothing listens there.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = connect::client(config).unwrap();
        let api = Api::new(client.clone(), Clock::start(), None);
        let records = Arc::new(Records::cluster(client, "davit")).over(&api);
        let owner = Owner::named("podgc");
        records.status(&owner).await.unwrap_err();
        let absence = api.absence().expect("the API server does not answer");
        assert!(absence.last.contains("podgc"), "{}", absence.last);
    }
}
