//! The deletions of the cluster's own controllers in a recorded history, which a policy is
//! compared with that takes the place of one of them.
//!
//! The journal has objects, and nobody's requests. An object that is marked for its deletion,
//! gets a deletion timestamp, or is gone, was deleted by somebody;
//! [`actor`](crate::cluster_comparison::actor) says by whom, as far as the object shows it.
//! Deletions of the actor that the policy replaces are the other side of the comparison. The
//! policy has these objects for a window of time as they were before, because that actor would
//! not run beside it. What others delete goes when history says so, and proves nothing about the
//! policy. The rules are those of [`crate::cluster_comparison`], which does it beside a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::cluster::ListedObject;
use super::comparison::{Author, Deletion};
use super::facts::Facts;
use super::feed::missing;
use super::history::{History, RecordedList};
use super::owner_waits::{KeptDeletion, OwnerWaits, SeenDeletion};
use super::recent::RecentUids;
use super::recorded::{RecordedRun, RecordedStep};
use super::report::Against;
use super::watch_gaps::WatchGaps;
use super::{Backtest, BacktestSettings};
use crate::cluster_comparison::actor::{self, Evidence, Traces};
use crate::cluster_comparison::{
    Counterpart, End, ObservedDeletion, OwnDeletions, Sighting, Windows, reference, window,
};
use crate::coverage::{CATCH_UP, excepts};
use crate::gate::{Mode, Ruling, WaitReason};
use crate::journal::{Entry, RulingEntry};
use crate::manifest::{Manifest, Source, WatchSpec};
use crate::object::Uid;
use crate::path::FieldTree;
use crate::store::{Object, SegmentSpec, StateChange};
use crate::time::Instant;

/// What no profile may name. Only Davit's own writes are known by it, and a journal has the
/// rulings on those, of a replica that follows too.
const MANAGERS: &str = "metadata.managedFields";

/// What the cluster's controllers delete.
#[derive(Debug)]
pub(super) struct ClusterRun {
    counterpart: Counterpart,
    /// What the policy watches of the objects that it may delete, each with the fields by which it
    /// is known who has deleted one.
    watches: Vec<(WatchSpec, FieldTree)>,
    windows: Windows,
    /// How long an object stays for the policy that the other side has deleted.
    stay: Duration,
    /// The objects whose deletion is compared.
    known: RecentUids,
    /// What each controller of Davit does, and the objects that they delete or have deleted.
    runs: BTreeMap<Arc<str>, RecordedRun>,
    own: OwnDeletions,
    /// Whether the host that records runs controllers: otherwise the journal has no rulings.
    has_controllers: bool,
    /// Whether a deletion counts that the journal has no rulings about.
    lacks_rulings: bool,
    /// The controllers whose plans another replica executes.
    followed: BTreeSet<String>,
    /// The objects that are gone: their dependents may be collected.
    gone: RecentUids,
    /// The deletions that the garbage collector may have made.
    waits: OwnerWaits,
    /// The objects that were terminating when the policy deleted them.
    ending: RecentUids,
    gaps: WatchGaps,
    /// The fields that the journal lacks of objects whose deletion it has.
    lacks: BTreeSet<String>,
}

impl ClusterRun {
    /// Nothing yet, for a policy with this manifest. The watches have these gaps, and the host that
    /// records runs controllers, or does not yet.
    pub(super) fn new(
        manifest: &Manifest,
        settings: &BacktestSettings,
        gaps: WatchGaps,
        has_controllers: bool,
    ) -> Self {
        let watches = actor::watches(manifest).into_iter();
        let watches = watches.map(|watch| {
            let fields = watch.fields.iter().collect();
            (watch, fields)
        });
        // A longer tolerance lets the policy be later, and nobody else.
        let plan = window(manifest);
        let deletion = plan.max(settings.tolerance);
        Self {
            counterpart: Counterpart::of(&manifest.name),
            watches: watches.collect(),
            windows: Windows { plan, deletion },
            stay: if settings.tolerance.is_zero() {
                Duration::ZERO
            } else {
                deletion
            },
            known: RecentUids::default(),
            runs: BTreeMap::new(),
            own: OwnDeletions::default(),
            has_controllers,
            lacks_rulings: false,
            followed: BTreeSet::new(),
            gone: RecentUids::default(),
            waits: OwnerWaits::default(),
            ending: RecentUids::default(),
            gaps,
            lacks: BTreeSet::new(),
        }
    }

