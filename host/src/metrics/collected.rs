//! Metrics that are computed when somebody scrapes them, from the last state that the host
//! set. At rest they cost nothing, a controller has no series in memory, and what is gone from
//! the state is gone from the exposition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::registration::{MetricError, Registrar};

/// A metric that is computed from a state.
pub(super) struct Family<S> {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    /// Adds the samples that a state has.
    pub(super) samples: fn(&S, &mut Samples),
}

/// The type of a family.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Gauge,
    /// Of a total that another part of the host counts.
    Counter,
}

/// The samples of a family.
pub(super) struct Samples {
    labels: &'static [&'static str],
    kind: Kind,
    metrics: Vec<Metric>,
}

impl Samples {
    /// Adds one, with the values of the family's labels in their order.
    pub(super) fn add(&mut self, labels: &[&str], value: f64) {
        debug_assert_eq!(labels.len(), self.labels.len());
        let pairs = self.labels.iter().zip(labels).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value((*value).to_owned());
            pair
        });
        let mut pairs: Vec<LabelPair> = pairs.collect();
        // As the vectors of the library write them.
        pairs.sort();
        let mut metric = Metric::from_label(pairs);
        match self.kind {
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                metric.set_gauge(gauge);
            }
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                metric.set_counter(counter);
            }
        }
        self.metrics.push(metric);
    }
}

/// The metrics of a state. Clones have the same state.
#[derive(Debug)]
pub(super) struct Collected<S: 'static> {
    families: &'static [Family<S>],
    descriptions: Vec<Desc>,
    /// Whoever sets it does not wait for a scrape.
    state: Arc<Mutex<Arc<S>>>,
}

impl<S> std::fmt::Debug for Family<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl<S: Default + Send + Sync + 'static> Collected<S> {
    pub(super) fn register(
        registrar: &Registrar<'_>,
        families: &'static [Family<S>],
    ) -> Result<Self, MetricError> {
        let descriptions = families.iter().map(|family| {
            let labels = family.labels.iter().map(|&label| label.to_owned());
            let (name, help) = (family.name.to_owned(), family.help.to_owned());
            Desc::new(name, help, labels.collect(), HashMap::new())
                .map_err(|error| MetricError::new(family.name, &error))
        });
        let collected = Self {
            families,
            descriptions: descriptions.collect::<Result<_, _>>()?,
            state: Arc::default(),
        };
        let name = families.first().map_or("", |family| family.name);
        registrar.add(name, Ok(collected))
    }

    /// Changes the last state.
    pub(super) fn change(&self, change: impl FnOnce(&mut Arc<S>)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl<S> Clone for Collected<S> {
    fn clone(&self) -> Self {
        Self {
            families: self.families,
            descriptions: self.descriptions.clone(),
            state: Arc::clone(&self.state),
        }
    }
}

impl<S: Default + Send + Sync + 'static> Collector for Collected<S> {
    fn desc(&self) -> Vec<&Desc> {
        self.descriptions.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let state = Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner));
        let families = self.families.iter().map(|family| {
            let mut samples = Samples {
                labels: family.labels,
                kind: family.kind,
                metrics: Vec::new(),
            };
            (family.samples)(&state, &mut samples);
            let mut collected = MetricFamily::default();
            collected.set_name(family.name.to_owned());
            collected.set_help(family.help.to_owned());
            collected.set_field_type(match family.kind {
                Kind::Gauge => MetricType::GAUGE,
                Kind::Counter => MetricType::COUNTER,
            });
            collected.set_metric(samples.metrics);
            collected
        });
        families.collect()
    }
}
