//! The watches that fill the cache.

use prometheus::{CounterVec, Gauge};

use super::RESOURCE;
use super::registration::{MetricError, Registrar, number};

/// `davit_watch_*`
#[derive(Debug)]
pub struct WatchMetrics {
    streams: Gauge,
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

    /// Counts a list or watch that failed.
    pub fn interrupted(&self, resource: &str) {
        self.interruptions.with_label_values(&[resource]).inc();
    }
}
