//! Every number the host publishes, from one list, and those that guests
//! declare.
//!
//! The labels of the host's own metrics come from small fixed sets: names of
//! configured controllers and of their queues, words of the gate, failure
//! classes, resources that are watched.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use davit_cluster::events::EventStats;
use davit_core::controller::{Controller, Outcome};
use davit_core::gate::Ruling;
use davit_core::health::State;
use davit_core::manifest::{MetricKind, MetricSpec};
use davit_core::plan::{Amount, Decision, Measure};
use davit_core::queue::QueueStats;
use davit_core::rollout::Role;
use davit_core::time::Instant;
use davit_engine::CallError;
use prometheus::core::{Collector, Desc};
use prometheus::{
    Counter, CounterVec, Encoder, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry,
    TextEncoder,
};

use crate::build;
use crate::host::call_failure;
use davit_core::api::{CandidateStatus, ComparisonStatus};

const CONTROLLER: &str = "controller";
/// Whether it is about the stable revision or the candidate.
const PART: &str = "part";
const CALL_BUCKETS: [f64; 10] = [
    0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.25, 1.0,
];
const WRITE_BUCKETS: [f64; 9] = [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 30.0];

/// The host's own metrics.
#[derive(Debug)]
pub struct HostMetrics {
    registry: Registry,
    /// `davit_guest_calls_total{controller,part,result}`
    pub calls: CounterVec,
    /// `davit_guest_call_duration_seconds{controller,part}`
    pub call_duration: HistogramVec,
    /// `davit_plans_total{controller,part,ruling}`: what the gate said.
    pub plans: CounterVec,
    /// `davit_writes_total{controller,result}`: plans carried out.
    pub writes: CounterVec,
    /// `davit_write_duration_seconds{controller}`: a whole plan.
    pub write_duration: HistogramVec,
    /// `davit_guest_quarantined{controller}`: 1 while it is.
    pub quarantined: GaugeVec,
    /// `davit_watch_objects{resource}`
    pub objects: GaugeVec,
    /// `davit_watch_synced{resource}`: 1 once listed.
    pub synced: GaugeVec,
    /// `davit_watch_troubles_total{resource}`: watches and lists that failed.
    pub watch_troubles: CounterVec,
    /// `davit_events_total{result}`: events for people, by what became of them.
    pub events: CounterVec,
    /// `davit_events_waiting`
    pub events_waiting: GaugeVec,
    /// `davit_store_bytes`: the data of all objects.
    pub store_bytes: GaugeVec,
    /// The `workqueue_*` metrics of Kubernetes' controllers.
    pub queues: QueueMetrics,
    /// `davit_rollout_step{controller}`: 0 without a candidate.
    rollout_step: GaugeVec,
    /// `davit_rollout_weight{controller}`: percent.
    rollout_weight: GaugeVec,
    /// `davit_rollout_comparison{controller,verdict}`: targets in this step.
    rollout_comparison: GaugeVec,
    /// Everything above.
    descriptions: Vec<Desc>,
}

/// The metrics that client-go publishes of its queues, by the same names and
/// with the label `name`; `controller` is added.
#[derive(Debug)]
pub struct QueueMetrics {
    /// `workqueue_depth`
    pub depth: GaugeVec,
    /// `workqueue_adds_total`
    pub adds: CounterVec,
    /// `workqueue_retries_total`
    pub retries: CounterVec,
    /// `workqueue_queue_duration_seconds`
    pub queue_duration: HistogramVec,
    /// `workqueue_work_duration_seconds`
    pub work_duration: HistogramVec,
    /// `workqueue_unfinished_work_seconds`
    pub unfinished: GaugeVec,
    /// `workqueue_longest_running_processor_seconds`
    pub longest_running: GaugeVec,
}

impl QueueMetrics {
    /// An item was worked on.
    pub fn worked(&self, controller: &str, queue: &str, duration: Duration) {
        let histogram = self.work_duration.with_label_values(&[queue, controller]);
        histogram.observe(duration.as_secs_f64());
    }

    /// An item was taken from its queue.
    pub fn taken(&self, controller: &str, queue: &str, waited: Duration) {
        let histogram = self.queue_duration.with_label_values(&[queue, controller]);
        histogram.observe(waited.as_secs_f64());
    }

