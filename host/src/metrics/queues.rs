//! How long items take, as client-go publishes it of its queues, by the same names and with the
//! label `name`; `controller` is added. The machine's state has the other figures of queues.

use std::time::Duration;

use prometheus::HistogramVec;

use super::CONTROLLER;
use super::registration::{MetricError, Registrar};

/// `workqueue_*_duration_seconds`
#[derive(Debug)]
pub struct QueueMetrics {
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
}

impl QueueMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let labels = &["name", CONTROLLER];
        // client-go's: ten buckets from 10 ns to 10 s.
        let buckets: Vec<f64> = (-8..2).map(|power| 10_f64.powi(power)).collect();
        Ok(Self {
            queue_duration: registrar.histogram(
                "workqueue_queue_duration_seconds",
                "How long an item was due before the host dequeued it.",
                labels,
                &buckets,
            )?,
            work_duration: registrar.histogram(
                "workqueue_work_duration_seconds",
                "How long the reconcile of an item took, its writes included.",
                labels,
                &buckets,
            )?,
        })
    }

    /// An item was reconciled.
    pub fn reconciled(&self, controller: &str, queue: &str, took: Duration) {
        let histogram = self.work_duration.with_label_values(&[queue, controller]);
        histogram.observe(took.as_secs_f64());
    }

    /// An item was dequeued.
    pub fn dequeued(&self, controller: &str, queue: &str, waited: Duration) {
        let histogram = self.queue_duration.with_label_values(&[queue, controller]);
        histogram.observe(waited.as_secs_f64());
    }
}
