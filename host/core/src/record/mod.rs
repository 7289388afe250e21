//! The record of a controller, from which the next host continues: its status, and the
//! specs that were active.

mod owner;

use serde::{Deserialize, Serialize};

use crate::api::{ControllerSpec, ControllerStatus, HostStatus};
pub use owner::Owner;

/// The number of specs in a record. The specs of the stable revision and of the
/// candidate stay however old they are.
pub const MOST_REVISIONS: usize = 10;

/// The id of one write or read of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordId(pub u64);

/// A write to a controller's record.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A spec that becomes active. A spec that is recorded already becomes the latest
    /// again.
    Revision(Box<Activation>),
    /// The status.
    Status(StatusWrite),
    /// Whether an operator has paused the rollout of a controller of a configuration
    /// file.
    Paused(bool),
}

/// A write that replaces the whole status.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// The new status.
    pub status: Box<ControllerStatus>,
    /// The version that it continues from; none if that is unknown, and in a file, which
    /// only one host writes.
    pub replaces: Option<StatusVersion>,
    /// What happens if another host has written the status since.
    pub conflict: StatusConflict,
}

/// A version of a status in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusVersion {
    /// The resource version of the Controller.
    pub resource: String,
    /// The host that wrote the status, and when.
    pub writer: Option<HostStatus>,
}

/// What happens if another host has written the status since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusConflict {
    /// The write fails: with leases, the other host leads.
    Fail,
    /// The write replaces what the other host has written.
    Replace,
}

/// The result of a write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordReceipt {
    /// The new version of the status; none of a file, or if the write was about
    /// something else.
    pub version: Option<StatusVersion>,
    /// Another host that had written the status since this one read or wrote it.
    pub other_host: Option<HostStatus>,
}

/// Why a write did not succeed. Displays the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordFailure {
    /// Another host has written the status since. Nothing was written.
    #[error(
        "cannot write the status of the Controller {controller}: {} has written it since", writer(by.as_ref())
    )]
    Overtaken {
        /// The controller.
        controller: String,
        /// The other host, if it names itself.
        by: Option<HostStatus>,
    },
    /// It failed. The record may or may not be written.
    #[error("{0}")]
    Failed(String),
}

fn writer(host: Option<&HostStatus>) -> String {
    host.map_or_else(
        || "another client".to_owned(),
        |host| format!("another replica, {},", host.name),
    )
}

/// A spec that becomes active.
#[derive(Clone, Debug, PartialEq)]
pub struct Activation {
    /// The revision's name.
    pub revision: String,
    /// The spec, its module pinned.
    pub spec: ControllerSpec,
    /// When it becomes active, RFC 3339.
    pub at: String,
    /// When its revision became stable, if it is.
    pub stable_since: Option<String>,
}

/// What a host needs of a record when it first knows a controller.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordState {
    /// The last status; empty for an unknown controller of a file.
    pub status: ControllerStatus,
    /// The version of the status in the cluster.
    pub version: Option<StatusVersion>,
    /// Whether an operator has paused the rollout; none in a cluster, where the spec says so.
    pub paused: Option<bool>,
}

/// A record as a host reads it when a controller is first declared.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// The recorded status, or why it cannot be read.
    pub status: Result<ControllerStatus, String>,
    /// The version of the status; none of a file.
    pub version: Option<StatusVersion>,
    /// Whether an operator has paused the rollout, or the error. None if the pause is
    /// in the spec.
    pub paused: Option<Result<bool, String>>,
}

impl StoredRecord {
    /// What a host read of a record. `has_pause` says whether the record would have a
    /// pause too: if the record cannot be read, the rollout may be paused.
    #[must_use]
    pub fn new(read: Result<RecordState, String>, has_pause: bool) -> Self {
        match read {
            Ok(read) => Self {
                status: Ok(read.status),
                version: read.version,
                paused: read.paused.map(Ok),
            },
            Err(error) => Self {
                version: None,
                paused: has_pause.then(|| Err(error.clone())),
                status: Err(error),
            },
        }
    }
}

/// A spec that was active. Only its module, configuration and limits identify the
/// revision; the rest is from the time of activation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevisionRecord {
    /// Counts the activations of the controller: the highest is the latest.
    pub number: i64,
    /// The revision's name.
    pub revision: String,
    /// When it last became active, RFC 3339: as candidate or stable revision.
    pub at: String,
    /// When it last became stable, RFC 3339 with milliseconds; none of a candidate
    /// that never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable_since: Option<String>,
    /// The spec, its module with the digest that it had.
    pub spec: ControllerSpec,
}

/// The whole record of one controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ControllerRecord {
    /// The status that was recorded last.
    pub status: ControllerStatus,
    /// Whether an operator has paused the rollout.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The specs that were active, the latest last.
    revisions: Vec<RevisionRecord>,
}

impl StatusWrite {
    /// A write that replaces any version.
    #[must_use]
    pub fn any(status: ControllerStatus) -> Self {
        Self {
            status: Box::new(status),
            replaces: None,
            conflict: StatusConflict::Replace,
        }
    }
}

impl ControllerRecord {
    /// Applies a write.
    pub fn write(&mut self, record: Record) {
        match record {
            Record::Revision(activation) => self.activate(*activation),
            Record::Status(write) => self.status = *write.status,
            Record::Paused(paused) => self.paused = paused,
        }
    }

