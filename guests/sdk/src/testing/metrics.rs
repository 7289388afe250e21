//! What the guest measures.

use std::collections::BTreeMap;

use davit_core::plan::{Amount, Measure};
use davit_core::time::Instant;

type Series = (String, Vec<String>);

/// The guest's metrics.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    counts: BTreeMap<Series, f64>,
    observations: BTreeMap<Series, Vec<f64>>,
}

impl Metrics {
    pub(super) fn record(&mut self, measure: Measure, now: Instant) {
        let series = (measure.metric, measure.labels);
        let observed = match measure.amount {
            Amount::Add(number) => {
                *self.counts.entry(series).or_default() += number;
                return;
            }
            Amount::Set(number) => {
                self.counts.insert(series, number);
                return;
            }
            Amount::Observe(number) => number,
            Amount::SecondsSince(start) => now.since(start).as_secs_f64(),
        };
        self.observations.entry(series).or_default().push(observed);
    }

    pub(super) fn count(&self, name: &str, labels: &[&str]) -> f64 {
        let count = self.counts.get(&series(name, labels));
        count.copied().unwrap_or_default()
    }

    pub(super) fn observed(&self, name: &str, labels: &[&str]) -> Vec<f64> {
        let observed = self.observations.get(&series(name, labels));
        observed.cloned().unwrap_or_default()
    }
}

fn series(name: &str, labels: &[&str]) -> Series {
    let labels = labels.iter().map(|&label| label.to_owned()).collect();
    (name.to_owned(), labels)
}
