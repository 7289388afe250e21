//! One controller: from changes to calls, from decisions to plans, from
//! outcomes back to the queues.
//!
//! Driven from outside: `handle_*` takes what happened, `poll_call` and
//! `poll_effect` give what is to be done, `poll_timeout` says when to come back.
//!
//! A controller runs its stable [`Revision`], and may try a candidate beside
//! it. Each has its own queues; settings, budget and expectations are the
//! controller's.

mod exchange;
mod item;
mod revision;
mod shared;
mod sweep;
mod tally;
mod trigger;
mod waiters;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::budget::Trip;
use crate::expectation::Written;
use crate::gate::Mode;
use crate::health::CallFailure;
use crate::manifest::Manifest;
use crate::object::Uid;
use crate::plan::{Decision, Plan, QueueKey};
use crate::queue::Origin;
use crate::rollout::Role;
use crate::rollout::cohort::Share;
use crate::rollout::compare::Comparison;
use crate::store::{Change, Snapshot, ViewId};
use crate::time::Instant;

pub use exchange::{
    CallId, CallRequest, DEFAULT_PARALLEL, Effect, MOST_PARALLEL, Notes, Outcome, PlanId,
    RevisionId, Settings, World,
};
pub use revision::Revision;
use shared::{Shared, Trial};
pub use tally::Tally;

/// One controller's state.
#[derive(Debug)]
pub struct Controller {
    stable: Revision,
    candidate: Option<Revision>,
    shared: Shared,
}

impl Controller {
    /// A controller of which nothing was looked at yet. `views` are the views
    /// of the manifest's watches, in their order; the manifest is valid.
    #[must_use]
    pub fn new(
        now: Instant,
        manifest: Arc<Manifest>,
        settings: Settings,
        views: &[ViewId],
    ) -> Self {
        let mut shared = Shared::new(settings);
        let id = RevisionId(shared.fresh_id());
        Self {
            stable: Revision::new(now, id, manifest, views),
            candidate: None,
            shared,
        }
    }

    /// Puts another guest, or another configuration of it, in the stable
    /// revision's place, which looks at everything again. Queues, timers and
    /// notes stay. Calls that are still under way are void:
    /// [`Self::handle_decisions`] sends their items back.
    pub fn reconfigure(&mut self, now: Instant, manifest: Arc<Manifest>, views: &[ViewId]) {
        let id = RevisionId(self.shared.fresh_id());
        self.stable.reconfigure(now, id, manifest, views);
    }

    /// Tries a candidate beside the stable revision, in place of any other. It
    /// begins with the stable one's items, timers and notes, and looks at
    /// everything. `window` is how long a target that one of them has decided
    /// on waits for the other.
    pub fn try_candidate(
        &mut self,
        now: Instant,
        manifest: Arc<Manifest>,
        views: &[ViewId],
        share: Share,
        window: Duration,
    ) {
        self.end_trial(now);
        let id = RevisionId(self.shared.fresh_id());
        self.candidate = Some(self.stable.fork(now, id, manifest, views));
        let mut trial = Trial::new(now, share, window);
        for (item, plan) in self.under_way() {
            trial
                .comparison
                .decided_before(now, Role::Stable, item, plan);
        }
        trial.pending.insert(Role::Stable, self.stable.pending());
        self.shared.trial = Some(trial);
    }

    /// Shows the candidate other views, of the same watches, and changes what it
    /// owns.
    pub fn change_candidate_views(&mut self, now: Instant, views: &[ViewId], share: Share) {
        if let Some(candidate) = &mut self.candidate {
            candidate.change_views(now, views);
        }
        self.set_share(now, share);
    }

    /// Changes what the candidate owns; both revisions look at everything
    /// again, since what one left to the other may be its own now.
    pub fn set_share(&mut self, now: Instant, share: Share) {
        if let Some(trial) = &mut self.shared.trial
            && trial.share != share
        {
            trial.share = share;
            for revision in revisions(&mut self.stable, &mut self.candidate) {
                revision.look_at_everything(now);
            }
        }
    }

    /// From now on every target is the stable revision's, for as long as the
    /// share is not set anew.
    pub fn withhold_share(&mut self, now: Instant) {
        if let Some(trial) = &self.shared.trial {
            let cohort = trial.share.cohort.clone();
            self.set_share(now, Share { cohort, weight: 0 });
        }
    }

