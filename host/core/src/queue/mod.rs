//! The queues of one controller: which key is reconciled next, and when.
//!
//! The rules follow client-go's `workqueue`:
//!
//! - A key is in a queue at most once, and is reconciled at most once at a
//!   time. If it is enqueued while it is being reconciled, it is reconciled
//!   again afterwards: no update is lost.
//! - Of two due times the earlier one applies. The creation time is that of the
//!   first enqueue and stays, across retries too, until the item is done.
//! - Within a lane, the item that was due first comes first. Fresh events
//!   overtake a re-list; while both lanes have items, one item in ten is from
//!   the re-list. A pending item that is re-listed before its time is due
//!   immediately, in the re-list lane.
//! - Each group of a queue has a token bucket: one token dequeues one item. A
//!   group that waits for a token does not delay other groups.
//! - Queues with a higher priority come first; queues with the same priority
//!   take turns.
//! - A new tick is due immediately, and then a period after it was last done
//!   (sliding, like `wait.Until`). If its key is enqueued in between, it is due
//!   earlier, and its period starts again when that run is done.
//!
//! Every method takes the present as its first argument. It must never go
//! backwards. Each method costs O(log n) of the items in the queue.

mod entry;
mod schedule;
mod single;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::entry::{EnqueueReason, Origin, PendingItem, PendingSnapshot, Source};
use self::single::Queue;
use crate::manifest::{QueueSpec, Rate, TickSpec};
use crate::plan::{Enqueue, PlanFailure, QueueKey, WorkItem};
use crate::time::Instant;

/// All queues of one controller.
#[derive(Clone, Debug)]
pub struct Queues {
    queues: BTreeMap<Arc<str>, Turn>,
    last_turn: u64,
}

/// A queue, and when an item was last dequeued from it.
#[derive(Clone, Debug)]
struct Turn {
    queue: Queue,
    turn: u64,
}

/// The items of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Their queue.
    pub queue: String,
    /// When they were dequeued.
    pub dequeued_at: Instant,
    /// At least one, in the order of the queue; exactly one if it must be alone
    /// ([`Finish::PutBackAlone`]).
    pub items: Vec<WorkItem>,
    /// What made each item due, in the same order.
    pub reasons: Vec<EnqueueReason>,
    /// How many of them are from the re-list lane.
    pub relisted: usize,
}

impl Batch {
    /// How long each item was due before it was dequeued, for
    /// `workqueue_queue_duration_seconds`.
    pub fn waited(&self) -> impl Iterator<Item = Duration> {
        let items = self.items.iter();
        items.map(|item| self.dequeued_at.since(item.due_at))
    }
}

/// What happens to an item that was dequeued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It leaves the queue, and its attempts are forgotten.
    Done,
    /// It failed and is requeued after the queue's back-off, which doubles with
    /// each attempt, with the same creation time.
    Retry {
        /// The failed plans; the first [`WorkItem::MAX_FAILURES`] are kept.
        failures: Vec<PlanFailure>,
        /// It is due no earlier than that, whatever the back-off.
        retry_after: Option<Duration>,
    },
    /// It did not fail and is requeued after that time, with the same creation
    /// time. For a tick, this replaces its period.
    RequeueAfter(Duration),
    /// Its plans were left to another revision or replica. It is requeued after that time,
    /// with the same creation time. If it was enqueued meanwhile, that item stays, as after
    /// [`Self::Done`].
    Left(Duration),
    /// It was not reconciled (its revision was replaced, or its guest's circuit
    /// is open): it returns to its former place, with its attempts. Its token
    /// is lost.
    PutBack,
    /// A call about several items failed, and this is one of them: like
    /// [`Self::PutBack`], but it is dequeued by itself until it is done or is
    /// requeued without a failure.
    PutBackAlone,
}

impl Finish {
    /// In a word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry { .. } => "retry",
            Self::RequeueAfter(_) | Self::Left(_) => "requeue",
            Self::PutBack | Self::PutBackAlone => "put-back",
        }
    }
}

/// An item after its reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedItem {
    /// How long it was reconciled, for `workqueue_work_duration_seconds`.
    pub work_duration: Duration,
    /// When it is due again, if it was requeued.
    pub due_at: Option<Instant>,
}

