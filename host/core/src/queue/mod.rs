//! The queues of one controller: which key is looked at next, and when.
//!
//! The rules, after client-go's `workqueue`:
//!
//! - A key waits at most once in a queue, and is worked on at most once at a
//!   time. Added again while it is worked on, it comes again afterwards: no
//!   update is lost.
//! - Of two due times the earlier one wins. The creation time is that of the
//!   first addition and stays, over retries too, until the item is done.
//! - Within a lane, what was due first comes first. Fresh events overtake a
//!   re-list; while both have something to give, one item in ten is from the
//!   re-list. An item that waits for a time to come and is re-listed becomes
//!   due at once, in the re-list lane.
//! - Each group of a queue has a token bucket: a token lets one item through.
//!   A group that has to wait for a token is no obstacle to other groups.
//! - Queues of a higher priority go first; queues of the same take turns.
//! - A tick comes at once when it is new, and a period after it was last done
//!   (sliding, like `wait.Until`). Something that asks for its key in between
//!   makes it come earlier, and its period starts anew when that run is done.
//!
//! Every method takes the present as its first argument. It must never go
//! backwards. Each costs O(log n) of the items in the queue.

mod entry;
mod schedule;
mod single;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::entry::{Origin, PendingItem, PendingSnapshot};
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

/// A queue, and when it last gave something.
#[derive(Clone, Debug)]
struct Turn {
    queue: Queue,
    turn: u64,
}

/// The items of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The queue they all come from.
    pub queue: String,
    /// When they were handed out.
    pub dequeued_at: Instant,
    /// At least one, in the order in which they came; just one if that one is
    /// to be alone ([`Finish::PutBackAlone`]).
    pub items: Vec<WorkItem>,
    /// How many of them are from the re-list lane.
    pub relisted: usize,
}

impl Batch {
    /// How long each item waited after it had become due, for
    /// `workqueue_queue_duration_seconds`.
    pub fn waited(&self) -> impl Iterator<Item = Duration> {
        let items = self.items.iter();
        items.map(|item| self.dequeued_at.since(item.due_at))
    }
}

/// What becomes of an item that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing, until it is added again. Its attempts are forgotten.
    Done,
    /// It failed and comes again after the queue's back-off, which doubles
    /// with each attempt, with the same creation time.
    Retry {
        /// The plans that failed; the first [`WorkItem::MAX_FAILURES`] are
        /// kept.
        failures: Vec<PlanFailure>,
        /// It comes no earlier than that, whatever the back-off.
        retry_after: Option<Duration>,
    },
    /// It did not fail and comes again after that time, with the same
    /// creation time. Also for a tick, in place of its period.
    RequeueAfter(Duration),
    /// Nobody looked at it (its guest was swapped or quarantined meanwhile):
    /// it goes back to where it was taken from, attempts and all. A token that
    /// it cost is not given back.
    PutBack,
    /// A call about several items failed, and this is one of them: like
    /// [`Self::PutBack`], and from now on until it is done, or comes again
    /// without having failed, it is handed out by itself.
    PutBackAlone,
}

/// An item that is no longer worked on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedItem {
    /// How long it was worked on, for `workqueue_work_duration_seconds`.
    pub work_duration: Duration,
    /// When it comes again, if it does.
    pub due_at: Option<Instant>,
}

/// The state of one queue, for client-go's metrics `workqueue_*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// Its name.
    pub queue: String,
    /// Items that are due, without those that are worked on: `depth`.
    pub depth: usize,
    /// Items whose time has not come. client-go does not count them.
    pub delayed: usize,
    /// Items that are worked on.
    pub processing: usize,
    /// How often an item became due: `adds_total`.
    pub adds: u64,
    /// How often an item was to come later, by a retry, a requeue-after or an
    /// enqueue: `retries_total`, which in client-go counts every `AddAfter`.
    pub retries: u64,
    /// How long all items that are worked on have been so, together:
    /// `unfinished_work_seconds`.
    pub unfinished_work: Duration,
    /// The longest of these: `longest_running_processor_seconds`.
    pub longest_running: Duration,
}

