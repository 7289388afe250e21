//! The deletions of one side.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::backtest::facts::{Counts, Facts};
use crate::backtest::regret::Regret;
use crate::backtest::report::Side;
use crate::object::ObjectRef;
use crate::time::{Instant, Now, Wall};
use crate::times;

/// What a worst minute is measured in.
const WINDOW: Duration = Duration::from_secs(60);
/// How much later than a newer one a deletion is noted at most: its author becomes known when the
/// candidate deletes the object too, or its owners end.
const LATEST: Duration = Duration::from_mins(15);
const HOUR_MILLIS: i64 = 3_600_000;

/// The deletions of one side.
#[derive(Debug, Default)]
pub(super) struct Tally {
    deletions: u64,
    by_reason: Counts,
    by_namespace: Counts,
    by_kind: Counts,
    by_owner: Counts,
    by_hour: BTreeMap<i64, u64>,
    /// The deletions of the last [`LATEST`], in the order of their times.
    times: VecDeque<(Instant, Wall)>,
    worst: usize,
    worst_at: Option<Wall>,
    pub(super) regret: Regret,
}

impl Tally {
    pub(super) fn note(&mut self, target: &ObjectRef, reason: &str, facts: &Facts, now: Now) {
        self.deletions += 1;
        self.by_reason.add(reason);
        self.by_namespace.add(match target.namespace.as_str() {
            "" => "(cluster)",
            namespace => namespace,
        });
        self.by_kind.add(&target.kind);
        self.by_owner.add(&facts.owner);
        *self
            .by_hour
            .entry(now.wall.0.div_euclid(HOUR_MILLIS))
            .or_default() += 1;
        self.note_minute(now);
        self.regret.deleted(target, facts, now.instant);
    }

    /// The worst minute may end with a deletion, or with one of the minute after it.
    fn note_minute(&mut self, now: Now) {
        let newest = self.times.back().map_or(now.instant, |(at, _)| *at);
        let is_old = |(at, _): &mut (Instant, Wall)| at.after(LATEST) <= newest;
        while self.times.pop_front_if(is_old).is_some() {}
        let place = self.times.partition_point(|(at, _)| *at <= now.instant);
        self.times.insert(place, (now.instant, now.wall));
        let ends = (place..).zip(self.times.range(place..));
        for (end, (at, wall)) in ends.take_while(|(_, (at, _))| *at < now.instant.after(WINDOW)) {
            let start = self
                .times
                .partition_point(|(other, _)| other.after(WINDOW) <= *at);
            let count = end + 1 - start;
            if count > self.worst {
                self.worst = count;
                self.worst_at = Some(*wall);
            }
        }
    }

    pub(super) fn report(self) -> Side {
        let hours = self.by_hour.into_iter();
        let hours = hours.map(|(hour, count)| {
            let start = Wall(hour.saturating_mul(HOUR_MILLIS));
            (times::time(start), count)
        });
        Side {
            deletions: self.deletions,
            by_reason: self.by_reason.0,
            by_namespace: self.by_namespace.0,
            by_kind: self.by_kind.0,
            by_owner_kind: self.by_owner.0,
            by_hour: hours.collect(),
            deletes_per_minute: self.worst as u64,
            worst_minute_ends: self.worst_at.map(times::precise_time),
            regret: self.regret.report(),
        }
    }
}
