//! One queue: which items are pending, which are being reconciled, and what
//! happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::entry::{EnqueueReason, Entries, Entry, Order, Origin, Place, Source};
use super::schedule::Schedule;
use super::{Finish, FinishedItem, QueueStats, QueueUsage};
use crate::manifest::{QueueSpec, Rate};
use crate::plan::{PlanFailure, WorkItem};
use crate::time::Instant;

/// One queue. A key is in at most one of these states: pending (in `waiting`
/// and `schedule`), being reconciled (in `work`), or being reconciled and
/// enqueued again (in `work` and `waiting`, not in `schedule`).
#[derive(Clone, Debug)]
pub(super) struct Queue {
    spec: QueueSpec,
    waiting: Entries,
    work: BTreeMap<Arc<str>, ProcessingItem>,
    schedule: Schedule,
    /// The scheduled items that were not due yet at the last pass.
    upcoming: BTreeSet<Order>,
    ticks: BTreeMap<Arc<str>, Tick>,
    /// The bytes of the items in `waiting` and `work`.
    bytes: usize,
    last_serial: u64,
    adds: u64,
    retries: u64,
}

/// An item that was dequeued.
#[derive(Clone, Debug)]
struct ProcessingItem {
    started: Instant,
    entry: Entry,
}

/// The items of one call.
#[derive(Debug, Default)]
pub(super) struct DequeuedItems {
    pub(super) items: Vec<WorkItem>,
    /// What made each of them due.
    pub(super) reasons: Vec<EnqueueReason>,
    /// How many of them are from the re-list lane.
    pub(super) relisted: usize,
}

#[derive(Clone, Debug)]
struct Tick {
    period: Duration,
    /// When it was last done. The period counts from then.
    ended: Option<Instant>,
}

impl Queue {
    pub(super) fn new(spec: QueueSpec) -> Self {
        Self {
            schedule: Schedule::new(spec.rate),
            spec,
            waiting: Entries::new(),
            work: BTreeMap::new(),
            upcoming: BTreeSet::new(),
            ticks: BTreeMap::new(),
            bytes: 0,
            last_serial: 0,
            adds: 0,
            retries: 0,
        }
    }

    pub(super) const fn priority(&self) -> i32 {
        self.spec.priority
    }

    pub(super) const fn waiting(&self) -> &Entries {
        &self.waiting
    }

    /// What the host keeps for it.
    pub(super) fn usage(&self) -> QueueUsage {
        QueueUsage {
            items: self.waiting.len() + self.work.len(),
            bytes: self.bytes,
            groups: self.schedule.groups(),
            group_bytes: self.schedule.group_bytes(),
        }
    }

    /// Whether it has a group of that name.
    pub(super) fn has_group(&self, group: &str) -> bool {
        self.schedule.has_group(group)
    }

    /// The groups whose rate was set by a command, with their rates.
    pub(super) fn own_rates(&self) -> impl Iterator<Item = (&Arc<str>, Rate)> {
        self.schedule.own_rates()
    }

    /// Enqueues former items, each at its former time, as far as another queue still has
    /// the same item: its creation time is the same.
    pub(super) fn take_over(&mut self, now: Instant, items: &Entries, from: &Self) {
        for (key, entry) in items {
            let is_same = from.created_at(key) == Some(entry.created_at);
            if is_same && !entry.armed {
                let Place { lane, group, order } = entry.place.clone();
                let place = self.place(order.due_at, lane, group);
                let entry = Entry {
                    place,
                    ..entry.clone()
                };
                self.request(now, key, entry);
            }
        }
    }

    pub(super) fn created_at(&self, key: &str) -> Option<Instant> {
        let processing = self.work.get(key).map(|work| &work.entry);
        let entry = processing.or_else(|| self.waiting.get(key));
        entry.map(|entry| entry.created_at)
    }

    /// Every key that is pending or being reconciled.
    pub(super) fn into_keys(self) -> BTreeSet<Arc<str>> {
        let processing = self.work.into_keys();
        processing.chain(self.waiting.keys().cloned()).collect()
    }

