//! Observing the controllers.

use std::collections::BTreeMap;

use super::compared::ComparedController;
use super::hosted::HostedController;
use super::report::{BoundUse, ControllerState, Report, State};
use super::streams;
use super::{HOUSEKEEPING_PERIOD, LONGEST_REPORT_PERIOD, Machine, STATES_A_SECOND};
use crate::budget::Trip;
use crate::circuit::CircuitState;
use crate::controller::{Controller, Revision};
use crate::observation::{
    CandidateObservation, Disagreements, InterruptedResource, Observation, PendingResource,
};
use crate::rollout::Role;
use crate::rollout::progress::StepObservation;
use crate::time::{Instant, Now};

impl<G: Clone> Machine<G> {
    /// The observation of each controller that is to be observed.
    #[must_use]
    pub fn observe(
        &self,
        now: Now,
        is_observed: impl Fn(&str) -> bool,
    ) -> BTreeMap<String, Observation> {
        let controllers = self.controllers.iter();
        let observed = controllers.filter(|(name, _)| is_observed(name));
        let observed = observed.map(|(name, hosted)| {
            let controller = hosted.controller.as_ref();
            let tripped = controller.map(|one| one.tripped(now.instant).copied());
            let observation = Observation {
                stable: controller.map(|one| one.stable().identity().clone()),
                executes: hosted.leads,
                pending: self.pending_resource(hosted),
                complete: controller.is_some_and(|one| one.stable().is_complete()),
                interrupted: controller.and_then(|one| self.interrupted(one.stable())),
                circuit_open: controller.and_then(|one| circuit_open(one.stable())),
                deferred_deletions: self.deferred_deletions(hosted, now.instant),
                idle_undo_kinds: self.idle_undo_kinds(hosted),
                refused: hosted.refusal(now.instant).map(ToOwned::to_owned),
                candidate: controller.and_then(|one| self.candidate(one, now.instant)),
                tripped: tripped.into_iter().flatten().collect(),
                recent: controller.map(|one| one.counted_writes(now.instant)),
                reports: controller
                    .map(|one| one.stable().reports())
                    .unwrap_or_default(),
                forbidden: hosted.forbidden,
                cluster: hosted
                    .compared
                    .as_ref()
                    .and_then(ComparedController::observe),
                now,
            };
            (name.clone(), observation)
        });
        observed.collect()
    }

    /// The targets on which the revisions of a controller disagree; none without a
    /// candidate.
    #[must_use]
    pub fn disagreements(&self, now: Now, controller: &str) -> Option<Disagreements> {
        let controller = self.controllers.get(controller)?.controller.as_ref()?;
        let comparison = controller.comparison()?;
        let revisions = [controller.stable(), controller.candidate()?];
        Some(Disagreements {
            revisions: revisions.map(|revision| revision.name().to_string()),
            counts: *comparison.counts(),
            pending: comparison.pending(),
            counted_since: comparison.counted_since(),
            last: comparison.disagreements().cloned().collect(),
            now,
        })
    }

    /// The resource that the next stable revision waits for. A revision may run without
    /// some resources: one of those that cannot be listed.
    fn pending_resource(&self, hosted: &HostedController<G>) -> Option<PendingResource> {
        if let Some(pending) = &hosted.stable {
            return self.streams.pending(&self.store, &pending.views.ids);
        }
        let views = &hosted.controller.as_ref()?.stable().views().ids;
        let pending = self.streams.pending(&self.store, views);
        pending.filter(|one| one.hindrance.is_some())
    }

    /// A resource of a revision's watches that does not follow the API server now.
    fn interrupted(&self, revision: &Revision<G>) -> Option<InterruptedResource> {
        let views = revision.views().ids.iter().copied();
        self.streams
            .interrupted(&self.store, views.zip(&revision.manifest().watches))
    }

    fn candidate(&self, controller: &Controller<G>, now: Instant) -> Option<CandidateObservation> {
        let revision = controller.candidate()?;
        let tally = revision.tally();
        let comparison = controller.comparison()?;
        let mut tripped = controller.tripped(now);
        let tripped = tripped.find(|trip| trip.role == Role::Candidate);
        Some(CandidateObservation {
            identity: revision.identity().clone(),
            step: controller.step()?,
            complete: revision.is_complete(),
            interrupted: self.interrupted(revision),
            since: comparison.counted_since(),
            observed: StepObservation {
                counts: *comparison.counts(),
                failed_calls: tally.failed_calls,
                last_failure: tally.last_failure.clone(),
                refused_writes: tally.refused_writes,
                last_refusal: tally.last_refusal.clone(),
                call_latency: tally.call_latency(),
                trip: tripped.map(Trip::to_string),
            },
        })
    }

