//! Items of queues, as a call sees them.

use crate::bindings::davit::controller::{decisions, mapping, queue};
use crate::{Failure, Instant, QueueName};

/// A key to reconcile. The item identifies the key, not the change that enqueued it: read
/// the current state and decide.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem {
    /// The queue, to match with the guest's constants.
    pub queue: QueueName,
    /// What to reconcile.
    pub key: String,
    /// The number of failures since the item was last done; 0 the first time.
    pub attempt: u32,
    /// When the item was first enqueued. [`Decision::requeue_after`] keeps it.
    ///
    /// [`Decision::requeue_after`]: crate::Decision::requeue_after
    pub created_at: Instant,
    /// When the item was due.
    pub due_at: Instant,
    /// The failed plans of the last attempt, 100 at most.
    pub failures: Vec<PlanFailure>,
    /// Where the next page of the decision starts: the text of the previous page's verdict
    /// `continue-from`. Empty for the first page.
    pub cursor: String,
}

/// A plan of the last attempt that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanFailure {
    /// The uid of the plan's target.
    pub uid: String,
    /// The position of the failed step.
    pub step: u32,
    /// Why it failed.
    pub failure: Failure,
}

/// An item that is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingItem {
    /// When the item was first enqueued. Enqueueing it again does not change this.
    pub created_at: Instant,
    /// When it is due.
    pub due_at: Instant,
}

/// A resource of which the cache may lack objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedResource {
    /// Empty for core.
    pub group: String,
    /// The plural name; empty for all resources of a group whose resources are not known
    /// yet.
    pub plural: String,
    /// Since when; no earlier than the start of the host.
    pub since: Instant,
    /// For a log: `it is not served at the moment`.
    pub reason: String,
}

impl From<decisions::WorkItem> for WorkItem {
    fn from(item: decisions::WorkItem) -> Self {
        Self {
            queue: QueueName::named(&item.queue),
            key: item.key,
            attempt: item.attempt,
            created_at: Instant::from_millis(item.created_at),
            due_at: Instant::from_millis(item.due_at),
            failures: item.failures.into_iter().map(Into::into).collect(),
            cursor: item.cursor,
        }
    }
}

impl From<decisions::PlanFailure> for PlanFailure {
    fn from(failed: decisions::PlanFailure) -> Self {
        Self {
            uid: failed.uid,
            step: failed.step,
            failure: failed.failure.into(),
        }
    }
}

impl From<queue::PendingItem> for PendingItem {
    fn from(item: queue::PendingItem) -> Self {
        Self {
            created_at: Instant::from_millis(item.created_at),
            due_at: Instant::from_millis(item.due_at),
        }
    }
}

impl From<mapping::UnlistedResource> for UnlistedResource {
    fn from(resource: mapping::UnlistedResource) -> Self {
        Self {
            group: resource.group,
            plural: resource.plural,
            since: Instant::from_millis(resource.since),
            reason: resource.reason,
        }
    }
}
