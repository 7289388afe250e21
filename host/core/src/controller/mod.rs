//! One controller: turns changes of the cache into calls, decisions into plans, and
//! outcomes into requeues.
//!
//! A state machine without I/O: `handle_*` takes inputs, `poll_call` and `poll_effect`
//! return what to do, `poll_timeout` returns when to poll again.
//!
//! A controller runs its stable [`Revision`], and may run a candidate beside it. Each
//! revision has its own queues; both share settings, budget and expectations.

mod candidate;
mod exchange;
mod execution;
mod former;
mod items;
mod resync;
mod revision;
mod shared;
mod tally;
mod trigger;
mod views;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::bounds::{Bound, BoundExceeded};
use crate::budget::{CountedWrites, GuardrailUse, Trip};
use crate::circuit::CallFailure;
use crate::expectation::WriteResult;
use crate::gate::Mode;
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::object::Uid;
use crate::plan::{Decision, Enqueue, WorkItem};
use crate::queue::{Origin, QueueStats};
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::rollout::compare::Comparison;
use crate::store::{Change, Snapshot};
use crate::time::Instant;

use exchange::RevisionId;
pub use exchange::{
    CallId, CallRequest, ControllerId, DEFAULT_PARALLEL, DecisionId, Effect, MOST_PARALLEL,
    Outcome, PlanId, Settings, World,
};
use former::FormerRevision;
pub use revision::Revision;
use shared::SharedState;
pub use tally::Tally;
pub use views::Views;

/// The state of one controller. `G` is a guest, which only the driver can call.
#[derive(Debug)]
pub struct Controller<G> {
    stable: Revision<G>,
    candidate: Option<Revision<G>>,
    /// What the stable revision before this one left behind.
    former: Option<FormerRevision>,
    shared: SharedState,
}

impl<G: Clone> Controller<G> {
    /// A new controller. The manifest of its revision must be valid.
    #[must_use]
    pub fn new(
        now: Instant,
        id: ControllerId,
        stable: LoadedRevision<G>,
        views: Views,
        settings: Settings,
    ) -> Self {
        let mut shared = SharedState::new(id, settings);
        let id = RevisionId(shared.fresh_id());
        Self {
            stable: Revision::new(now, id, stable, views),
            candidate: None,
            former: None,
            shared,
        }
    }

    /// The id of the controller.
    #[must_use]
    pub fn id(&self) -> ControllerId {
        self.shared.id
    }

    /// Swaps the stable revision, and starts a resync. Queues, timers and notes stay,
    /// unless this is the former stable revision: then its own return.
    /// Calls in flight are void. Returns the former guest.
    pub fn reconfigure(&mut self, now: Instant, stable: LoadedRevision<G>, views: Views) -> G {
        let id = RevisionId(self.shared.fresh_id());
        self.stable.complete_commands(now, &mut self.shared);
        let before = self.stable.state();
        let guest = self.stable.reconfigure(now, id, stable, views);
        if let Some(former) = self.former.replace(before)
            && former.identity == *self.stable.identity()
        {
            self.stable.return_to(now, &former);
            if let Some(replaced) = &self.former {
                self.shared
                    .drop_series(&replaced.series, self.stable.series());
            }
        }
        guest
    }

    /// Changes the settings for every plan that the gate has not ruled on yet. If the
    /// mode becomes `Enforce`, a resync decides the plans of the dry run again. If it is not
    /// compared with the cluster any more and a guest has read objects that are gone, the
    /// controller starts from nothing, as after a restart of the host.
    pub fn set(&mut self, now: Instant, settings: Settings) {
        if settings == self.shared.settings {
            return;
        }
        self.shared.budget.set(settings.guardrails);
        if let Some(rollout) = &mut self.shared.rollout {
            let most_bytes = settings.bounds.compared_bytes;
            rollout.comparison.set_most_bytes(most_bytes);
        }
        let enforces = settings.mode == Mode::Enforce && !Mutant::ForgetDryRuns.is_active();
        let is_compared = settings.is_compared();
        self.shared.settings = settings;
        if !is_compared && std::mem::take(&mut self.shared.has_read_former) {
            // A write must not follow from what is gone: neither from a call in flight or a
            // plan that waits for the gate, nor from what a guest has kept of it.
            self.clear(now);
        }
        if enforces {
            for revision in revisions(&mut self.stable, &mut self.candidate) {
                revision.start_resync(now);
            }
        }
    }