    fn set(&self, controller: &str, stats: &QueueStats) {
        let labels = [stats.queue.as_str(), controller];
        let gauge = |gauge: &GaugeVec, value: f64| gauge.with_label_values(&labels).set(value);
        gauge(&self.depth, number(stats.depth));
        gauge(&self.unfinished, stats.unfinished_work.as_secs_f64());
        gauge(&self.longest_running, stats.longest_running.as_secs_f64());
        raise(&self.adds.with_label_values(&labels), stats.adds);
        raise(&self.retries.with_label_values(&labels), stats.retries);
    }
}

/// The verdicts of a comparison, as they are written everywhere.
fn verdicts(comparison: &ComparisonStatus) -> [(&'static str, u64); 5] {
    [
        ("agree", comparison.agree),
        ("only-stable", comparison.only_stable),
        ("only-candidate", comparison.only_candidate),
        ("different", comparison.different),
        ("unknown", comparison.unknown),
    ]
}

/// A count as the value of a metric.
#[must_use]
#[allow(
    clippy::cast_precision_loss,
    reason = "exact up to 2^53, which no count of objects or bytes here comes near"
)]
pub fn number(count: usize) -> f64 {
    count as f64
}

/// Raises a counter to a total that was counted elsewhere.
fn raise(counter: &Counter, total: u64) {
    let total = usize::try_from(total).unwrap_or(usize::MAX);
    let ahead = number(total) - counter.get();
    if ahead > 0.0 {
        counter.inc_by(ahead);
    }
}

/// Why a metric cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("the metric \"{name}\" cannot be published: {reason}")]
pub struct MetricError {
    /// The metric.
    pub name: String,
    /// What the registry says.
    pub reason: String,
}

impl HostMetrics {
    /// Registers them all.
    pub fn new() -> Result<Self, MetricError> {
        let registry = Registry::new();
        let list = List::new(&registry);
        let build_info = list.gauge(
            build::METRIC,
            "1, with what this Davit was built from.",
            &["version", "commit", "interface"],
        )?;
        let build::Info {
            version,
            commit,
            interface,
            ..
        } = build::INFO;
        let labels = [version, commit, interface];
        build_info.with_label_values(&labels).set(1.0);
        Ok(Self {
            calls: list.counter(
                "davit_guest_calls_total",
                "Calls into a guest, by result.",
                &[CONTROLLER, PART, "result"],
            )?,
            call_duration: list.histogram(
                "davit_guest_call_duration_seconds",
                "How long a call into a guest took, live reads included.",
                &[CONTROLLER, PART],
                CALL_BUCKETS.to_vec(),
            )?,
            plans: list.counter(
                "davit_plans_total",
                "Plans that guests made, by what the gate said.",
                &[CONTROLLER, PART, "ruling"],
            )?,
            writes: list.counter(
                "davit_writes_total",
                "Plans carried out, by result: ok, gone, or a failure class.",
                &[CONTROLLER, "result"],
            )?,
            write_duration: list.histogram(
                "davit_write_duration_seconds",
                "How long it took to carry out a plan, all its steps.",
                &[CONTROLLER],
                WRITE_BUCKETS.to_vec(),
            )?,
            quarantined: list.gauge(
                "davit_guest_quarantined",
                "1 while a guest is not called because its calls failed.",
                &[CONTROLLER],
            )?,
            objects: list.gauge(
                "davit_watch_objects",
                "Objects held, by resource.",
                &["resource"],
            )?,
            synced: list.gauge(
                "davit_watch_synced",
                "1 once a resource was listed completely.",
                &["resource"],
            )?,
            watch_troubles: list.counter(
                "davit_watch_troubles_total",
                "Lists and watches that failed and were begun again.",
                &["resource"],
            )?,
            events: list.counter(
                "davit_events_total",
                "Events: sent, suppressed as too many, failed, or dropped.",
                &["result"],
            )?,
            events_waiting: list.gauge(
                "davit_events_waiting",
                "Events that are not sent yet.",
                &[],
            )?,
            store_bytes: list.gauge(
                "davit_store_bytes",
                "Bytes of all objects held, without what it takes to find them.",
                &[],
            )?,
            queues: QueueMetrics::new(&list)?,
            rollout_step: list.gauge(
                "davit_rollout_step",
                "The step that a candidate is in, counted from 1; 0 without one.",
                &[CONTROLLER],
            )?,
            rollout_weight: list.gauge(
                "davit_rollout_weight",
                "The share of the cohorts that a candidate owns, in percent.",
                &[CONTROLLER],
            )?,
            rollout_comparison: list.gauge(
                "davit_rollout_comparison",
                "Targets compared in the present step of a rollout, by verdict.",
                &[CONTROLLER, "verdict"],
            )?,
            descriptions: list.descriptions.into_inner(),
            registry,
        })
    }