    /// Changes how long a target that one revision has decided on waits for the
    /// other.
    pub fn set_window(&mut self, window: Duration) {
        if let Some(trial) = &mut self.shared.trial {
            trial.comparison.set_window(window);
        }
    }

    /// Begins to count what the candidate does, and how it compares, anew.
    pub fn begin_counting(&mut self, now: Instant) {
        if let (Some(candidate), Some(trial)) = (&mut self.candidate, &mut self.shared.trial) {
            candidate.begin_counting();
            trial.comparison.begin_counting(now);
        }
    }

    /// The candidate takes the stable revision's place, with its own queues and
    /// notes. From here on every target is its own; what the former revision
    /// has under way comes to its end.
    pub fn promote(&mut self, now: Instant) {
        if let Some(candidate) = self.candidate.take() {
            self.stable = candidate;
            self.stable.role = Role::Stable;
            self.end_trial(now);
        }
    }

    /// The candidate is taken back: every target is the stable revision's.
    pub fn drop_candidate(&mut self, now: Instant) {
        if self.candidate.is_some() {
            self.end_trial(now);
        }
    }

    /// The stable revision's plans that have not come to their end.
    fn under_way(&self) -> impl Iterator<Item = (&QueueKey, &Arc<Plan>)> {
        let carried = self.shared.carried.values();
        let carried = carried.filter(|carried| carried.items_of == self.stable.items_of);
        let carried = carried.map(|carried| (&carried.item, &carried.plan));
        carried.chain(self.stable.decided())
    }

    fn end_trial(&mut self, now: Instant) {
        self.candidate = None;
        if self.shared.trial.take().is_some() {
            self.shared.budget.candidate_ended();
            self.stable.look_at_everything(now);
        }
    }

    /// Takes on other settings. They hold for every plan that was not yet put
    /// before the gate. If plans that were only shown would be carried out now,
    /// everything is looked at again.
    pub fn set(&mut self, now: Instant, settings: Settings) {
        if settings == self.shared.settings {
            return;
        }
        self.shared.budget.set(settings.guardrails);
        let enforces = settings.mode == Mode::Enforce;
        self.shared.settings = settings;
        if enforces {
            for revision in revisions(&mut self.stable, &mut self.candidate) {
                revision.look_at_everything(now);
            }
        }
    }

    /// Holds plans back for a guardrail that had tripped before this host began.
    pub fn resume_trip(&mut self, spent: Trip) {
        self.shared.budget.resume(spent);
    }