/// The state of one queue, for client-go's metrics `workqueue_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its name.
    pub queue: String,
    /// Items that are due and not being reconciled: `depth`.
    pub depth: usize,
    /// Items that are not due yet. client-go does not count them.
    pub delayed: usize,
    /// Items that are being reconciled.
    pub processing: usize,
    /// How often an item became due: `adds_total`.
    pub adds: u64,
    /// How often an item was enqueued for later, by a retry, a requeue-after or
    /// an enqueue: `retries_total`, which in client-go counts every `AddAfter`.
    pub retries: u64,
    /// The sum of the times for which items have been reconciled so far:
    /// `unfinished_work_seconds`.
    pub unfinished_work: Duration,
    /// The longest of these: `longest_running_processor_seconds`.
    pub longest_running: Duration,
}

/// The pending items of a revision's queues, and the rates that it had set.
#[derive(Clone, Debug)]
pub struct QueueState {
    pending: PendingSnapshot,
    /// Queue, group and rate.
    rates: Vec<(Arc<str>, Arc<str>, Rate)>,
}

/// What the host keeps for queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueUsage {
    /// Items, pending or being reconciled. An item that is enqueued again while it is
    /// being reconciled counts twice.
    pub items: usize,
    /// Bytes of their keys, their groups and the failures of their last attempts.
    pub bytes: usize,
    /// Groups with a rate or with items.
    pub groups: usize,
    /// Bytes of the names of the groups.
    pub group_bytes: usize,
}

/// Why a queue refused a call.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QueueError {
    /// The manifest declares no such queue.
    #[error("the controller declares no queue \"{queue}\": declare it in the manifest")]
    Undeclared {
        /// The name.
        queue: String,
    },
    /// A rate that no bucket can apply.
    #[error(
        "{per_second} a second with a burst of {burst} is not a rate for the group \"{group}\" of the \
         queue \"{queue}\": it must be 0, or finite and positive with a burst of 1 or more"
    )]
    Rate {
        /// The queue.
        queue: String,
        /// The group.
        group: String,
        /// The rate.
        per_second: f64,
        /// The burst.
        burst: u32,
    },
}

impl Queues {
    /// The queues as a (valid) manifest declares them, with every tick due.
    #[must_use]
    pub fn new(now: Instant, queues: &[QueueSpec], ticks: &[TickSpec]) -> Self {
        let mut new = Self {
            queues: BTreeMap::new(),
            last_turn: 0,
        };
        new.reconfigure(now, queues, ticks);
        new
    }

    /// Applies the declarations of another revision of the guest. A queue that
    /// still exists keeps its items with all their times and attempts, the
    /// items that are being reconciled, and the rates that were set for its
    /// groups; only [`QueueSpec::rate`] changes, for the groups without a rate
    /// of their own. Ticks that stay keep their times. A tick whose period
    /// changed is moved, counted from when it was last done, if nothing else
    /// enqueued it.
    ///
    /// Returns the items of the queues that are gone, pending or being
    /// reconciled: they are not reconciled again.
    pub fn reconfigure(
        &mut self,
        now: Instant,
        queues: &[QueueSpec],
        ticks: &[TickSpec],
    ) -> Vec<QueueKey> {
        let (kept, gone) = std::mem::take(&mut self.queues)
            .into_iter()
            .partition::<BTreeMap<_, _>, _>(|(name, _)| {
                queues.iter().any(|spec| *spec.name == **name)
            });
        self.queues = kept;
        for spec in queues {
            if let Some(known) = self.queues.get_mut(spec.name.as_str()) {
                known.queue.set_spec(now, spec.clone());
            } else {
                let queue = Queue::new(spec.clone());
                let name = Arc::from(spec.name.as_str());
                self.queues.insert(name, Turn { queue, turn: 0 });
            }
        }
        for (name, Turn { queue, .. }) in &mut self.queues {
            let periods = ticks.iter().filter(|tick| *tick.queue == **name);
            let periods = periods.map(|tick| (tick.key.as_str(), tick.period));
            queue.set_ticks(now, &periods.collect());
        }
        gone.into_iter().flat_map(queue_keys).collect()
    }