    /// What keeps a controller from running, of those that count; none if all of them run.
    pub(crate) fn waiting(&self, counts: impl Fn(&str) -> bool) -> Option<String> {
        if self.mapping.is_none() {
            return Some("the first discovery has not succeeded yet".to_owned());
        }
        let mut counted = self.controllers.iter().filter(|(name, _)| counts(name));
        counted.find_map(|(name, hosted)| {
            match hosted
                .controller
                .as_ref()
                .map(|one| one.stable().is_complete())
            {
                Some(true) => None,
                Some(false) => Some(format!("{name}: a watched resource is not served")),
                None => Some(format!("{name}: {}", self.first_wait(hosted))),
            }
        })
    }

    /// What a controller waits for that does not run yet. No list of a resource is pending while
    /// the API server does not serve the resource.
    fn first_wait(&self, hosted: &HostedController<G>) -> String {
        if let Some(pending) = self.pending_resource(hosted) {
            return pending.to_string();
        }
        let stable = hosted.stable.as_ref();
        let mut watches = stable.iter().flat_map(|one| &one.loaded.manifest.watches);
        let mapping = self.mapping.as_deref();
        let unserved =
            mapping.and_then(|mapping| watches.find_map(|it| streams::unserved(it, mapping)));
        match unserved {
            Some(resource) => {
                format!("{resource} is watched, and the API server does not serve it")
            }
            None => "the first lists of its watches are not complete".to_owned(),
        }
    }

    pub(super) fn housekeep(&mut self, now: Now) {
        self.store.release_renewals();
        if self.streams.coverage.expire(now.instant) {
            self.unlisted = None;
        }
        if let Some(mapping) = self.mapping.clone() {
            // Also without calls: coverage notes since when, and which definitions exist.
            self.unlisted(&mapping, now.instant);
        }
        let waits =
            |hosted: &HostedController<G>| hosted.stable.is_some() || hosted.candidate.is_some();
        if self.mapping.is_some() && self.controllers.values().any(waits) {
            // Some revisions have waited long enough by now.
            self.start_ready(now);
        }
        self.end_windows(now.instant);
        let snapshot = self.store.snapshot();
        for (_, controller) in self.running_mut() {
            controller.housekeep(now.instant, &snapshot);
        }
        if self.report_at <= now.instant {
            let seconds = self.controllers.len().div_ceil(STATES_A_SECOND).max(1);
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            let period = HOUSEKEEPING_PERIOD.saturating_mul(seconds);
            self.report_at = now.instant.after(period.min(LONGEST_REPORT_PERIOD));
            let state = self.state(now.instant);
            self.outbox.report(Report::State(Box::new(state)));
        }
    }

    /// The state of the controllers and of the cache, for metrics.
    pub(crate) fn state(&mut self, now: Instant) -> State {
        let mut state = State::default();
        for (name, controller) in self.running_mut() {
            let circuit = controller.stable().circuit().state();
            let circuit_open = !matches!(circuit, CircuitState::Closed);
            let queues = controller.queue_stats(now);
            let guardrails = controller.guardrail_uses(now).collect();
            let bound_uses = controller
                .bound_uses()
                .map(|(role, (bound, used, most))| BoundUse {
                    role,
                    bound,
                    used,
                    most,
                });
            let bound_uses = bound_uses.collect();
            state.controllers.push(ControllerState {
                name: name.clone(),
                circuit_open,
                queues,
                guardrails,
                bound_uses,
            });
        }
        for (segment, spec) in self.store.segments() {
            state.bytes += self.store.segment_bytes(segment);
            let count = state.objects.entry(spec.resource.to_string()).or_default();
            // Segments of one resource differ in their namespaces and selectors.
            *count += self.store.segment_len(segment);
        }
        state.synced = self.streams.synced(&self.store);
        state
    }
}

fn circuit_open<G: Clone>(revision: &Revision<G>) -> Option<String> {
    match revision.circuit().state() {
        CircuitState::Closed => None,
        CircuitState::Open { reason, .. } | CircuitState::HalfOpen { reason } => {
            Some(reason.to_string())
        }
    }
}
