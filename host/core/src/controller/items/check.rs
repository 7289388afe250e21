//! What holds of the work items of a revision at any time.

use std::collections::{BTreeMap, BTreeSet};

use super::{QueueKey, Uid, WorkItemState, WorkItems, key};
use crate::queue::Finish;
use crate::time::Instant;

impl WorkItems {
    /// Every item is in one state, which its queue, the calls and the lists agree with.
    pub(in crate::controller) fn assert_consistent(&self, now: Instant) {
        let mut queues = self.queues.clone();
        let declared: BTreeSet<String> = queues.stats(now).into_iter().map(|it| it.queue).collect();
        let mut processing = 0;
        let [mut called, mut pages] = [BTreeSet::new(), BTreeSet::new()];
        let mut waiting = BTreeMap::<Uid, BTreeSet<QueueKey>>::new();
        for (item, life) in &self.lives {
            assert!(!life.is_over(), "{item:?} has no more than its queue");
            for uid in &life.awaits {
                waiting.entry(uid.clone()).or_default().insert(item.clone());
            }
            match &life.state {
                WorkItemState::Queued(_) => continue,
                WorkItemState::InCall(_) => _ = called.insert(item.clone()),
                WorkItemState::Answered(_) => {}
                WorkItemState::Executing(execution) => {
                    let listed = self.unruled.contains(item);
                    assert_eq!(execution.is_listed, listed, "{item:?}");
                    assert!(listed || !execution.has_unruled(), "{item:?} is stuck");
                    if !declared.contains(&item.queue) {
                        continue;
                    }
                }
                WorkItemState::WaitingForPage { .. } => _ = pages.insert(item.clone()),
            }
            processing += 1;
            let ended = queues.done(now, &item.queue, &item.key, Finish::Done);
            assert!(ended.is_some(), "{item:?} could be dequeued");
        }
        let stats = self.queues.clone().stats(now);
        let dequeued: usize = stats.iter().map(|queue| queue.processing).sum();
        assert_eq!(dequeued, processing, "an item is lost");
        assert_eq!(waiting, self.waiting);
        let listed: Vec<QueueKey> = self.pages.iter().cloned().collect();
        assert_eq!(listed.len(), pages.len());
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), pages);
        let in_calls: Vec<QueueKey> = self.calls().flat_map(|call| &call.items).map(key).collect();
        assert_eq!(in_calls.len(), called.len(), "two calls for one item");
        assert_eq!(in_calls.into_iter().collect::<BTreeSet<_>>(), called);
    }
}
