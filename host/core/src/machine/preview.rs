//! What the test harness of guests needs besides inputs, effects and the next wake. A
//! test stops between two calls: it changes the cluster, reads queues and notes, and
//! asks for a decision that nobody executes. The host does none of that.

use super::exchange::{Call, Effect};
use super::{Machine, work};
use crate::plan::{Enqueue, WorkItem};
use crate::time::Now;

impl<G: Clone> Machine<G> {
    /// The next effect of the inputs so far. [`Self::poll`] also calls the guests whose
    /// items are due; a test first makes several changes, which the next call reads
    /// together.
    pub fn poll_inputs(&mut self) -> Option<Effect<G>> {
        self.outbox.pop()
    }

    /// The call that would reconcile this item of a controller's stable revision now;
    /// none before the revision has started. A test reads the queues and notes from it,
    /// or lets the guest decide on it. Nothing changes, and an answer would be void.
    pub fn preview(&mut self, now: Now, controller: &str, item: WorkItem) -> Option<Call<G>> {
        let mapping = self.mapping.clone()?;
        let unlisted = self.unlisted(&mapping, now.instant);
        let snapshot = self.store.snapshot();
        let hosted = self.controllers.get_mut(controller)?;
        let request = hosted
            .controller
            .as_mut()?
            .preview(&snapshot, &mapping, item);
        Some(work::call(controller, request, &unlisted, now))
    }

    /// Enqueues an item of a controller's stable revision. A guest enqueues with a
    /// decision, but a test needs an item before the guest has decided anything.
    pub fn enqueue(&mut self, now: Now, controller: &str, enqueue: &Enqueue) {
        let hosted = self.controllers.get_mut(controller);
        if let Some(controller) = hosted.and_then(|hosted| hosted.controller.as_mut()) {
            controller.enqueue(now.instant, enqueue);
        }
    }
}
