//! The registration of metrics, and conversions of their values.

use std::cell::RefCell;

use prometheus::core::{Collector, Desc};
use prometheus::{Counter, CounterVec, GaugeVec, HistogramOpts, HistogramVec, Opts, Registry};

/// Why a metric cannot be published.
#[derive(Debug, thiserror::Error)]
#[error("the metric \"{name}\" cannot be published: {reason}")]
pub struct MetricError {
    /// The metric.
    pub name: String,
    /// The registry's reason.
    pub reason: String,
}

impl MetricError {
    pub(super) fn new(name: &str, error: &prometheus::Error) -> Self {
        Self {
            name: name.to_owned(),
            reason: error.to_string(),
        }
    }
}

/// Registers the host's own metrics and records their names and labels.
pub(super) struct Registrar<'a> {
    registry: &'a Registry,
    descriptions: RefCell<Vec<Desc>>,
}

impl<'a> Registrar<'a> {
    pub(super) fn new(registry: &'a Registry) -> Self {
        Self {
            registry,
            descriptions: RefCell::default(),
        }
    }

    pub(super) fn counter(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<CounterVec, MetricError> {
        self.add(name, CounterVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn gauge(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
    ) -> Result<GaugeVec, MetricError> {
        self.add(name, GaugeVec::new(Opts::new(name, help), labels))
    }

    pub(super) fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        buckets: &[f64],
    ) -> Result<HistogramVec, MetricError> {
        let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
        self.add(name, HistogramVec::new(options, labels))
    }

    /// The name and labels of each metric that was registered.
    pub(super) fn into_descriptions(self) -> Vec<Desc> {
        self.descriptions.into_inner()
    }

    /// Registers a collector. `name` is for the error.
    pub(super) fn add<T: Collector + Clone + 'static>(
        &self,
        name: &str,
        metric: prometheus::Result<T>,
    ) -> Result<T, MetricError> {
        let metric = metric.map_err(|error| MetricError::new(name, &error))?;
        self.registry
            .register(Box::new(metric.clone()))
            .map_err(|error| MetricError::new(name, &error))?;
        let described = metric.desc().into_iter().cloned();
        self.descriptions.borrow_mut().extend(described);
        Ok(metric)
    }
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

/// The same for a count in 64 bits.
pub(super) fn total(count: u64) -> f64 {
    number(usize::try_from(count).unwrap_or(usize::MAX))
}

pub(super) fn flag(is_set: bool) -> f64 {
    f64::from(u8::from(is_set))
}

/// Raises a counter to a total that another part of the host counts.
pub(super) fn raise(counter: &Counter, to: u64) {
    let ahead = total(to) - counter.get();
    if ahead > 0.0 {
        counter.inc_by(ahead);
    }
}
