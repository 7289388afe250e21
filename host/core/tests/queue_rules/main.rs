//! The rules of the queues, one by one.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on is to fail"
)]

mod adding;
mod delays;
mod finishing;
mod limits;
mod numbers;
mod swaps;
mod ticks;

use std::time::Duration;

use davit_core::failure::{Failure, FailureClass};
use davit_core::manifest::{QueueSpec, Rate, TickSpec};
use davit_core::plan::{Enqueue, PlanFailure, QueueKey, WorkItem};
use davit_core::queue::{
    Finish, FinishedItem, Origin, PendingItem, QueueError, QueueStats, Queues,
};
use davit_core::time::Instant;

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

fn at(seconds: u64) -> Instant {
    Instant::ZERO.after(SECOND * u32::try_from(seconds).unwrap())
}

fn spec(name: &str) -> QueueSpec {
    QueueSpec {
        workers: 100,
        batch: 100,
        retry_max: SECOND * 60,
        ..QueueSpec::new(name)
    }
}

fn tick(key: &str, period: u32) -> TickSpec {
    TickSpec {
        queue: "q".to_owned(),
        key: key.to_owned(),
        period: SECOND * period,
    }
}

/// A queue `q`.
fn queues() -> Queues {
    Queues::new(at(0), &[spec("q")], &[])
}

fn rate(per_second: f64, burst: u32) -> Rate {
    Rate { per_second, burst }
}

fn enqueue(key: &str, after: u32) -> Enqueue {
    Enqueue {
        item: QueueKey {
            queue: "q".to_owned(),
            key: key.to_owned(),
        },
        after: SECOND * after,
        created_at: None,
        group: String::new(),
    }
}

fn grouped(key: &str, group: &str) -> Enqueue {
    Enqueue {
        group: group.to_owned(),
        ..enqueue(key, 0)
    }
}

fn retry() -> Finish {
    Finish::Retry {
        failures: Vec::new(),
        retry_after: None,
    }
}

fn fresh(queues: &mut Queues, now: Instant, key: &str) {
    queues.add(now, "q", key, Origin::Fresh).unwrap();
}

fn relist(queues: &mut Queues, now: Instant, key: &str) {
    queues.add(now, "q", key, Origin::Relist).unwrap();
}

fn items(queues: &mut Queues, now: Instant) -> Vec<WorkItem> {
    queues.dequeue(now).map_or(Vec::new(), |batch| batch.items)
}

fn dequeue(queues: &mut Queues, now: Instant) -> Vec<String> {
    let items = items(queues, now).into_iter();
    items.map(|item| item.key).collect()
}

fn dequeue_one(queues: &mut Queues, now: Instant) -> WorkItem {
    let mut items = items(queues, now);
    assert_eq!(items.len(), 1, "{items:?}");
    items.remove(0)
}

fn done(queues: &mut Queues, now: Instant, key: &str, finish: Finish) -> FinishedItem {
    queues.done(now, "q", key, finish).unwrap()
}

fn waiting(queues: &Queues, key: &str) -> Option<PendingItem> {
    queues.pending().get("q", key)
}

fn stats(queues: &mut Queues, now: Instant) -> QueueStats {
    queues.stats(now).remove(0)
}
