//! When a revision starts: as soon as its watches are synced, or complete enough.

use std::collections::BTreeSet;
use std::time::Duration;

use super::Machine;
use super::compared::ComparedController;
use super::exchange::Effect;
use super::hosted::{HostedController, PendingRevision};
use super::outbox::Outbox;
use super::report::Report;
use super::streams::{self, Streams};
use crate::controller::{Controller, ControllerId, Views};
use crate::manifest::{Manifest, Source};
use crate::queue::Origin;
use crate::rollout::Role;
use crate::rollout::cohort::CandidateStep;
use crate::store::{Store, ViewId};
use crate::time::{Instant, Now};

/// How long a revision waits for resources that it can run without, like
/// kube-controller-manager's garbage collector.
const INITIAL_SYNC: Duration = Duration::from_secs(30);
/// Who waits for the resources of the journal's profile, in reports.
const PROFILE: &str = "profile";

impl<G: Clone> Machine<G> {
    /// Attaches to every view the segments of its watch, drops unused views, and starts
    /// missing streams.
    pub(super) fn attach_all(&mut self, now: Now) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let mut changes = Vec::new();
        for (manifest, views) in self
            .controllers
            .values()
            .flat_map(HostedController::revisions)
        {
            for (watch, view) in manifest.watches.iter().zip(&views.ids) {
                if let Some(resource) = streams::unserved(watch, &mapping) {
                    self.outbox.report(Report::NotServed {
                        guest: manifest.name.clone(),
                        resource: resource.clone(),
                    });
                }
                Streams::attach(&mut self.store, *view, watch, &mapping, &mut changes);
            }
        }
        for (watch, view) in &self.profile {
            if let Source::One(resource) = &watch.source
                && mapping.by_resource(resource).is_none()
            {
                self.outbox.report(Report::NotServed {
                    guest: PROFILE.to_owned(),
                    resource: resource.clone(),
                });
            }
            Streams::attach(&mut self.store, *view, watch, &mapping, &mut changes);
        }
        let compared = self.controllers.values().flat_map(|one| &one.compared);
        for (watch, view) in compared.flat_map(ComparedController::watches) {
            Streams::attach(&mut self.store, view, watch, &mapping, &mut changes);
        }
        self.handle_changes(now.instant, &changes, Origin::Relist);
        self.detach_all(now.instant);
        self.start_ready(now);
    }

    /// Detaches segments from views in which they have no objects to show any more.
    pub(super) fn detach_all(&mut self, now: Instant) {
        let Some(mapping) = self.mapping.clone() else {
            return;
        };
        let mut changes = Vec::new();
        let profile = self.profile.iter().map(|(watch, view)| (watch, *view));
        for (watch, view) in self
            .controllers
            .values()
            .flat_map(HostedController::watches)
            .chain(profile)
        {
            let (streams, store) = (&self.streams, &mut self.store);
            streams.detach(store, view, watch, &mapping, now, &mut changes);
        }
        self.unlisted = None;
        self.handle_changes(now, &changes, Origin::Relist);
    }

    /// Starts every revision whose watches are synced, or complete enough by now.
    pub(super) fn start_ready(&mut self, now: Now) {
        self.settle(now.instant);
        let Self {
            controllers,
            outbox,
            store,
            last_controller,
            leadership,
            ..
        } = self;
        for (name, hosted) in controllers {
            if let Some(controller) = &mut hosted.controller {
                update_completeness(name, controller, store, outbox);
            }
            // A controller that starts again knows nothing of the plans of the former one,
            // and would decide them a second time.
            let is_free = hosted.controller.is_some() || !outbox.is_executing_for(name);
            let ready =
                |one: &mut PendingRevision<G>| is_free && may_start(store, one, now.instant);
            if let Some(pending) = hosted.stable.take_if(ready) {
                let is_new = hosted.controller.is_none();
                start_stable(name, hosted, pending, now, last_controller, outbox);
                if is_new {
                    // Its items are queued already: it needs no resync.
                    hosted.leads = hosted.decides && leadership.holds(name, now.instant);
                }
            }
            let ready = |(one, _): &mut (PendingRevision<G>, CandidateStep)| {
                may_start(store, one, now.instant)
            };
            // The comparison needs the stable revision that the candidate may replace.
            if let Some(controller) = &mut hosted.controller
                && hosted.stable.is_none()
                && let Some((pending, step)) = hosted.candidate.take_if(ready)
            {
                start_candidate(name, controller, pending, step, now.instant, outbox);
            }
        }
        self.start_comparisons(now.instant);
        self.note_controllers();
        self.remove_unused_views();
        let changes = self.streams.reconcile(&self.store, now.instant);
        for stream in changes.stop {
            self.outbox.push(Effect::StopStream(stream));
        }
        for (stream, spec) in changes.start {
            self.outbox.push(Effect::StartStream { stream, spec });
        }
    }

    fn remove_unused_views(&mut self) {
        let watches = self
            .controllers
            .values()
            .flat_map(HostedController::watches);
        let watches = watches.chain(self.profile_watches());
        let used: BTreeSet<ViewId> = watches.map(|(_, view)| view).collect();
        let unused: Vec<ViewId> = self.store.views().filter(|id| !used.contains(id)).collect();
        for view in unused {
            self.store.remove_view(view);
        }
    }
}

