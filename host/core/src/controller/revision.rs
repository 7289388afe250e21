//! One revision of a controller: its queues, its calls, and its plans up to the gate.

mod admission;
mod answer;
mod decision;
mod replacement;
mod ruling;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::exchange::{CallId, CallRequest, DecisionId, Effect, Notes, RevisionId, Settings};
use super::items::{WorkItems, key};
use super::resync::{Pace, Resync};
use super::shared::Shared;
use super::tally::Tally;
use super::trigger::{changed_keys, triggers_of};
use super::views::Views;
use crate::bounds::{BoundExceeded, Bounds, Series};
use crate::circuit::{CallFailure, CircuitBreaker, CircuitState, Permit, after_failed_call};
use crate::gate::Mode;
use crate::manifest::Manifest;
use crate::mutant::Mutant;
use crate::object::Uid;
use crate::plan::{Enqueue, QueueKey, WorkItem};
use crate::queue::{EnqueueReason, Finish, Origin, PendingSnapshot, QueueStats, Queues, Source};
use crate::revision::{LoadedRevision, RevisionIdentity};
use crate::rollout::Role;
use crate::store::{Change, Snapshot, ViewId};
use crate::time::Instant;

use answer::Answer;

/// A call in flight.
#[derive(Debug)]
struct CallInFlight {
    items: Vec<WorkItem>,
    /// The decision whose next page it asks for.
    continues: Option<DecisionId>,
    /// The number of items from the re-list lane.
    relisted: usize,
    permit: Permit,
    started: Instant,
    snapshot: Snapshot,
    /// Until when the API server throttles reads of the call.
    throttled_until: Option<Instant>,
    /// The bytes of objects that the call has read live.
    live_read_bytes: usize,
    /// The bound that a live read of the call exceeded.
    exceeded: Option<BoundExceeded>,
}

/// The decisions about the items of a call, in their order. A page is alone.
fn decisions_of(call: CallId, continues: Option<DecisionId>) -> impl Iterator<Item = DecisionId> {
    let own = move |position| DecisionId { call, position };
    (0..).map(move |position| continues.unwrap_or_else(|| own(position)))
}

/// The items of the next call.
struct NextItems {
    items: Vec<WorkItem>,
    /// What made each of them due; none for a page.
    reasons: Vec<EnqueueReason>,
    continues: Option<DecisionId>,
    relisted: usize,
}

/// A watch of the manifest.
#[derive(Debug)]
struct ManifestWatch {
    /// Its index.
    position: usize,
    name: Arc<str>,
}

/// One revision of a controller's guest.
#[derive(Debug)]
pub struct Revision<G> {
    pub(super) id: RevisionId,
    /// The revision that the items belong to: this one, or the one that it replaced by
    /// a swap.
    pub(super) items_of: RevisionId,
    pub(super) role: Role,
    guest: G,
    manifest: Arc<Manifest>,
    identity: RevisionIdentity,
    /// The name of its identity.
    pub(super) name: Arc<str>,
    views: Views,
    views_by_name: Arc<BTreeMap<String, ViewId>>,
    /// The watch in the manifest, by view.
    watches: BTreeMap<ViewId, ManifestWatch>,
    /// Whether every watch is complete. While a resource is not served, the cache may
    /// lack objects that exist, so the guest is not called.
    complete: bool,
    /// Whether changes of the cache were not enqueued: a resync follows.
    missed: bool,
    queues: Queues,
    notes: Notes,
    /// The bytes of the notes and their keys.
    note_bytes: usize,
    /// The series of the guest's metrics.
    series: Series,
    /// The bytes of the plans that are decided and have not ended.
    plan_bytes: usize,
    circuit: CircuitBreaker,
    tally: Tally,
    calls: BTreeMap<CallId, CallInFlight>,
    /// The answers that are not executed yet, in their order.
    answers: VecDeque<Answer>,
    items: WorkItems,
    resync: Resync,
}

impl<G: Clone> Revision<G> {
    /// A new revision.
    pub(super) fn new(
        now: Instant,
        id: RevisionId,
        loaded: LoadedRevision<G>,
        views: Views,
    ) -> Self {
        let queues = Queues::new(now, &loaded.manifest.queues, &loaded.manifest.ticks);
        let mut revision = Self::with(id, Role::Stable, loaded, views, queues);
        revision.begin_resync(Pace::Brisk);
        revision
    }

