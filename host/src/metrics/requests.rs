//! The metrics that client-go publishes of its requests, by the same names and labels.

use davit_cluster::observe::{RequestObservation, RequestObserver};
use prometheus::{CounterVec, HistogramVec};

use super::registration::{MetricError, Registrar};

/// client-go's.
const BUCKETS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0,
];

/// `rest_client_*`. Clones are the same metrics.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    requests: CounterVec,
    duration: HistogramVec,
}

impl RequestMetrics {
    pub(super) fn new(registrar: &Registrar<'_>) -> Result<Self, MetricError> {
        Ok(Self {
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
    }
}