    /// Restores a trip that an earlier host recorded.
    pub fn resume_trip(&mut self, trip: Trip) {
        self.shared.budget.resume(trip);
    }

    /// Another host led the controller: only the trips that it recorded hold.
    pub fn take_over_trips(&mut self, trips: impl Iterator<Item = Trip>) {
        self.shared.budget.take_over(trips);
    }

    /// Another host has admitted these plans of the controller.
    pub fn assume_writes(&mut self, former: &CountedWrites, now: Instant) {
        self.shared.budget.assume(former, now);
    }

    /// What the guardrails have admitted in the last 60 seconds.
    #[must_use]
    pub fn counted_writes(&self, now: Instant) -> CountedWrites {
        self.shared.budget.counted_writes(now)
    }

    /// The use of each guardrail.
    pub fn guardrail_uses(&self, now: Instant) -> impl Iterator<Item = GuardrailUse> {
        self.shared.budget.uses(now)
    }

    /// What the host keeps for each revision, by bound, and the most of it.
    pub fn bound_uses(&self) -> impl Iterator<Item = (Role, (Bound, usize, usize))> {
        let bounds = &self.shared.settings.bounds;
        let revisions = Role::ALL.into_iter();
        let revisions = revisions.filter_map(move |role| Some((role, self.revision(role)?)));
        revisions.flat_map(move |(role, revision)| {
            let uses = revision.ledger().uses(bounds);
            uses.into_iter().map(move |one| (role, one))
        })
    }

    /// Resets the tripped guardrails, clears the queues and notes, and starts a resync.
    pub fn reset(&mut self, now: Instant) {
        self.shared.budget.reset(now);
        if Mutant::ForgetReset.is_active() {
            return;
        }
        self.clear(now);
    }