    /// How long the policy and the other side wait for each other.
    pub(super) const fn windows(&self) -> Windows {
        self.windows
    }

    /// How long an object stays for the policy that the other side has deleted.
    pub(super) const fn stay(&self) -> Duration {
        self.stay
    }

    /// Takes what a controller of Davit does, and what the recording host says of its watches.
    /// What a controller patches it has not deleted: somebody else may do that later.
    pub(super) fn note(&mut self, entry: &Entry, history: &History, now: Instant) {
        match entry {
            Entry::Call(call) => {
                let name = &call.controller;
                let run = self.runs.entry(Arc::clone(name));
                run.or_insert_with(|| RecordedRun::new(name)).call(call);
            }
            Entry::Answer(answer) => {
                for run in self.runs.values_mut() {
                    run.answer(answer);
                }
            }
            Entry::Ruling(ruling) => self.note_ruling(ruling, history, now),
            // Whatever its outcome: the reply may be lost.
            Entry::Execution(execution) => {
                if let Some(run) = self.runs.get_mut(&*execution.controller) {
                    run.execution(execution);
                }
            }
            Entry::Stream(stream) => self.gaps.note(stream, now),
            Entry::Controller(_) => self.has_controllers = true,
            _ => {}
        }
    }

    fn note_ruling(&mut self, ruling: &RulingEntry, history: &History, now: Instant) {
        let run = self.runs.get_mut(&*ruling.controller);
        let step = run.and_then(|run| run.ruling(ruling));
        let Some(RecordedStep::Started(target) | RecordedStep::Deferred(target)) = step else {
            return;
        };
        let controller = history.controllers.get(&ruling.controller);
        let mode = controller.map(|one| one.mode).unwrap_or_default();
        self.own
            .note(Uid::new(&target.uid), mode, &ruling.ruling, now);
        if mode == Mode::Enforce && ruling.ruling == Ruling::Wait(WaitReason::NotLeading) {
            self.followed.insert(ruling.controller.clone());
        }
    }

    /// The policy deletes an object. If that is terminating, the plan is about its end.
    pub(super) fn note_plan(&mut self, uid: &Uid, is_terminating: bool) {
        if is_terminating {
            self.ending.insert(uid);
        }
    }

    /// Whether the policy has deleted an object when that was terminating.
    pub(super) fn is_about_end(&self, uid: &Uid) -> bool {
        self.ending.contains(uid)
    }

    /// Another host records: its identifiers are others.
    pub(super) fn restart(&mut self) {
        self.runs.clear();
        self.has_controllers = false;
        self.gaps = WatchGaps::default();
    }

    /// The deletion that a change of the cache shows, before it is applied. An object that a list
    /// shows for the first time may have been marked before.
    fn observe(
        &mut self,
        change: &StateChange,
        history: &History,
        now: Instant,
    ) -> Option<SeenDeletion> {
        let (slot, after) = match change {
            StateChange::Put { slot, object, .. } => (*slot, Some(object)),
            StateChange::Remove { slot, .. } => (*slot, None),
            _ => return None,
        };
        let object = &history.object(slot)?.object;
        let list = history.list(object.segment())?;
        let (spec, uid) = (&list.spec, object.uid());
        if after.is_none() {
            self.note_gone(object, spec, history);
        }
        let (_, wanted) = self
            .watches
            .iter()
            .find(|(it, _)| shows(it, spec, object))?;
        if self.known.contains(uid) || self.waits.contains(uid) {
            return None;
        }
        let sighting = Sighting {
            gap: self.gaps.before(&spec.resource, now),
            is_selected: spec.is_selected() && !self.gone.contains(uid),
            is_about_end: self.is_about_end(uid),
        };
        let (before, after) = (Traces::of(object), after.map(|it| Traces::of(it)));
        let mut deletion = ObservedDeletion::of(now, before, after, sighting)?;
        let is_own = self.own.contains(uid, now);
        let is_gone = |owner: &Uid| is_gone(owner, history, &self.gone);
        deletion.attribute(&spec.kind.kind, is_own, is_gone);
        self.lacks.extend(lacking(list, wanted));
        // What may have left its selector may return.
        if self.counterpart.counts(deletion.actor) && !deletion.may_have_left {
            self.know(uid);
        }
        let target = reference(&spec.kind, object);
        Some(SeenDeletion {
            target,
            deletion,
            earliest: self.gaps.since(&spec.resource, now).unwrap_or(now),
        })
    }