    /// When a worker could dequeue an item; none if there is no item or all
    /// workers are busy.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.free_workers() == 0 {
            return None;
        }
        self.schedule.next()
    }

    pub(super) fn set_spec(&mut self, now: Instant, spec: QueueSpec) {
        self.schedule.set_default_rate(now, spec.rate);
        self.spec = spec;
    }

    pub(super) fn set_rate(&mut self, now: Instant, group: &str, rate: Rate) {
        self.schedule.set_rate(now, group, rate);
    }

    /// Replaces the ticks. A new tick is due immediately. The item of a tick
    /// that is gone is removed, unless something else enqueued its key too. A
    /// tick whose period changed is moved to its new time, unless something
    /// else enqueued it.
    pub(super) fn set_ticks(&mut self, now: Instant, periods: &BTreeMap<&str, Duration>) {
        for key in self.ticks.keys().cloned().collect::<Vec<_>>() {
            if !periods.contains_key(&*key) {
                self.ticks.remove(&key);
                if self.waiting.get(&*key).is_some_and(|entry| entry.armed) {
                    self.take_out(now, &key);
                }
            }
        }
        for (&key, &period) in periods {
            self.set_tick(now, key, period);
        }
    }

    fn set_tick(&mut self, now: Instant, key: &str, period: Duration) {
        let Some(tick) = self.ticks.get_mut(key) else {
            let ended = None;
            self.ticks.insert(Arc::from(key), Tick { period, ended });
            let entry = self.armed(now, now);
            return self.request(now, key, entry);
        };
        if tick.period == period {
            return;
        }
        tick.period = period;
        let ended = tick.ended;
        let Some(entry) = self.waiting.get(key) else {
            return;
        };
        if let Some(ended) = ended
            && entry.armed
            && entry.place.order.due_at > now
        {
            self.take_out(now, key);
            let entry = self.armed(ended, ended.after(period));
            self.request(now, key, entry);
        }
    }

    pub(super) fn add(&mut self, now: Instant, key: &str, source: Source) {
        let Source { origin, reason } = source;
        let place = self.place(now, origin, Arc::default());
        self.request(now, key, Entry::new(place, reason, now));
    }

    pub(super) fn hasten(&mut self, now: Instant, key: &str) {
        if self.waiting.contains_key(key) {
            let source = Source {
                origin: Origin::Relist,
                reason: EnqueueReason::Resync,
            };
            self.add(now, key, source);
        }
    }

    pub(super) fn enqueue(
        &mut self,
        now: Instant,
        key: &str,
        after: Duration,
        created_at: Option<Instant>,
        group: &str,
    ) {
        self.retries += 1;
        let place = self.place(now.after(after), Origin::Fresh, Arc::from(group));
        let created_at = created_at.unwrap_or(now);
        self.request(
            now,
            key,
            Entry::new(place, EnqueueReason::Command, created_at),
        );
    }

    /// Removes a pending item. A tick skips a run.
    pub(super) fn cancel(&mut self, now: Instant, key: &str) -> bool {
        let waited = self.take_out(now, key).is_some();
        if waited && !self.work.contains_key(key) {
            let armed = self.rearm(now, key);
            if let Some(entry) = armed {
                self.request(now, key, entry);
            }
        }
        waited
    }

    /// Whether an item of a lane could be dequeued if a worker is free.
    pub(super) fn is_ready(&self, now: Instant, lane: Origin) -> bool {
        self.schedule.is_ready(now, lane)
    }

    /// The next items for one call.
    pub(super) fn dequeue(&mut self, now: Instant) -> DequeuedItems {
        self.pass(now);
        let most = self.free_workers().min(self.spec.batch as usize);
        let mut dequeued = DequeuedItems::default();
        while dequeued.items.len() < most
            && let Some(next) = self.schedule.peek(now)
        {
            let alone = self.waiting.get(next).is_some_and(|entry| entry.alone);
            if alone && !dequeued.items.is_empty() {
                break;
            }
            if !self.dequeue_one(now, &mut dequeued) || alone {
                break;
            }
        }
        dequeued
    }

    /// Ends the reconcile of an item; none if it was not dequeued.
    pub(super) fn done(&mut self, now: Instant, key: &str, finish: Finish) -> Option<FinishedItem> {
        let (key, ProcessingItem { started, entry }) = self.work.remove_entry(key)?;
        self.bytes -= entry.bytes(&key);
        let held = self.forget(&key);
        let yields = matches!(finish, Finish::Done | Finish::Left(_));
        let again = self.again(now, &key, entry, finish);
        // An item that is requeued by its verdict is still the same item. The next run of a
        // tick, and an item that nobody has executed, join what was enqueued meanwhile.
        let (item, wish) = if yields { (held, again) } else { (again, held) };
        let next = match (item, wish) {
            (Some(mut item), Some(wish)) => {
                item.join(now, &wish);
                Some(item)
            }
            (item, wish) => item.or(wish),
        };
        let due_at = next.as_ref().map(|entry| entry.place.order.due_at);
        if let Some(entry) = next {
            self.put(now, key, entry, None);
        }
        Some(FinishedItem {
            work_duration: now.since(started),
            due_at,
        })
    }

    /// An item is being reconciled that was not dequeued here. If it is pending, it
    /// is reconciled again afterwards.
    pub(super) fn resume(&mut self, now: Instant, key: &str) {
        if self.work.contains_key(key) {
            return;
        }
        let pending = self.take_out(now, key);
        let place = self.place(now, Origin::Fresh, Arc::default());
        let resumed = ProcessingItem {
            started: now,
            entry: Entry::new(place, EnqueueReason::Resync, now),
        };
        let key: Arc<str> = Arc::from(key);
        self.bytes += resumed.entry.bytes(&key);
        self.work.insert(Arc::clone(&key), resumed);
        if let Some(entry) = pending {
            self.remember(key, entry);
        }
    }

    /// Every item that is being reconciled becomes pending again.
    pub(super) fn put_back_all(&mut self, now: Instant) {
        for key in self.work.keys().cloned().collect::<Vec<_>>() {
            self.done(now, &key, Finish::PutBack);
        }
    }

    pub(super) fn stats(&mut self, now: Instant) -> QueueStats {
        self.pass(now);
        let running = || self.work.values().map(|work| now.since(work.started));
        QueueStats {
            queue: self.spec.name.clone(),
            depth: self.schedule.len() - self.upcoming.len(),
            delayed: self.upcoming.len(),
            processing: self.work.len(),
            adds: self.adds,
            retries: self.retries,
            unfinished_work: running().sum(),
            longest_running: running().max().unwrap_or_default(),
        }
    }

    fn free_workers(&self) -> usize {
        (self.spec.workers as usize).saturating_sub(self.work.len())
    }

    /// Dequeues the next item; false if there is none.
    fn dequeue_one(&mut self, now: Instant, dequeued: &mut DequeuedItems) -> bool {
        let Some(key) = self.schedule.pop(now) else {
            return false;
        };
        let Some(entry) = self.waiting.remove(&*key) else {
            return false;
        };
        dequeued.reasons.push(entry.reason.clone());
        dequeued.relisted += usize::from(entry.place.lane == Origin::Relist);
        dequeued.items.push(WorkItem {
            queue: self.spec.name.clone(),
            key: key.to_string(),
            attempt: entry.attempt,
            created_at: entry.created_at,
            due_at: entry.place.order.due_at,
            failures: entry.failures.to_vec(),
            cursor: String::new(),
        });
        let started = now;
        self.work.insert(key, ProcessingItem { started, entry });
        true
    }

    /// The item as its verdict alone requeues it. None for a tick that is gone
    /// meanwhile.
    fn again(&mut self, now: Instant, key: &str, entry: Entry, finish: Finish) -> Option<Entry> {
        if entry.armed && !self.ticks.contains_key(key) {
            return None;
        }
        match finish {
            Finish::Done => self.rearm(now, key),
            Finish::PutBack => Some(entry),
            Finish::PutBackAlone => Some(Entry {
                alone: true,
                ..entry
            }),
            Finish::RequeueAfter(pause) | Finish::Left(pause) => {
                self.retries += 1;
                let Place { lane, group, .. } = entry.place;
                let place = self.place(now.after(pause), lane, group);
                let reason = EnqueueReason::Requeue;
                Some(Entry::new(place, reason, entry.created_at))
            }
            Finish::Retry {
                mut failures,
                retry_after,
            } => {
                self.retries += 1;
                failures.truncate(WorkItem::MAX_FAILURES);
                let pause = self
                    .back_off(entry.attempt)
                    .max(retry_after.unwrap_or_default());
                Some(self.retry(now.after(pause), entry, failures))
            }
        }
    }

    fn retry(&mut self, due_at: Instant, entry: Entry, failures: Vec<PlanFailure>) -> Entry {
        let Place { lane, group, .. } = entry.place;
        Entry {
            place: self.place(due_at, lane, group),
            reason: EnqueueReason::Retry,
            created_at: entry.created_at,
            attempt: entry.attempt.saturating_add(1),
            failures: failures.into(),
            armed: false,
            alone: entry.alone,
        }
    }

    /// `retry_initial`, doubled for each failure before this one.
    fn back_off(&self, attempt: u32) -> Duration {
        let factor = 2_u32.checked_pow(attempt).unwrap_or(u32::MAX);
        let pause = self.spec.retry_initial.saturating_mul(factor);
        pause.min(self.spec.retry_max)
    }

    /// The next run of a tick that ended now; none if the key is not a tick.
    fn rearm(&mut self, now: Instant, key: &str) -> Option<Entry> {
        let tick = self.ticks.get_mut(key)?;
        tick.ended = Some(now);
        let due_at = now.after(tick.period);
        Some(self.armed(now, due_at))
    }

    fn armed(&mut self, created_at: Instant, due_at: Instant) -> Entry {
        let place = self.place(due_at, Origin::Fresh, Arc::default());
        Entry {
            armed: true,
            ..Entry::new(place, EnqueueReason::Tick, created_at)
        }
    }

    fn place(&mut self, due_at: Instant, lane: Origin, group: Arc<str>) -> Place {
        self.last_serial += 1;
        let order = Order {
            due_at,
            serial: self.last_serial,
        };
        Place { group, lane, order }
    }

    /// Enqueues an item, or joins it with the pending one of its key.
    fn request(&mut self, now: Instant, key: &str, wish: Entry) {
        let Some((key, entry)) = self.waiting.get_key_value(key) else {
            return self.put(now, Arc::from(key), wish, None);
        };
        let mut joined = entry.clone();
        if joined.join(now, &wish) {
            let (key, before) = (Arc::clone(key), entry.place.clone());
            self.put(now, key, joined, Some(&before));
        }
    }

    /// Stores an item, and schedules it unless its key is being reconciled.
    fn put(&mut self, now: Instant, key: Arc<str>, entry: Entry, before: Option<&Place>) {
        if !self.work.contains_key(&key) && before != Some(&entry.place) {
            let was_due = before.is_some_and(|before| self.unschedule(now, before));
            if entry.place.order.due_at > now {
                self.upcoming.insert(entry.place.order);
            } else if !was_due {
                self.adds += 1;
            }
            self.schedule.insert(now, Arc::clone(&key), &entry.place);
        }
        self.remember(key, entry);
    }

    fn remember(&mut self, key: Arc<str>, entry: Entry) {
        let key_bytes = key.len();
        self.bytes += entry.bytes(&key);
        if let Some(before) = self.waiting.insert(key, entry) {
            self.bytes -= key_bytes + before.bytes("");
        }
    }

    fn forget(&mut self, key: &str) -> Option<Entry> {
        let entry = self.waiting.remove(key)?;
        self.bytes -= entry.bytes(key);
        Some(entry)
    }

    fn take_out(&mut self, now: Instant, key: &str) -> Option<Entry> {
        let entry = self.forget(key)?;
        if !self.work.contains_key(key) {
            self.unschedule(now, &entry.place);
        }
        Some(entry)
    }

    /// Removes an item from the schedule and returns whether it was due.
    fn unschedule(&mut self, now: Instant, place: &Place) -> bool {
        self.pass(now);
        self.schedule.remove(now, place);
        !self.upcoming.remove(&place.order)
    }

    /// Counts the items that became due.
    fn pass(&mut self, now: Instant) {
        while let Some(first) = self.upcoming.first()
            && first.due_at <= now
        {
            self.upcoming.pop_first();
            self.adds += 1;
        }
    }
}
