//! The queue of spans, and the task that sends them.

use std::time::Duration;

use davit_cluster::clock::Clock;
use davit_core::throttle::Throttle;
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::CollectorClient;
use super::{SampleRatio, TraceSettings};
use crate::metrics::TraceMetrics;

/// The most spans that wait.
const MOST_WAITING: usize = 4096;
/// The most spans of one request.
const MOST_AT_ONCE: usize = 512;
/// How long a span waits for others.
const PERIOD: Duration = Duration::from_secs(1);

/// Why traces cannot be sent at all.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The HTTP client cannot be made.
    #[error("cannot make a client for the collector")]
    Client(#[source] reqwest::Error),
    /// The settings are refused, perhaps those of the environment.
    #[error("cannot send traces with these settings and variables OTEL_EXPORTER_OTLP_*")]
    Settings(#[source] ExporterBuildError),
}

/// The traces of a host. Dropping it ends the task once every queue is dropped.
#[derive(Debug)]
pub struct TraceExport {
    queue: SpanQueue,
    task: JoinHandle<()>,
}

/// Takes the spans of sampled decisions. Copies share the queue.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    spans: mpsc::Sender<SpanData>,
    ratio: SampleRatio,
    metrics: TraceMetrics,
}

impl TraceExport {
    /// Starts the task that sends spans. It sends nothing before there is one.
    pub fn start(settings: &TraceSettings, metrics: TraceMetrics) -> Result<Self, TraceError> {
        let client = CollectorClient::new().map_err(TraceError::Client)?;
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(settings.endpoint.of_traces())
            .build()
            .map_err(TraceError::Settings)?;
        exporter.set_resource(&settings.resource());
        let (spans, queue) = mpsc::channel(MOST_WAITING);
        let sender = Sender {
            exporter,
            client,
            endpoint: settings.endpoint.to_string(),
            metrics: metrics.clone(),
            clock: Clock::start(),
            failures: Throttle::default(),
        };
        Ok(Self {
            queue: SpanQueue {
                spans,
                ratio: settings.ratio,
                metrics,
            },
            task: tokio::spawn(sender.run(queue)),
        })
    }

    /// The queue.
    #[must_use]
    pub fn queue(&self) -> SpanQueue {
        self.queue.clone()
    }

    /// Sends the spans that wait, for at most that long. No more spans are taken.
    pub async fn flush(self, within: Duration) {
        let Self { queue, mut task } = self;
        drop(queue);
        if timeout(within, &mut task).await.is_err() {
            task.abort();
        }
    }
}

impl SpanQueue {
    /// A queue that nobody sends, and its spans.
    #[cfg(test)]
    pub(crate) fn unsent(metrics: TraceMetrics) -> (Self, mpsc::Receiver<SpanData>) {
        let (spans, waiting) = mpsc::channel(MOST_WAITING);
        let queue = Self {
            spans,
            ratio: SampleRatio::ALL,
            metrics,
        };
        (queue, waiting)
    }

    /// Whether a trace is sent.
    #[must_use]
    pub fn samples(&self, trace: [u8; 16]) -> bool {
        self.ratio.has(trace)
    }

    /// Takes a span, or drops it if too many wait.
    pub fn add(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.metrics.dropped(1);
        }
    }

    /// Spans were not made, because a bound would be exceeded.
    pub fn left_out(&self, count: u64) {
        self.metrics.dropped(count);
    }
}

struct Sender {
    exporter: SpanExporter,
    client: CollectorClient,
    endpoint: String,
    metrics: TraceMetrics,
    clock: Clock,
    failures: Throttle<()>,
}

impl Sender {
    async fn run(mut self, mut queue: mpsc::Receiver<SpanData>) {
        let mut batch = Vec::with_capacity(MOST_AT_ONCE);
        while queue.recv_many(&mut batch, 1).await > 0 {
            let fill = async {
                while batch.len() < MOST_AT_ONCE {
                    let room = MOST_AT_ONCE - batch.len();
                    if queue.recv_many(&mut batch, room).await == 0 {
                        break;
                    }
                }
            };
            // What it has received by then is in the batch.
            let _ = timeout(PERIOD, fill).await;
            self.send(std::mem::take(&mut batch)).await;
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let Err(error) = self.exporter.export(batch).await else {
            self.metrics.sent(count);
            self.failures.clear(&());
            return;
        };
        self.metrics.failed(count);
        let suppressed = self.failures.admit((), self.clock.instant());
        if let Some(suppressed) = suppressed {
            let failure = self.client.take_failure();
            let error = failure.unwrap_or_else(|| error.to_string());
            tracing::warn!(
                endpoint = self.endpoint,
                error,
                "traces are lost: the collector does not take them{suppressed}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use opentelemetry::InstrumentationScope;
    use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

    use super::*;
    use crate::metrics::HostMetrics;

    fn span() -> SpanData {
        SpanData {
            span_context: SpanContext::empty_context(),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "reconcile".into(),
            start_time: UNIX_EPOCH,
            end_time: UNIX_EPOCH,
            attributes: vec![],
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: InstrumentationScope::default(),
        }
    }

    #[test]
    fn a_full_queue_drops_spans_and_counts_them() {
        let metrics = HostMetrics::new().unwrap();
        let (queue, waiting) = SpanQueue::unsent(metrics.traces.clone());
        for _ in 0..MOST_WAITING + 5 {
            queue.add(span());
        }
        assert_eq!(waiting.len(), MOST_WAITING);
        let page = metrics.render();
        let dropped = "davit_trace_spans_total{result=\"dropped\"} 5\n";
        assert!(page.contains(dropped), "{page}");
    }
}
