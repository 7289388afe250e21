//! Compares dry runs with the cluster: which watches that needs, and what it gets to see.

use std::sync::Arc;
use std::time::Duration;

use super::Machine;
use super::compared::ComparedController;
use super::hosted::HostedController;
use crate::cluster_comparison::actor::watches;
use crate::cluster_comparison::{ClusterComparison, ObservedChange};
use crate::gate::{Mode, Ruling, WaitReason};
use crate::live::ReadRequest;
use crate::object::{ApiResource, Uid};
use crate::observation::ClusterFindings;
use crate::queue::Origin;
use crate::rollout::Role;
use crate::store::{Change, Object, SegmentId, Snapshot, Store, ViewId};
use crate::stream::Update;
use crate::time::{Instant, Now};
use crate::watch::Condition;

impl<G: Clone> Machine<G> {
    /// Adds the views of the controllers that are to be compared, and forgets the comparisons of
    /// the others.
    pub(super) fn watch_for_comparisons(&mut self, now: Instant) {
        let mut held = Vec::new();
        for (name, hosted) in &mut self.controllers {
            if !hosted.settings.is_compared() {
                if let Some(ended) = hosted.compared.take() {
                    held.push((name.clone(), ended.held().cloned().collect::<Vec<_>>()));
                }
                continue;
            }
            let pending = hosted.stable.as_ref().map(|one| &one.loaded.manifest);
            let running = hosted
                .controller
                .as_ref()
                .map(|one| one.stable().manifest());
            let Some(manifest) = pending.or(running) else {
                continue;
            };
            let wanted = watches(manifest);
            let present = hosted.compared.iter();
            let present = present.flat_map(|one| one.watches.iter().map(|(watch, _)| watch));
            if hosted.compared.is_some() && present.eq(&wanted) {
                continue;
            }
            let store = &mut self.store;
            let views = wanted.into_iter().map(|watch| {
                let view = store.add_view((&watch).into());
                (watch, view)
            });
            let comparison = hosted.compared.take().and_then(|one| one.comparison);
            hosted.compared = Some(ComparedController {
                watches: views.collect(),
                comparison,
            });
        }
        let mut hosted = self.controllers.values();
        let compares = hosted.any(|one| one.compared.is_some());
        self.outbox.deletions = match self.outbox.deletions.take() {
            Some(deletions) if compares => Some(deletions),
            _ => compares.then(Vec::new),
        };
        for (controller, released) in held {
            self.release_held(now, &controller, released);
        }
    }

    /// Starts the comparison of each revision that runs and was not compared before.
    pub(super) fn start_comparisons(&mut self, now: Instant) {
        let mut held = Vec::new();
        for (name, hosted) in &mut self.controllers {
            let (Some(compared), Some(controller)) = (&mut hosted.compared, &hosted.controller)
            else {
                continue;
            };
            let stable = controller.stable();
            let is_compared = compared.comparison.as_ref();
            if is_compared.is_none_or(|(revision, _)| revision != stable.identity()) {
                let comparison = ClusterComparison::new(now, stable.manifest());
                let next = (stable.identity().clone(), comparison);
                if let Some((_, ended)) = compared.comparison.replace(next) {
                    held.push((name.clone(), ended.held().cloned().collect::<Vec<_>>()));
                }
            }
        }
        for (controller, released) in held {
            self.release_held(now, &controller, released);
        }
    }

    /// A stream of a segment has delivered something. Returns for how long none had. The
    /// interruption of a watch delivers nothing.
    pub(super) fn heard(
        &mut self,
        segment: SegmentId,
        updates: &[Update],
        now: Instant,
    ) -> Duration {
        let store = &self.store;
        self.heard
            .retain(|one, _| store.segment_spec(*one).is_some());
        let last = self.heard.get(&segment).copied();
        let is_alive = |update: &Update| match update {
            Update::Status(condition) => *condition == Condition::Synced,
            Update::Reset { .. } | Update::Apply(_) | Update::Delete(_) => true,
        };
        if updates.iter().any(is_alive) {
            self.heard.insert(segment, now);
        }
        last.map(|last| now.since(last)).unwrap_or_default()
    }

    /// Shows the comparisons what streams have changed in the cache.
    pub(super) fn compare_changes(&mut self, now: Instant, changes: &[Change], gap: Duration) {
        if self.outbox.deletions.is_none() || changes.is_empty() {
            return;
        }
        // What was planned before these changes comes first.
        self.settle(now);
        let snapshot = self.store.snapshot();
        let mut held = Vec::new();
        for (name, hosted) in &mut self.controllers {
            let Some(compared) = &mut hosted.compared else {
                continue;
            };
            let mut released = Vec::new();
            for change in changes {
                let object = change.new.as_ref().or(change.old.as_ref());
                let Some(object) = object.filter(|_| compared.has_view(change.view)) else {
                    continue;
                };
                let spec = self.store.segment_spec(object.segment());
                if let (Some(spec), Some((_, comparison))) = (spec, &mut compared.comparison) {
                    let observed = ObservedChange {
                        kind: &spec.kind,
                        old: change.old.as_ref(),
                        new: change.new.as_ref(),
                        gap,
                        is_own: self.own_deletions.contains(object.uid(), now),
                        is_selected: spec.is_selected(),
                    };
                    released.extend(comparison.observed(now, observed, &snapshot));
                }
            }
            held.push((name.clone(), released));
        }
        for (controller, released) in held {
            self.release_held(now, &controller, released);
        }
    }

