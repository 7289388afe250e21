//! The metrics that client-go publishes of its queues, by the same names and with
//! the label `name`; `controller` is added.

use std::time::Duration;

use davit_core::queue::QueueStats;
use prometheus::{CounterVec, GaugeVec, HistogramVec};

use super::CONTROLLER;
use super::registration::{MetricError, Registrar, number, raise};

/// `workqueue_*`
#[derive(Debug)]
pub struct QueueMetrics {
    depth: GaugeVec,
    adds: CounterVec,
    retries: CounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    unfinished: GaugeVec,
    longest_running: GaugeVec,
}

impl QueueMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        let labels = &["name", CONTROLLER];
        // client-go's: ten buckets from 10 ns to 10 s.
        let buckets: Vec<f64> = (-8..2).map(|power| 10_f64.powi(power)).collect();
        Ok(Self {
            depth: registrar.gauge(
                "workqueue_depth",
                "Current depth of the work queue.",
                labels,
            )?,
            adds: registrar.counter(
                "workqueue_adds_total",
                "Adds handled by the work queue.",
                labels,
            )?,
            retries: registrar.counter(
                "workqueue_retries_total",
                "Retries handled by the work queue.",
                labels,
            )?,
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
            unfinished: registrar.gauge(
                "workqueue_unfinished_work_seconds",
                "The time that the unfinished reconciles have taken so far, added up.",
                labels,
            )?,
            longest_running: registrar.gauge(
                "workqueue_longest_running_processor_seconds",
                "The longest time that an unfinished reconcile has taken so far.",
                labels,
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

    /// Sets a queue's gauges and totals.
    pub fn set(&self, controller: &str, stats: &QueueStats) {
        let labels = [stats.queue.as_str(), controller];
        let gauge = |gauge: &GaugeVec, value: f64| gauge.with_label_values(&labels).set(value);
        gauge(&self.depth, number(stats.depth));
        gauge(&self.unfinished, stats.unfinished_work.as_secs_f64());
        gauge(&self.longest_running, stats.longest_running.as_secs_f64());
        raise(&self.adds.with_label_values(&labels), stats.adds);
        raise(&self.retries.with_label_values(&labels), stats.retries);
    }
}
