//! What the host tells of its controllers.

use std::collections::BTreeMap;

use davit_core::budget::Trip;
use davit_core::controller::{Controller, Revision};
use davit_core::health::State;
use davit_core::observation::{CandidateObservation, Disagreements, Observation, PendingResource};
use davit_core::rollout::Role;
use davit_core::rollout::progress::Observed;
use davit_core::time::Instant;

use super::run::Run;
use super::slot::{Active, Slot};

impl Run {
    pub(super) fn observe(&self) -> BTreeMap<String, Observation> {
        let now = self.api.clock().now();
        let slots = self.slots.iter();
        let observed = slots.map(|(name, slot)| {
            let active = slot.active.as_ref();
            let tripped = active.map(|active| active.core.tripped(now.instant).copied());
            let observation = Observation {
                stable: active.map(|active| active.stable.identity.clone()),
                pending: self.awaited(slot),
                complete: active.is_some_and(|active| active.stable.complete),
                circuit_open: active.and_then(|active| quarantined(active.core.stable())),
                candidate: active.and_then(|active| candidate(active, now.instant)),
                tripped: tripped.into_iter().flatten().collect(),
                now,
            };
            (name.clone(), observation)
        });
        observed.collect()
    }

    /// What the next stable revision waits for.
    pub(super) fn awaited(&self, slot: &Slot) -> Option<PendingResource> {
        let incoming = slot.stable.as_ref()?;
        self.streams.awaited(&self.store, &incoming.views.ids)
    }

    pub(super) fn disagreements(&self, controller: &str) -> Option<Disagreements> {
        let active = self.slots.get(controller)?.active.as_ref()?;
        let comparison = active.core.comparison()?;
        let candidate = active.candidate.as_ref()?;
        Some(Disagreements {
            revisions: [&active.stable, candidate].map(|part| part.identity.to_string()),
            counts: *comparison.counts(),
            pending: comparison.pending(),
            counted_since: comparison.counted_since(),
            last: comparison.disagreements().cloned().collect(),
            now: self.api.clock().now(),
        })
    }
}

fn quarantined(revision: &Revision) -> Option<String> {
    match revision.health().state() {
        State::Healthy => None,
        State::Quarantined { reason, .. } | State::Probing { reason } => Some(reason.to_string()),
    }
}

fn candidate(active: &Active, now: Instant) -> Option<CandidateObservation> {
    let part = active.candidate.as_ref()?;
    let tally = active.core.candidate()?.tally();
    let counts = active
        .core
        .comparison()
        .map(|comparison| *comparison.counts());
    Some(CandidateObservation {
        identity: part.identity.clone(),
        step: active.step,
        complete: part.complete,
        observed: Observed {
            counts: counts.unwrap_or_default(),
            failed_calls: tally.failed_calls,
            last_failure: tally.last_failure.clone(),
            refused_writes: tally.refused_writes,
            last_refusal: tally.last_refusal.clone(),
            call_latency: tally.call_latency(),
            spent: spent(&active.core, now),
        },
    })
}

/// The candidate's part of a guardrail that it has used up.
fn spent(core: &Controller, now: Instant) -> Option<String> {
    let mut tripped = core.tripped(now);
    tripped
        .find(|spent| spent.role == Role::Candidate)
        .map(Trip::to_string)
}
