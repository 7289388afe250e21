//! The series of a guest's metrics.

use imbl::{OrdMap, OrdSet};

use crate::plan::Measure;

/// A series: the metric, and the values of its labels.
pub type SeriesKey = (String, Vec<String>);

/// The series that a revision has named. A clone costs a reference count.
#[derive(Clone, Debug, Default)]
pub struct Series {
    by_metric: OrdMap<String, OrdSet<Vec<String>>>,
    len: usize,
}

impl Series {
    /// The number of series.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it has the series of a measure.
    #[must_use]
    pub fn has(&self, measure: &Measure) -> bool {
        let labels = self.by_metric.get(&measure.metric);
        labels.is_some_and(|known| known.contains(&measure.labels))
    }

    /// Adds the series of a measure.
    pub fn add(&mut self, measure: &Measure) {
        if self.has(measure) {
            return;
        }
        let known = self.by_metric.entry(measure.metric.clone()).or_default();
        known.insert(measure.labels.clone());
        self.len += 1;
    }

    /// The series that the other does not have.
    #[must_use]
    pub fn without(&self, other: &Self) -> Vec<SeriesKey> {
        let all = self.by_metric.iter();
        let all = all.flat_map(|(metric, labels)| labels.iter().map(move |it| (metric, it)));
        let is_other = |metric: &String, labels: &Vec<String>| {
            let known = other.by_metric.get(metric);
            known.is_some_and(|known| known.contains(labels))
        };
        let own = all.filter(|(metric, labels)| !is_other(metric, labels));
        own.map(|(metric, labels)| (metric.clone(), labels.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Amount;

    fn measure(metric: &str, label: &str) -> Measure {
        Measure {
            metric: metric.into(),
            labels: vec![label.into()],
            amount: Amount::Add(1.0),
        }
    }

    #[test]
    fn a_series_counts_once() {
        let mut series = Series::default();
        for (metric, label) in [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")] {
            series.add(&measure(metric, label));
        }
        assert_eq!(series.len(), 3);
        let before = series.clone();
        series.add(&measure("b", "z"));
        assert_eq!(series.without(&before), [("b".into(), vec!["z".into()])]);
        assert_eq!(before.without(&series), []);
    }
}
