//! The journal.

use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{Counter, CounterVec, GaugeVec};

use super::registration::{MetricError, Registrar, flag, raise, total};

/// `davit_journal_*`. Without a journal, its gauges are absent.
#[derive(Clone, Debug)]
pub struct JournalMetrics {
    written: Counter,
    dropped: Counter,
    written_bytes: Counter,
    bytes: GaugeVec,
    recording: GaugeVec,
    last_write: GaugeVec,
    copied: Counter,
    not_copied: Counter,
}

impl JournalMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let entries: CounterVec = registrar.counter(
            "davit_journal_entries_total",
            "Entries of the journal, by result: written or dropped.",
            &["result"],
        )?;
        let bytes = registrar.counter(
            "davit_journal_written_bytes_total",
            "Bytes of the journal that were written, compressed.",
            &[],
        )?;
        let copies: CounterVec = registrar.counter(
            "davit_journal_module_copies_total",
            "Copies of modules beside the journal, by result: written or failed.",
            &["result"],
        )?;
        Ok(Self {
            written: entries.with_label_values(&["written"]),
            dropped: entries.with_label_values(&["dropped"]),
            written_bytes: bytes.with_label_values::<&str>(&[]),
            bytes: registrar.gauge(
                "davit_journal_bytes",
                "Size of the journal on the disk.",
                &[],
            )?,
            recording: registrar.gauge(
                "davit_journal_recording",
                "1 while the journal records, 0 while it drops entries.",
                &[],
            )?,
            last_write: registrar.gauge(
                "davit_journal_last_write_timestamp_seconds",
                "Time of the last write that reached the disk, in seconds since 1970.",
                &[],
            )?,
            copied: copies.with_label_values(&["written"]),
            not_copied: copies.with_label_values(&["failed"]),
        })
    }

    /// A module was copied, or could not be.
    pub fn module_copy(&self, is_written: bool) {
        let counter = if is_written {
            &self.copied
        } else {
            &self.not_copied
        };
        counter.inc();
    }

    /// The entries and bytes that were written since the start, and the size on the disk.
    pub fn set_totals(&self, entries: u64, written_bytes: u64, bytes: u64) {
        raise(&self.written, entries);
        raise(&self.written_bytes, written_bytes);
        self.bytes.with_label_values::<&str>(&[]).set(total(bytes));
    }

    /// The disk has everything that was written.
    pub fn synced(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let seconds = now.unwrap_or_default().as_secs_f64();
        self.last_write.with_label_values::<&str>(&[]).set(seconds);
    }

    /// Whether the journal records.
    pub fn set_recording(&self, is_recording: bool) {
        let gauge = self.recording.with_label_values::<&str>(&[]);
        gauge.set(flag(is_recording));
    }

    /// Entries were dropped.
    pub fn dropped(&self, entries: usize) {
        self.dropped.inc_by(super::number(entries));
    }
}