    /// Records a spec as the latest, and drops surplus specs.
    fn activate(&mut self, activation: Activation) {
        let Activation {
            revision,
            spec,
            at,
            stable_since,
        } = activation;
        if let Some(latest) = self.revisions.last_mut()
            && latest.revision == revision
        {
            latest.stable_since = stable_since.or(latest.stable_since.take());
            return;
        }
        let number = self.revisions.last().map_or(0, |latest| latest.number) + 1;
        let mut revisions = self.revisions.iter();
        let before = revisions.position(|one| one.revision == revision);
        let before = before.map(|position| self.revisions.remove(position));
        self.revisions.push(RevisionRecord {
            number,
            revision,
            at,
            stable_since: stable_since.or(before.and_then(|before| before.stable_since)),
            spec,
        });
        let revisions = self.revisions.iter().map(|one| one.revision.as_str());
        let surplus = surplus(revisions, &in_use(&self.status));
        self.revisions
            .retain(|one| !surplus.contains(&one.revision));
    }

    /// The spec of a revision.
    #[must_use]
    pub fn spec(&self, revision: &str) -> Option<ControllerSpec> {
        let found = self.revisions.iter().find(|one| one.revision == revision);
        found.map(|one| one.spec.clone())
    }

    /// The specs, the latest first.
    #[must_use]
    pub fn history(&self) -> Vec<RevisionRecord> {
        self.revisions.iter().rev().cloned().collect()
    }
}

/// The revisions in use: stable and candidate.
#[must_use]
pub fn in_use(status: &ControllerStatus) -> Vec<String> {
    let stable = status.stable.as_ref().map(|stable| &stable.revision);
    let candidate = status.candidate.as_ref();
    let candidate = candidate.map(|candidate| &candidate.revision);
    stable.into_iter().chain(candidate).cloned().collect()
}

/// The surplus of these revisions, which are sorted from the oldest. A revision in use
/// is never surplus.
pub fn surplus<'a>(
    revisions: impl ExactSizeIterator<Item = &'a str>,
    in_use: &[String],
) -> Vec<String> {
    let too_many = revisions.len().saturating_sub(MOST_REVISIONS);
    let free = revisions.filter(|revision| !in_use.iter().any(|used| used == revision));
    free.take(too_many).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ModuleSource, RevisionStatus};

    fn spec(name: &str) -> ControllerSpec {
        ControllerSpec::of(ModuleSource::Builtin(name.into()).into())
    }

    fn activate(record: &mut ControllerRecord, revision: &str) {
        activate_as(record, revision, None);
    }

    fn activate_as(record: &mut ControllerRecord, revision: &str, stable_since: Option<&str>) {
        record.write(Record::Revision(Box::new(Activation {
            revision: revision.into(),
            spec: spec(revision),
            at: "2026-11-20T10:00:00Z".into(),
            stable_since: stable_since.map(str::to_owned),
        })));
    }

    fn numbered(record: &ControllerRecord) -> Vec<(i64, String)> {
        let history = record.history().into_iter();
        history.map(|one| (one.number, one.revision)).collect()
    }

    #[test]
    fn a_pause_that_cannot_be_read_counts_as_one_if_the_record_would_have_it() {
        let unreadable = |has_pause| StoredRecord::new(Err("forbidden".to_owned()), has_pause);
        let in_file = unreadable(true);
        assert_eq!(in_file.status, Err("forbidden".to_owned()));
        assert_eq!(in_file.paused, Some(Err("forbidden".to_owned())));
        let in_cluster = unreadable(false);
        assert_eq!(in_cluster.status, Err("forbidden".to_owned()));
        assert_eq!(in_cluster.paused, None);
        let paused = RecordState {
            paused: Some(true),
            ..RecordState::default()
        };
        let read = StoredRecord::new(Ok(paused), true);
        assert_eq!(read.status, Ok(ControllerStatus::default()));
        assert_eq!(read.paused, Some(Ok(true)));
    }

    #[test]
    fn the_latest_activation_has_the_highest_number() {
        let mut record = ControllerRecord::default();
        for revision in ["a", "b", "b", "c", "a"] {
            activate(&mut record, revision);
        }
        let expected = [(4, "a"), (3, "c"), (2, "b")];
        assert_eq!(numbered(&record), expected.map(|(n, r)| (n, r.to_owned())));
        assert_eq!(record.spec("b"), Some(spec("b")));
        assert_eq!(record.spec("d"), None);
    }

    #[test]
    fn when_a_revision_was_stable_is_never_forgotten() {
        let mut record = ControllerRecord::default();
        activate_as(&mut record, "a", Some("1"));
        activate(&mut record, "b");
        let since = |record: &ControllerRecord| {
            let history = record.history().into_iter();
            let since = history.map(|one| (one.revision, one.stable_since));
            since.collect::<Vec<_>>()
        };
        let of =
            |revision: &str, since: Option<&str>| (revision.to_owned(), since.map(str::to_owned));
        assert_eq!(since(&record), [of("b", None), of("a", Some("1"))]);
        // Promoted. The former one became a candidate again, and was not promoted.
        activate_as(&mut record, "b", Some("2"));
        activate(&mut record, "a");
        assert_eq!(since(&record), [of("a", Some("1")), of("b", Some("2"))]);
        activate(&mut record, "a");
        assert_eq!(since(&record), [of("a", Some("1")), of("b", Some("2"))]);
    }

    #[test]
    fn specs_of_running_revisions_stay_recorded() {
        let mut record = ControllerRecord::default();
        activate(&mut record, "stable");
        record.status.stable = Some(RevisionStatus {
            revision: "stable".into(),
            ..RevisionStatus::default()
        });
        for number in 0..20 {
            activate(&mut record, &format!("r{number}"));
        }
        let recorded = numbered(&record);
        assert_eq!(recorded.len(), MOST_REVISIONS);
        assert_eq!(recorded.first(), Some(&(21, "r19".into())));
        assert_eq!(recorded.last(), Some(&(1, "stable".into())));
        assert!(recorded.contains(&(13, "r11".into())));
    }
}
