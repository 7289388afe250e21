//! The watches that fill the cache.

use prometheus::{CounterVec, Gauge, GaugeVec};

use super::RESOURCE;
use super::registration::{MetricError, Registrar, flag, number};

/// `davit_watch_*`
#[derive(Debug)]
pub struct WatchMetrics {
    streams: Gauge,
    synced: GaugeVec,
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
            synced: registrar.gauge(
                "davit_watch_synced",
                "1 while the cache holds a complete list of the resource.",
                &[RESOURCE],
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

    /// Sets whether a resource is synced.
    pub fn set_synced(&self, resource: &str, is_synced: bool) {
        let gauge = self.synced.with_label_values(&[resource]);
        gauge.set(flag(is_synced));
    }

    /// Counts a list or watch that failed.
    pub fn interrupted(&self, resource: &str) {
        self.interruptions.with_label_values(&[resource]).inc();
    }
}