fn update_completeness<G: Clone>(
    name: &str,
    controller: &mut Controller<G>,
    store: &Store,
    outbox: &mut Outbox<G>,
) {
    for role in Role::ALL {
        let Some(revision) = controller.revision_mut(role) else {
            continue;
        };
        let complete = is_complete(store, revision.manifest(), revision.views());
        if revision.is_complete() && !complete {
            let controller = name.to_owned();
            outbox.report(Report::Paused { controller, role });
        }
        revision.set_complete(complete);
    }
}

/// Whether every watch of a manifest is complete.
fn is_complete(store: &Store, manifest: &Manifest, views: &Views) -> bool {
    let mut watches = manifest.watches.iter().zip(&views.ids);
    watches.all(|(watch, view)| streams::is_ready(store, *view, watch))
}

/// Whether the cache is complete enough for a revision. A revision waits a while for
/// every resource, even for those that it can run without: a garbage collector that
/// does not see an owner's dependents yet would release the owner before they are
/// deleted.
fn may_start<G>(store: &Store, pending: &PendingRevision<G>, now: Instant) -> bool {
    let synced = |view: &ViewId| store.synced(*view) == Some(true);
    is_complete(store, &pending.loaded.manifest, &pending.views)
        && (pending.views.ids.iter().all(synced) || now.since(pending.since) >= INITIAL_SYNC)
}

/// Starts a stable revision, or swaps the one that runs: then queues, timers and notes
/// stay, and calls in flight are void.
fn start_stable<G: Clone>(
    name: &str,
    hosted: &mut HostedController<G>,
    pending: PendingRevision<G>,
    now: Now,
    last_controller: &mut u64,
    outbox: &mut Outbox<G>,
) {
    let PendingRevision { loaded, views, .. } = pending;
    outbox.report(Report::Started {
        controller: name.to_owned(),
        account: hosted.account.clone(),
        manifest: loaded.manifest.clone(),
    });
    if let Some(controller) = &mut hosted.controller {
        let former = controller.reconfigure(now.instant, loaded, views);
        outbox.push(Effect::Release(former));
        return;
    }
    *last_controller += 1;
    let id = ControllerId(*last_controller);
    let settings = hosted.settings.clone();
    let mut controller = Controller::new(now.instant, id, loaded, views, settings);
    for tripped in &hosted.tripped {
        controller.resume_trip(tripped.resumed(now));
    }
    if hosted.decides {
        controller.assume_writes(&hosted.recent, now.instant);
    }
    hosted.controller = Some(controller);
}

fn start_candidate<G: Clone>(
    name: &str,
    controller: &mut Controller<G>,
    pending: PendingRevision<G>,
    step: CandidateStep,
    now: Instant,
    outbox: &mut Outbox<G>,
) {
    let PendingRevision { loaded, views, .. } = pending;
    let candidate = controller.candidate();
    if candidate.is_some_and(|one| *one.identity() == loaded.identity) {
        controller.change_candidate_views(now, views, step);
        outbox.push(Effect::Release(loaded.guest));
        return;
    }
    outbox.report(Report::CandidateStarted {
        controller: name.to_owned(),
        revision: loaded.identity.to_string().into(),
        weight: step.share.weight,
    });
    let former = controller.start_candidate(now, loaded, views, step);
    outbox.release(former);
}