    /// Whether the garbage collector may have made a deletion, and nobody else is known to have.
    fn waits_for_owners(&self, deletion: &ObservedDeletion) -> bool {
        !deletion.may_have_left
            && !self.counterpart.counts(deletion.actor)
            && self.counterpart.may_be_collected(deletion)
    }

    /// Whether it is open who has deleted an object.
    pub(super) fn is_open(&self, uid: &Uid) -> bool {
        self.waits.contains(uid)
    }

    /// When the next deletion does not wait for its owners any longer.
    pub(super) fn next_wait_end(&self) -> Instant {
        self.waits.next_end()
    }

    /// The owners of an object may be gone by now. Returns its deletion if it is one of the other
    /// side.
    fn attribute_again(
        &mut self,
        uid: &Uid,
        history: &History,
        now: Instant,
    ) -> Option<(SeenDeletion, KeptDeletion)> {
        let is_own = self.own.contains(uid, now);
        let is_gone = |owner: &Uid| is_gone(owner, history, &self.gone);
        let SeenDeletion {
            target, deletion, ..
        } = self.waits.get_mut(uid)?;
        deletion.attribute(&target.kind, is_own, is_gone);
        if !self.counterpart.counts(deletion.actor) {
            return None;
        }
        self.know(uid);
        self.waits.remove(uid)
    }

    /// The deletion of an object is one of the other side.
    fn know(&mut self, uid: &Uid) {
        self.known.insert(uid);
        self.lacks_rulings |= !self.has_controllers;
    }

    /// A list shows an object no more. Without a selector, or if the object was about to go, it is
    /// gone.
    fn note_gone(&mut self, object: &Object, spec: &SegmentSpec, history: &History) {
        let uid = object.uid();
        let is_last = || history.with_uid(uid).count() == 1;
        if !spec.is_selected() || (is_last() && !Traces::of(object).is_alive()) {
            self.gone.insert(uid);
        }
    }

    /// Since when nobody has watched an object; none if somebody does, or if history does not have
    /// it.
    pub(super) fn unwatched_since(
        &self,
        uid: &Uid,
        history: &History,
        now: Instant,
    ) -> Option<Instant> {
        let held = history.with_uid(uid).next()?;
        let list = history.list(held.object.segment())?;
        self.gaps.since(&list.spec.resource, now)
    }

    /// Whether the journal has the fields by which it is known who deleted an object, for each
    /// deletion.
    pub(super) fn attributes_all(&self) -> bool {
        self.lacks.is_empty()
    }

    /// What the report says about the other side.
    pub(super) fn notes(&self) -> Vec<String> {
        let side = self.counterpart.actor().map_or_else(
            || "everybody but Davit".to_owned(),
            |actor| actor.to_string(),
        );
        let list = |texts: &BTreeSet<String>| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            texts.join(", ")
        };
        let mut notes = vec![format!(
            "the candidate is compared with what the journal shows of {side}"
        )];
        if !self.attributes_all() {
            notes.push(format!(
                "the journal lacks fields by which it is known who deleted an object: {}; a \
                 deletion without them counts as one of somebody else, or later than it was",
                list(&self.lacks)
            ));
        }
        if self.lacks_rulings {
            notes.push(
                "a host without controllers recorded, for a part of the time at least: what \
                 another host of Davit deleted then counts as deleted by the cluster"
                    .to_owned(),
            );
        }
        if !self.followed.is_empty() {
            notes.push(format!(
                "another replica led {} for a part of the time: what the recording host planned to \
                 delete then counts as deleted by Davit",
                list(&self.followed)
            ));
        }
        notes
    }
}

/// Whether a watch of the policy shows an object of a list. Another list may have objects that the
/// policy never sees.
fn shows(watch: &WatchSpec, spec: &SegmentSpec, object: &Object) -> bool {
    let resource = &spec.resource;
    let is_of_source = match &watch.source {
        Source::One(one) => one == resource,
        Source::EveryDeletable(except) => !excepts(except, &resource.group, &resource.plural),
    };
    is_of_source
        && watch.label_selector == spec.label_selector
        && watch.field_selector == spec.field_selector
        && (spec.namespace.is_empty() || spec.namespace == watch.namespace)
        && (watch.namespace.is_empty() || watch.namespace == object.namespace())
}

