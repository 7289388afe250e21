//! Applying entries, and the effects of the machine.

use std::sync::Arc;
use std::time::Duration;

use super::against::ClusterRun;
use super::comparison::{Author, Deletion};
use super::facts::{self, Facts};
use super::feed::Feed;
use super::history::ObjectChange;
use super::recorded;
use super::refusal::Refusal;
use super::report::{GuardrailTrip, Report};
use super::watch_gaps::WatchGaps;
use super::{Backtest, ListedTrip};
use crate::budget::Trip;
use crate::cluster_comparison::actor::Traces;
use crate::gate::{Ruling, WaitReason};
use crate::journal::{Entry, LostEntry, Phase};
use crate::machine::{self, Call, Effect, Input};
use crate::mapping::{Discovery, Mapping};
use crate::object::{ObjectRef, Uid};
use crate::plan::Plan;
use crate::store::{Object, SegmentId, Slot, StateChange};
use crate::stream::{Batch, StreamId, Update};
use crate::time::{Instant, Now};
use crate::times;

/// How long a stream waits for a recorded list before the journal counts as one that does not
/// have it: a host that starts lists for a while.
const GRACE: Duration = Duration::from_secs(60);

impl<G: Clone> Backtest<G> {
    /// Executes the machine's effects until it has none. Returns the first call.
    pub(super) fn drain(&mut self) -> Result<Option<Box<Call<G>>>, Refusal> {
        if self.relists_since.is_some() {
            return Ok(None);
        }
        let Some(mut machine) = self.machine.take() else {
            return Ok(None);
        };
        let call = loop {
            while let Some(input) = self.inputs.pop_front() {
                machine.handle(self.now, input);
            }
            let Some(effect) = machine.poll(self.now) else {
                break None;
            };
            self.pace.effect(self.now)?;
            if let Some(call) = self.execute_effect(effect) {
                break Some(call);
            }
        };
        self.machine = Some(machine);
        if let Some(call) = &call {
            self.pace.call(call, self.now)?;
        }
        Ok(call)
    }

    fn execute_effect(&mut self, effect: Effect<G>) -> Option<Box<Call<G>>> {
        match effect {
            Effect::StartStream { stream, spec } => {
                let mut feed = Feed::new(spec, self.now.instant);
                if feed.follow(&self.cluster.history, self.now.instant) {
                    self.list(stream, &feed);
                }
                self.feeds.insert(stream, feed);
                self.check_later();
            }
            Effect::StopStream(stream) => {
                self.feeds.remove(&stream);
            }
            Effect::Discover => self.discover(),
            Effect::Call(call) => return Some(call),
            Effect::Execute(execute) => self.execute_plan(&execute),
            Effect::Report(report) => self.note_report(&report),
            // Plans are executed at once, and the caller answers live reads.
            Effect::Read { .. }
            | Effect::Resume { .. }
            | Effect::Withdraw(_)
            | Effect::Release(_) => {}
        }
        None
    }

    fn discover(&mut self) {
        match &self.cluster.history.mapping {
            Some(mapping) => {
                let mapping = Mapping::clone(mapping);
                let discovery = Discovery {
                    mapping,
                    failed: Vec::new(),
                };
                self.inputs.push_back(Input::Discovered(Ok(discovery)));
                self.awaits_mapping = false;
            }
            None => self.awaits_mapping = true,
        }
    }

    fn list(&mut self, stream: StreamId, feed: &Feed) {
        if let Some(reset) = feed.reset(&self.cluster) {
            self.update(stream, reset);
        }
    }

    pub(super) fn update(&mut self, stream: StreamId, update: Update) {
        let updates = vec![update];
        self.inputs
            .push_back(Input::Stream(Batch { stream, updates }));
    }