    /// Counts a call into a guest.
    pub fn call(
        &self,
        controller: &str,
        role: Role,
        result: &Result<Vec<Decision>, CallError>,
        took: Duration,
    ) {
        let part = role.as_str();
        let result = match result {
            Ok(_) => "ok",
            Err(error) => call_failure(error).kind.as_str(),
        };
        let labels = [controller, part, result];
        self.calls.with_label_values(&labels).inc();
        let duration = self.call_duration.with_label_values(&[controller, part]);
        duration.observe(took.as_secs_f64());
    }

    /// Counts a ruling of the gate.
    pub fn plan(&self, controller: &str, role: Role, ruling: &Ruling) {
        let labels = [controller, role.as_str(), ruling.as_str()];
        self.plans.with_label_values(&labels).inc();
    }

    /// Counts a plan that was carried out.
    pub fn write(&self, controller: &str, outcome: &Outcome, took: Duration) {
        let result = match &outcome.failed {
            None => "ok",
            Some((_, failure)) if failure.class.means_gone() => "gone",
            Some((_, failure)) => failure.class.as_str(),
        };
        self.writes.with_label_values(&[controller, result]).inc();
        let duration = self.write_duration.with_label_values(&[controller]);
        duration.observe(took.as_secs_f64());
    }

    /// Takes over what became of events so far.
    pub fn set_events(&self, stats: &EventStats) {
        for (result, total) in [
            ("sent", stats.sent),
            ("suppressed", stats.suppressed),
            ("failed", stats.failed),
            ("dropped", stats.dropped),
        ] {
            raise(&self.events.with_label_values(&[result]), total);
        }
        let waiting = usize::try_from(stats.waiting).unwrap_or(usize::MAX);
        let gauge = self.events_waiting.with_label_values(&[] as &[&str]);
        gauge.set(number(waiting));
    }

    /// Sets a controller's gauges.
    pub fn controller(&self, name: &str, controller: &mut Controller, now: Instant) {
        let quarantined = !matches!(controller.stable().health().state(), State::Healthy);
        let gauge = self.quarantined.with_label_values(&[name]);
        gauge.set(f64::from(u8::from(quarantined)));
        if let Some(stable) = controller.revision_mut(Role::Stable) {
            for stats in stable.queue_stats(now) {
                self.queues.set(name, &stats);
            }
        }
    }

    /// Publishes the metrics that a controller's guest declares now. What it
    /// counted before stays if the declarations are the same.
    pub fn replace_guest(
        &self,
        controller: &str,
        specs: &[MetricSpec],
        former: Option<GuestMetrics>,
    ) -> Option<GuestMetrics> {
        if let Some(same) = former.filter(|former| former.specs == specs) {
            return Some(same);
        }
        match self.register_guest(controller, specs) {
            Ok(metrics) => Some(metrics),
            Err(error) => {
                tracing::error!(controller, "the guest's metrics are not published: {error}");
                None
            }
        }
    }

    /// Sets the gauges of a controller's rollout; none without a candidate.
    pub fn rollout(&self, controller: &str, candidate: Option<&CandidateStatus>) {
        let labels = [controller];
        let (step, weight) = candidate.map_or((0, 0), |one| (one.step, one.weight));
        let gauge = self.rollout_step.with_label_values(&labels);
        gauge.set(f64::from(step));
        let gauge = self.rollout_weight.with_label_values(&labels);
        gauge.set(f64::from(weight));
        let comparison = candidate.map(|one| one.comparison).unwrap_or_default();
        for (verdict, count) in verdicts(&comparison) {
            let labels = [controller, verdict];
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            let gauge = self.rollout_comparison.with_label_values(&labels);
            gauge.set(number(count));
        }
    }

