//! The journal of a running host: a thread that writes what the host saw and decided.
//!
//! The journal never holds the host up. The driver's task passes entries on as references; the
//! thread encodes and writes them. What the disk does not take, or not fast enough, is dropped
//! and counted. The journal then records again after a pause, from a new keyframe on.

mod delivery;
mod keeper;
mod origin;
mod queue;
#[cfg(test)]
mod slow_disk;
mod thread;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use davit_core::journal::Profile;
use davit_journal::{Error, Files, Settings, Storage, Writer};
use jiff::Timestamp;

use crate::health::Health;
use crate::metrics::JournalMetrics;

pub(crate) use keeper::ObjectKeeper;
pub(crate) use origin::SegmentOrigin;
pub(crate) use queue::JournalQueue;

/// The largest segment, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;
/// How many segments a journal of the largest size has at least.
const LEAST_SEGMENTS: u64 = 8;

/// Where a host records its journal, and how much of it stays.
#[derive(Clone, Debug)]
pub struct JournalSettings {
    /// The directory.
    pub directory: PathBuf,
    /// After this time an entry may be removed.
    pub max_age: Duration,
    /// The largest size of the directory, in bytes.
    pub max_bytes: u64,
    /// How often a keyframe is written at least.
    pub segment_age: Duration,
    /// How long what was written may wait until the disk has it.
    pub sync: Duration,
    /// What is recorded beside what guests read.
    pub profile: Profile,
    /// Whether no controller runs: the journal has the profile alone.
    pub is_profile_only: bool,
}

/// A journal that is open for writing. No other process can record in its directory.
pub struct Journal<S: Storage = Files> {
    writer: Writer<S>,
    sync: Duration,
    profile: Profile,
    origin: SegmentOrigin,
    metrics: JournalMetrics,
    health: Arc<Health>,
}

impl Journal {
    /// Opens the directory, which is created for this user alone if it does not exist. `instance` is the name of
    /// this host.
    ///
    /// Fails if another process records there, if a segment has a format that this version does
    /// not know, or if the disk fails.
    pub fn open(
        settings: &JournalSettings,
        instance: String,
        metrics: JournalMetrics,
        health: Arc<Health>,
    ) -> Result<Self, Error> {
        let storage = Settings {
            segment_age: settings.segment_age,
            segment_bytes: SEGMENT_BYTES.min(settings.max_bytes / LEAST_SEGMENTS),
            total_bytes: settings.max_bytes,
            max_age: settings.max_age,
            ..Settings::default()
        };
        let now = Timestamp::now().as_microsecond();
        let (writer, recovery) = Writer::open(&settings.directory, storage, now)?;
        if let Some(cut) = recovery.cut {
            let (path, bytes) = (cut.path.display(), cut.bytes);
            tracing::info!(%path, bytes, "the journal's last segment has a torn tail: cut");
        }
        if recovery.unreadable_held > 0 {
            let (path, lines) = (settings.directory.join("held"), recovery.unreadable_held);
            tracing::warn!(
                path = %path.display(), lines,
                "the list of segments with kept objects has lines that cannot be read: copies for \
                 spec.undo may be removed before their time, by --journal-max-age"
            );
        }
        Ok(Self {
            writer,
            sync: settings.sync,
            profile: settings.profile.clone(),
            origin: SegmentOrigin {
                profile_only: settings.is_profile_only,
                ..SegmentOrigin::of_this_process(instance)
            },
            metrics,
            health,
        })
    }
}

impl<S: Storage<File: Send> + Send + 'static> Journal<S> {
    /// What is recorded beside what guests read.
    pub(crate) const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Starts the thread. `ask` asks the driver for a keyframe; the driver adds the first one
    /// by itself.
    pub(crate) fn start(self, ask: impl Fn() + Send + 'static) -> JournalQueue {
        thread::start(self, Box::new(ask))
    }
}