    /// What a revision leaves behind that another one replaces. Costs a reference count
    /// for each queue, and a copy of the rates that were set.
    #[must_use]
    pub fn state(&self) -> QueueState {
        let queues = self.queues.iter();
        let rates = queues.flat_map(|(name, Turn { queue, .. })| {
            let rates = queue.own_rates();
            rates.map(move |(group, rate)| (Arc::clone(name), Arc::clone(group), rate))
        });
        QueueState {
            pending: self.pending(),
            rates: rates.collect(),
        }
    }

    /// The queues of a revision that returns, beside these of the one that it replaces:
    /// with the rates that it had set, and with its items that are pending or being
    /// reconciled still, each at its former time. Every tick is due.
    #[must_use]
    pub fn returned(
        &self,
        now: Instant,
        queues: &[QueueSpec],
        ticks: &[TickSpec],
        state: &QueueState,
    ) -> Self {
        let mut new = Self::new(now, queues, ticks);
        for (name, group, rate) in &state.rates {
            if let Some(known) = new.queues.get_mut(name) {
                known.queue.set_rate(now, group, *rate);
            }
        }
        for (name, entries) in state.pending.queues.iter() {
            if let (Some(new), Some(old)) = (new.queues.get_mut(name), self.queues.get(name)) {
                new.queue.take_over(now, entries, &old.queue);
            }
        }
        new
    }

    /// An item is being reconciled whose queue was gone for a while: it is not
    /// dequeued until [`Self::done`] ends that. Nothing happens if its queue is
    /// not declared, or knows already that the item is being reconciled.
    pub fn resume(&mut self, now: Instant, item: &QueueKey) {
        if let Some(known) = self.queues.get_mut(item.queue.as_str()) {
            known.queue.resume(now, &item.key);
        }
    }

    /// A copy of the queues for another revision. Items that are being
    /// reconciled are pending in the copy.
    #[must_use]
    pub fn fork(&self, now: Instant) -> Self {
        let mut fork = self.clone();
        for Turn { queue, .. } in fork.queues.values_mut() {
            queue.put_back_all(now);
        }
        fork
    }

    /// Enqueues an item, due now.
    pub fn add(
        &mut self,
        now: Instant,
        queue: &str,
        key: &str,
        source: impl Into<Source>,
    ) -> Result<(), QueueError> {
        self.queue(queue)?.add(now, key, source.into());
        Ok(())
    }

    /// Makes pending items due, the oldest first, in the re-list lane. Their creation times
    /// and their groups stay.
    pub fn hasten(&mut self, now: Instant, mut items: Vec<QueueKey>) {
        items.sort_by_cached_key(|item| {
            let known = self.queues.get(&*item.queue);
            known.and_then(|known| known.queue.created_at(&item.key))
        });
        for item in items {
            if let Some(known) = self.queues.get_mut(&*item.queue) {
                known.queue.hasten(now, &item.key);
            }
        }
    }

    /// Enqueues an item that is due after a while. If it is pending already,
    /// the earlier of the two times applies, its creation time stays, and its
    /// group changes if the command names one.
    pub fn enqueue(&mut self, now: Instant, enqueue: &Enqueue) -> Result<(), QueueError> {
        let QueueKey { queue, key } = &enqueue.item;
        self.queue(queue)?
            .enqueue(now, key, enqueue.after, enqueue.created_at, &enqueue.group);
        Ok(())
    }

    /// Removes a pending item, due or not, and returns whether there was one.
    /// An item that is being reconciled is pending only if it was enqueued
    /// again: then that is undone. A tick that is cancelled skips this run and
    /// is due a period from now.
    pub fn cancel(&mut self, now: Instant, queue: &str, key: &str) -> bool {
        let queue = self.queues.get_mut(queue);
        queue.is_some_and(|known| known.queue.cancel(now, key))
    }

    /// Sets the rate of a queue's group. A rate of 0 stops the group. The group
    /// keeps its tokens, so that a change of rate gives no fresh burst to a
    /// group that has spent its own, and a group that leaves 0 starts without a
    /// token. The same rate again changes nothing.
    pub fn set_rate(
        &mut self,
        now: Instant,
        queue: &str,
        group: &str,
        rate: Rate,
    ) -> Result<(), QueueError> {
        let Rate { per_second, burst } = rate;
        let known = self.queue(queue)?;
        if !rate.is_valid() && per_second != 0.0 {
            return Err(QueueError::Rate {
                queue: queue.to_owned(),
                group: group.to_owned(),
                per_second,
                burst,
            });
        }
        known.set_rate(now, group, rate);
        Ok(())
    }

