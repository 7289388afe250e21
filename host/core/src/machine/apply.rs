//! Applying the desired controllers.

use std::collections::BTreeSet;

use super::Machine;
use super::compared::ComparedController;
use super::hosted::{HostedController, PendingRevision};
use super::report::Report;
use crate::controller::{Controller, Views};
use crate::desired::DesiredController;
use crate::revision::LoadedRevision;
use crate::rollout::cohort::{CandidateStep, Cohort};
use crate::time::{Instant, Now};

impl<G: Clone> Machine<G> {
    /// Replaces the controllers that run with these.
    pub fn apply(&mut self, now: Now, desired: Vec<DesiredController<G>>) {
        self.set_journal_time(now);
        self.settle(now.instant);
        let names: BTreeSet<&String> = desired.iter().map(|one| &one.name).collect();
        let removed = self
            .controllers
            .extract_if(.., |name, _| !names.contains(name));
        for (controller, hosted) in removed.collect::<Vec<_>>() {
            if let Some(removed) = &hosted.controller {
                self.withdraw(now.instant, removed.id());
            }
            self.outbox.log.forget(&controller);
            self.outbox.report(Report::Removed { controller });
            self.outbox.release(hosted.into_guests());
        }
        for one in desired {
            self.apply_one(now, one);
        }
        self.watch_for_comparisons(now.instant);
        self.attach_all(now);
        self.judge_leadership(now);
        self.note_controllers();
        self.note_changes();
    }

    fn apply_one(&mut self, clocks: Now, desired: DesiredController<G>) {
        let now = clocks.instant;
        let DesiredController {
            name,
            leads,
            settings,
            account,
            stable,
            cohort,
            candidate,
            tripped,
            recent,
        } = desired;
        let most = settings.bounds.log_bytes;
        self.outbox.log.set_most(&name, most, now);
        let mut hosted = self.controllers.remove(&name).unwrap_or_default();
        let mut withdrawn = None;
        if let Some(controller) = &mut hosted.controller {
            if *controller.settings() != settings || hosted.account != account {
                withdrawn = Some(controller.id());
            }
            controller.set(now, settings.clone());
            if leads && !hosted.decides {
                let trips = tripped.iter().map(|tripped| tripped.resumed(clocks));
                controller.take_over_trips(trips);
                controller.assume_writes(&recent, now);
                hosted
                    .compared
                    .iter_mut()
                    .for_each(ComparedController::take_over);
            }
        }
        hosted.decides = leads;
        hosted.settings = settings;
        hosted.tripped = tripped;
        hosted.recent = recent;
        hosted.account = account;
        self.apply_stable(now, &name, &mut hosted, stable, &cohort);
        if self.apply_candidate(now, &mut hosted, candidate) {
            withdrawn = hosted.controller.as_ref().map(Controller::id);
        }
        self.controllers.insert(name, hosted);
        // Only at the end: the end of a plan can let the gate rule on another plan of
        // its item.
        if let Some(controller) = withdrawn {
            self.withdraw(now, controller);
        }
    }

    fn apply_stable(
        &mut self,
        now: Instant,
        name: &str,
        hosted: &mut HostedController<G>,
        desired: LoadedRevision<G>,
        cohort: &Cohort,
    ) {
        if let Some(controller) = &mut hosted.controller {
            let candidate = controller.candidate();
            let is_candidate = candidate.is_some_and(|one| *one.identity() == desired.identity);
            if *controller.stable().identity() != desired.identity && is_candidate {
                self.outbox.release(controller.promote(now));
                self.outbox.report(Report::Promoted {
                    controller: name.to_owned(),
                    revision: controller.stable().name().clone(),
                    manifest: controller.stable().manifest().clone(),
                });
            }
            if *controller.stable().identity() == desired.identity {
                let pending = hosted.stable.take();
                self.outbox.release(pending.map(|one| one.loaded.guest));
                return;
            }
        }
        if let Some(pending) = &hosted.stable
            && pending.loaded == desired
        {
            return;
        }
        let pending = self.pending(now, hosted, desired, cohort);
        let former = hosted.stable.replace(pending);
        self.outbox.release(former.map(|one| one.loaded.guest));
    }

    /// Returns whether a candidate was dropped, so that its plans have to be withdrawn.
    fn apply_candidate(
        &mut self,
        now: Instant,
        hosted: &mut HostedController<G>,
        desired: Option<(LoadedRevision<G>, CandidateStep)>,
    ) -> bool {
        let Some((desired, step)) = desired else {
            let pending = hosted.candidate.take();
            self.outbox
                .release(pending.map(|(one, _)| one.loaded.guest));
            let controller = hosted.controller.as_mut();
            let dropped = controller.and_then(|controller| controller.drop_candidate(now));
            let is_dropped = dropped.is_some();
            self.outbox.release(dropped);
            return is_dropped;
        };
        let fields = step.share.cohort.fields();
        if let Some(controller) = &mut hosted.controller
            && let Some(candidate) = controller.candidate()
            && *candidate.identity() == desired.identity
            && candidate.views().cohort.fields() == fields
        {
            controller.set_step(now, step);
            let pending = hosted.candidate.take();
            self.outbox
                .release(pending.map(|(one, _)| one.loaded.guest));
            return false;
        }
        if let Some((pending, pending_step)) = &mut hosted.candidate
            && pending.loaded == desired
            && pending.views.cohort.fields() == fields
        {
            *pending_step = step;
            return false;
        }
        if let Some(controller) = &mut hosted.controller {
            // The candidate owns no target until the cache has the fields that the new
            // cohorts depend on.
            controller.withhold_share(now);
        }
        let cohort = step.share.cohort.clone();
        let pending = self.pending(now, hosted, desired, &cohort);
        let former = hosted.candidate.replace((pending, step));
        self.outbox.release(former.map(|(one, _)| one.loaded.guest));
        false
    }

    /// A revision that waits for its watches. It shares the views of identical watches.
    fn pending(
        &mut self,
        now: Instant,
        hosted: &HostedController<G>,
        loaded: LoadedRevision<G>,
        cohort: &Cohort,
    ) -> PendingRevision<G> {
        let watches = loaded.manifest.watches.iter();
        let ids = watches.map(|watch| {
            hosted
                .reusable_view(watch, cohort)
                .unwrap_or_else(|| self.store.add_view(Views::spec(watch, cohort)))
        });
        let views = Views {
            ids: ids.collect(),
            cohort: cohort.clone(),
        };
        PendingRevision {
            loaded,
            views,
            since: now,
        }
    }
}
