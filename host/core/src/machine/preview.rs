//! What a guest would be asked now: for the test harness of guests, which shows the
//! state between calls.

use super::exchange::{Call, Effect};
use super::{Machine, work};
use crate::plan::{Enqueue, WorkItem};
use crate::time::{Instant, Now};

impl<G: Clone> Machine<G> {
    /// The next effect of the inputs so far. Unlike [`Self::poll`] it dequeues no item:
    /// the cache follows the streams while no guest is called.
    pub fn poll_inputs(&mut self) -> Option<Effect<G>> {
        self.outbox.pop()
    }

    /// When to poll again for the sake of the controllers that run: no gauge is reported
    /// before that, and no discovery asked for. It is [`Self::next_wake`] until the first
    /// of them runs.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Instant {
        if self.running().next().is_none() {
            return self.next_wake(now);
        }
        self.next_work(now).unwrap_or(Instant::FAR_FUTURE)
    }

    /// The call that would reconcile this item of a controller's stable revision now;
    /// none before the revision has started. Nothing changes, and an answer would be
    /// void.
    pub fn preview(&mut self, now: Now, controller: &str, item: WorkItem) -> Option<Call<G>> {
        let mapping = self.mapping.clone()?;
        let inputs = self.call_inputs(mapping, now);
        let hosted = self.controllers.get_mut(controller)?;
        let request = hosted.controller.as_mut()?.preview(&inputs.snapshot, item);
        Some(work::call(controller, request, &inputs, now))
    }

    /// Enqueues an item of a controller's stable revision, as its guest would.
    pub fn enqueue(&mut self, now: Now, controller: &str, enqueue: &Enqueue) {
        let hosted = self.controllers.get_mut(controller);
        if let Some(controller) = hosted.and_then(|hosted| hosted.controller.as_mut()) {
            controller.enqueue(now.instant, enqueue);
        }
    }
}