    /// Takes the rollout of a controller that is gone from the gauges.
    pub fn forget_rollout(&self, controller: &str) {
        // It may never have had any.
        let _ = self.rollout_step.remove_label_values(&[controller]);
        let _ = self.rollout_weight.remove_label_values(&[controller]);
        for (verdict, _) in verdicts(&ComparisonStatus::default()) {
            let labels = [controller, verdict];
            let _ = self.rollout_comparison.remove_label_values(&labels);
        }
    }

    /// Every metric of the host, with its labels.
    pub fn described(&self) -> impl Iterator<Item = (&str, &[String])> {
        let all = self.descriptions.iter();
        all.map(|one| (one.fq_name.as_str(), one.variable_labels.as_slice()))
    }

    /// Takes the series of a controller that is gone from the gauges.
    pub fn forget(&self, controller: &str) {
        // It may never have had any.
        let _ = self.quarantined.remove_label_values(&[controller]);
    }

    /// Everything, in Prometheus' text format.
    #[must_use]
    pub fn render(&self) -> String {
        let mut buffer = Vec::new();
        let families = self.registry.gather();
        match TextEncoder::new().encode(&families, &mut buffer) {
            Ok(()) => String::from_utf8_lossy(&buffer).into_owned(),
            Err(error) => format!("# the metrics cannot be written: {error}\n"),
        }
    }

    /// Registers the metrics of a controller's guest.
    pub fn register_guest(
        &self,
        controller: &str,
        specs: &[MetricSpec],
    ) -> Result<GuestMetrics, MetricError> {
        let mut metrics = GuestMetrics {
            registry: self.registry.clone(),
            specs: specs.to_vec(),
            by_name: BTreeMap::new(),
        };
        for spec in specs {
            let metric = GuestMetric::new(controller, spec)?;
            self.registry
                .register(metric.collector())
                .map_err(|error| failed(&spec.name, &error))?;
            metrics.by_name.insert(spec.name.clone(), metric);
        }
        Ok(metrics)
    }
}

impl QueueMetrics {
    fn new(list: &List<'_>) -> Result<Self, MetricError> {
        let labels = &["name", CONTROLLER];
        // client-go's: ten buckets from 10 ns to 10 s.
        let buckets: Vec<f64> = (-8..2).map(|power| 10_f64.powi(power)).collect();
        Ok(Self {
            depth: list.gauge(
                "workqueue_depth",
                "Current depth of the work queue.",
                labels,
            )?,
            adds: list.counter(
                "workqueue_adds_total",
                "Adds handled by the work queue.",
                labels,
            )?,
            retries: list.counter(
                "workqueue_retries_total",
                "Retries handled by the work queue.",
                labels,
            )?,
            queue_duration: list.histogram(
                "workqueue_queue_duration_seconds",
                "How long an item was due before it was worked on.",
                labels,
                buckets.clone(),
            )?,
            work_duration: list.histogram(
                "workqueue_work_duration_seconds",
                "How long an item was worked on, its writes included.",
                labels,
                buckets,
            )?,
            unfinished: list.gauge(
                "workqueue_unfinished_work_seconds",
                "The time that items in work have taken so far, added up.",
                labels,
            )?,
            longest_running: list.gauge(
                "workqueue_longest_running_processor_seconds",
                "The longest time that an item in work has taken so far.",
                labels,
            )?,
        })
    }
}

/// The metrics that one guest declared; they go when this is dropped.
#[derive(Debug)]
pub struct GuestMetrics {
    registry: Registry,
    specs: Vec<MetricSpec>,
    by_name: BTreeMap<String, GuestMetric>,
}

