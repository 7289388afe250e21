//! The queues as a list with linear search: slow, and simple enough to be correct.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_core::manifest::{QueueSpec, Rate, TickSpec};
use davit_core::plan::Enqueue;
use davit_core::queue::{Batch, Finish, Origin};
use davit_core::time::Instant;

pub(crate) type Serial = u64;

#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) key: String,
    pub(crate) created: Instant,
    pub(crate) due: Instant,
    serial: Serial,
    lane: Origin,
    pub(crate) group: String,
    attempt: u32,
    tick_only: bool,
    alone: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Queue {
    spec: QueueSpec,
    pub(crate) waiting: Vec<Item>,
    pub(crate) work: Vec<Item>,
    ticks: BTreeMap<String, (Duration, Option<Instant>)>,
    groups: BTreeMap<String, Group>,
    fresh_in_a_row: u32,
    turn: u64,
}

/// A bucket that is filled a nanosecond at a time: `interval` of them make a
/// token.
#[derive(Clone, Debug)]
struct Group {
    rate: Option<Rate>,
    own: bool,
    level: u128,
    /// When items passed since the rate last changed.
    passed: Vec<Instant>,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) now: Instant,
    pub(crate) queues: BTreeMap<String, Queue>,
    serial: Serial,
    turn: u64,
}

fn interval(rate: Rate) -> u128 {
    (1e9 / rate.per_second).ceil() as u128
}

impl Group {
    fn capacity(&self) -> u128 {
        self.rate
            .filter(|rate| rate.per_second > 0.0)
            .map_or(0, |rate| interval(rate) * u128::from(rate.burst))
    }

    /// How long until there is a token; none for never.
    fn token_in(&self) -> Option<Duration> {
        match self.rate {
            None => Some(Duration::ZERO),
            Some(rate) if rate.per_second == 0.0 => None,
            Some(rate) => {
                let missing = interval(rate).saturating_sub(self.level);
                Some(Duration::from_nanos(u64::try_from(missing).unwrap()))
            }
        }
    }

    fn change(&mut self, new: Option<Rate>) {
        let old = self.rate;
        if old == new {
            return;
        }
        let level = self.level;
        let stopped = old.is_some_and(|rate| rate.per_second == 0.0);
        let full = !stopped && level == self.capacity();
        self.rate = new;
        self.passed.clear();
        self.level = match (old, new) {
            _ if stopped => 0,
            (Some(old), Some(new)) if !full && new.per_second > 0.0 => {
                self.capacity().min(level * interval(new) / interval(old))
            }
            _ => self.capacity(),
        };
    }

    /// Takes a token, and checks the meaning of a rate: in no period pass more
    /// items than a burst and what the period's length allows.
    fn pass(&mut self, now: Instant) {
        let Some(rate) = self.rate else { return };
        self.level = self.level.checked_sub(interval(rate)).unwrap();
        self.passed.push(now);
        for (count, start) in (1..).zip(self.passed.iter().rev()) {
            let length = now.since(*start).as_nanos();
            let most = u128::from(rate.burst) + length / interval(rate);
            assert!(count <= most, "{count} items in {length} ns at {rate:?}");
        }
    }
}

impl Item {
    fn order(&self) -> (Instant, Serial) {
        (self.due, self.serial)
    }

    fn join(&mut self, now: Instant, other: Item) {
        if other.due < self.due && self.due > now {
            (self.due, self.serial, self.lane) = (other.due, other.serial, other.lane);
            self.attempt = self.attempt.min(8);
        } else if other.lane == Origin::Fresh && (other.due <= now || other.due == self.due) {
            self.lane = Origin::Fresh;
        }
        if !other.group.is_empty() {
            self.group = other.group;
        }
        self.tick_only = self.tick_only && other.tick_only;
    }
}

impl Queue {
    pub(crate) fn works_on(&self, key: &str) -> bool {
        self.work.iter().any(|item| item.key == key)
    }

    fn group(&mut self, name: &str) -> &mut Group {
        let rate = self.spec.rate;
        self.groups.entry(name.to_owned()).or_insert_with(|| {
            let mut group = Group {
                rate,
                own: false,
                level: 0,
                passed: Vec::new(),
            };
            group.level = group.capacity();
            group
        })
    }