    fn with(
        id: RevisionId,
        role: Role,
        loaded: LoadedRevision<G>,
        views: Views,
        queues: Queues,
    ) -> Self {
        Self {
            id,
            items_of: id,
            role,
            guest: loaded.guest,
            name: loaded.identity.to_string().into(),
            identity: loaded.identity,
            views_by_name: views.by_name(&loaded.manifest),
            watches: watches(&views, &loaded.manifest),
            views,
            manifest: loaded.manifest,
            complete: true,
            missed: false,
            queues,
            notes: Notes::default(),
            note_bytes: 0,
            series: Series::default(),
            plan_bytes: 0,
            circuit: CircuitBreaker::default(),
            tally: Tally::default(),
            calls: BTreeMap::new(),
            answers: VecDeque::new(),
            items: WorkItems::default(),
            resync: Resync::default(),
        }
    }

    /// What identifies it.
    #[must_use]
    pub fn identity(&self) -> &RevisionIdentity {
        &self.identity
    }

    /// The name of its identity.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its views.
    #[must_use]
    pub fn views(&self) -> &Views {
        &self.views
    }

    /// Whether every watch is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Sets whether every watch is complete. While one is not, the guest is not called.
    pub fn set_complete(&mut self, complete: bool) {
        self.complete = complete;
    }

    pub(super) fn into_guest(self) -> G {
        self.guest
    }

    /// Whether another call can be made. While the API server does not keep up with the
    /// plans of the guest, the guest makes no more.
    fn has_room(&self, bounds: &Bounds) -> bool {
        self.complete
            && self.answers.is_empty()
            && self.calls.len() < self.identity.limits().instances as usize
            && self.plan_bytes < bounds.plan_bytes
    }

    fn set_views(&mut self, views: Views) {
        self.views_by_name = views.by_name(&self.manifest);
        self.watches = watches(&views, &self.manifest);
        self.views = views;
    }

    /// What the guest declared.
    #[must_use]
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// The state of the circuit.
    #[must_use]
    pub fn circuit(&self) -> &CircuitBreaker {
        &self.circuit
    }

    /// The series of its metrics.
    pub(super) fn series(&self) -> &Series {
        &self.series
    }

