//! How far the deletions of both sides are apart.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backtest::report::{Spread, SpreadBucket};

/// The ends of the ranges of a distribution, in seconds: up to a minute, an hour, a day. What is
/// at the same time is in none.
const BUCKETS: [u64; 6] = [10, 60, 600, 3_600, 21_600, 86_400];

/// A distribution of times, each rounded to three digits: its size does not grow with their
/// number.
#[derive(Debug, Default)]
pub(super) struct Distances {
    pub(super) millis: BTreeMap<u64, u64>,
    max: u64,
    count: u64,
}

impl Distances {
    pub(super) fn add(&mut self, distance: Duration) {
        let exact = u64::try_from(distance.as_millis()).unwrap_or(u64::MAX);
        let mut unit = 1_u64;
        while exact / unit >= 1_000 {
            unit = unit.saturating_mul(10);
        }
        *self.millis.entry(exact / unit * unit).or_default() += 1;
        self.max = self.max.max(exact);
        self.count += 1;
    }

    /// The time that this part of all are not longer than.
    fn quantile(&self, part: u64, of: u64) -> u64 {
        let rank = self.count.saturating_mul(part).div_ceil(of).max(1);
        let mut seen = 0;
        for (millis, count) in &self.millis {
            seen += count;
            if seen >= rank {
                return *millis;
            }
        }
        0
    }

    pub(super) fn report(&self) -> Spread {
        let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
        Spread {
            count: self.count,
            median_seconds: seconds(self.quantile(1, 2)),
            p90_seconds: seconds(self.quantile(9, 10)),
            max_seconds: seconds(self.max),
            buckets: if self.count == 0 {
                Vec::new()
            } else {
                self.buckets()
            },
        }
    }

    fn buckets(&self) -> Vec<SpreadBucket> {
        let mut above = None;
        let ends = BUCKETS.map(Some).into_iter().chain([None]);
        let buckets = ends.map(|end| {
            let is_in = |millis: u64| {
                let is_above = above.is_none_or(|above: u64| millis > above * 1_000);
                is_above && end.is_none_or(|end| millis <= end * 1_000)
            };
            let counts = self.millis.iter().filter(|(millis, _)| is_in(**millis));
            let count = counts.map(|(_, count)| count).sum();
            above = end;
            SpreadBucket {
                up_to_seconds: end,
                count,
            }
        });
        buckets.collect()
    }
}
