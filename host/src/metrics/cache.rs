//! The cache, and the watches that fill it.

use prometheus::{CounterVec, Gauge, GaugeVec};

use super::registration::{MetricError, Registrar, flag, number};

const RESOURCE: &str = "resource";

/// `davit_cache_*` and `davit_watch_*`
#[derive(Debug)]
pub struct CacheMetrics {
    objects: GaugeVec,
    bytes: Gauge,
    streams: Gauge,
    synced: GaugeVec,
    interruptions: CounterVec,
}

impl CacheMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let bytes = registrar.gauge(
            "davit_cache_bytes",
            "Bytes of all objects in the cache, without the indexes.",
            &[],
        )?;
        let streams = registrar.gauge(
            "davit_watch_streams",
            "Streams that run: each lists and watches a resource.",
            &[],
        )?;
        Ok(Self {
            streams: streams.with_label_values(&[] as &[&str]),
            objects: registrar.gauge(
                "davit_cache_objects",
                "Objects in the cache, by resource.",
                &[RESOURCE],
            )?,
            bytes: bytes.with_label_values(&[] as &[&str]),
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

    /// Sets how many objects of a resource the cache holds.
    pub fn set_objects(&self, resource: &str, count: usize) {
        let gauge = self.objects.with_label_values(&[resource]);
        gauge.set(number(count));
    }

    /// Sets how much data the cache holds.
    pub fn set_bytes(&self, bytes: usize) {
        self.bytes.set(number(bytes));
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