    /// The tally since the counts were last restarted.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    pub(super) fn restart_counts(&mut self) {
        self.tally = Tally::default();
    }

    /// The state of its queues.
    pub fn queue_stats(&mut self, now: Instant) -> Vec<QueueStats> {
        self.queues.stats(now)
    }

    /// Replaces the views, and starts a resync.
    pub(super) fn change_views(&mut self, now: Instant, views: Views) {
        self.set_views(views);
        self.start_resync(now);
    }

    /// Starts a resync: enqueues every key that a trigger can name, and makes parked
    /// items due. It follows a time in which plans were not executed or changes were
    /// missed.
    pub(super) fn start_resync(&mut self, now: Instant) {
        self.begin_resync(Pace::Easy);
        for item in self.items.resync() {
            self.queues.hasten(now, &item.queue, &item.key);
        }
        let manifest = Arc::clone(&self.manifest);
        for tick in &manifest.ticks {
            let source = Source {
                origin: Origin::Fresh,
                reason: EnqueueReason::Resync,
            };
            self.add(now, &tick.queue, &tick.key, source);
        }
    }

    /// The mapping changed: items that wait for it become due.
    pub(super) fn handle_mapping(&mut self, now: Instant) {
        for item in self.items.mapping_changed() {
            self.queues.hasten(now, &item.queue, &item.key);
        }
    }

    fn begin_resync(&mut self, pace: Pace) {
        let manifest = &self.manifest;
        let triggers = self.watches.iter().flat_map(|(view, watch)| {
            let triggers = triggers_of(manifest, watch.position);
            triggers.map(|trigger| (*view, trigger.clone()))
        });
        self.resync.begin(pace, triggers);
    }

    /// Whether keys that triggers name are enqueued. A guest that is not called, or does
    /// not keep up, would let the queues grow with each object that comes and goes. A
    /// resync does as well as they: it enqueues the keys of every object that is left.
    /// Triggers have room for as many items as the guest, so that it cannot shut them out.
    fn listens(&self, settings: &Settings) -> bool {
        let most = settings.bounds.queue_items.saturating_mul(2);
        settings.mode != Mode::Disabled && self.complete && self.queues.usage().items < most
    }

    /// Enqueues the next page of the resync, unless the last page is still pending.
    pub(super) fn continue_resync(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        settings: &Settings,
    ) {
        if !self.listens(settings) {
            return;
        }
        if mem::take(&mut self.missed) {
            self.start_resync(now);
        }
        let is_crowded = self.queues.has_relisted(now);
        if let Some((queue, keys)) = self.resync.next(now, is_crowded, snapshot) {
            for key in keys {
                let source = Source {
                    origin: Origin::Relist,
                    reason: EnqueueReason::Resync,
                };
                self.add(now, &queue, &key, source);
            }
        }
    }

    pub(super) fn handle_change(
        &mut self,
        now: Instant,
        change: &Change,
        origin: Origin,
        snapshot: &Snapshot,
        settings: &Settings,
    ) {
        let Some(watch) = self.watches.get(&change.view) else {
            return;
        };
        if !self.listens(settings) {
            self.missed = true;
            return;
        }
        let manifest = Arc::clone(&self.manifest);
        let reason = match origin {
            Origin::Fresh => EnqueueReason::Change {
                watch: Arc::clone(&watch.name),
            },
            Origin::Relist => EnqueueReason::List,
        };
        for trigger in triggers_of(&manifest, watch.position) {
            for key in changed_keys(&trigger.key, change, snapshot) {
                let reason = reason.clone();
                self.add(now, &trigger.queue, &key, Source { origin, reason });
            }
        }
    }

    fn add(&mut self, now: Instant, queue: &str, key: &str, source: Source) {
        // A valid manifest names only queues that it declares.
        let added = self.queues.add(now, queue, key, source);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    pub(super) fn poll_call(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        shared: &mut Shared,
    ) -> Option<CallRequest<G>> {
        if !self.has_room(&shared.settings.bounds) {
            return None;
        }
        let permit = self.circuit.begin(now)?;
        let Some(next) = self.next_items(now, shared) else {
            self.circuit.abandoned(now, permit);
            return None;
        };
        let mut request = self.request(snapshot, next.items, shared);
        request.reasons = next.reasons;
        request.continues = next.continues;
        let call = CallInFlight {
            items: request.items.clone(),
            continues: next.continues,
            relisted: next.relisted,
            permit,
            started: now,
            snapshot: snapshot.clone(),
            throttled_until: None,
            live_read_bytes: 0,
            exceeded: None,
        };
        self.calls.insert(request.id, call);
        if let Some(rollout) = &mut shared.rollout {
            rollout.pending.insert(self.role, request.pending.clone());
        }
        Some(request)
    }

    /// A call about these items.
    pub(super) fn request(
        &self,
        snapshot: &Snapshot,
        items: Vec<WorkItem>,
        shared: &mut Shared,
    ) -> CallRequest<G> {
        CallRequest {
            id: CallId {
                controller: shared.id,
                number: shared.fresh_id(),
            },
            revision: Arc::clone(&self.name),
            role: self.role,
            guest: self.guest.clone(),
            views: Arc::clone(&self.views_by_name),
            snapshot: snapshot.clone(),
            items,
            reasons: Vec::new(),
            continues: None,
            pending: self.pending(),
            notes: self.notes.clone(),
            grant: shared.settings.grant.clone(),
        }
    }

    pub(super) fn enqueue(&mut self, now: Instant, enqueue: &Enqueue) {
        // Who asks has checked that the queue is declared.
        let added = self.queues.enqueue(now, enqueue);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    /// The items of the next call. A page of a started decision comes first, in a call of
    /// its own.
    fn next_items(&mut self, now: Instant, shared: &mut Shared) -> Option<NextItems> {
        if let Some((page, decision)) = self.items.enter_page() {
            return Some(NextItems {
                items: vec![page],
                reasons: Vec::new(),
                continues: Some(decision),
                relisted: 0,
            });
        }
        let batch = self.queues.dequeue(now)?;
        if self.role == Role::Stable {
            for waited in batch.waited() {
                let queue = batch.queue.clone();
                shared.effects.push_back(Effect::Dequeued { queue, waited });
            }
        }
        self.items.enter_call(&batch.items);
        Some(NextItems {
            items: batch.items,
            reasons: batch.reasons,
            continues: None,
            relisted: batch.relisted,
        })
    }

    /// The pending items.
    pub(super) fn pending(&self) -> PendingSnapshot {
        self.queues.pending()
    }

    pub(super) fn has_called(&self, id: CallId) -> bool {
        self.calls.contains_key(&id)
    }

    pub(super) fn handle_throttled_read(&mut self, id: CallId, until: Instant) {
        if let Some(called) = self.calls.get_mut(&id) {
            called.throttled_until = called.throttled_until.max(Some(until));
        }
    }

    pub(super) fn handle_call_failure(
        &mut self,
        now: Instant,
        id: CallId,
        failure: CallFailure,
        took: Duration,
        shared: &mut Shared,
    ) {
        let Some(called) = self.calls.remove(&id) else {
            return;
        };
        // The guest may have failed because it did not get what it read.
        let failure = called.exceeded.map_or(failure, CallFailure::from);
        let finish = after_failed_call(failure.kind, called.items.len());
        self.tally.call_failed(&failure.to_string());
        self.circuit.failed(now, called.permit, failure.clone());
        shared.called(id, self.role, Some(failure), took);
        if let CircuitState::Open { until, reason } = self.circuit.state() {
            shared.effects.push_back(Effect::CircuitOpened {
                role: self.role,
                pause: until.since(now),
                reason: reason.clone(),
            });
        }
        if Mutant::ForgetFailedCalls.is_active() {
            return;
        }
        let decisions = decisions_of(id, called.continues);
        for (WorkItem { queue, key, .. }, decision) in called.items.into_iter().zip(decisions) {
            let item = QueueKey { queue, key };
            self.items.leave_call(&item);
            self.finish_item(now, &item, decision, finish.clone(), shared);
        }
    }

    pub(super) fn handle_call_void(&mut self, now: Instant, id: CallId) {
        if let Some(called) = self.calls.remove(&id) {
            self.circuit.abandoned(now, called.permit);
            self.send_back(now, called.items.iter().map(key));
        }
    }

    fn send_back(&mut self, now: Instant, items: impl IntoIterator<Item = QueueKey>) {
        if Mutant::ForgetVoidCalls.is_active() {
            return;
        }
        for item in items {
            self.queues
                .done(now, &item.queue, &item.key, Finish::PutBack);
            self.items.leave_call(&item);
        }
    }

    /// When to call [`Self::poll_call`] again, if nothing else happens.
    pub(super) fn poll_timeout(&self, now: Instant, bounds: &Bounds) -> Option<Instant> {
        if self.has_work() {
            return Some(now);
        }
        if !self.has_room(bounds) {
            return None;
        }
        let item = || {
            if self.items.has_page() {
                return Some(now);
            }
            self.queues.next_due(now)
        };
        let call = || Some(item()?.max(self.circuit.opens_at(now)?));
        [self.resync.due_at(now), call()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Every object that an item waits for.
    pub(super) fn waited_for(&self) -> Vec<Uid> {
        self.items.awaited()
    }

    /// Enqueues the items that waited for an object, once no expectation is open for
    /// it.
    pub(super) fn wake(
        &mut self,
        now: Instant,
        uid: &Uid,
        snapshot: &Snapshot,
        shared: &mut Shared,
    ) {
        if !self.items.awaits(uid) {
            return;
        }
        if !shared.is_open(uid, snapshot, now) {
            for item in self.items.observed(uid) {
                let source = Source {
                    origin: Origin::Fresh,
                    reason: EnqueueReason::Observed,
                };
                self.add(now, &item.queue, &item.key, source);
            }
        }
    }
}

/// The views are in the order of the watches.
fn watches(views: &Views, manifest: &Manifest) -> BTreeMap<ViewId, ManifestWatch> {
    let watches = manifest.watches.iter().enumerate();
    let watches = watches.map(|(position, watch)| ManifestWatch {
        position,
        name: watch.name.as_str().into(),
    });
    views.ids.iter().copied().zip(watches).collect()
}