    pub(crate) fn group_names(&self) -> impl Iterator<Item = &String> + Clone {
        self.groups.keys()
    }

    /// A group is created with its first item, and stays unless it has no
    /// limit.
    fn note_groups(&mut self) {
        let scheduled = self.waiting.iter().filter(|item| !self.works_on(&item.key));
        let names: BTreeSet<String> = scheduled.map(|item| item.group.clone()).collect();
        for name in &names {
            self.group(name);
        }
        self.groups
            .retain(|name, group| group.own || group.rate.is_some() || names.contains(name));
    }

    fn merge(&mut self, now: Instant, item: Item) {
        match self.waiting.iter_mut().find(|known| known.key == item.key) {
            Some(known) => known.join(now, item),
            None => self.waiting.push(item),
        }
    }

    fn remove(&mut self, key: &str) -> Option<Item> {
        let position = self.waiting.iter().position(|item| item.key == key)?;
        Some(self.waiting.remove(position))
    }

    /// When a pending item could be dequeued, regardless of workers.
    fn possible_at(&self, now: Instant, item: &Item) -> Option<Instant> {
        if self.works_on(&item.key) {
            return None;
        }
        let token_in = match self.groups.get(&item.group) {
            Some(group) => group.token_in()?,
            None if self.spec.rate.is_some_and(|rate| rate.per_second == 0.0) => return None,
            None => Duration::ZERO,
        };
        Some(item.due.max(now.after(token_in)))
    }

    fn possible(&self, now: Instant) -> Vec<&Item> {
        let items = self.waiting.iter();
        items
            .filter(|item| self.possible_at(now, item).is_some_and(|at| at <= now))
            .collect()
    }

    fn free_workers(&self) -> usize {
        (self.spec.workers as usize).saturating_sub(self.work.len())
    }

    /// Checks that this item could come next, and dequeues it.
    fn dequeue(&mut self, now: Instant, key: &str) {
        let possible = self.possible(now);
        let item = possible
            .iter()
            .find(|item| item.key == key)
            .unwrap_or_else(|| panic!("{key} cannot come now: {self:#?}"));
        let has = |lane| possible.iter().any(|item| item.lane == lane);
        let both = has(Origin::Fresh) && has(Origin::Relist);
        if both {
            let expected = match self.fresh_in_a_row {
                0..9 => Origin::Fresh,
                _ => Origin::Relist,
            };
            assert_eq!(item.lane, expected, "the lane of {key}");
        }
        for other in possible.iter().filter(|other| other.lane == item.lane) {
            let unlimited = |item: &Item| {
                let group = self.groups.get(&item.group);
                group.map_or(self.spec.rate, |group| group.rate).is_none()
            };
            if other.group == item.group || unlimited(other) && unlimited(item) {
                assert!(item.order() <= other.order(), "{other:?} before {item:?}");
            }
        }
        match item.lane {
            Origin::Fresh if both => self.fresh_in_a_row += 1,
            Origin::Fresh => {}
            Origin::Relist => self.fresh_in_a_row = 0,
        }
        let item = self.remove(key).unwrap();
        self.group(&item.group).pass(now);
        self.work.push(item);
    }

    /// Checks that a call with these items was not too small.
    fn check_size(&self, now: Instant, taken: &[Item]) {
        let ends_alone = taken.iter().any(|item| item.alone);
        assert!(!ends_alone || taken.len() == 1, "alone among others");
        let room = taken.len() < self.spec.batch as usize && self.free_workers() > 0;
        if room && !ends_alone {
            let possible = self.possible(now);
            let an_alone_one_is_next = possible.iter().any(|item| item.alone);
            assert!(possible.is_empty() || an_alone_one_is_next, "{possible:?}");
        }
    }
}

