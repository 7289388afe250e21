//! The thread that encodes and writes.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use davit_cluster::api::chain;
use davit_core::journal::{EncodedRecord, Entry, JournalItem, Keyframe, Record, encode};
use davit_core::time::Now;
use davit_core::undo::NotKept;
use davit_journal::{Error, MAX_ENTRY, MAX_OBJECT, MAX_OBJECTS, Storage, Writer};
use jiff::Timestamp;
use tokio::sync::oneshot;

use super::Journal;
use super::delivery::{Batch, Delivery, Keep};
use super::origin::SegmentOrigin;
use super::queue::{JournalQueue, QueueState};
use crate::health::Health;
use crate::metrics::JournalMetrics;
use crate::repeat::RepeatedLine;

/// How often what was appended is written, and how often the thread looks after its segment.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);
/// The pause after the first failure. It doubles with each further one. Tests wait for it.
const FIRST_PAUSE: Duration = if cfg!(test) {
    Duration::from_millis(100)
} else {
    Duration::from_secs(10)
};
/// The longest pause. A journal that has recorded for longer starts with the first one again.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// How many deliveries are handled before the objects among them are flushed.
const MOST_AT_ONCE: usize = 64;
/// How long the driver may take to add a keyframe.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// The largest entry that is recorded, in bytes. The writer counts the names of objects too.
const MOST_BYTES: usize = MAX_ENTRY - (MAX_OBJECT + 16) * MAX_OBJECTS;

/// The lines about failures.
static FAILURES: RepeatedLine = RepeatedLine::new();

pub(super) fn start<S>(journal: Journal<S>, ask: Box<dyn Fn() + Send>) -> JournalQueue
where
    S: Storage<File: Send> + Send + 'static,
{
    let Journal {
        writer,
        sync,
        profile: _,
        origin,
        metrics,
        health,
    } = journal;
    let (deliveries, received) = mpsc::channel();
    let (done, closed) = oneshot::channel();
    let state = Arc::new(QueueState::default());
    let now = Instant::now();
    let recording = Recording {
        writer,
        sync,
        next_sync: now,
        origin,
        metrics: metrics.clone(),
        health: Arc::clone(&health),
        state: Arc::clone(&state),
        ask,
        asked: Some(now),
        open_since: None,
        is_continuous: false,
        has_gap: false,
        is_dirty: false,
        unanswered: Vec::new(),
        pause: FIRST_PAUSE,
        next_attempt: now,
        next_look: now,
        removed_held: 0,
    };
    let thread = std::thread::Builder::new().name("journal".to_owned());
    let started = thread.spawn(move || {
        recording.run(&received);
        // The host may not wait for it.
        let _ = done.send(());
    });
    let queue = JournalQueue {
        deliveries,
        state,
        metrics,
        health,
        closed,
    };
    if let Err(error) = started {
        tracing::error!(%error, "the journal's thread cannot be started: nothing is recorded");
        queue.note_stop();
    }
    queue
}

struct Recording<S: Storage> {
    writer: Writer<S>,
    /// How long what was written may wait until the disk has it.
    sync: Duration,
    next_sync: Instant,
    origin: SegmentOrigin,
    metrics: JournalMetrics,
    health: Arc<Health>,
    state: Arc<QueueState>,
    /// Asks the driver for a keyframe.
    ask: Box<dyn Fn() + Send>,
    /// When it was last asked, if there was no answer yet.
    asked: Option<Instant>,
    /// Since when a segment is open without a failure; none while entries are dropped.
    open_since: Option<Instant>,
    /// Whether the writer has every entry before the next one.
    is_continuous: bool,
    /// Whether the queue drops entries until the next keyframe.
    has_gap: bool,
    /// Whether something was written that may not be on the disk.
    is_dirty: bool,
    /// Who waits until the disk has the objects that were appended.
    unanswered: Vec<oneshot::Sender<Result<(), NotKept>>>,
    pause: Duration,
    next_attempt: Instant,
    next_look: Instant,
    /// The segments with kept objects whose removal was reported.
    removed_held: u64,
}

