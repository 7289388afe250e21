//! How one revision replaces another: what stays, and what does not.

use super::Revision;
use crate::bounds::Series;
use crate::circuit::CircuitBreaker;
use crate::controller::exchange::RevisionId;
use crate::controller::former::FormerRevision;
use crate::controller::resync::Pace;
use crate::controller::tally::Tally;
use crate::controller::views::Views;
use crate::manifest::Manifest;
use crate::notes::Notes;
use crate::queue::Queues;
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::time::Instant;

impl<G: Clone> Revision<G> {
    /// A candidate beside this revision. It starts with a copy of the items, timers and
    /// notes but for the reports, and a resync. Items that are being reconciled here are pending there. Its
    /// ticks are due at the same time, so that both decide on the same state.
    pub(in crate::controller) fn fork(
        &self,
        now: Instant,
        id: RevisionId,
        loaded: LoadedRevision<G>,
        views: Views,
    ) -> Self {
        let Manifest { queues, ticks, .. } = &*loaded.manifest;
        let items = self.items.fork(now, queues, ticks);
        let mut fork = Self::with(id, Role::Candidate, loaded, views, items);
        fork.notes = self.notes.clone();
        fork.note_bytes = self.note_bytes;
        fork.drop_reports();
        if fork.manifest.metrics == self.manifest.metrics {
            fork.series = self.series.clone();
        }
        fork.resync(Pace::Easy);
        fork
    }

    /// Swaps the revision and returns the former guest. Queues, timers and notes stay, but
    /// for the reports, which say what the former guest did.
    /// Calls in flight are void, and plans that the gate has not ruled on are dropped.
    pub(in crate::controller) fn reconfigure(
        &mut self,
        now: Instant,
        id: RevisionId,
        loaded: LoadedRevision<G>,
        views: Views,
    ) -> G {
        let LoadedRevision {
            guest,
            manifest,
            identity,
            ..
        } = loaded;
        self.drop_answers();
        self.drop_reports();
        self.plan_bytes -= self
            .items
            .reconfigure(now, &manifest.queues, &manifest.ticks);
        self.id = id;
        self.name = identity.to_string().into();
        self.identity = identity;
        if self.manifest.metrics != manifest.metrics {
            // The former metrics are not published any more.
            self.series = Series::default();
        }
        self.manifest = manifest;
        self.set_views(views);
        self.complete = true;
        self.circuit = CircuitBreaker::default();
        self.tally = Tally::default();
        self.start_resync(now);
        std::mem::replace(&mut self.guest, guest)
    }

    /// What it leaves behind for its return.
    pub(in crate::controller) fn state(&self) -> FormerRevision {
        FormerRevision {
            identity: self.identity.clone(),
            queues: self.items.queues().state(),
            notes: self.notes.clone(),
            note_bytes: self.note_bytes,
            series: self.series.clone(),
        }
    }

    /// This revision returns: it has what it left behind, and nothing of the one that
    /// replaced it.
    pub(in crate::controller) fn return_to(&mut self, now: Instant, former: &FormerRevision) {
        let Manifest { queues, ticks, .. } = &*self.manifest;
        let present = self.items.queues();
        let queues = present.returned(now, queues, ticks, &former.queues);
        self.plan_bytes -= self.items.replace_queues(now, queues);
        self.notes = former.notes.clone();
        self.note_bytes = former.note_bytes;
        self.series = former.series.clone();
    }

    /// Clears queues and notes, and starts a resync. Calls in flight are void.
    pub(in crate::controller) fn clear(&mut self, now: Instant) {
        for called in self.items.take_calls() {
            self.circuit.abandoned(now, called.permit);
        }
        self.drop_answers();
        let queues = Queues::new(now, &self.manifest.queues, &self.manifest.ticks);
        self.plan_bytes -= self.items.replace_queues(now, queues);
        self.notes = Notes::default();
        self.note_bytes = 0;
        self.start_resync(now);
    }
}
