//! The metrics that client-go publishes of its requests, by the same names and labels.

use std::sync::Arc;

use davit_cluster::observe::{ClockOffset, RequestObservation, RequestObserver};
use prometheus::{CounterVec, GaugeVec, HistogramVec};

use super::registration::{MetricError, Registrar};
use crate::repeat::RepeatedLine;

/// client-go's.
const BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// By how many seconds the clock of this machine may differ from the API server's: certificates and
/// tokens are as exact.
const MOST_OFFSET: f64 = 10.0;

/// `rest_client_*`, and what the answers say of this machine's clock. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    offset: GaugeVec,
    warnings: Arc<RepeatedLine>,
    requests: CounterVec,
    duration: HistogramVec,
}

impl RequestMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
            offset: registrar.gauge(
                "davit_clock_offset_seconds",
                "How far this replica's clock is ahead of the API server's at least; negative if it \
                 is behind.",
                &[],
            )?,
            warnings: Arc::new(RepeatedLine::new()),
            requests: registrar.counter(
                "rest_client_requests_total",
                "Requests to the API server, by status code, method and host.",
                &["code", "method", "host"],
            )?,
            duration: registrar.histogram(
                "rest_client_request_duration_seconds",
                "Duration of a request until the head of the answer, by method and host.",
                &["verb", "host"],
                &BUCKETS,
            )?,
        })
    }
}

impl RequestMetrics {
    fn note_clock(&self, seconds: f64) {
        self.offset.with_label_values(&[] as &[&str]).set(seconds);
        if seconds.abs() < MOST_OFFSET {
            return;
        }
        let direction = if seconds > 0.0 { "ahead of" } else { "behind" };
        if let Some(suppressed) = self.warnings.admit(direction) {
            tracing::warn!(
                seconds,
                "the clock of this machine is {direction} the API server's: what compares a time \
                 of an object with now is early or late by as much{suppressed}"
            );
        }
    }
}

impl RequestObserver for RequestMetrics {
    fn ended(&self, request: &RequestObservation<'_>) {
        let (method, host) = (request.method.as_str(), request.host);
        // client-go's word for no answer.
        let code = request
            .code
            .map_or("<error>".to_owned(), |code| code.to_string());
        let labels = [code.as_str(), method, host];
        self.requests.with_label_values(&labels).inc();
        let duration = self.duration.with_label_values(&[method, host]);
        duration.observe(request.took.as_secs_f64());
        if let Some(ClockOffset(seconds)) = request.clock {
            self.note_clock(seconds);
        }
    }
}
