//! How much earlier or later one side is, as a distribution of bounded size.

use std::collections::BTreeMap;
use std::time::Duration;

/// The steps of a decade: each is about 26 % above the one before, so that a rounded time is
/// at most 13 % off.
const STEPS: [u64; 10] = [100, 126, 158, 200, 251, 316, 398, 501, 631, 794];
/// The longest time that is distinguished: more than eleven days.
const MOST_MILLIS: u64 = 1_000_000_000;

/// A distribution of signed times: negative ones are earlier. Each time is rounded, so there
/// are at most 181 different ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delays(BTreeMap<i64, u64>);

impl Delays {
    /// Adds the delay of something that happened `ahead` before the other, or `behind` it. One
    /// of the two is zero.
    pub fn add(&mut self, ahead: Duration, behind: Duration) {
        let millis = |time: Duration| rounded(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let key = millis(behind) - millis(ahead);
        *self.0.entry(key).or_default() += 1;
    }

    /// Adds all of another distribution.
    pub fn merge(&mut self, other: &Self) {
        for (millis, count) in &other.0 {
            *self.0.entry(*millis).or_default() += count;
        }
    }

    /// What was added since the distribution was this one.
    #[must_use]
    pub fn since(&self, former: &Self) -> Self {
        let left = self.0.iter().filter_map(|(millis, count)| {
            let before = former.0.get(millis).copied().unwrap_or_default();
            let left = count.saturating_sub(before);
            (left > 0).then_some((*millis, left))
        });
        Self(left.collect())
    }

    /// The median in milliseconds, negative if it is earlier; none without delays.
    #[must_use]
    pub fn median(&self) -> Option<i64> {
        let count: u64 = self.0.values().sum();
        let rank = count.div_ceil(2);
        let mut seen = 0;
        let mut all = self.0.iter();
        let found = all.find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map(|(millis, _)| *millis)
    }

    /// How many are earlier.
    #[must_use]
    pub fn earlier(&self) -> u64 {
        self.0.range(..0).map(|(_, count)| count).sum()
    }

    /// How many are later.
    #[must_use]
    pub fn later(&self) -> u64 {
        self.0.range(1..).map(|(_, count)| count).sum()
    }

    /// The rounded times in milliseconds, the earliest first, each with its count.
    pub fn entries(&self) -> impl Iterator<Item = (i64, u64)> {
        self.0.iter().map(|(millis, count)| (*millis, *count))
    }
}

/// Times that were rounded before.
impl FromIterator<(i64, u64)> for Delays {
    fn from_iter<T: IntoIterator<Item = (i64, u64)>>(entries: T) -> Self {
        let mut delays = Self::default();
        for (millis, count) in entries {
            let size = rounded(millis.unsigned_abs());
            let key = if millis < 0 { -size } else { size };
            let entry = delays.0.entry(key).or_default();
            *entry = entry.saturating_add(count);
        }
        delays
    }
}

/// The nearest step.
fn rounded(millis: u64) -> i64 {
    let exact = millis.min(MOST_MILLIS);
    let mut unit = 1;
    while exact >= unit * 10 {
        unit *= 10;
    }
    // Below ten milliseconds, every time is its own step.
    if unit == 1 {
        return i64::try_from(exact).unwrap_or_default();
    }
    let steps = STEPS.into_iter().chain([1000]);
    let nearest = steps.map(|step| step * unit / 100);
    let nearest = nearest.min_by_key(|step| step.abs_diff(exact));
    i64::try_from(nearest.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(millis: &[i64]) -> Delays {
        let mut delays = Delays::default();
        for one in millis {
            let time = Duration::from_millis(one.unsigned_abs());
            let (ahead, behind) = if *one < 0 {
                (time, Duration::ZERO)
            } else {
                (Duration::ZERO, time)
            };
            delays.add(ahead, behind);
        }
        delays
    }

    #[test]
    fn a_median_has_a_sign() {
        assert_eq!(Delays::default().median(), None);
        assert_eq!(of(&[-400, -390, 5_000]).median(), Some(-398));
        assert_eq!(of(&[-400, 0, 5_000]).median(), Some(0));
        let delays = of(&[-1, 0, 2, 3]);
        assert_eq!((delays.earlier(), delays.later()), (1, 2));
    }

    #[test]
    fn a_rounded_time_is_at_most_an_eighth_off_and_rounds_to_itself() {
        let mut steps = std::collections::BTreeSet::new();
        for exact in (1..2_000_u64).chain((1..1_000).map(|one| one * 997_001)) {
            let near = rounded(exact).unsigned_abs();
            assert!(
                near.abs_diff(exact.min(MOST_MILLIS)) * 8 <= exact,
                "{exact}: {near}"
            );
            assert_eq!(rounded(near).unsigned_abs(), near, "{exact}");
            steps.insert(near);
        }
        assert!(steps.len() <= 90, "{}", steps.len());
        assert_eq!(rounded(u64::MAX), 1_000_000_000);
    }

    #[test]
    fn parts_and_sums_of_distributions() {
        let (before, all) = (of(&[-400, 20]), of(&[-400, 20, 20, 7_000]));
        let since = all.since(&before);
        assert_eq!(since, of(&[20, 7_000]));
        let mut sum = before;
        sum.merge(&since);
        assert_eq!(sum, all);
        assert_eq!(all.entries().collect::<Delays>(), all);
    }
}