    /// What the host keeps for all of them. Costs a few additions for each queue.
    #[must_use]
    pub fn usage(&self) -> QueueUsage {
        let queues = self.queues.values().map(|known| known.queue.usage());
        queues.fold(QueueUsage::default(), |sum, one| QueueUsage {
            items: sum.items + one.items,
            bytes: sum.bytes + one.bytes,
            groups: sum.groups + one.groups,
            group_bytes: sum.group_bytes + one.group_bytes,
        })
    }

    /// Whether an item is pending.
    #[must_use]
    pub fn is_pending(&self, item: &QueueKey) -> bool {
        let queue = self.queues.get(item.queue.as_str());
        queue.is_some_and(|known| known.queue.waiting().contains_key(item.key.as_str()))
    }

    /// Whether a queue has a group of that name.
    #[must_use]
    pub fn has_group(&self, queue: &str, group: &str) -> bool {
        let queue = self.queues.get(queue);
        queue.is_some_and(|known| known.queue.has_group(group))
    }

    /// The pending items. Costs a reference count for each queue.
    #[must_use]
    pub fn pending(&self) -> PendingSnapshot {
        let queues = self.queues.iter();
        let waiting = |(name, Turn { queue, .. }): (&Arc<str>, &Turn)| {
            (Arc::clone(name), queue.waiting().clone())
        };
        PendingSnapshot {
            queues: Arc::new(queues.map(waiting).collect()),
        }
    }

    /// Dequeues the items of the next call. Each must return through
    /// [`Self::done`].
    pub fn dequeue(&mut self, now: Instant) -> Option<Batch> {
        let ready = self.queues.iter_mut().filter(|(_, known)| {
            let next = known.queue.next();
            next.is_some_and(|next| next <= now)
        });
        let (name, known) =
            ready.min_by_key(|(_, known)| (Reverse(known.queue.priority()), known.turn))?;
        self.last_turn += 1;
        known.turn = self.last_turn;
        let dequeued = known.queue.dequeue(now);
        Some(Batch {
            queue: name.to_string(),
            dequeued_at: now,
            items: dequeued.items,
            reasons: dequeued.reasons,
            relisted: dequeued.relisted,
        })
    }

    /// Ends the reconcile of an item. If it was enqueued again meanwhile, or
    /// `finish` requeues it, it is due at the earlier of the two times. None if
    /// the item was not dequeued, or its queue is gone.
    pub fn done(
        &mut self,
        now: Instant,
        queue: &str,
        key: &str,
        finish: Finish,
    ) -> Option<FinishedItem> {
        let known = self.queues.get_mut(queue)?;
        known.queue.done(now, key, finish)
    }

    /// The first moment, not before `now`, at which [`Self::dequeue`] returns
    /// an item; none if it returns nothing until an item is enqueued or put
    /// back, or a rate is set.
    #[must_use]
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let queues = self.queues.values();
        let next = queues.filter_map(|known| known.queue.next()).min()?;
        Some(next.max(now))
    }

    /// Whether an item of a list could be dequeued if a worker is free: it is
    /// due, and its group has a token.
    #[must_use]
    pub fn has_relisted(&self, now: Instant) -> bool {
        let mut queues = self.queues.values();
        queues.any(|known| known.queue.is_ready(now, Origin::Relist))
    }

    /// The state of every queue, in the order of their names.
    pub fn stats(&mut self, now: Instant) -> Vec<QueueStats> {
        let queues = self.queues.values_mut();
        queues.map(|known| known.queue.stats(now)).collect()
    }

    fn queue(&mut self, name: &str) -> Result<&mut Queue, QueueError> {
        match self.queues.get_mut(name) {
            Some(known) => Ok(&mut known.queue),
            None => Err(QueueError::Undeclared {
                queue: name.to_owned(),
            }),
        }
    }
}

fn queue_keys((name, Turn { queue, .. }): (Arc<str>, Turn)) -> Vec<QueueKey> {
    let keys = queue.into_keys().into_iter();
    keys.map(|key| QueueKey {
        queue: name.to_string(),
        key: key.to_string(),
    })
    .collect()
}
