//! Spans, and the bounds of a trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use davit_cluster::journal::{RequestJournal, SentRequest};
use davit_core::machine::ReadRequest;
use davit_core::time::{Instant, Now};
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use super::attributes::{error_of, key, text};
use crate::driver::decision::TraceIds;
use crate::traces::SpanQueue;

/// The most spans of one trace. Further ones are counted.
const MOST_SPANS: u64 = 256;

/// The trace of one decision. Copies share its bounds.
#[derive(Clone)]
pub(super) struct Trace(Arc<Inner>);

struct Inner {
    ids: TraceIds,
    /// Both clocks at the beginning: the spans of a trace do not jump with the wall clock.
    anchor: Now,
    queue: SpanQueue,
    /// The spans so far, those beyond the bound included.
    count: AtomicU64,
}

/// What a span shows.
pub(super) struct Span {
    name: &'static str,
    kind: SpanKind,
    start: Instant,
    end: Instant,
    pub(super) attributes: Vec<KeyValue>,
    /// The sentence of the error, if it failed.
    pub(super) error: Option<String>,
    /// A span of another trace that it has a part in.
    pub(super) link: Option<SpanContext>,
}

#[cfg(test)]
thread_local! {
    static MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// How many spans and traces this thread has made.
#[cfg(test)]
pub(super) fn made() -> usize {
    MADE.get()
}

impl Span {
    pub(super) fn new(name: &'static str, start: Instant, end: Instant) -> Self {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        Self {
            name,
            kind: SpanKind::Internal,
            start,
            end,
            attributes: Vec::new(),
            error: None,
            link: None,
        }
    }

    pub(super) fn with(mut self, attributes: impl IntoIterator<Item = KeyValue>) -> Self {
        self.attributes.extend(attributes);
        self
    }

    fn failing(mut self, error: Option<(&'static str, String)>) -> Self {
        if let Some((kind, message)) = error {
            self.attributes.push(error_of(kind));
            self.error = Some(message);
        }
        self
    }
}

impl Trace {
    pub(super) fn new(ids: TraceIds, anchor: Now, queue: SpanQueue) -> Self {
        #[cfg(test)]
        MADE.set(MADE.get() + 1);
        Self(Arc::new(Inner {
            ids,
            anchor,
            queue,
            count: AtomicU64::new(0),
        }))
    }

    /// The span of the whole decision.
    pub(super) fn root(&self) -> SpanId {
        SpanId::from_bytes(self.0.ids.root)
    }

    /// The id of another span; none if the trace has too many.
    pub(super) fn reserve(&self) -> Option<SpanId> {
        let number = self.0.count.fetch_add(1, Ordering::Relaxed);
        if number >= MOST_SPANS {
            self.0.queue.left_out(1);
            return None;
        }
        // Different numbers have different ids.
        let root = u64::from_be_bytes(self.0.ids.root);
        let step = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Some(SpanId::from_bytes(root.wrapping_add(step).to_be_bytes()))
    }

    /// Adds a span below another one.
    pub(super) fn add(&self, parent: SpanId, span: Span) {
        if let Some(id) = self.reserve() {
            self.add_as(id, parent, span);
        }
    }

    /// Adds a span whose id was reserved.
    pub(super) fn add_as(&self, id: SpanId, parent: SpanId, span: Span) {
        let links = span.link.into_iter().map(Link::with_context);
        let mut span_links = SpanLinks::default();
        span_links.links.extend(links);
        self.0.queue.add(SpanData {
            span_context: self.context(id),
            parent_span_id: parent,
            parent_span_is_remote: false,
            span_kind: span.kind,
            name: span.name.into(),
            start_time: self.time(span.start),
            end_time: self.time(span.end.max(span.start)),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: span_links,
            status: span.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: InstrumentationScope::builder("davit").build(),
        });
    }

    /// Adds the span of the whole decision.
    pub(super) fn end(&self, span: Span) {
        let count = self.0.count.load(Ordering::Relaxed);
        let mut span = span;
        if let Some(left_out) = count.checked_sub(MOST_SPANS).filter(|count| *count > 0) {
            let left_out = i64::try_from(left_out).unwrap_or(i64::MAX);
            span.attributes.push(KeyValue::new(key::LEFT_OUT, left_out));
        }
        self.add_as(self.root(), SpanId::INVALID, span);
    }

    pub(super) fn context(&self, span: SpanId) -> SpanContext {
        let trace = TraceId::from_bytes(self.0.ids.trace);
        SpanContext::new(
            trace,
            span,
            TraceFlags::SAMPLED,
            false,
            TraceState::default(),
        )
    }

    fn time(&self, at: Instant) -> SystemTime {
        let anchor = self.0.anchor;
        let wall = u64::try_from(anchor.wall.0).unwrap_or_default();
        let wall = UNIX_EPOCH + Duration::from_millis(wall);
        let before = anchor.instant.since(at);
        wall.checked_sub(before).unwrap_or(UNIX_EPOCH) + at.since(anchor.instant)
    }

    fn requests(&self, parent: SpanId, requests: Vec<SentRequest>) {
        for sent in requests {
            let mut span = Span::new(sent.method.as_str(), sent.sent, sent.answered);
            span.kind = SpanKind::Client;
            span.attributes = vec![
                KeyValue::new(key::METHOD, sent.method.as_str()),
                KeyValue::new(key::PATH, sent.path),
            ];
            if let Some(code) = sent.code {
                span.attributes
                    .push(KeyValue::new(key::CODE, i64::from(code)));
            }
            span.error = match (sent.code, sent.failure) {
                (_, Some(failure)) => {
                    span.attributes.push(error_of("no_answer"));
                    Some(text(&failure))
                }
                (Some(code), None) if code >= 400 => {
                    span.attributes
                        .push(KeyValue::new(key::ERROR, code.to_string()));
                    Some(String::new())
                }
                _ => None,
            };
            if sent.asked < sent.sent {
                self.add(parent, Span::new("wait for turn", sent.asked, sent.sent));
            }
            self.add(parent, span);
        }
    }
}

/// A live read in flight.
pub(in crate::driver) struct ReadTrace {
    trace: Trace,
    /// The span of its call.
    call: SpanId,
    started: Instant,
    attributes: [KeyValue; 2],
    journal: RequestJournal,
}

impl ReadTrace {
    pub(super) fn new(trace: Trace, call: SpanId, request: &ReadRequest, now: Instant) -> Self {
        let (kind, objects) = match request {
            ReadRequest::Get(requests) => ("get", requests.len()),
            ReadRequest::List(_) => ("list", 1),
        };
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        Self {
            trace,
            call,
            started: now,
            attributes: [
                KeyValue::new(key::READ, kind),
                KeyValue::new(key::READ_OBJECTS, objects),
            ],
            journal: RequestJournal::default(),
        }
    }

    pub(in crate::driver) fn journal(&self) -> RequestJournal {
        self.journal.clone()
    }

    pub(super) fn finish(self, error: Option<(&'static str, String)>, now: Instant) {
        let Some(id) = self.trace.reserve() else {
            return;
        };
        let (requests, left_out) = self.journal.take();
        let span = Span::new("live read", self.started, now)
            .with(self.attributes)
            .with(left_out_of(left_out))
            .failing(error);
        self.trace.requests(id, requests);
        self.trace.add_as(id, self.call, span);
    }
}

/// A plan that is executed.
pub(in crate::driver) struct PlanTrace {
    trace: Trace,
    id: SpanId,
    admitted: Instant,
    attributes: Vec<KeyValue>,
    journal: RequestJournal,
}

impl PlanTrace {
    /// None if the trace has too many spans.
    pub(super) fn new(trace: Trace, attributes: Vec<KeyValue>, now: Instant) -> Option<Self> {
        Some(Self {
            id: trace.reserve()?,
            trace,
            admitted: now,
            attributes,
            journal: RequestJournal::default(),
        })
    }

    pub(in crate::driver) fn journal(&self) -> RequestJournal {
        self.journal.clone()
    }

    pub(super) fn finish(
        self,
        attributes: impl IntoIterator<Item = KeyValue>,
        error: Option<(&'static str, String)>,
        took: Duration,
        now: Instant,
    ) {
        let (requests, left_out) = self.journal.take();
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let started = Instant::from_nanos(now.as_nanos().saturating_sub(took)).max(self.admitted);
        let waited = Span::new("wait for turn", self.admitted, started);
        self.trace.add(self.id, waited);
        self.trace.requests(self.id, requests);
        let span = Span::new("plan", self.admitted, now)
            .with(self.attributes)
            .with(attributes)
            .with(left_out_of(left_out))
            .failing(error);
        self.trace.add_as(self.id, self.trace.root(), span);
    }
}

fn left_out_of(requests: usize) -> Option<KeyValue> {
    let count = i64::try_from(requests).unwrap_or(i64::MAX);
    (count > 0).then(|| KeyValue::new(key::REQUESTS_LEFT_OUT, count))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use davit_core::time::Wall;

    use super::*;
    use crate::metrics::HostMetrics;

    const IDS: TraceIds = TraceIds {
        trace: [1; 16],
        root: [2; 8],
    };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn anchor() -> Now {
        Now {
            instant: at(100),
            wall: Wall(1_795_176_000_000),
        }
    }

    #[test]
    fn a_trace_is_bounded_and_counts_the_rest() {
        let metrics = HostMetrics::new().unwrap();
        let (queue, mut waiting) = SpanQueue::unsent(metrics.traces.clone());
        let trace = Trace::new(IDS, anchor(), queue);
        for _ in 0..MOST_SPANS + 7 {
            trace.add(trace.root(), Span::new("gate", at(101), at(101)));
        }
        trace.end(Span::new("reconcile", at(99), at(102)));
        let mut spans = Vec::new();
        while let Ok(span) = waiting.try_recv() {
            spans.push(span);
        }
        let ids: BTreeSet<[u8; 8]> = spans
            .iter()
            .map(|span| span.span_context.span_id().to_bytes())
            .collect();
        assert_eq!((spans.len(), ids.len()), (257, 257));
        let root = spans.last().unwrap();
        assert_eq!(root.span_context.span_id(), trace.root());
        assert_eq!(root.attributes, [KeyValue::new(key::LEFT_OUT, 7)]);
        let page = metrics.render();
        let dropped = "davit_trace_spans_total{result=\"dropped\"} 7\n";
        assert!(page.contains(dropped), "{page}");
    }

    /// Also before the anchor, where the item became due.
    #[test]
    fn the_times_of_a_trace_follow_the_monotonic_clock() {
        let metrics = HostMetrics::new().unwrap();
        let (queue, _waiting) = SpanQueue::unsent(metrics.traces.clone());
        let trace = Trace::new(IDS, anchor(), queue);
        let wall = |millis| UNIX_EPOCH + Duration::from_millis(millis);
        assert_eq!(trace.time(at(100)), wall(1_795_176_000_000));
        assert_eq!(trace.time(at(99)), wall(1_795_175_999_000));
        assert_eq!(trace.time(at(160)), wall(1_795_176_060_000));
    }
}