impl<S: Storage> Recording<S> {
    /// Writes until the host stops, and closes the segment.
    fn run(mut self, deliveries: &Receiver<Delivery>) {
        loop {
            let wait = self.next_look.saturating_duration_since(Instant::now());
            match deliveries.recv_timeout(wait) {
                Ok(delivery) => self.deliver(delivery, deliveries),
                Err(RecvTimeoutError::Timeout) => self.look_after(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Err(error) = self.writer.close() {
            let error = chain(&error);
            tracing::warn!(error, "the journal's last segment cannot be closed");
        }
    }

    /// Handles a delivery, and what waits behind it, so that objects of several plans need one
    /// flush.
    fn deliver(&mut self, first: Delivery, deliveries: &Receiver<Delivery>) {
        let waiting = deliveries.try_iter().take(MOST_AT_ONCE);
        for delivery in std::iter::once(first).chain(waiting) {
            match delivery {
                Delivery::Batch(batch) => self.batch(batch),
                Delivery::Keep(keep) => self.keep(*keep),
            }
        }
        if !self.unanswered.is_empty() {
            self.flush(true);
        }
        // The channel may never be empty.
        self.look_after();
    }

    /// Appends an object that is about to be deleted. The answer follows the next flush.
    fn keep(&mut self, keep: Keep) {
        if keep.answer.is_closed() {
            // The plan waits no longer: its copy would only delay those of others.
            self.metrics.dropped(1);
            return;
        }
        let result = if self.open_since.is_some() {
            self.append_kept(&keep)
        } else {
            Err(NotKept::Stopped)
        };
        // The writer has the object now.
        drop(keep.room);
        match result {
            Ok(()) => self.unanswered.push(keep.answer),
            Err(why) => {
                self.metrics.dropped(1);
                // The plan may be gone.
                let _ = keep.answer.send(Err(why));
            }
        }
    }

    fn append_kept(&mut self, keep: &Keep) -> Result<(), NotKept> {
        self.is_dirty = true;
        let until = micros(keep.record.now).saturating_add(micros_of(keep.stays_for));
        let appended =
            append(&mut self.writer, &keep.record).and_then(|()| self.writer.hold(until));
        appended.map_err(|error| match error {
            Error::TooLarge { size, .. } => NotKept::TooLarge { bytes: size },
            error => {
                self.fail(&error);
                NotKept::Failed(chain(&error))
            }
        })
    }

    fn batch(&mut self, batch: Batch) {
        if batch.follows_gap {
            self.is_continuous = false;
            tracing::info!("the journal records again");
        }
        for item in batch.items {
            self.state.leave(&item);
            match item {
                JournalItem::Record(record) => self.record(&record),
                JournalItem::Keyframe(keyframe) => self.keyframe(&keyframe),
                JournalItem::Released(_) => {}
            }
            self.look_after();
        }
    }

    fn record(&mut self, record: &Record) {
        if self.open_since.is_none() {
            self.metrics.dropped(1);
            return;
        }
        self.is_dirty = true;
        match append_or_lose(&mut self.writer, record, MOST_BYTES) {
            Ok(lost) => self.metrics.dropped(lost),
            Err(error) => {
                self.metrics.dropped(1);
                self.fail(&error);
            }
        }
    }

    /// Starts a segment.
    fn keyframe(&mut self, keyframe: &Keyframe) {
        self.asked = None;
        let metadata = self.origin.metadata(self.is_continuous);
        let written = write_keyframe(&mut self.writer, keyframe, &metadata);
        match written {
            Ok(lost) => {
                self.metrics.dropped(lost);
                if self.open_since.is_none() && self.pause > FIRST_PAUSE {
                    tracing::info!("the journal records again");
                }
                self.open_since.get_or_insert_with(Instant::now);
                self.is_continuous = true;
                self.metrics.synced();
                self.publish();
            }
            Err(error) => self.fail(&error),
        }
    }

    /// Once a second: flushes, and asks for a keyframe if one is due.
    fn look_after(&mut self) {
        let now = Instant::now();
        if now < self.next_look {
            return;
        }
        self.next_look = now + FLUSH_PERIOD;
        let had_gap = std::mem::replace(&mut self.has_gap, self.state.has_gap());
        if self.has_gap && !had_gap {
            // The driver's task has reported it.
            self.next_attempt = now + FIRST_PAUSE;
        }
        if self.is_dirty && self.open_since.is_some() {
            self.flush(now >= self.next_sync);
        }
        let is_recording = self.open_since.is_some() && !self.has_gap;
        let is_due = if is_recording {
            let now = Timestamp::now().as_microsecond();
            self.writer.needs_segment(now)
        } else {
            now >= self.next_attempt && self.state.is_empty()
        };
        let answered = |at: Instant| now.saturating_duration_since(at) >= ANSWER_WITHIN;
        if is_due && self.asked.is_none_or(answered) {
            self.asked = Some(now);
            (self.ask)();
        }
        self.publish();
    }

    /// Writes what was appended. `syncs`: waits until the disk has it.
    fn flush(&mut self, syncs: bool) {
        match self.writer.flush(syncs) {
            Ok(()) if syncs => {
                self.metrics.synced();
                self.next_sync = Instant::now() + self.sync;
                self.is_dirty = false;
                for answer in self.unanswered.drain(..) {
                    // The plan may be gone.
                    let _ = answer.send(Ok(()));
                }
            }
            Ok(()) => {}
            Err(error) => {
                self.fail(&error);
                self.is_dirty = false;
            }
        }
    }

    /// Nothing is recorded until the pause has ended and a keyframe comes.
    fn fail(&mut self, error: &Error) {
        for answer in self.unanswered.drain(..) {
            // The plan may be gone.
            let _ = answer.send(Err(NotKept::Failed(chain(error))));
        }
        let now = Instant::now();
        let recorded = self.open_since.take();
        let recorded = recorded.map_or(Duration::ZERO, |since| now.duration_since(since));
        if recorded >= LONGEST_PAUSE {
            self.pause = FIRST_PAUSE;
        }
        self.is_continuous = false;
        self.next_attempt = now + self.pause;
        let pause = self.pause.as_secs();
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let error = chain(error);
        if let Some(suppressed) = FAILURES.admit(&error) {
            tracing::warn!(
                error,
                "the journal records nothing: will retry in {pause} s{suppressed}"
            );
        }
        self.publish();
    }

    fn publish(&mut self) {
        let is_recording = self.open_since.is_some() && !self.has_gap;
        self.metrics.set_recording(is_recording);
        self.health.set_journal_stopped(!is_recording);
        let totals = self.writer.totals();
        if totals.removed_held > self.removed_held {
            let segments = totals.removed_held - self.removed_held;
            self.removed_held = totals.removed_held;
            tracing::warn!(
                segments,
                "the journal's size limit has removed objects that spec.undo keeps for longer: \
                 raise --journal-max-mib"
            );
        }
        self.metrics
            .set_totals(totals.entries, totals.written_bytes, totals.bytes);
    }
}

/// Starts a segment with a keyframe. Returns how many of its entries are missing.
fn write_keyframe<S: Storage>(
    writer: &mut Writer<S>,
    keyframe: &Keyframe,
    metadata: &[u8],
) -> Result<usize, Error> {
    writer.start_segment(micros(keyframe.now()), metadata)?;
    let mut lost = 0;
    for record in keyframe.entries() {
        lost += append_or_lose(writer, &record, MOST_BYTES)?;
    }
    writer.end_keyframe()?;
    Ok(lost)
}

/// Appends an entry. In place of one with more than `most` bytes, it records that it is missing,
/// and what of it is small: a later segment would have it again, and recording would never
/// continue. Returns how many entries are missing.
fn append_or_lose<S: Storage>(
    writer: &mut Writer<S>,
    record: &Record,
    most: usize,
) -> Result<usize, Error> {
    let encoded = encode(record);
    let size = encoded.payload.len();
    if size <= most {
        append_encoded(writer, &encoded)?;
        return Ok(0);
    }
    for entry in record.entry.reduced(size) {
        if let Entry::Lost(lost) = &entry
            && let Some(suppressed) = FAILURES.admit("an entry is too large")
        {
            let (what, bytes) = (&lost.what, lost.bytes);
            tracing::warn!(
                what,
                bytes,
                "the journal lacks an entry that is too large{suppressed}"
            );
        }
        let now = record.now;
        append(writer, &Record { now, entry })?;
    }
    Ok(1)
}

fn append<S: Storage>(writer: &mut Writer<S>, record: &Record) -> Result<(), Error> {
    append_encoded(writer, &encode(record))
}

fn append_encoded<S: Storage>(
    writer: &mut Writer<S>,
    encoded: &EncodedRecord,
) -> Result<(), Error> {
    // Beyond the limits of the format, an entry is not found by its objects.
    let uids = encoded.uids.iter().map(ToString::to_string);
    let uids = uids.filter(|uid| uid.len() <= MAX_OBJECT).take(MAX_OBJECTS);
    let uids: Vec<String> = uids.collect();
    let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
    writer.append(micros(encoded.now), &uids, &encoded.payload)
}

/// A span in microseconds.
fn micros_of(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// Microseconds since the Unix epoch.
fn micros(now: Now) -> i64 {
    now.wall.0.saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use davit_core::journal::decode;
    use davit_journal::{Query, Reader, Settings};

    use super::*;

    /// A configuration may be large, and nothing after it means anything without it.
    #[test]
    fn a_state_of_3_mib_stops_no_journal() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
        let now = Now::default();
        let spec: Vec<String> = (0..400_000).map(|number| format!("{number:08}")).collect();
        let spec = spec.concat();
        let spec = Record {
            now,
            entry: Entry::Spec {
                controller: "podgc".to_owned(),
                spec: spec.into(),
            },
        };
        writer.start_segment(0, b"").unwrap();
        append(&mut writer, &spec).unwrap();
        writer.end_keyframe().unwrap();
        append(&mut writer, &spec).unwrap();
        writer.close().unwrap();
        let reader = Reader::open(directory.path()).unwrap();
        let entries = reader.entries(&Query::new(i64::MIN, i64::MAX));
        let specs: Vec<_> = entries
            .map(
                |entry| match decode(&entry.unwrap().payload).unwrap().entry {
                    Entry::Spec { spec, .. } => spec.len(),
                    other => panic!("{other:?}"),
                },
            )
            .collect();
        assert_eq!(specs, [3_200_000, 3_200_000]);
    }

    /// Every later segment would start with it.
    #[test]
    fn a_state_that_is_too_large_is_recorded_as_missing() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
        let spec = |spec: &str| Record {
            now: Now::default(),
            entry: Entry::Spec {
                controller: "podgc".to_owned(),
                spec: spec.into(),
            },
        };
        writer.start_segment(0, b"").unwrap();
        let large = spec(&"x".repeat(1_000));
        assert_eq!(append_or_lose(&mut writer, &large, 500).unwrap(), 1);
        writer.end_keyframe().unwrap();
        let small = spec("{}");
        assert_eq!(append_or_lose(&mut writer, &small, 500).unwrap(), 0);
        writer.close().unwrap();
        let reader = Reader::open(directory.path()).unwrap();
        let entries = reader.entries(&Query::new(i64::MIN, i64::MAX));
        let entries = entries.map(|entry| decode(&entry.unwrap().payload).unwrap().entry);
        let [Entry::Lost(lost), Entry::Spec { .. }] = &*entries.collect::<Vec<_>>() else {
            panic!("a mark and an entry");
        };
        assert_eq!(lost.what, "the spec of podgc");
        assert!(lost.bytes > 1_000);
    }
}
