//! Kubernetes events.

use davit_core::events::EventStats;
use prometheus::{CounterVec, Gauge};

use super::registration::{MetricError, Registrar, raise, total};

/// `davit_events_*`
#[derive(Debug)]
pub struct EventMetrics {
    events: CounterVec,
    waiting: Gauge,
}

impl EventMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let waiting = registrar.gauge(
            "davit_events_waiting",
            "Kubernetes events that are not sent yet.",
            &[],
        )?;
        Ok(Self {
            events: registrar.counter(
                "davit_events_total",
                "Kubernetes events, by result: sent, merged, suppressed, failed or dropped.",
                &["result"],
            )?,
            waiting: waiting.with_label_values(&[] as &[&str]),
        })
    }

    /// Sets the totals so far.
    pub fn set(&self, stats: &EventStats) {
        for (result, total) in [
            ("sent", stats.sent),
            ("merged", stats.merged),
            ("suppressed", stats.suppressed),
            ("failed", stats.failed),
            ("dropped", stats.dropped),
        ] {
            raise(&self.events.with_label_values(&[result]), total);
        }
        self.waiting.set(total(stats.waiting));
    }
}
