//! Keeping objects: their entries are on the disk before their deletion is sent.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use davit_core::journal::{Entry, KeptEntry, Record};
use davit_core::time::Now;
use davit_core::undo::NotKept;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::delivery::{Delivery, Keep};
use crate::metrics::JournalMetrics;

/// How long a deletion waits for the disk.
const KEEP_WITHIN: Duration = Duration::from_secs(10);

/// How many bytes of objects may wait for the disk: sixteen of the largest. A copy stays in memory
/// until the disk answers, also after its deletion has failed, so a disk that hangs would
/// otherwise fill the memory.
const MOST_WAITING_COPIES: usize = 32 << 20;

/// Passes objects to the journal's thread.
#[derive(Clone)]
pub(crate) struct ObjectKeeper {
    deliveries: Sender<Delivery>,
    metrics: JournalMetrics,
    /// A permit for each byte.
    room: Arc<Semaphore>,
}

impl ObjectKeeper {
    pub(super) fn new(deliveries: Sender<Delivery>, metrics: JournalMetrics) -> Self {
        Self {
            deliveries,
            metrics,
            room: Arc::new(Semaphore::new(MOST_WAITING_COPIES)),
        }
    }

    /// Writes an entry. Returns once the disk has it. Fails at once if too many bytes wait already.
    pub(crate) async fn keep(&self, now: Now, kept: KeptEntry) -> Result<(), NotKept> {
        let room = self.enter(kept.object.len())?;
        let (answer, answered) = oneshot::channel();
        let keep = Keep {
            stays_for: kept.keep_for,
            record: Record {
                now,
                entry: Entry::Kept(Box::new(kept)),
            },
            room,
            answer,
        };
        // An error means that the thread has ended.
        if self
            .deliveries
            .send(Delivery::Keep(Box::new(keep)))
            .is_err()
        {
            return Err(NotKept::Stopped);
        }
        match timeout(KEEP_WITHIN, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(NotKept::Stopped),
            Err(_) => Err(NotKept::Silent(KEEP_WITHIN)),
        }
    }

    fn enter(&self, bytes: usize) -> Result<OwnedSemaphorePermit, NotKept> {
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).try_acquire_many_owned(permits);
        room.map_err(|_| {
            self.metrics.dropped(1);
            NotKept::Behind {
                waiting: MOST_WAITING_COPIES,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};

    use davit_core::controller::{CallId, ControllerId, DecisionId};
    use davit_core::object::{ApiResource, ObjectRef};
    use davit_core::undo::MOST_KEPT_BYTES;

    use super::*;
    use crate::metrics::HostMetrics;

    /// A thread whose disk hangs: it takes nothing from the channel.
    fn hanging() -> (ObjectKeeper, Receiver<Delivery>) {
        let (deliveries, received) = mpsc::channel();
        let metrics = HostMetrics::new().unwrap().journal;
        (ObjectKeeper::new(deliveries, metrics), received)
    }

    fn copy() -> KeptEntry {
        let call = CallId {
            controller: ControllerId(1),
            number: 1,
        };
        KeptEntry {
            controller: "podgc".to_owned(),
            revision: "0123456789".into(),
            decision: DecisionId { call, position: 0 },
            reason: "orphaned".to_owned(),
            target: ObjectRef::default(),
            resource: ApiResource::new("", "v1", "pods"),
            keep_for: Duration::from_secs(60),
            object: vec![b' '; MOST_KEPT_BYTES],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_hangs_keeps_a_bounded_number_of_bytes_waiting() {
        let (keeper, received) = hanging();
        let fit = MOST_WAITING_COPIES / MOST_KEPT_BYTES;
        for _ in 0..fit {
            let kept = keeper.keep(Now::default(), copy()).await;
            assert_eq!(kept, Err(NotKept::Silent(KEEP_WITHIN)));
        }
        for _ in 0..1000 {
            let kept = keeper.keep(Now::default(), copy()).await;
            assert!(matches!(kept, Err(NotKept::Behind { .. })), "{kept:?}");
        }
        let waiting: Vec<Delivery> = received.try_iter().collect();
        assert_eq!(waiting.len(), fit);
        // The disk answers again.
        drop(waiting);
        let kept = keeper.keep(Now::default(), copy()).await;
        assert_eq!(kept, Err(NotKept::Silent(KEEP_WITHIN)), "there is room");
    }
}