impl Model {
    pub(crate) fn new(now: Instant, specs: &[QueueSpec], ticks: &[TickSpec]) -> Self {
        let mut model = Self {
            now,
            queues: BTreeMap::new(),
            serial: 0,
            turn: 0,
        };
        model.reconfigure(specs, ticks);
        model.note_groups();
        model
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now.after(by);
        for group in self.queues.values_mut().flat_map(|q| q.groups.values_mut()) {
            group.level = group.capacity().min(group.level + by.as_nanos());
        }
    }

    pub(crate) fn reconfigure(&mut self, specs: &[QueueSpec], ticks: &[TickSpec]) {
        let now = self.now;
        self.queues
            .retain(|name, _| specs.iter().any(|spec| spec.name == *name));
        for spec in specs {
            let queue = self.queues.entry(spec.name.clone()).or_insert(Queue {
                spec: spec.clone(),
                waiting: Vec::new(),
                work: Vec::new(),
                ticks: BTreeMap::new(),
                groups: BTreeMap::new(),
                fresh_in_a_row: 0,
                turn: 0,
            });
            queue.spec = spec.clone();
            for group in queue.groups.values_mut().filter(|group| !group.own) {
                group.change(spec.rate);
            }
            let wanted = |key: &str| {
                let mut ticks = ticks.iter();
                ticks.any(|tick| tick.queue == spec.name && tick.key == key)
            };
            queue.ticks.retain(|key, _| wanted(key));
            let ticking = &queue.ticks;
            queue
                .waiting
                .retain(|item| !item.tick_only || ticking.contains_key(&item.key));
        }
        for tick in ticks {
            self.set_tick(now, tick);
        }
    }

    fn set_tick(&mut self, now: Instant, tick: &TickSpec) {
        let mut fresh = self.item(&tick.key, now, now);
        fresh.tick_only = true;
        let Some(queue) = self.queues.get_mut(&tick.queue) else {
            return;
        };
        let known = queue.ticks.get(&tick.key).copied();
        let ended = known.and_then(|(_, ended)| ended);
        queue.ticks.insert(tick.key.clone(), (tick.period, ended));
        match known {
            None => queue.merge(now, fresh),
            Some((period, _)) if period == tick.period => {}
            Some(_) => {
                let mut items = queue.waiting.iter_mut();
                let item = items.find(|item| item.key == tick.key);
                if let (Some(item), Some(ended)) = (item, ended)
                    && item.tick_only
                    && item.due > now
                {
                    item.due = ended.after(tick.period);
                    item.serial = fresh.serial;
                }
            }
        }
    }

    /// Call it after every step.
    pub(crate) fn note_groups(&mut self) {
        self.queues.values_mut().for_each(Queue::note_groups);
    }

    fn item(&mut self, key: &str, created: Instant, due: Instant) -> Item {
        self.serial += 1;
        Item {
            key: key.to_owned(),
            created,
            due,
            serial: self.serial,
            lane: Origin::Fresh,
            group: String::new(),
            attempt: 0,
            tick_only: false,
            alone: false,
        }
    }

    pub(crate) fn add(&mut self, queue: &str, key: &str, origin: Origin) -> bool {
        let mut item = self.item(key, self.now, self.now);
        item.lane = origin;
        let queue = self.queues.get_mut(queue);
        queue.map(|queue| queue.merge(self.now, item)).is_some()
    }

    pub(crate) fn enqueue(&mut self, command: &Enqueue) -> bool {
        let due = self.now.after(command.after);
        let created = command.created_at.unwrap_or(self.now);
        let mut item = self.item(&command.item.key, created, due);
        item.group.clone_from(&command.group);
        let queue = self.queues.get_mut(&command.item.queue);
        queue.map(|queue| queue.merge(self.now, item)).is_some()
    }

    pub(crate) fn cancel(&mut self, queue: &str, key: &str) -> bool {
        let now = self.now;
        let mut next = self.item(key, now, now);
        let Some(queue) = self.queues.get_mut(queue) else {
            return false;
        };
        let waited = queue.remove(key).is_some();
        if waited
            && !queue.works_on(key)
            && let Some((period, ended)) = queue.ticks.get_mut(key)
        {
            *ended = Some(now);
            next.due = now.after(*period);
            next.tick_only = true;
            queue.merge(now, next);
        }
        waited
    }