/// Whether an owner is gone, or terminates. One that no list has may exist: only one that history
/// has removed is gone.
fn is_gone(owner: &Uid, history: &History, gone: &RecentUids) -> bool {
    let mut listed = history.with_uid(owner).peekable();
    match listed.peek() {
        None => gone.contains(owner),
        Some(_) => listed.any(|held| Traces::of(&held.object).is_terminating),
    }
}

/// What a list lacks of these fields.
fn lacking(list: &RecordedList, wanted: &FieldTree) -> Vec<String> {
    if list.fields.covers(wanted) {
        return Vec::new();
    }
    let paths = missing(wanted, &list.fields).into_iter();
    let paths = paths.filter(|path| !path.starts_with(MANAGERS));
    let resource = &list.spec.resource;
    paths.map(|path| format!("{resource} {path}")).collect()
}

/// `pod-garbage-collector-controller, by the object's state`
fn reason(deletion: &ObservedDeletion) -> String {
    let by = match deletion.evidence {
        Evidence::Mark => ", by its mark",
        Evidence::State => ", by the object's state",
        Evidence::Nothing => "",
    };
    format!("{}{by}", deletion.actor)
}

impl<G: Clone> Backtest<G> {
    /// Whether the policy is compared with the cluster.
    pub(super) fn is_against_cluster(&self) -> bool {
        self.settings.against == Against::Cluster
    }

    /// Notes the deletion that a change of the cache shows, before the change is applied.
    pub(super) fn note_cluster(&mut self, change: &StateChange) {
        let (history, now) = (&self.cluster.history, self.now.instant);
        let Some(run) = &mut self.cluster_run else {
            return;
        };
        let Some(seen) = run.observe(change, history, now) else {
            return;
        };
        let end = run.counterpart.end(&seen.deletion, seen.earliest, true);
        let waits = run.waits_for_owners(&seen.deletion);
        match end {
            End::Counterpart { .. } => {
                let has_author = run.counterpart.has_author(&seen.deletion);
                let kept = self.keep_seen(&seen);
                self.note_counted(&seen, kept, has_author);
            }
            End::Left { at } => self.comparison.left(&seen.target, at),
            _ if waits => self.wait_for_owners(seen),
            end => self.comparison.ended(&Uid::new(&seen.target.uid), end),
        }
    }

    /// An object that the other side has deleted, or may have, stays for the policy for a while.
    fn keep_seen(&mut self, seen: &SeenDeletion) -> KeptDeletion {
        let uid = Uid::new(&seen.target.uid);
        let found = self.cluster.recorded(&uid);
        let facts = Facts::of(&seen.target, &found, &self.cluster);
        let stay = self.cluster_run.as_ref().map(ClusterRun::stay);
        let stay = stay.filter(|stay| !stay.is_zero() && self.may_be_kept(&uid, &found));
        if let Some(stay) = stay {
            let until = self.now.instant.after(stay);
            self.cluster.overlay.doom(uid, found, until);
        }
        KeptDeletion {
            facts,
            is_kept: stay.is_some(),
            at: self.now,
        }
    }

    /// The other side has deleted an object. `has_author` says whether the deletion shows so, or
    /// only together with one of the policy.
    fn note_counted(&mut self, seen: &SeenDeletion, kept: KeptDeletion, has_author: bool) {
        let uid = Uid::new(&seen.target.uid);
        if kept.is_kept {
            self.cluster.overlay.accept(&uid);
        }
        let is_there = self.cluster.has_or_keeps(&uid);
        let deletion = Deletion {
            target: &seen.target,
            reason: &reason(&seen.deletion),
            message: &seen.deletion.traces.to_string(),
            facts: kept.facts,
            is_there,
            saw: None,
            // What does not stay, the policy had no time to decide about.
            is_certain: has_author && kept.is_kept && is_there,
            has_author,
            earliest: seen.earliest,
        };
        self.comparison.note(Author::Recorded, deletion, kept.at);
    }

    /// The garbage collector may have deleted an object, and the journal has its owners still. It
    /// stays for the policy meanwhile.
    fn wait_for_owners(&mut self, seen: SeenDeletion) {
        let run = self.cluster_run.as_ref();
        if run.is_some_and(|run| run.waits.is_full()) {
            self.comparison.left(&seen.target, seen.earliest);
            return;
        }
        let kept = self.keep_seen(&seen);
        if let Some(run) = &mut self.cluster_run {
            let until = self.now.instant.after(run.windows.plan);
            run.waits.add(seen, kept, until);
        }
    }