    /// When something happens next without an entry; none if no policy runs.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let machine = self.machine.as_ref()?;
        let wake = match self.relists_since {
            Some(since) => since.after(GRACE),
            None => machine.next_wake(self.now),
        };
        let run = self.cluster_run.as_ref();
        let waits = run.map_or(Instant::FAR_FUTURE, ClusterRun::next_wait_end);
        Some(wake.min(self.cluster.overlay.next_end()).min(waits))
    }

    /// Time passes.
    pub(super) fn pass(&mut self, now: Now) -> Result<(), Refusal> {
        if now.instant > self.now.instant {
            self.pace.pass();
        }
        self.now = now;
        self.end_relisting();
        self.end_waits();
        while let Some(uid) = self.cluster.overlay.end_stay(now.instant) {
            self.end_stay(&uid);
        }
        let (cluster, run) = (&self.cluster, self.cluster_run.as_ref());
        // While it is open who has deleted an object, it is not settled.
        let is_open = |uid: &Uid| run.is_some_and(|run| run.is_open(uid));
        self.comparison
            .settle(now.instant, |uid| cluster.has_or_keeps(uid) || is_open(uid));
        if self.check_at <= now.instant {
            self.check_at = Instant::FAR_FUTURE;
            self.check_feeds_at(now.instant)?;
            self.check_later();
        }
        Ok(())
    }

    fn check_later(&mut self) {
        let waiting = self.feeds.values().filter(|feed| !feed.is_fed());
        let next = waiting.map(|feed| feed.waits_since.after(GRACE)).min();
        if let Some(next) = next {
            let next = if next <= self.now.instant {
                self.now.instant.after(GRACE)
            } else {
                next
            };
            self.check_at = self.check_at.min(next);
        }
    }

    /// Whether the journal has what every stream needs that has waited long enough.
    fn check_feeds_at(&self, now: Instant) -> Result<(), Refusal> {
        let nothing = Mapping::default();
        let mapping = self.cluster.history.mapping.as_deref();
        let mapping = mapping.unwrap_or(&nothing);
        let late = self.feeds.values();
        let mut late = late.filter(|feed| feed.is_fed() || feed.waits_since.after(GRACE) <= now);
        let is_end = now == Instant::FAR_FUTURE;
        let refusal = late.find_map(|feed| feed.refusal(&self.cluster.history, mapping, is_end));
        refusal.map_or(Ok(()), Err)
    }

    /// The same at the end of history.
    pub(super) fn check_feeds(&self) -> Result<(), Refusal> {
        self.check_feeds_at(Instant::FAR_FUTURE)
    }

    /// Applies an entry at its time.
    pub(super) fn apply(&mut self, entry: Entry) -> Result<(), Refusal> {
        match (self.phase, entry) {
            (Phase::Complete, Entry::Keyframe { is_start: false }) => {
                self.phase = Phase::KnownKeyframe;
            }
            (Phase::Empty | Phase::Complete, Entry::Keyframe { is_start }) => {
                // A host that starts lacks nothing of the one before it.
                let is_lost = self.phase == Phase::Empty && !is_start;
                self.notes.losses += u64::from(is_lost && self.machine.is_some());
                self.phase = Phase::Keyframe;
                self.restart();
            }
            (Phase::Keyframe, Entry::KeyframeEnd) => {
                self.phase = Phase::Complete;
                self.follow();
            }
            (Phase::KnownKeyframe, Entry::KeyframeEnd) => self.phase = Phase::Complete,
            (Phase::Empty | Phase::KnownKeyframe, _) => {}
            (Phase::Keyframe | Phase::Complete, entry) => self.apply_to_state(entry)?,
        }
        Ok(())
    }

    /// Another host records, or the same one after a gap: its identifiers are others.
    fn restart(&mut self) {
        self.note_unentered();
        self.give_up_waits();
        self.interrupt();
        for uid in self.cluster.overlay.restart() {
            self.drop_kept(&uid);
        }
        self.cluster.history.restart();
        self.recorded.restart();
        self.gaps = WatchGaps::default();
        if let Some(run) = &mut self.cluster_run {
            run.restart();
        }
        for feed in self.feeds.values_mut() {
            feed.restart(self.now.instant);
        }
        if self.feeds.values().any(Feed::is_outdated) {
            self.relists_since = Some(self.now.instant);
        }
        self.check_later();
        self.notes.restarts += u64::from(self.machine.is_some());
    }

    /// What history has now may go without an entry.
    fn interrupt(&mut self) {
        let cluster = &self.cluster;
        self.comparison
            .interrupt(self.now.instant, |uid| cluster.has_or_keeps(uid));
    }

    fn apply_to_state(&mut self, entry: Entry) -> Result<(), Refusal> {
        if let Some(run) = &mut self.cluster_run {
            run.note(&entry, &self.cluster.history, self.now.instant);
        }
        if let Entry::Stream(stream) = &entry {
            self.gaps.note(stream, self.now.instant);
        }
        match entry {
            Entry::Cache(change) => self.apply_change(&change)?,
            Entry::Mapping(mapping) => {
                self.cluster.history.mapping = Some(mapping);
                if self.machine.is_some() {
                    self.discover();
                }
            }
            Entry::Controller(controller) => {
                let controllers = &mut self.cluster.history.controllers;
                controllers.insert(controller.name.clone(), controller);
                if self.machine.is_some() {
                    self.note_recorded_controller();
                }
            }
            Entry::Removed { controller } => {
                self.cluster.history.controllers.remove(&controller);
                self.cluster.history.specs.remove(&controller);
            }
            Entry::Spec { controller, spec } => {
                self.cluster.history.specs.insert(controller, spec);
            }
            Entry::Call(call) => self.recorded.call(&call),
            Entry::Answer(answer) => self.recorded.answer(&answer),
            Entry::Ruling(ruling) => {
                let step = self.recorded.ruling(&ruling);
                self.note_recorded(step);
            }
            Entry::Execution(execution) => {
                let step = self.recorded.execution(&execution);
                self.note_recorded(step);
            }
            Entry::Stream(stream) if stream.is_current => {
                let fed = self.feeds.values_mut().filter(|feed| feed.is_fed());
                for feed in fed.filter(|feed| feed.resource() == stream.resource) {
                    feed.status = Some(stream.condition.clone());
                }
                if self.relists_since.is_none() {
                    self.pass_statuses();
                }
            }
            Entry::Lost(lost) => {
                let LostEntry { what, bytes } = lost;
                self.missing.note(format!(
                    "an entry of {bytes} bytes was too large for the journal: {what}"
                ));
            }
            Entry::Keyframe { .. }
            | Entry::KeyframeEnd
            | Entry::Failure { .. }
            | Entry::Unlisted(_)
            | Entry::Stream(_)
            | Entry::Held(_)
            | Entry::Kept(_) => {}
        }
        Ok(())
    }

    fn apply_change(&mut self, change: &StateChange) -> Result<(), Refusal> {
        self.note_cluster(change);
        self.note_termination(change);
        if matches!(change, StateChange::DropSegment(_)) {
            self.interrupt();
        }
        match self.cluster.history.apply(change)? {
            ObjectChange::None => {}
            ObjectChange::Lists if self.phase == Phase::Keyframe => {}
            ObjectChange::Lists => self.follow(),
            ObjectChange::Put { slot, is_new } => self.put(slot, is_new),
            ObjectChange::Renewed(slots) => {
                for slot in slots {
                    self.put(slot, false);
                }
            }
            ObjectChange::Remove {
                segment,
                object,
                is_left,
            } => self.removed(segment, &object, is_left),
        }
        self.note_owner(change);
        Ok(())
    }

    /// History has an object, or another state of it.
    fn put(&mut self, slot: Slot, is_new: bool) {
        let Some(held) = self.cluster.history.object(slot).cloned() else {
            return;
        };
        let object = &held.object;
        self.note_object(object, is_new);
        if is_new {
            self.note_return(object);
        }
        if self.cluster.overlay.is_doomed(object.uid()) {
            return;
        }
        self.replace_kept(object);
        self.cluster.overlay.end_patches(object);
        let segment = object.segment();
        self.for_each_feed(segment, |feed, cluster| {
            feed.object(&held, cluster).map(Update::Apply)
        });
    }

    /// History has removed an object from a list.
    fn removed(&mut self, segment: SegmentId, object: &Arc<Object>, is_left: bool) {
        let uid = object.uid();
        let is_deleted = self.cluster.overlay.is_deleted(uid);
        let version = self.cluster.history.next_version();
        let held = super::history::VersionedObject {
            object: Arc::clone(object),
            version,
        };
        if !is_deleted && self.cluster.overlay.is_doomed(uid) {
            if let Some(spec) = self.cluster.spec(segment).cloned() {
                self.cluster.overlay.keep(&spec, &held);
            }
        } else if !is_deleted {
            self.for_each_feed(segment, |feed, cluster| {
                feed.object(&held, cluster).map(Update::Delete)
            });
        }
        if !is_left {
            self.removed.insert(uid);
            self.comparison.goes(uid, self.now.instant);
            self.cluster.overlay.leave(uid);
            if !self.cluster.overlay.keeps(uid) {
                self.cluster.overlay.depart(uid, &self.cluster.history);
                self.comparison.gone(uid, self.now.instant);
            }
        }
    }

    /// An object that history creates replaces one that was kept under its name.
    fn replace_kept(&mut self, object: &Object) {
        let Some(spec) = self.cluster.spec(object.segment()).cloned() else {
            return;
        };
        if let Some(uid) = self.cluster.overlay.replace(&spec, object.key()) {
            self.cluster.overlay.forget(&uid);
            self.comparison.released(&uid, self.now.instant);
            self.comparison.gone(&uid, self.now.instant);
        }
    }

    /// Nothing says that the recorded controller has deleted an object that was kept: it goes.
    pub(super) fn drop_kept(&mut self, uid: &Uid) {
        for (spec, held) in self.cluster.recorded(uid) {
            self.for_each_source(&spec, &held, Update::Delete);
        }
        self.cluster.overlay.unkeep(uid);
        self.cluster.overlay.forget(uid);
        self.comparison.gone(uid, self.now.instant);
    }

    pub(super) fn for_each_feed(
        &mut self,
        segment: SegmentId,
        update: impl Fn(&Feed, &super::Cluster) -> Option<Update>,
    ) {
        if self.relists_since.is_some() {
            return;
        }
        for (stream, feed) in &self.feeds {
            if feed.is_fed_by(segment)
                && let Some(update) = update(feed, &self.cluster)
            {
                let (stream, updates) = (*stream, vec![update]);
                self.inputs
                    .push_back(Input::Stream(Batch { stream, updates }));
            }
        }
    }

    /// Other lists are recorded from now on.
    fn follow(&mut self) {
        let now = self.now.instant;
        let mut feeds = std::mem::take(&mut self.feeds);
        for (stream, feed) in &mut feeds {
            if feed.follow(&self.cluster.history, now) {
                if let Some(kind) = feed.kind(&self.cluster) {
                    let history = &self.cluster.history;
                    self.cluster.overlay.prune(&kind, history);
                }
                if self.relists_since.is_none() {
                    self.list(*stream, feed);
                }
            }
        }
        self.feeds = feeds;
        self.end_relisting();
        self.check_later();
    }

    /// A host calls no guest before all its lists are complete. So the machine gets the lists of
    /// another host together, and rests until then: it would decide on a mixture of both hosts'. A
    /// list that does not come within [`GRACE`] is not waited for.
    fn end_relisting(&mut self) {
        let Some(since) = self.relists_since else {
            return;
        };
        let is_late = since.after(GRACE) <= self.now.instant;
        if !is_late && self.feeds.values().any(Feed::is_outdated) {
            return;
        }
        self.relists_since = None;
        let feeds = std::mem::take(&mut self.feeds);
        for (stream, feed) in &feeds {
            self.list(*stream, feed);
        }
        self.feeds = feeds;
        self.pass_statuses();
    }

    /// Passes on what has become known of the watches.
    fn pass_statuses(&mut self) {
        let all = self.feeds.iter_mut();
        let known = all.filter_map(|(id, feed)| Some((*id, feed.status.take()?)));
        for (stream, status) in known.collect::<Vec<_>>() {
            self.update(stream, Update::Status(status));
        }
    }

    fn note_object(&mut self, object: &Object, is_new: bool) {
        if self.machine.is_none() || self.phase != Phase::Complete {
            return;
        }
        let Some(spec) = self.cluster.spec(object.segment()) else {
            return;
        };
        let now = self.now.instant;
        if is_new {
            self.comparison
                .created(&spec.kind, object.key(), object.uid(), now);
        }
        let is_node = spec.resource.group.is_empty() && spec.resource.plural == "nodes";
        if is_node && !facts::is_away(&object.data()) {
            self.comparison.node_is_back(object.key(), now);
        }
    }

    /// Notes a deletion of the policy, before it takes effect.
    pub(super) fn note_deletion(&mut self, plan: &Plan) {
        let target = &plan.target;
        let uid = Uid::new(&target.uid);
        let found = self.cluster.find(&uid);
        if let Some(run) = &mut self.cluster_run {
            let mut states = found.iter().map(|(_, held)| Traces::of(&held.object));
            run.note_plan(&uid, states.any(|it| it.is_terminating));
        }
        let seen = || {
            let (_, held) = found.first()?;
            let mut feeds = self.feeds.values();
            let feed = feeds.find(|feed| feed.is_fed_by(held.object.segment()))?;
            let object = feed.object(held, &self.cluster)?;
            rmp_serde::from_slice(&object.data).ok()
        };
        let deletion = Deletion {
            target,
            reason: &plan.reason,
            message: &plan.message,
            facts: Facts::of(target, &found, &self.cluster),
            is_there: self.cluster.has_or_keeps(&uid),
            saw: seen(),
            is_certain: self.cluster.has_recorded_kind_of(target),
            has_author: true,
            earliest: self.now.instant,
        };
        self.comparison.note(Author::Candidate, deletion, self.now);
    }

    fn note_report(&mut self, report: &machine::Report) {
        match report {
            machine::Report::Started { .. } => self.has_started = true,
            machine::Report::Ruled { plan, ruling, .. } => match ruling {
                Ruling::DryRun if recorded::deletes(plan) => {
                    if !self.is_gone(&plan.target) {
                        self.note_deletion(plan);
                    }
                    self.release(&Uid::new(&plan.target.uid));
                }
                Ruling::Wait(WaitReason::Tripped(trip)) => self.note_trip(trip),
                Ruling::Refuse(_) => self.activity.refused_plans += 1,
                _ => {}
            },
            _ => {}
        }
    }

    /// Whether the API server would answer that an object does not exist.
    fn is_gone(&self, target: &ObjectRef) -> bool {
        let found = self.cluster.find(&Uid::new(&target.uid));
        found.is_empty() && self.cluster.has_recorded_kind_of(target)
    }

    fn note_trip(&mut self, trip: &Trip) {
        let last = self.last_trips.get(&trip.guardrail);
        if let Some(last) = last.filter(|last| last.since == trip.since) {
            let listed = last.place.and_then(|place| self.trips.get_mut(place));
            if let Some(listed) = listed {
                listed.deferred += 1;
            }
            return;
        }
        self.trip_count += 1;
        let place = (self.trips.len() < Report::MOST_TRIPS).then_some(self.trips.len());
        let since = trip.since;
        self.last_trips
            .insert(trip.guardrail, ListedTrip { since, place });
        if place.is_some() {
            self.trips.push(GuardrailTrip {
                guardrail: trip.guardrail.field().to_owned(),
                limit: trip.limit,
                at: times::precise_time(self.now.wall),
                until: trip
                    .until
                    .map(|at| times::precise_time(self.now.wall_at(at))),
                deferred: 1,
            });
        }
    }
}
