//! Metrics: constants with their labels, so that a measure has as many values.

use crate::Instant;
use crate::bindings::davit::controller::decisions::{Amount, Measure};
use crate::bindings::davit::controller::manifests::Metric;

/// A number that only increases, with `N` labels.
///
/// ```
/// use davit_guest::{Counter, Measure};
///
/// const DELETIONS: Counter<2> =
///     Counter::new("deletions_total", "Deleted pods.", ["namespace", "reason"]);
///
/// let measure: Measure = DELETIONS.add(["shop", "orphaned"], 1.0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Counter<const N: usize>(Description<N>);

/// A number that increases and decreases, with `N` labels.
#[derive(Clone, Copy, Debug)]
pub struct Gauge<const N: usize>(Description<N>);

/// Observations, counted by their size up to each of the bounds, with `N` labels.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<const N: usize>(Description<N>);

/// A counter that the host increments itself: each time that discovery fails, or that a
/// resource which the controller watches is not listed a whole discovery period after its
/// stream started.
#[derive(Clone, Copy, Debug)]
pub struct SyncErrors(Description<0>);

#[derive(Clone, Copy, Debug)]
struct Description<const N: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; N],
    buckets: &'static [f64],
}

impl<const N: usize> Description<N> {
    const fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        buckets: &'static [f64],
    ) -> Self {
        Self {
            name,
            help,
            labels,
            buckets,
        }
    }

    fn measure(self, labels: [&str; N], amount: Amount) -> Measure {
        Measure {
            metric: self.name.to_owned(),
            labels: labels.map(str::to_owned).to_vec(),
            amount,
        }
    }

    #[inline(never)]
    fn declared(self, kind: &str) -> Metric {
        Metric {
            name: self.name.to_owned(),
            kind: kind.to_owned(),
            help: self.help.to_owned(),
            labels: self.labels.map(str::to_owned).to_vec(),
            buckets: self.buckets.to_vec(),
        }
    }
}

impl<const N: usize> Counter<N> {
    /// Names a counter and its labels.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self(Description::new(name, help, labels, &[]))
    }

    /// Adds to the counter with these values of the labels.
    #[must_use]
    pub fn add(self, labels: [&str; N], number: f64) -> Measure {
        self.0.measure(labels, Amount::Add(number))
    }
}

impl<const N: usize> Gauge<N> {
    /// Names a gauge and its labels.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str, labels: [&'static str; N]) -> Self {
        Self(Description::new(name, help, labels, &[]))
    }

    /// Adds to the gauge with these values of the labels.
    #[must_use]
    pub fn add(self, labels: [&str; N], number: f64) -> Measure {
        self.0.measure(labels, Amount::Add(number))
    }

    /// Sets the gauge with these values of the labels.
    #[must_use]
    pub fn set(self, labels: [&str; N], number: f64) -> Measure {
        self.0.measure(labels, Amount::Set(number))
    }
}

impl<const N: usize> Histogram<N> {
    /// Names a histogram, its labels and its upper bounds.
    #[must_use]
    pub const fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; N],
        buckets: &'static [f64],
    ) -> Self {
        Self(Description::new(name, help, labels, buckets))
    }

    /// Adds an observation.
    #[must_use]
    pub fn observe(self, labels: [&str; N], number: f64) -> Measure {
        self.0.measure(labels, Amount::Observe(number))
    }

    /// Adds the seconds since that instant, as of the time at which the host records it.
    #[must_use]
    pub fn seconds_since(self, labels: [&str; N], start: Instant) -> Measure {
        let start = Amount::SecondsSince(start.as_millis());
        self.0.measure(labels, start)
    }
}

impl SyncErrors {
    /// Names the counter.
    #[must_use]
    pub const fn new(name: &'static str, help: &'static str) -> Self {
        Self(Description::new(name, help, [], &[]))
    }
}

impl<const N: usize> From<Counter<N>> for Metric {
    fn from(metric: Counter<N>) -> Self {
        metric.0.declared("counter")
    }
}

impl<const N: usize> From<Gauge<N>> for Metric {
    fn from(metric: Gauge<N>) -> Self {
        metric.0.declared("gauge")
    }
}

impl<const N: usize> From<Histogram<N>> for Metric {
    fn from(metric: Histogram<N>) -> Self {
        metric.0.declared("histogram")
    }
}

impl From<SyncErrors> for Metric {
    fn from(metric: SyncErrors) -> Self {
        metric.0.declared("sync-errors")
    }
}