/// What cannot be done with a queue.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum QueueError {
    /// The manifest declares no such queue.
    #[error("the controller declares no queue \"{queue}\": declare it in the manifest")]
    Undeclared {
        /// The name asked for.
        queue: String,
    },
    /// A rate that cannot be put into practice.
    #[error(
        "{per_second} a second with a burst of {burst} is no rate for the group \"{group}\" of the \
         queue \"{queue}\": it must be 0, or finite and positive with a burst of 1 or more"
    )]
    Rate {
        /// The queue.
        queue: String,
        /// The group.
        group: String,
        /// What was asked for.
        per_second: f64,
        /// What was asked for.
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

    /// Takes on what another revision of the guest declares. A queue that
    /// still exists keeps its items with all their times and attempts, what is
    /// worked on, and the rates that were set for its groups; only
    /// [`QueueSpec::rate`] changes, for the groups without their own. Ticks
    /// that stay keep their times; one whose period changed is moved, counted
    /// from when it was last done, if nothing else asked for it.
    ///
    /// Returns the items of the queues that are gone, waiting or worked on:
    /// nobody will look at them again.
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

    /// The same queues once more, for another revision. What is worked on
    /// waits in them, as if nobody had looked at it.
    #[must_use]
    pub fn fork(&self, now: Instant) -> Self {
        let mut fork = self.clone();
        for Turn { queue, .. } in fork.queues.values_mut() {
            queue.put_back_all(now);
        }
        fork
    }

    /// Adds an item, due now.
    pub fn add(
        &mut self,
        now: Instant,
        queue: &str,
        key: &str,
        origin: Origin,
    ) -> Result<(), QueueError> {
        self.queue(queue)?.add(now, key, origin);
        Ok(())
    }

    /// Makes an item due that waits, if there is one, in the re-list lane. Its
    /// creation time and its group stay.
    pub fn hasten(&mut self, now: Instant, queue: &str, key: &str) {
        if let Some(known) = self.queues.get_mut(queue) {
            known.queue.hasten(now, key);
        }
    }

    /// Adds an item that is due after a while. If it waits already, the
    /// earlier time of the two holds, its creation time stays, and its group
    /// changes if the command names one.
    pub fn enqueue(&mut self, now: Instant, enqueue: &Enqueue) -> Result<(), QueueError> {
        let QueueKey { queue, key } = &enqueue.item;
        self.queue(queue)?
            .enqueue(now, key, enqueue.after, enqueue.created_at, &enqueue.group);
        Ok(())
    }

    /// Takes an item out that waits, due or not, and says whether there was
    /// one. An item that is worked on does not wait, unless it was added again:
    /// then that addition is taken back. A tick that is cancelled skips this
    /// run and comes a period from now.
    pub fn cancel(&mut self, now: Instant, queue: &str, key: &str) -> bool {
        let queue = self.queues.get_mut(queue);
        queue.is_some_and(|known| known.queue.cancel(now, key))
    }

    /// Sets the rate of a queue's group. A rate of 0 lets nothing through.
    /// The tokens that the group has are carried over, so that no change of
    /// rate gives a fresh burst to a group that has used its own up, and
    /// leaving 0 starts without a token. The same rate again changes nothing.
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

    /// What waits right now. Costs a reference count for each queue.
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

    /// Hands out the items of the next call. Each must come back through
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
        let (items, relisted) = known.queue.dequeue(now);
        Some(Batch {
            queue: name.to_string(),
            dequeued_at: now,
            items,
            relisted,
        })
    }

    /// Takes back an item that was handed out. If it was added again
    /// meanwhile, or is to come again by `finish`, it comes at the earlier
    /// time of the two. None if the item was not handed out, or its queue is
    /// gone.
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

    /// The first moment, not before `now`, at which [`Self::dequeue`] gives
    /// something; none if it gives nothing until an item is added, taken back
    /// or a rate is set.
    #[must_use]
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        let queues = self.queues.values();
        let next = queues.filter_map(|known| known.queue.next()).min()?;
        Some(next.max(now))
    }

    /// Whether something of a list waits that could be handed out, if a worker
    /// is free: its time has come, and its group has a token.
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