    /// An object may be an owner, and has changed: it is gone, or terminates.
    pub(super) fn note_owner(&mut self, change: &StateChange) {
        let uid = match change {
            StateChange::Put { object, .. } => object.uid(),
            StateChange::Remove { uid, .. } => uid,
            _ => return,
        };
        let run = self.cluster_run.as_ref();
        for dependent in run.map(|run| run.waits.of_owner(uid)).unwrap_or_default() {
            self.attribute_again(&dependent);
        }
    }

    /// Ends the waits for owners that are over.
    pub(super) fn end_waits(&mut self) {
        let now = self.now.instant;
        let due = |run: &ClusterRun| run.waits.due(now);
        while let Some(uid) = self.cluster_run.as_ref().and_then(due) {
            self.end_wait(&uid, true);
        }
    }

    /// Nobody records any more whether the owners follow.
    pub(super) fn give_up_waits(&mut self) {
        let next = |run: &ClusterRun| run.waits.due(Instant::FAR_FUTURE);
        while let Some(uid) = self.cluster_run.as_ref().and_then(next) {
            self.end_wait(&uid, false);
        }
    }

    /// A deletion does not wait for its owners any longer. `is_over` says whether they had the time
    /// to follow: then somebody else has made it.
    fn end_wait(&mut self, uid: &Uid, is_over: bool) {
        if self.attribute_again(uid) {
            return;
        }
        let Some(run) = &mut self.cluster_run else {
            return;
        };
        let Some((seen, kept)) = run.waits.remove(uid) else {
            return;
        };
        let (at, now) = (seen.earliest, self.now.instant);
        let mut owners = seen.deletion.traces.owners.iter();
        let history = &self.cluster.history;
        let is_unwatched = |owner: &Uid| run.unwatched_since(owner, history, now).is_some();
        if is_over {
            let end = run.counterpart.end(&seen.deletion, at, true);
            self.comparison.ended(uid, end);
        } else if now.since(kept.at.instant) < CATCH_UP || owners.any(is_unwatched) {
            self.comparison.left(&seen.target, at);
        } else {
            // The watch of an owner seldom lags behind for longer.
            self.comparison.ended(uid, End::Unknown { at });
        }
        if kept.is_kept {
            self.end_stay(uid);
        }
        self.settle_open(uid);
    }

    /// The owners of an object may be gone by now: then the other side has deleted it. Returns
    /// whether it has.
    fn attribute_again(&mut self, uid: &Uid) -> bool {
        let (history, now) = (&self.cluster.history, self.now.instant);
        let Some(run) = &mut self.cluster_run else {
            return false;
        };
        let Some((seen, kept)) = run.attribute_again(uid, history, now) else {
            return false;
        };
        let has_author = run.counterpart.has_author(&seen.deletion);
        self.note_counted(&seen, kept, has_author);
        self.settle_open(uid);
        true
    }

    /// It is known who has deleted an object, as far as it can be known. If it is gone, it can be
    /// settled.
    fn settle_open(&mut self, uid: &Uid) {
        if !self.cluster.has_or_keeps(uid) {
            self.comparison.gone(uid, self.now.instant);
        }
    }

    /// Whether an object may stay that the other side has deleted in these states: the policy has
    /// not decided about it, and it is no pod that has ended. A policy that counts such pods would
    /// count it, and delete another one.
    fn may_be_kept(&self, uid: &Uid, found: &[ListedObject]) -> bool {
        let mut states = found.iter().map(|(_, held)| Traces::of(&held.object));
        !self.cluster.overlay.is_deleted(uid)
            && !self.comparison.is_planned(uid)
            && !states.any(|state| state.has_ended())
    }

    /// History has an object in a list for the first time, or again.
    pub(super) fn note_return(&mut self, object: &Object) {
        let uid = object.uid();
        let run = self.cluster_run.as_ref();
        // That it terminates is no news if the plan was about its end.
        let is_no_news = run.is_some_and(|run| run.is_about_end(uid));
        let is_alive = || Traces::of(object).is_alive();
        if self.comparison.is_unseen(uid) {
            self.comparison.returned(uid, is_no_news || is_alive());
        }
    }

    /// The policy has decided about an object in a dry run: it does not stay any longer. In a
    /// closed loop it is deleted.
    pub(super) fn release(&mut self, uid: &Uid) {
        if self.is_against_cluster() {
            self.end_stay(uid);
        }
    }
}