    /// Shows the comparisons what was planned.
    pub(super) fn compare_plans(&mut self, now: Instant) {
        let ruled = self.outbox.deletions.as_mut().map(std::mem::take);
        for one in ruled.into_iter().flatten() {
            let target = &one.plan.target;
            let uid = Uid::new(&target.uid);
            self.own_deletions.note(uid, one.mode, &one.ruling, now);
            let is_left = matches!(one.ruling, Ruling::Wait(WaitReason::NotLeading));
            let is_dry_run = one.ruling == Ruling::DryRun || is_left;
            if one.mode != Mode::DryRun || !is_dry_run || one.role != Role::Stable {
                continue;
            }
            let snapshot = self.store.snapshot();
            let comparison = comparison_of(self.controllers.get_mut(&one.controller));
            let released = comparison.and_then(|comparison| {
                comparison.decided(now, target, &one.plan.reason, &snapshot)
            });
            self.release_held(now, &one.controller, released);
        }
    }

    /// The guest of a call reads objects live: what is held of them is worth nothing.
    pub(super) fn note_live_read(&mut self, now: Instant, controller: &str, request: &ReadRequest) {
        let segments = match request {
            ReadRequest::List(list) => self.segments_of(&list.resource),
            ReadRequest::Get(_) => Vec::new(),
        };
        let Some(comparison) = comparison_of(self.controllers.get_mut(controller)) else {
            return;
        };
        let released: Vec<_> = match request {
            ReadRequest::List(list) => comparison.list_live(&segments, &list.namespace),
            ReadRequest::Get(objects) => objects
                .iter()
                .filter_map(|one| comparison.read_live(&one.target))
                .collect(),
        };
        self.release_held(now, controller, released);
    }

    /// The segments of a resource that comparisons watch, whatever its version.
    fn segments_of(&self, resource: &ApiResource) -> Vec<SegmentId> {
        let is_of_it = |segment: &SegmentId| {
            let spec = self.store.segment_spec(*segment);
            spec.is_some_and(|spec| {
                let it = &spec.resource;
                it.group == resource.group && it.plural == resource.plural
            })
        };
        let compared = self.controllers.values().flat_map(|one| &one.compared);
        let views = compared.flat_map(|one| one.watches().map(|(_, view)| view));
        let segments = views.flat_map(|view| self.store.segments_of(view));
        segments
            .map(|(segment, _)| segment)
            .filter(is_of_it)
            .collect()
    }

    /// Ends the windows of the comparisons that are over.
    pub(super) fn end_windows(&mut self, now: Instant) {
        if self.outbox.deletions.is_none() {
            return;
        }
        let snapshot = self.store.snapshot();
        let names: Vec<String> = self.controllers.keys().cloned().collect();
        for name in names {
            let comparison = comparison_of(self.controllers.get_mut(&name));
            let coverage = &self.streams.coverage;
            let is_current = |segment| coverage.is_current(segment);
            let released = comparison.map(|one| one.tidy(now, &snapshot, is_current));
            self.release_held(now, &name, released.unwrap_or_default());
        }
    }

    /// A controller reads these objects as they are by now.
    fn release_held(
        &mut self,
        now: Instant,
        controller: &str,
        released: impl IntoIterator<Item = Arc<Object>>,
    ) {
        let Some(hosted) = self.controllers.get_mut(controller) else {
            return;
        };
        let snapshot = self.store.snapshot();
        let changes: Vec<Change> = released
            .into_iter()
            .flat_map(|object| changes_of(hosted, &self.store, &snapshot, &object))
            .collect();
        if let Some(controller) = &mut hosted.controller {
            controller.handle_changes(now, &changes, Origin::Fresh, &snapshot);
        }
    }

    /// The targets that only a controller or only the cluster deletes; none if the controller is
    /// not compared.
    pub(crate) fn cluster_findings(&self, now: Now, controller: &str) -> Option<ClusterFindings> {
        let compared = self.controllers.get(controller)?.compared.as_ref()?;
        let (revision, comparison) = compared.comparison.as_ref()?;
        Some(ClusterFindings {
            revision: revision.to_string(),
            replaces: comparison.replaced(),
            window: comparison.window(),
            pending: comparison.pending(),
            last: comparison.findings().cloned().collect(),
            now,
        })
    }
}

fn comparison_of<G>(hosted: Option<&mut HostedController<G>>) -> Option<&mut ClusterComparison> {
    let compared = hosted?.compared.as_mut()?;
    compared
        .comparison
        .as_mut()
        .map(|(_, comparison)| comparison)
}

/// The change from what was held of an object to what is cached of it, in each view that a
/// controller has of its segment.
fn changes_of<G: Clone>(
    hosted: &HostedController<G>,
    store: &Store,
    snapshot: &Snapshot,
    held: &Arc<Object>,
) -> Vec<Change> {
    let segment = held.segment();
    let is_of_segment = |view: &ViewId| store.segments_of(*view).any(|one| one == (segment, true));
    let present = snapshot.find(held.uid());
    let present = present.filter(|present| present.segment() == segment);
    let views = hosted.revisions().flat_map(|(_, views)| &views.ids);
    let views = views.copied().filter(is_of_segment);
    let change = |view| Change {
        view,
        old: Some(Arc::clone(held)),
        new: present.cloned(),
    };
    views.map(change).collect()
}