    /// Clears the queues and notes of every revision, voids its calls, drops the plans that
    /// the gate has not ruled on, and starts a resync.
    fn clear(&mut self, now: Instant) {
        self.former = None;
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.clear(now);
        }
    }

    /// Starts a resync: plans that were not executed are decided again.
    pub fn resync(&mut self, now: Instant) {
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.start_resync(now);
        }
    }

    /// The state of the stable revision's queues.
    pub fn queue_stats(&mut self, now: Instant) -> Vec<QueueStats> {
        self.stable.queue_stats(now)
    }

    /// The guests of its revisions.
    pub(crate) fn into_guests(self) -> impl Iterator<Item = G> {
        let revisions = std::iter::once(self.stable).chain(self.candidate);
        revisions.map(Revision::into_guest)
    }

    /// What the operator decided.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// The guardrails that defer plans at present.
    pub fn tripped(&self, now: Instant) -> impl Iterator<Item = &Trip> {
        self.shared.budget.tripped(now)
    }

    /// The stable revision.
    #[must_use]
    pub fn stable(&self) -> &Revision<G> {
        &self.stable
    }

    /// The candidate.
    #[must_use]
    pub fn candidate(&self) -> Option<&Revision<G>> {
        self.candidate.as_ref()
    }

    /// The revision with this role.
    #[must_use]
    pub fn revision(&self, role: Role) -> Option<&Revision<G>> {
        match role {
            Role::Stable => Some(&self.stable),
            Role::Candidate => self.candidate.as_ref(),
        }
    }

    /// The revision with this role.
    pub fn revision_mut(&mut self, role: Role) -> Option<&mut Revision<G>> {
        match role {
            Role::Stable => Some(&mut self.stable),
            Role::Candidate => self.candidate.as_mut(),
        }
    }

    /// The comparison of both revisions; none without a candidate.
    #[must_use]
    pub fn comparison(&self) -> Option<&Comparison> {
        self.shared
            .rollout
            .as_ref()
            .map(|rollout| &rollout.comparison)
    }

    /// Handles changes of the cache. `origin` distinguishes events from lists.
    pub fn handle_changes(
        &mut self,
        now: Instant,
        changes: &[Change],
        origin: Origin,
        snapshot: &Snapshot,
    ) {
        for of_object in changes.chunk_by(Change::is_of_same_object) {
            self.handle_change(now, of_object, origin, snapshot);
        }
    }

    /// An object changed, in these views of any controller.
    pub(crate) fn handle_change(
        &mut self,
        now: Instant,
        of_object: &[Change],
        origin: Origin,
        snapshot: &Snapshot,
    ) {
        let objects = of_object.first().map(|change| [&change.old, &change.new]);
        for object in objects.into_iter().flatten().flatten() {
            self.wake(now, object.uid(), snapshot);
        }
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            let settings = &self.shared.settings;
            revision.handle_change(now, of_object, origin, snapshot, settings);
        }
    }

    /// The mapping changed: the API server serves other resources.
    pub fn handle_mapping(&mut self, now: Instant) {
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.handle_mapping(now);
        }
    }

    /// Enqueues the next page of a resync.
    pub fn continue_resync(&mut self, now: Instant, snapshot: &Snapshot) {
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.continue_resync(now, snapshot, &self.shared.settings);
        }
    }

    /// Whether [`Self::poll_call`] may have a call to make, of any revision.
    pub(crate) fn has_due_call(&self, now: Instant) -> bool {
        let settings = &self.shared.settings;
        let mut revisions = Role::ALL.into_iter().filter_map(|role| self.revision(role));
        let is_due = revisions.any(|revision| revision.has_due_call(now, &settings.bounds));
        settings.mode != Mode::Disabled && is_due
    }

    /// The next call to make into a revision's guest, if there is one.
    pub fn poll_call(
        &mut self,
        now: Instant,
        role: Role,
        snapshot: &Snapshot,
        mapping: &Arc<Mapping>,
    ) -> Option<CallRequest<G>> {
        if self.shared.settings.mode == Mode::Disabled {
            return None;
        }
        let revision = match role {
            Role::Stable => &mut self.stable,
            Role::Candidate => self.candidate.as_mut()?,
        };
        revision.poll_call(now, snapshot, mapping, &mut self.shared)
    }

    /// What a call of the stable revision about this item would be made with. An answer
    /// to it is void.
    pub(crate) fn preview(
        &mut self,
        snapshot: &Snapshot,
        mapping: &Arc<Mapping>,
        item: WorkItem,
    ) -> CallRequest<G> {
        self.stable
            .request(snapshot, mapping, vec![item], &mut self.shared)
    }

    /// Enqueues an item of the stable revision, as its guest would.
    pub(crate) fn enqueue(&mut self, now: Instant, enqueue: &Enqueue) {
        self.stable.enqueue(now, enqueue);
    }

    /// The role of the revision that made a call; none if the call is void.
    #[must_use]
    pub fn caller(&self, id: CallId) -> Option<Role> {
        let has_called = |role: &Role| {
            let revision = self.revision(*role);
            revision.is_some_and(|revision| revision.has_called(id))
        };
        Role::ALL.into_iter().find(has_called)
    }

    /// The mapping that the guest of a call reads; none if the call is void.
    #[must_use]
    pub(crate) fn mapping_of(&self, id: CallId) -> Option<&Arc<Mapping>> {
        let mut revisions = Role::ALL.into_iter().filter_map(|role| self.revision(role));
        revisions.find_map(|revision| revision.mapping_of(id))
    }

    /// The API server throttled a live read of a call: items that the guest then retries
    /// wait until this time.
    pub fn handle_throttled_read(&mut self, id: CallId, until: Instant) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_throttled_read(id, until);
        }
    }

    /// How many bytes of objects a call may read live now.
    #[must_use]
    pub fn live_read_room(&self, id: CallId) -> usize {
        let revision = self.caller(id).and_then(|role| self.revision(role));
        let read = revision.map(Revision::live_read_bytes);
        let most = self.shared.settings.bounds.live_read_bytes;
        most.saturating_sub(read.unwrap_or_default())
    }

    /// A call has read objects of this size live, with so much [room](Self::live_read_room) when
    /// it asked. Beyond either, the call must not get them, and fails when it ends.
    pub fn handle_live_read(
        &mut self,
        id: CallId,
        bytes: usize,
        room: usize,
    ) -> Result<(), BoundExceeded> {
        let most = self.shared.settings.bounds.live_read_bytes;
        let revision = caller(&mut self.stable, &mut self.candidate, id);
        revision.map_or(Ok(()), |revision| {
            revision.handle_live_read(id, bytes, room, most)
        })
    }

    /// Handles a guest's answer to a call: a decision for each item, in their order,
    /// and the duration of the call. [`Self::continue_work`] executes it. If the answer
    /// would exceed a bound, the call has failed, and every item is retried.
    pub fn handle_decisions(&mut self, id: CallId, decisions: Vec<Decision>, took: Duration) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_decisions(id, decisions, took);
        }
    }

    /// A call failed: every item is retried. If the call has exceeded a bound before, that
    /// is the failure.
    pub fn handle_call_failure(
        &mut self,
        now: Instant,
        id: CallId,
        failure: CallFailure,
        took: Duration,
    ) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_call_failure(now, id, failure, took, &mut self.shared);
        }
    }

    /// Executes the next slice of the answers. A large answer takes several, so that other
    /// controllers have their turn. Returns whether more is left.
    pub fn continue_work(&mut self, world: &World<'_>) -> bool {
        let mut is_left = false;
        for revision in revisions(&mut self.stable, &mut self.candidate) {
            revision.continue_work(world, &mut self.shared);
            is_left |= revision.has_work();
        }
        is_left
    }

    /// A call was not made, or its answer is void: its items return to their queues.
    pub fn handle_call_void(&mut self, now: Instant, id: CallId) {
        if let Some(revision) = caller(&mut self.stable, &mut self.candidate, id) {
            revision.handle_call_void(now, id);
        }
    }

    /// Handles the outcome of an executed plan.
    pub fn handle_outcome(&mut self, id: PlanId, outcome: Outcome, world: &World<'_>) {
        let Some(carried) = self.shared.in_flight.remove(&id) else {
            return;
        };
        let uid = Uid::new(&carried.plan.target.uid);
        let gone = outcome.failed.is_some() && outcome.is_success();
        let written = if gone {
            Some(WriteResult::Gone)
        } else {
            outcome.written
        };
        self.shared.expectations.end(&uid, written, world.now);
        // Items that wait for this plan become due: immediately if it wrote nothing,
        // otherwise when the cache has observed the write.
        self.wake(world.now, &uid, world.snapshot);
        let mut all = revisions(&mut self.stable, &mut self.candidate);
        if let Some(revision) = all.find(|revision| revision.items_of == carried.items_of) {
            revision.handle_outcome(carried, outcome, world, &mut self.shared);
        }
    }

    /// The next effect, if there is one.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.shared.effects.pop_front()
    }

    /// When to call [`Self::poll_call`] or [`Self::housekeep`] again, if nothing else
    /// happens.
    #[must_use]
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let revisions = || Role::ALL.into_iter().filter_map(|role| self.revision(role));
        if self.shared.settings.mode == Mode::Disabled {
            let has_work = revisions().any(Revision::has_work);
            return has_work.then_some(now);
        }
        revisions()
            .filter_map(|revision| revision.poll_timeout(now, &self.shared.settings.bounds))
            .min()
    }

    /// Drops expectations that have lapsed, enqueues the items that waited for them,
    /// and ends the windows of the comparison. Call it about once a second.
    pub fn housekeep(&mut self, now: Instant, snapshot: &Snapshot) {
        self.shared.expectations.expire(now);
        if let Some(rollout) = &mut self.shared.rollout {
            rollout.comparison.tidy(now, snapshot);
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

fn revisions<'a, G>(
    stable: &'a mut Revision<G>,
    candidate: &'a mut Option<Revision<G>>,
) -> impl Iterator<Item = &'a mut Revision<G>> {
    std::iter::once(stable).chain(candidate)
}

/// The revision that a call was made into; none if it is gone.
fn caller<'a, G: Clone>(
    stable: &'a mut Revision<G>,
    candidate: &'a mut Option<Revision<G>>,
    id: CallId,
) -> Option<&'a mut Revision<G>> {
    revisions(stable, candidate).find(|revision| revision.has_called(id))
}
