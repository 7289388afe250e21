//! The order of the pending items of one queue, given the rates of their
//! groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::entry::{Order, Origin, Place};
use crate::bucket::Bucket;
use crate::manifest::Rate;
use crate::time::Instant;

/// While both lanes have items, one item in so many is from the re-list lane: a
/// steady stream of fresh events slows a re-list down, but cannot starve it.
pub(super) const RELIST_SHARE: u32 = 10;

/// The number of groups from which on the queue removes groups without information.
const FIRST_SWEEP: usize = 64;

/// A value for each lane.
#[derive(Clone, Debug, Default)]
struct Lanes<T> {
    fresh: T,
    relist: T,
}

impl<T> Lanes<T> {
    const fn get(&self, lane: Origin) -> &T {
        match lane {
            Origin::Fresh => &self.fresh,
            Origin::Relist => &self.relist,
        }
    }

    const fn get_mut(&mut self, lane: Origin) -> &mut T {
        match lane {
            Origin::Fresh => &mut self.fresh,
            Origin::Relist => &mut self.relist,
        }
    }
}

/// The items of one group.
#[derive(Clone, Debug)]
struct Group {
    /// Due or not: the entries before `now` are due.
    lanes: Lanes<BTreeMap<Order, Arc<str>>>,
    bucket: Bucket,
    /// Whether its rate was set by a command; otherwise it has the queue's.
    has_own_rate: bool,
}

impl Group {
    /// When an item of this lane could be dequeued: its first item is due and
    /// there is a token.
    fn head(&self, lane: Origin) -> Option<Order> {
        let (order, _) = self.lanes.get(lane).first_key_value()?;
        let head = Order {
            due_at: order.due_at.max(self.bucket.next_token()),
            serial: order.serial,
        };
        (head.due_at < Instant::FAR_FUTURE).then_some(head)
    }

    /// Whether a new group in its place would be the same.
    fn is_blank(&self, now: Instant) -> bool {
        !self.has_own_rate
            && self.lanes.fresh.is_empty()
            && self.lanes.relist.is_empty()
            && self.bucket.is_full(now)
    }
}

/// The pending items of one queue in their order.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    rate: Option<Rate>,
    groups: BTreeMap<Arc<str>, Group>,
    /// The bytes of the names of the groups.
    group_bytes: usize,
    /// The heads of all groups, so that a group that waits for its rate delays
    /// no other.
    heads: Lanes<BTreeSet<(Order, Arc<str>)>>,
    len: usize,
    fresh_in_a_row: u32,
    sweep_at: usize,
}

