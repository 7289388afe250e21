//! The watches that fill the cache.

use prometheus::{CounterVec, Gauge, GaugeVec};

use super::RESOURCE;
use super::registration::{MetricError, Registrar, number};

/// `davit_watch_*`
#[derive(Clone, Debug)]
pub struct WatchMetrics {
    streams: Gauge,
    controllers_synced: GaugeVec,
    interruptions: CounterVec,
}

impl WatchMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let streams = registrar.gauge(
            "davit_watch_streams",
            "Streams that run: each lists and watches a resource.",
            &[],
        )?;
        Ok(Self {
            streams: streams.with_label_values(&[] as &[&str]),
            controllers_synced: registrar.gauge(
                "davit_controllers_synced",
                "1 while changes of Controllers reach this replica.",
                &[],
            )?,
            interruptions: registrar.counter(
                "davit_watch_interruptions_total",
                "Lists and watches that failed and were started again.",
                &[RESOURCE],
            )?,
        })
    }

    /// Sets how many streams run.
    pub fn set_streams(&self, count: usize) {
        self.streams.set(number(count));
    }

    /// Sets whether changes of Controllers arrive. A host without a cluster's Controllers has no such
    /// metric.
    pub fn set_controllers_synced(&self, is_synced: bool) {
        let gauge = self.controllers_synced.with_label_values(&[] as &[&str]);
        gauge.set(f64::from(u8::from(is_synced)));
    }

    /// Counts a list or watch that failed.
    pub fn interrupted(&self, resource: &str) {
        self.interruptions.with_label_values(&[resource]).inc();
    }
}
