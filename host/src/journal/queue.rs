//! The entries on their way from the driver's task to the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use davit_core::journal::JournalItem;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::delivery::{Batch, Delivery};
use super::keeper::ObjectKeeper;
use crate::health::Health;
use crate::metrics::JournalMetrics;
use crate::repeat::RepeatedLine;

/// How many bytes of entries may wait ([`JournalItem::bytes`]).
pub(super) const MOST_WAITING: usize = 32 << 20;

/// The lines about a full queue.
static FULL: RepeatedLine = RepeatedLine::new();

/// How long a host that stops waits for its journal.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// Passes entries to the thread. It never waits.
pub(crate) struct JournalQueue {
    pub(super) deliveries: Sender<Delivery>,
    pub(super) state: Arc<QueueState>,
    pub(super) metrics: JournalMetrics,
    pub(super) health: Arc<Health>,
    /// Answered when the thread has closed the journal.
    pub(super) closed: oneshot::Receiver<()>,
}

/// What the task and the thread know of the queue.
#[derive(Debug, Default)]
pub(super) struct QueueState {
    /// In bytes.
    waiting: AtomicUsize,
    /// The bytes of the cache's objects that the waiting items refer to.
    shared: AtomicUsize,
    /// Whether entries are dropped until the next keyframe.
    has_gap: AtomicBool,
}

impl QueueState {
    /// An item left the queue.
    pub(super) fn leave(&self, item: &JournalItem) {
        self.waiting.fetch_sub(item.bytes(), Ordering::Relaxed);
        self.shared
            .fetch_sub(item.shared_bytes(), Ordering::Relaxed);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// How many bytes wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether entries are dropped until the next keyframe.
    pub(super) fn has_gap(&self) -> bool {
        self.has_gap.load(Ordering::Relaxed)
    }

    /// Makes room for items, unless too many bytes wait. Any number has room in an empty queue:
    /// the list of a large cluster comes at once.
    fn enter(&self, items: &mut [JournalItem]) -> bool {
        let mut shared = self.shared.load(Ordering::Relaxed);
        for item in &mut *items {
            if let JournalItem::Released(bytes) = item {
                // No more than what earlier items refer to: most of these are written already.
                *bytes = shared.min(*bytes);
                shared -= *bytes;
            }
        }
        let bytes: usize = items.iter().map(JournalItem::bytes).sum();
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let has_room = waiting == 0 || waiting + bytes <= MOST_WAITING;
        if has_room {
            let shared = items.iter().map(JournalItem::shared_bytes).sum();
            self.shared.fetch_add(shared, Ordering::Relaxed);
        } else {
            self.waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.has_gap.store(true, Ordering::Relaxed);
        }
        has_room
    }
}

impl JournalQueue {
    /// Passes entries on, or drops them if too many wait. After that, entries up to the next
    /// keyframe are dropped too: they would fit to nothing.
    pub(crate) fn send(&self, mut items: Vec<JournalItem>) {
        if self.state.has_gap() {
            let is_keyframe = |item: &JournalItem| matches!(item, JournalItem::Keyframe(_));
            let next = items.iter().position(is_keyframe).unwrap_or(items.len());
            let dropped: Vec<JournalItem> = items.drain(..next).collect();
            self.metrics.dropped(entries(&dropped));
        }
        if items.is_empty() {
            return;
        }
        let count = entries(&items);
        if !self.state.enter(&mut items) {
            self.metrics.dropped(count);
            // The thread may hang, and say nothing.
            self.note_stop();
            if let Some(suppressed) = FULL.admit("the queue is full") {
                tracing::warn!(
                    "the journal drops entries: the disk does not keep up; it records again \
                     from a new keyframe{suppressed}"
                );
            }
            return;
        }
        let follows_gap = self.state.has_gap.swap(false, Ordering::Relaxed);
        let batch = Batch { items, follows_gap };
        if self.deliveries.send(Delivery::Batch(batch)).is_err() {
            // The thread has failed, which its own message reports.
            self.metrics.dropped(count);
            self.note_stop();
        }
    }

    /// Keeps objects before they are deleted.
    pub(crate) fn keeper(&self) -> ObjectKeeper {
        ObjectKeeper::new(self.deliveries.clone(), self.metrics.clone())
    }

