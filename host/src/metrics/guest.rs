//! The metrics that guests declare.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use davit_core::bounds::SeriesKey;
use davit_core::manifest::{MetricKind, MetricSpec};
use davit_core::plan::{Amount, Measure};
use davit_core::time::Instant;
use prometheus::core::Collector;
use prometheus::proto::MetricFamily;
use prometheus::{CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry};

use super::CONTROLLER;
use super::registration::MetricError;

/// The metrics of all guests.
#[derive(Clone, Debug, Default)]
pub(super) struct GuestRegistry(Arc<Mutex<Registered>>);

#[derive(Debug, Default)]
struct Registered {
    /// In the order in which they came: of two metrics with one name, but another help or other
    /// labels, the first is published.
    guests: BTreeMap<u64, Vec<GuestMetric>>,
    last_id: u64,
    registry: Registry,
    /// Whether a guest has gone. A registry never forgets the help and the labels of a name, so there
    /// is another one then.
    is_outdated: bool,
}

/// The metrics that one guest declares. Dropping this removes them.
#[derive(Debug)]
pub struct GuestMetrics {
    all: GuestRegistry,
    id: u64,
    specs: Vec<MetricSpec>,
    by_name: BTreeMap<String, GuestMetric>,
}

#[derive(Clone, Debug)]
enum GuestMetric {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

impl GuestRegistry {
    /// Adds the metrics of a controller's guest, and says which of them are not published.
    pub(super) fn register(
        &self,
        controller: &str,
        specs: &[MetricSpec],
        is_of_host: impl Fn(&str) -> bool,
    ) -> (GuestMetrics, Vec<MetricError>) {
        let (mut by_name, mut errors) = (BTreeMap::new(), Vec::new());
        for spec in specs {
            let metric = if is_of_host(&spec.name) {
                Err(MetricError::new(&spec.name, &prometheus::Error::AlreadyReg))
            } else {
                GuestMetric::new(controller, spec)
            };
            match metric {
                Ok(metric) => {
                    by_name.insert(spec.name.clone(), metric);
                }
                Err(error) => errors.push(error),
            }
        }
        let mut all = self.lock();
        let registry = all.registry();
        for (name, metric) in &by_name {
            let registered = registry.register(metric.collector());
            errors.extend(registered.err().map(|error| MetricError::new(name, &error)));
        }
        all.last_id += 1;
        let id = all.last_id;
        all.guests.insert(id, by_name.values().cloned().collect());
        let metrics = GuestMetrics {
            all: self.clone(),
            id,
            specs: specs.to_vec(),
            by_name,
        };
        (metrics, errors)
    }

    pub(super) fn gather(&self) -> Vec<MetricFamily> {
        let registry = self.lock().registry();
        registry.gather()
    }

    /// What panicked while it held this has at most not added a metric.
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// The registry of the present guests.
    fn registry(&mut self) -> Registry {
        if std::mem::take(&mut self.is_outdated) {
            self.registry = Registry::new();
            for metric in self.guests.values().flatten() {
                // The error was logged when the guest came.
                let _ = self.registry.register(metric.collector());
            }
        }
        self.registry.clone()
    }
}

impl GuestMetrics {
    pub(super) fn declares(&self, specs: &[MetricSpec]) -> bool {
        self.specs == specs
    }

    /// Records a measure. The engine has checked names and labels against the
    /// manifest; an amount that does not fit the metric's kind is ignored.
    pub fn record(&self, measure: &Measure, now: Instant) {
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

    /// Removes a series that the guest does not record any more.
    pub fn forget(&self, (metric, labels): &SeriesKey) {
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        // A series that was named may never have been recorded.
        let _ = match self.by_name.get(metric) {
            Some(GuestMetric::Counter(counter)) => counter.remove_label_values(&labels),
            Some(GuestMetric::Gauge(gauge)) => gauge.remove_label_values(&labels),
            Some(GuestMetric::Histogram(histogram)) => histogram.remove_label_values(&labels),
            None => Ok(()),
        };
    }

    /// Counts a failed discovery, or a failure to adapt the controller's watches
    /// to it.
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
        let mut all = self.all.lock();
        all.guests.remove(&self.id);
        all.is_outdated = true;
    }
}

impl GuestMetric {
    /// A controller's metrics have its name as a label, so that several controllers may
    /// have the same guest.
    fn new(controller: &str, spec: &MetricSpec) -> Result<Self, MetricError> {
        let labels: Vec<&str> = spec.labels.iter().map(String::as_str).collect();
        let options = Opts::new(&spec.name, &spec.help).const_label(CONTROLLER, controller);
        let metric = match spec.kind {
            MetricKind::Counter => CounterVec::new(options, &labels).map(Self::Counter),
            MetricKind::SyncErrors => CounterVec::new(options, &[]).map(|counter| {
                // Published from the start with the value 0.
                counter.with_label_values(&[] as &[&str]);
                Self::Counter(counter)
            }),
            MetricKind::Gauge => GaugeVec::new(options, &labels).map(Self::Gauge),
            MetricKind::Histogram => {
                let options = HistogramOpts::from(options).buckets(spec.buckets.clone());
                HistogramVec::new(options, &labels).map(Self::Histogram)
            }
        };
        metric.map_err(|error| MetricError::new(&spec.name, &error))
    }

    fn collector(&self) -> Box<dyn Collector> {
        match self {
            Self::Counter(metric) => Box::new(metric.clone()),
            Self::Gauge(metric) => Box::new(metric.clone()),
            Self::Histogram(metric) => Box::new(metric.clone()),
        }
    }
}