impl Schedule {
    /// An empty schedule; `rate` applies to every group without a rate of its
    /// own.
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self {
            rate,
            groups: BTreeMap::new(),
            group_bytes: 0,
            heads: Lanes::default(),
            len: 0,
            fresh_in_a_row: 0,
            sweep_at: FIRST_SWEEP,
        }
    }

    /// How many items it holds, due or not.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The number of groups.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }

    /// The bytes of the names of the groups.
    pub(super) const fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    pub(super) fn has_group(&self, name: &str) -> bool {
        self.groups.contains_key(name)
    }

    /// The groups with a rate of their own.
    pub(super) fn own_rates(&self) -> impl Iterator<Item = (&Arc<str>, Rate)> {
        let own = self.groups.iter().filter(|(_, group)| group.has_own_rate);
        own.filter_map(|(name, group)| Some((name, group.bucket.rate()?)))
    }

    pub(super) fn insert(&mut self, now: Instant, key: Arc<str>, place: &Place) {
        self.change(now, &place.group, |group| {
            group.lanes.get_mut(place.lane).insert(place.order, key)
        });
        self.len += 1;
    }

    /// Removes an item that was inserted at that place.
    pub(super) fn remove(&mut self, now: Instant, place: &Place) {
        let removed = self.change(now, &place.group, |group| {
            group.lanes.get_mut(place.lane).remove(&place.order)
        });
        self.len -= usize::from(removed.is_some());
    }

    /// When the next item can be dequeued; in the past if one can be dequeued
    /// now.
    pub(super) fn next(&self) -> Option<Instant> {
        let first = |lane| self.heads.get(lane).first().map(|(head, _)| head.due_at);
        [first(Origin::Fresh), first(Origin::Relist)]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next item.
    pub(super) fn peek(&self, now: Instant) -> Option<&Arc<str>> {
        let lane = self.choose_lane(now)?;
        let (_, group) = self.heads.get(lane).first()?;
        let group = self.groups.get(group)?;
        Some(group.lanes.get(lane).first_key_value()?.1)
    }

    /// Dequeues the next item and takes a token of its group.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Arc<str>> {
        let lane = self.choose_lane(now)?;
        let (_, group) = self.heads.get(lane).first()?;
        let group = Arc::clone(group);
        self.fresh_in_a_row = match lane {
            Origin::Fresh if self.is_ready(now, Origin::Relist) => self.fresh_in_a_row + 1,
            Origin::Fresh => self.fresh_in_a_row,
            Origin::Relist => 0,
        };
        let (_, key) = self.change(now, &group, |group| {
            group.bucket.take(now);
            group.lanes.get_mut(lane).pop_first()
        })?;
        self.len -= 1;
        Some(key)
    }

    /// Sets the rate of one group.
    pub(super) fn set_rate(&mut self, now: Instant, group: &str, rate: Rate) {
        self.change(now, &Arc::from(group), |group| {
            group.has_own_rate = true;
            group.bucket.change(now, Some(rate));
        });
    }

    /// Sets the rate of every group without a rate of its own.
    pub(super) fn set_default_rate(&mut self, now: Instant, rate: Option<Rate>) {
        if self.rate == rate {
            return;
        }
        self.rate = rate;
        let names: Vec<Arc<str>> = self.groups.keys().cloned().collect();
        for name in names {
            self.change(now, &name, |group| {
                if !group.has_own_rate {
                    group.bucket.change(now, rate);
                }
            });
        }
    }

    fn choose_lane(&self, now: Instant) -> Option<Origin> {
        let fresh = self.is_ready(now, Origin::Fresh);
        let relist = self.is_ready(now, Origin::Relist);
        let relists_turn = self.fresh_in_a_row + 1 >= RELIST_SHARE;
        match (fresh, relist) {
            (false, false) => None,
            (false, true) => Some(Origin::Relist),
            (true, true) if relists_turn => Some(Origin::Relist),
            (true, _) => Some(Origin::Fresh),
        }
    }

    /// Whether an item of a lane can be dequeued.
    pub(super) fn is_ready(&self, now: Instant, lane: Origin) -> bool {
        let head = self.heads.get(lane).first();
        head.is_some_and(|(head, _)| head.due_at <= now)
    }

    /// Changes a group and updates `heads`. A group is created with its first
    /// item or its own rate, and removed when it has no information that a new
    /// group would not have.
    fn change<R>(
        &mut self,
        now: Instant,
        name: &Arc<str>,
        change: impl FnOnce(&mut Group) -> R,
    ) -> R {
        let rate = self.rate;
        let group_bytes = &mut self.group_bytes;
        let group = self.groups.entry(Arc::clone(name)).or_insert_with(|| {
            *group_bytes += name.len();
            Group {
                lanes: Lanes::default(),
                bucket: Bucket::full(rate),
                has_own_rate: false,
            }
        });
        let before = [Origin::Fresh, Origin::Relist].map(|lane| (lane, group.head(lane)));
        let result = change(group);
        for (lane, old) in before {
            let new = group.head(lane);
            if old != new {
                let heads = self.heads.get_mut(lane);
                old.map(|head| heads.remove(&(head, Arc::clone(name))));
                new.map(|head| heads.insert((head, Arc::clone(name))));
            }
        }
        if group.bucket.is_unlimited() && group.is_blank(now) {
            self.groups.remove(name);
            self.group_bytes -= name.len();
        }
        self.sweep(now);
        result
    }

    /// Removes the groups whose buckets have filled up since they were last
    /// used. The next such pass waits until the number of groups has doubled,
    /// so that the cost for each change is constant.
    fn sweep(&mut self, now: Instant) {
        if self.groups.len() < self.sweep_at {
            return;
        }
        self.groups.retain(|_, group| !group.is_blank(now));
        self.group_bytes = self.groups.keys().map(|name| name.len()).sum();
        self.sweep_at = FIRST_SWEEP.max(self.groups.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn insert(schedule: &mut Schedule, now: Instant, group: &str, serial: u64) -> Place {
        let place = Place {
            group: Arc::from(group),
            lane: Origin::Fresh,
            order: Order {
                due_at: now,
                serial,
            },
        };
        schedule.insert(now, Arc::from(serial.to_string()), &place);
        place
    }

    #[test]
    fn a_group_without_a_limit_is_removed_with_its_last_item() {
        let mut schedule = Schedule::new(None);
        let place = insert(&mut schedule, Instant::ZERO, "zone", 1);
        assert_eq!((schedule.groups.len(), schedule.len()), (1, 1));
        schedule.remove(Instant::ZERO, &place);
        assert_eq!((schedule.groups.len(), schedule.len()), (0, 0));
        assert_eq!(schedule.next(), None);
    }

    #[test]
    fn a_limited_group_is_dropped_when_its_bucket_is_full() {
        let second = Duration::from_secs(1);
        let mut schedule = Schedule::new(Some(Rate {
            per_second: 1.0,
            burst: 1,
        }));
        let mut now = Instant::ZERO;
        let mut most = 0;
        for serial in 0..1000 {
            now = now.after(second);
            insert(&mut schedule, now, &format!("node-{serial}"), serial);
            assert!(schedule.pop(now).is_some());
            most = most.max(schedule.groups.len());
        }
        assert!(most <= FIRST_SWEEP, "{most} groups are remembered");
        assert!(schedule.groups.contains_key("node-999"), "a token is out");
    }

    #[test]
    fn a_group_keeps_a_rate_of_its_own_forever() {
        let mut schedule = Schedule::new(None);
        let stopped = Rate {
            per_second: 0.0,
            burst: 1,
        };
        schedule.set_rate(Instant::ZERO, "zone", stopped);
        for serial in 0..200 {
            insert(&mut schedule, Instant::ZERO, &format!("g{serial}"), serial);
        }
        insert(&mut schedule, Instant::ZERO, "zone", 200);
        while schedule.pop(Instant::ZERO).is_some() {}
        assert_eq!(schedule.len(), 1, "only the stopped group keeps its item");
        assert_eq!(schedule.next(), None);
    }
}