    pub(crate) fn set_rate(&mut self, queue: &str, group: &str, rate: Rate) -> bool {
        let Some(queue) = self.queues.get_mut(queue) else {
            return false;
        };
        let group = queue.group(group);
        group.own = true;
        group.change(Some(rate));
        true
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        let queues = self.queues.values();
        let free = queues.filter(|queue| queue.free_workers() > 0);
        free.flat_map(|queue| {
            let items = queue.waiting.iter();
            items.filter_map(|item| queue.possible_at(self.now, item))
        })
        .min()
    }

    /// Checks a batch against the items that could have been dequeued.
    pub(crate) fn check_taken(&mut self, batch: &Batch) {
        let able =
            |queue: &&Queue| queue.free_workers() > 0 && !queue.possible(self.now).is_empty();
        let turn = |queue: &Queue| (Reverse(queue.spec.priority), queue.turn);
        let first = self.queues.values().filter(able).map(turn).min();
        let Some(queue) = self.queues.get_mut(&batch.queue) else {
            panic!("from an unknown queue: {batch:?}");
        };
        assert_eq!(Some(turn(queue)), first, "it was another queue's turn");
        self.turn += 1;
        queue.turn = self.turn;
        assert!(!batch.items.is_empty() && batch.items.len() <= queue.spec.batch as usize);
        let begin = queue.work.len();
        for taken in &batch.items {
            assert!(queue.free_workers() > 0, "too many items for the workers");
            assert!(!queue.works_on(&taken.key), "{} twice at once", taken.key);
            queue.dequeue(self.now, &taken.key);
            let item = queue.work.last().unwrap();
            assert_eq!(
                (taken.created_at, taken.due_at, taken.attempt),
                (item.created, item.due, item.attempt),
                "{}",
                taken.key
            );
        }
        let taken = queue.work.get(begin..).unwrap();
        queue.check_size(self.now, taken);
    }

    /// Ends the reconcile of an item: returns when it is due again, if it is.
    pub(crate) fn done(&mut self, queue: &str, key: &str, finish: &Finish) -> Option<Instant> {
        let now = self.now;
        let mut next = self.item(key, now, now);
        let queue = self.queues.get_mut(queue).unwrap();
        let mut work = queue.work.iter();
        let position = work.position(|item| item.key == key).unwrap();
        let old = queue.work.remove(position);
        let mut held = queue.remove(key);
        match finish {
            _ if old.tick_only && !queue.ticks.contains_key(key) => {}
            Finish::Done => {
                queue.waiting.extend(held.take());
                if let Some((period, ended)) = queue.ticks.get_mut(key) {
                    *ended = Some(now);
                    next.due = now.after(*period);
                    next.tick_only = true;
                    queue.merge(now, next);
                }
            }
            Finish::Retry { retry_after, .. } => {
                let pause = (0..old.attempt).fold(queue.spec.retry_initial, |pause, _| pause * 2);
                let pause = pause.min(queue.spec.retry_max);
                next = Item {
                    due: now.after(pause.max(retry_after.unwrap_or_default())),
                    serial: next.serial,
                    attempt: old.attempt + 1,
                    tick_only: false,
                    ..old
                };
                queue.waiting.push(next);
            }
            Finish::RequeueAfter(pause) | Finish::Left(pause) => {
                let due = now.after(*pause);
                let Item {
                    created,
                    lane,
                    group,
                    ..
                } = old;
                next = Item {
                    created,
                    due,
                    lane,
                    group,
                    ..next
                };
                // What was enqueued meanwhile stays, if nobody has executed the plans.
                let former = held.take_if(|_| matches!(finish, Finish::Left(_)));
                queue.waiting.extend(former);
                queue.merge(now, next);
            }
            Finish::PutBack => queue.waiting.push(old),
            Finish::PutBackAlone => queue.waiting.push(Item { alone: true, ..old }),
        }
        if let Some(held) = held {
            queue.merge(now, held);
        }
        let mut items = queue.waiting.iter();
        items.find(|item| item.key == key).map(|item| item.due)
    }
}