#[derive(Debug)]
enum GuestMetric {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl GuestMetrics {
    /// Counts something. The engine has checked names and labels against the
    /// manifest; an amount that does not fit the metric's kind counts nothing.
    pub fn count(&self, measure: &Measure, now: Instant) {
        let labels: Vec<&str> = measure.labels.iter().map(String::as_str).collect();
        match (self.by_name.get(&measure.metric), measure.amount) {
            (Some(GuestMetric::Counter(counter)), Amount::Add(by)) if by >= 0.0 => {
                if let Ok(counter) = counter.get_metric_with_label_values(&labels) {
                    counter.inc_by(by);
                }
            }
            (Some(GuestMetric::Gauge(gauge)), Amount::Add(by)) => {
                if let Ok(gauge) = gauge.get_metric_with_label_values(&labels) {
                    gauge.add(by);
                }
            }
            (Some(GuestMetric::Gauge(gauge)), Amount::Set(to)) => {
                if let Ok(gauge) = gauge.get_metric_with_label_values(&labels) {
                    gauge.set(to);
                }
            }
            (Some(GuestMetric::Histogram(histogram)), amount) => {
                let value = match amount {
                    Amount::Observe(value) => value,
                    Amount::SecondsSince(then) => now.since(then).as_secs_f64(),
                    Amount::Add(_) | Amount::Set(_) => return,
                };
                if let Ok(histogram) = histogram.get_metric_with_label_values(&labels) {
                    histogram.observe(value);
                }
            }
            _ => {}
        }
    }
}

impl GuestMetrics {
    /// Counts that the host could not find out what is served, or bring the
    /// controller's watches up to it.
    pub fn sync_error(&self) {
        let specs = self.specs.iter();
        for spec in specs.filter(|spec| spec.kind == MetricKind::SyncErrors) {
            if let Some(GuestMetric::Counter(counter)) = self.by_name.get(&spec.name) {
                counter.with_label_values(&[] as &[&str]).inc();
            }
        }
    }
}

impl Drop for GuestMetrics {
    fn drop(&mut self) {
        for metric in self.by_name.values() {
            // It was registered; there is nothing to do if it is not any more.
            let _ = self.registry.unregister(metric.collector());
        }
    }
}

impl GuestMetric {
    /// A controller's metrics carry its name, so that two controllers of one
    /// guest can stand beside each other.
    fn new(controller: &str, spec: &MetricSpec) -> Result<Self, MetricError> {
        let labels: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
        let options = Opts::new(&spec.name, &spec.help).const_label(CONTROLLER, controller);
        let metric = match spec.kind {
            MetricKind::Counter => CounterVec::new(options, &labels).map(Self::Counter),
            MetricKind::SyncErrors => CounterVec::new(options, &[]).map(|counter| {
                // Shown from the start: that there were none is worth knowing.
                counter.with_label_values(&[] as &[&str]);
                Self::Counter(counter)
            }),
            MetricKind::Gauge => GaugeVec::new(options, &labels).map(Self::Gauge),
            MetricKind::Histogram => {
                let options = HistogramOpts::from(options).buckets(spec.buckets.clone());
                HistogramVec::new(options, &labels).map(Self::Histogram)
            }
        };
        metric.map_err(|error| failed(&spec.name, &error))
    }

    fn collector(&self) -> Box<dyn Collector> {
        match self {
            Self::Counter(metric) => Box::new(metric.clone()),
            Self::Gauge(metric) => Box::new(metric.clone()),
            Self::Histogram(metric) => Box::new(metric.clone()),
        }
    }
}

struct List<'a> {
    registry: &'a Registry,
    descriptions: RefCell<Vec<Desc>>,
}

impl<'a> List<'a> {
    fn new(registry: &'a Registry) -> Self {
        Self {
            registry,
            descriptions: RefCell::default(),
        }
    }

    fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<CounterVec, MetricError> {
        self.add(name, CounterVec::new(Opts::new(name, help), labels))
    }

    fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, MetricError> {
        self.add(name, GaugeVec::new(Opts::new(name, help), labels))
    }

    fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: Vec<f64>,
    ) -> Result<HistogramVec, MetricError> {
        let options = HistogramOpts::new(name, help).buckets(buckets);
        self.add(name, HistogramVec::new(options, labels))
    }

    fn add<T: Collector + Clone + 'static>(
        &self,
        name: &str,
        metric: prometheus::Result<T>,
    ) -> Result<T, MetricError> {
        let metric = metric.map_err(|error| failed(name, &error))?;
        self.registry
            .register(Box::new(metric.clone()))
            .map_err(|error| failed(name, &error))?;
        let described = metric.desc().into_iter().cloned();
        self.descriptions.borrow_mut().extend(described);
        Ok(metric)
    }
}

fn failed(name: &str, error: &prometheus::Error) -> MetricError {
    MetricError {
        name: name.to_owned(),
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests;
