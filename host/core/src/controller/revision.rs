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

use super::exchange::{CallId, CallRequest, Effect, RevisionId, Settings};
use super::items::{CallInFlight, EarlyWake, WorkItems, decisions_of};
use super::resync::{Pace, Resync};
use super::shared::SharedState;
use super::tally::Tally;
use super::trigger::{TriggerContext, noted_key, triggers_of};
use super::views::Views;
use crate::bounds::{Bounds, Series};
use crate::circuit::{CallFailure, CircuitBreaker, CircuitState, after_failed_call};
use crate::gate::Mode;
use crate::manifest::{Manifest, TriggerKey};
use crate::mapping::Mapping;
use crate::mutant::Mutant;
use crate::notes::{self, GuestReport, Notes};
use crate::object::Uid;
use crate::plan::{Enqueue, QueueKey, WorkItem};
use crate::queue::{EnqueueReason, Origin, PendingSnapshot, QueueStats, Queues, Source};
use crate::revision::{LoadedRevision, RevisionIdentity};
use crate::rollout::Role;
use crate::store::{Change, Snapshot, ViewId};
use crate::time::Instant;

use answer::Answer;

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
    watches: Arc<BTreeMap<ViewId, ManifestWatch>>,
    /// Whether every watch is complete. While a resource is not served, the cache may
    /// lack objects that exist, so the guest is not called.
    complete: bool,
    /// Whether changes of the cache were not enqueued: a resync follows.
    missed: bool,
    notes: Notes,
    /// The bytes of the notes and their keys.
    note_bytes: usize,
    /// The series of the guest's metrics.
    series: Series,
    /// The bytes of the plans that are decided and have not ended.
    plan_bytes: usize,
    circuit: CircuitBreaker,
    tally: Tally,
    /// The answers that are not executed yet, in their order.
    answers: VecDeque<Answer>,
    pub(super) items: WorkItems,
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
        let items = WorkItems::new(queues);
        let mut revision = Self::with(id, Role::Stable, loaded, views, items);
        revision.resync(Pace::Brisk);
        revision
    }

    fn with(
        id: RevisionId,
        role: Role,
        loaded: LoadedRevision<G>,
        views: Views,
        items: WorkItems,
    ) -> Self {
        Self {
            id,
            items_of: id,
            role,
            guest: loaded.guest,
            name: loaded.identity.to_string().into(),
            identity: loaded.identity,
            views_by_name: views.by_name(&loaded.manifest),
            watches: watches(&views, &loaded.manifest).into(),
            views,
            manifest: loaded.manifest,
            complete: true,
            missed: false,
            notes: Notes::default(),
            note_bytes: 0,
            series: Series::default(),
            plan_bytes: 0,
            circuit: CircuitBreaker::default(),
            tally: Tally::default(),
            answers: VecDeque::new(),
            items,
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

    /// Its views by the names of their watches.
    #[must_use]
    pub const fn views_by_name(&self) -> &Arc<BTreeMap<String, ViewId>> {
        &self.views_by_name
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
            && self.items.calls().len() < self.identity.limits().instances as usize
            && self.plan_bytes < bounds.plan_bytes
    }

    fn set_views(&mut self, views: Views) {
        self.views_by_name = views.by_name(&self.manifest);
        self.watches = watches(&views, &self.manifest).into();
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
        self.items.stats(now)
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
        self.resync(Pace::Easy);
        self.items.resync(now);
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
        self.items.mapping_changed(now);
    }

    fn resync(&mut self, pace: Pace) {
        let manifest = &self.manifest;
        let triggers = self.watches.iter().flat_map(|(view, watch)| {
            let triggers = triggers_of(manifest, watch.position);
            triggers.map(|trigger| (*view, trigger.clone()))
        });
        self.resync.start(pace, triggers);
    }

    /// Whether keys that triggers name are enqueued. A guest that is not called, or does
    /// not keep up, would let the queues grow with each object that comes and goes. A
    /// resync does as well as they: it enqueues the keys of every object that is left.
    /// Triggers have room for as many items as the guest, so that it cannot shut them out.
    fn listens(&self, settings: &Settings) -> bool {
        let most = settings.bounds.queue_items.saturating_mul(2);
        settings.mode != Mode::Disabled && self.complete && self.items.queues().usage().items < most
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
        let is_crowded = self.items.queues().has_relisted(now);
        let context = TriggerContext {
            snapshot,
            views: &self.views_by_name,
            notes: &self.notes,
        };
        if let Some((queue, keys)) = self.resync.next(now, is_crowded, context) {
            for key in keys {
                let source = Source {
                    origin: Origin::Relist,
                    reason: EnqueueReason::Resync,
                };
                self.add(now, &queue, &key, source);
            }
        }
    }

    /// An object changed, in all these views.
    pub(super) fn handle_change(
        &mut self,
        now: Instant,
        of_object: &[Change],
        origin: Origin,
        snapshot: &Snapshot,
        settings: &Settings,
    ) {
        let watches = Arc::clone(&self.watches);
        for (view, watch) in watches.iter() {
            let found = of_object.binary_search_by_key(view, |change| change.view);
            let Some(change) = found.ok().and_then(|place| of_object.get(place)) else {
                continue;
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
                for key in self.trigger_context(snapshot).changed_keys(trigger, change) {
                    let reason = reason.clone();
                    self.add(now, &trigger.queue, &key, Source { origin, reason });
                }
            }
        }
    }

    /// A note is set by a call that may have started before its object disappeared, when there
    /// was no note. So the trigger that is about noted objects names this one now. Without a
    /// snapshot it is named whether it is there or not.
    fn follow_note(&mut self, now: Instant, note: &str, snapshot: Option<&Snapshot>) {
        let watches = Arc::clone(&self.watches);
        let manifest = Arc::clone(&self.manifest);
        for (view, watch) in watches.iter() {
            for trigger in triggers_of(&manifest, watch.position) {
                let Some(key) = noted_key(trigger, note) else {
                    continue;
                };
                let view = snapshot.and_then(|snapshot| snapshot.view(*view));
                let is_there = view.is_some_and(|view| match trigger.key {
                    TriggerKey::OwnUid => view.get_by_uid(key).is_some(),
                    _ => view.get(key).is_some(),
                });
                if !is_there {
                    let source = Source {
                        origin: Origin::Fresh,
                        reason: EnqueueReason::Change {
                            watch: Arc::clone(&watch.name),
                        },
                    };
                    self.add(now, &trigger.queue, key, source);
                }
            }
        }
    }

    fn trigger_context<'a>(&'a self, snapshot: &'a Snapshot) -> TriggerContext<'a> {
        TriggerContext {
            snapshot,
            views: &self.views_by_name,
            notes: &self.notes,
        }
    }

    fn add(&mut self, now: Instant, queue: &str, key: &str, source: Source) {
        // A valid manifest names only queues that it declares.
        let added = self.items.add(now, queue, key, source);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    pub(super) fn poll_call(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        mapping: &Arc<Mapping>,
        shared: &mut SharedState,
    ) -> Option<CallRequest<G>> {
        if !self.has_room(&shared.settings.bounds) {
            return None;
        }
        let permit = self.circuit.start(now)?;
        let Some((batch, continues)) = self.items.dequeue(now) else {
            self.circuit.abandoned(now, permit);
            return None;
        };
        if self.role == Role::Stable && continues.is_none() {
            for waited in batch.waited() {
                let queue = batch.queue.clone();
                shared.effects.push_back(Effect::Dequeued { queue, waited });
            }
        }
        let mut request = self.request(snapshot, mapping, batch.items, shared);
        request.reasons = batch.reasons;
        request.continues = continues;
        let call = CallInFlight {
            items: request.items.clone(),
            continues,
            relisted: batch.relisted,
            permit,
            started: now,
            snapshot: snapshot.clone(),
            mapping: Arc::clone(mapping),
            throttled_until: None,
            live_read_bytes: 0,
            exceeded: None,
        };
        self.items.start_call(request.id, call);
        shared.has_read_former |= snapshot.has_former();
        if let Some(rollout) = &mut shared.rollout {
            rollout.pending.insert(self.role, request.pending.clone());
        }
        Some(request)
    }

    /// A call about these items.
    pub(super) fn request(
        &self,
        snapshot: &Snapshot,
        mapping: &Arc<Mapping>,
        items: Vec<WorkItem>,
        shared: &mut SharedState,
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
            mapping: Arc::clone(mapping),
            items,
            reasons: Vec::new(),
            continues: None,
            pending: self.pending(),
            notes: self.notes.clone(),
            grant: shared.settings.grant.clone(),
        }
    }

    /// What the guest reports to operators.
    pub(crate) fn reports(&self) -> Vec<GuestReport> {
        notes::reports(&self.notes)
    }

    fn drop_reports(&mut self) {
        for key in notes::report_keys(&self.notes) {
            self.set_note(key, None);
        }
    }

    pub(super) fn enqueue(&mut self, now: Instant, enqueue: &Enqueue) {
        // Who asks has checked that the queue is declared.
        let added = self.items.enqueue(now, enqueue);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    /// The pending items.
    pub(super) fn pending(&self) -> PendingSnapshot {
        self.items.queues().pending()
    }

    pub(super) fn has_called(&self, id: CallId) -> bool {
        self.items.call(id).is_some()
    }

    /// The mapping that a call reads.
    pub(super) fn mapping_of(&self, id: CallId) -> Option<&Arc<Mapping>> {
        self.items.call(id).map(|call| &call.mapping)
    }

    pub(super) fn handle_throttled_read(&mut self, id: CallId, until: Instant) {
        if let Some(called) = self.items.call_mut(id) {
            called.throttled_until = called.throttled_until.max(Some(until));
        }
    }

    pub(super) fn handle_call_failure(
        &mut self,
        now: Instant,
        id: CallId,
        failure: CallFailure,
        took: Duration,
        shared: &mut SharedState,
    ) {
        let Some(called) = self.items.end_call(id) else {
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
            let wake = EarlyWake::default();
            self.finish_item(now, &item, decision, finish.clone(), wake, shared);
        }
    }

    pub(super) fn handle_call_void(&mut self, now: Instant, id: CallId) {
        if let Some(called) = self.items.void_call(now, id) {
            self.circuit.abandoned(now, called.permit);
        }
    }

    /// Whether [`Self::poll_call`] may have a call to make.
    pub(super) fn has_due_call(&self, now: Instant, bounds: &Bounds) -> bool {
        let due = self.items.next_due(now).zip(self.circuit.opens_at(now));
        self.has_room(bounds) && due.is_some_and(|(item, open)| item.max(open) <= now)
    }

    /// When to call [`Self::poll_call`] again, if nothing else happens.
    pub(super) fn poll_timeout(&self, now: Instant, bounds: &Bounds) -> Option<Instant> {
        if self.has_work() {
            return Some(now);
        }
        if !self.has_room(bounds) {
            return None;
        }
        let call = || {
            let item = self.items.next_due(now)?;
            Some(item.max(self.circuit.opens_at(now)?))
        };
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
        shared: &mut SharedState,
    ) {
        if self.items.awaits(uid) && !shared.is_open(uid, snapshot, now) {
            self.items.observed(now, uid);
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
