//! Keeping objects: their entries are on the disk before their deletion is sent.

use std::sync::mpsc::Sender;
use std::time::Duration;

use davit_core::journal::{Entry, KeptEntry, Record};
use davit_core::time::Now;
use davit_core::undo::NotKept;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::delivery::{Delivery, Keep};

/// How long a deletion waits for the disk.
const KEEP_WITHIN: Duration = Duration::from_secs(10);

/// Passes objects to the journal's thread.
#[derive(Clone)]
pub(crate) struct ObjectKeeper(pub(super) Sender<Delivery>);

impl ObjectKeeper {
    /// Writes an entry. Returns once the disk has it.
    pub(crate) async fn keep(&self, now: Now, kept: KeptEntry) -> Result<(), NotKept> {
        let (answer, answered) = oneshot::channel();
        let keep = Keep {
            stays_for: kept.keep_for,
            record: Record {
                now,
                entry: Entry::Kept(Box::new(kept)),
            },
            answer,
        };
        // An error means that the thread has ended.
        if self.0.send(Delivery::Keep(Box::new(keep))).is_err() {
            return Err(NotKept::Stopped);
        }
        match timeout(KEEP_WITHIN, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(NotKept::Stopped),
            Err(_) => Err(NotKept::Silent(KEEP_WITHIN)),
        }
    }
}