    /// An operator resets the guardrails that have tripped.
    pub fn reset(&mut self, now: Instant) {
        self.shared.budget.reset();
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.look_at_everything(now);
        }
    }

    /// What the operator decided.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The guardrails that hold plans back at present.
    pub fn tripped(&self, now: Instant) -> impl Iterator<Item = &Trip> {
        self.shared.budget.tripped(now)
    }

    /// The revision that runs.
    #[must_use]
    pub fn stable(&self) -> &Revision {
        &self.stable
    }

    /// The revision that is being tried.
    #[must_use]
    pub fn candidate(&self) -> Option<&Revision> {
        self.candidate.as_ref()
    }

    /// The revision of that part.
    #[must_use]
    pub fn revision(&self, role: Role) -> Option<&Revision> {
        match role {
            Role::Stable => Some(&self.stable),
            Role::Candidate => self.candidate.as_ref(),
        }
    }

    /// The revision of that part.
    pub fn revision_mut(&mut self, role: Role) -> Option<&mut Revision> {
        match role {
            Role::Stable => Some(&mut self.stable),
            Role::Candidate => self.candidate.as_mut(),
        }
    }

    /// How the decisions of both compare; none without a candidate.
    #[must_use]
    pub fn comparison(&self) -> Option<&Comparison> {
        self.shared.trial.as_ref().map(|trial| &trial.comparison)
    }

    /// Takes what changed in the cache. `origin` says whether it is news or the
    /// result of a list.
    pub fn handle_changes(
        &mut self,
        now: Instant,
        changes: &[Change],
        origin: Origin,
        snapshot: &Snapshot,
    ) {
        for change in changes {
            for object in [&change.old, &change.new].into_iter().flatten() {
                self.wake(now, object.uid(), snapshot);
            }
            for revision in revisions(&mut self.stable, &mut self.candidate) {
                revision.handle_change(now, change, origin, snapshot);
            }
        }
    }

    /// Takes that the API server serves something else than before.
    pub fn handle_mapping(&mut self, now: Instant) {
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.handle_mapping(now);
        }
    }

    /// Adds some of the keys of a look at everything that is under way.
    pub fn sweep(&mut self, now: Instant, snapshot: &Snapshot) {
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.sweep(now, snapshot);
        }
    }

    /// The next call to make into a revision's guest, if there is one.
    pub fn poll_call(
        &mut self,
        now: Instant,
        role: Role,
        snapshot: &Snapshot,
    ) -> Option<CallRequest> {
        if self.shared.settings.mode == Mode::Disabled {
            return None;
        }
        let revision = match role {
            Role::Stable => &mut self.stable,
            Role::Candidate => self.candidate.as_mut()?,
        };
        revision.poll_call(now, snapshot, &mut self.shared)
    }

    /// Takes a guest's answer to a call: a decision for each item, in their
    /// order, and how long it took.
    pub fn handle_decisions(
        &mut self,
        id: CallId,
        decisions: Vec<Decision>,
        took: Duration,
        world: &World<'_>,
    ) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_decisions(id, decisions, took, world, &mut self.shared);
        }
    }

    /// Takes a call that ended without an answer: every item is tried again.
    pub fn handle_call_failure(&mut self, now: Instant, id: CallId, failure: CallFailure) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_call_failure(now, id, failure, &mut self.shared);
        }
    }

    /// Takes back a call that was never made, or whose answer is void.
    pub fn handle_call_void(&mut self, now: Instant, id: CallId) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_call_void(now, id);
        }
    }

    /// Takes the end of a plan that was carried out.
    pub fn handle_outcome(&mut self, id: PlanId, outcome: Outcome, world: &World<'_>) {
        let Some(carried) = self.shared.carried.remove(&id) else {
            return;
        };
        let uid = Uid::new(&carried.plan.target.uid);
        let gone = outcome.failed.is_some() && outcome.is_success();
        let written = if gone {
            Some(Written::Gone)
        } else {
            outcome.written
        };
        self.shared.expectations.end(&uid, written, world.now);
        // Those who waited for this plan to end look again: at once if it
        // wrote nothing, when the cache shows it otherwise.
        self.wake(world.now, &uid, world.snapshot);
        let mut all = revisions(&mut self.stable, &mut self.candidate);
        if let Some(revision) = all.find(|revision| revision.items_of == carried.items_of) {
            revision.handle_outcome(carried, outcome, world, &mut self.shared);
        }
    }

    /// The next thing to be done or told, if there is one.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.shared.effects.pop_front()
    }

    /// When [`Self::poll_call`] or [`Self::sweep`] has to be asked again, if
    /// nothing else happens. `ready` are the revisions that can be called.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant, ready: &[Role]) -> Option<Instant> {
        if self.shared.settings.mode == Mode::Disabled {
            return None;
        }
        let ready = ready.iter().filter_map(|role| self.revision(*role));
        ready
            .filter_map(|revision| revision.poll_timeout(now))
            .min()
    }

    /// Forgets expectations that have lapsed, wakes who waited for them, and
    /// ends the windows of the comparison. To be called every second or so.
    pub fn tidy(&mut self, now: Instant, snapshot: &Snapshot) {
        self.shared.expectations.expire(now);
        if let Some(trial) = &mut self.shared.trial {
            trial.comparison.tidy(now, snapshot);
        }
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            for uid in revision.waited_for() {
                revision.wake(now, &uid, snapshot, &mut self.shared);
            }
        }
    }

    fn wake(&mut self, now: Instant, uid: &Uid, snapshot: &Snapshot) {
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.wake(now, uid, snapshot, &mut self.shared);
        }
    }
}

fn revisions<'a>(
    stable: &'a mut Revision,
    candidate: &'a mut Option<Revision>,
) -> impl Iterator<Item = &'a mut Revision> {
    std::iter::once(stable).chain(candidate)
}

/// The revision that a call was made into; none if it is gone.
fn caller<'a>(
    stable: &'a mut Revision,
    candidate: &'a mut Option<Revision>,
    id: CallId,
) -> Option<&'a mut Revision> {
    revisions(stable, candidate).find(|revision| revision.has_called(id))
}