    /// Nothing is recorded until the thread says otherwise.
    pub(super) fn note_stop(&self) {
        self.metrics.set_recording(false);
        self.health.set_journal_stopped(true);
    }

    /// Waits until the thread has written everything and closed the segment.
    pub(crate) async fn close(self) {
        drop(self.deliveries);
        if timeout(CLOSE_WITHIN, self.closed).await.is_err() {
            tracing::warn!("the journal is not closed: the disk does not answer in time");
        }
    }
}

/// How many of these are more than a number for the queue.
fn entries(items: &[JournalItem]) -> usize {
    let is_entry = |item: &&JournalItem| !matches!(item, JournalItem::Released(_));
    items.iter().filter(is_entry).count()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use davit_core::journal::{Entry, JournalItem, Record};
    use davit_core::machine::Machine;
    use davit_core::time::Now;

    use super::*;
    use crate::metrics::HostMetrics;

    fn queue() -> (JournalQueue, mpsc::Receiver<Delivery>, oneshot::Sender<()>) {
        let (deliveries, received) = mpsc::channel();
        let (done, closed) = oneshot::channel();
        let queue = JournalQueue {
            deliveries,
            state: Arc::default(),
            metrics: HostMetrics::new().unwrap().journal,
            health: Arc::default(),
            closed,
        };
        (queue, received, done)
    }

    fn batch(received: &mpsc::Receiver<Delivery>) -> Option<Batch> {
        match received.try_recv() {
            Ok(Delivery::Batch(batch)) => Some(batch),
            _ => None,
        }
    }

    fn records(count: usize) -> Vec<JournalItem> {
        let record = || Record {
            now: Now::default(),
            entry: Entry::KeyframeEnd,
        };
        std::iter::repeat_with(|| JournalItem::Record(record()))
            .take(count)
            .collect()
    }

    fn bytes(items: &[JournalItem]) -> usize {
        items.iter().map(JournalItem::bytes).sum()
    }

    /// As many as fit.
    fn full() -> Vec<JournalItem> {
        records(MOST_WAITING / bytes(&records(1)))
    }

    #[test]
    fn entries_that_find_the_queue_full_are_dropped_until_the_next_keyframe() {
        let (queue, received, _done) = queue();
        queue.send(full());
        queue.send(records(1));
        assert!(queue.state.has_gap() && queue.health.is_journal_stopped());
        let first = batch(&received).unwrap();
        first.items.iter().for_each(|it| queue.state.leave(it));
        assert!(queue.state.is_empty() && !first.follows_gap);
        queue.send(records(3));
        assert!(batch(&received).is_none(), "they fit to nothing");
        let mut machine = Machine::<()>::new(Now::default());
        machine.start_journal(Now::default());
        let mut items = records(3);
        items.extend(machine.take_journal());
        items.extend(records(2));
        queue.send(items);
        let next = batch(&received).unwrap();
        assert!(next.follows_gap && !queue.state.has_gap());
        assert!(matches!(next.items[0], JournalItem::Keyframe(_)));
        assert_eq!(next.items.len(), 3);
    }

    /// What a list with other fields replaces was written long before.
    #[test]
    fn what_the_cache_releases_counts_as_far_as_something_that_waits_refers_to_it() {
        let (queue, received, _done) = queue();
        let released = || vec![JournalItem::Released(2 * MOST_WAITING)];
        queue.send(released());
        queue.send(records(1));
        assert!(!queue.state.has_gap());
        while let Some(batch) = batch(&received) {
            batch.items.iter().for_each(|it| queue.state.leave(it));
        }
        assert!(queue.state.is_empty());

        let mut machine = Machine::<()>::new(Now::default());
        machine.start_journal(Now::default());
        queue.send(machine.take_journal());
        queue.send(released());
        assert!(queue.state.has_gap(), "the keyframe refers to it");
    }

    /// The list of a large cluster comes at once.
    #[test]
    fn an_empty_queue_takes_any_number_of_entries() {
        let (queue, received, _done) = queue();
        let mut items = full();
        items.append(&mut full());
        let count = items.len();
        queue.send(items);
        assert_eq!(batch(&received).unwrap().items.len(), count);
    }
}
