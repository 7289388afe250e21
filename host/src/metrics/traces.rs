//! The spans of traces.

use prometheus::{Counter, CounterVec};

use super::registration::{MetricError, Registrar, total};

/// `davit_trace_spans_total`
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    sent: Counter,
    failed: Counter,
    dropped: Counter,
}

impl TraceMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let spans: CounterVec = registrar.counter(
            "davit_trace_spans_total",
            "Spans of traces, by result: sent, failed or dropped.",
            &["result"],
        )?;
        Ok(Self {
            sent: spans.with_label_values(&["sent"]),
            failed: spans.with_label_values(&["failed"]),
            dropped: spans.with_label_values(&["dropped"]),
        })
    }

    /// The collector took spans.
    pub fn sent(&self, count: u64) {
        self.sent.inc_by(total(count));
    }

    /// The collector did not take spans.
    pub fn failed(&self, count: u64) {
        self.failed.inc_by(total(count));
    }

    /// There was no room for spans.
    pub fn dropped(&self, count: u64) {
        self.dropped.inc_by(total(count));
    }
}
