//! The effects of the decisions about a controller: what is recorded, what runs once it
//! is recorded, and which modules the controller needs.

use std::collections::BTreeSet;

use super::Controller;
use crate::control::HostIdentity;
use crate::control::decision::{Decision, PendingDecision};
use crate::control::recording::{RecordInputs, RecordOutcome};
use crate::control::revision::Revision;
use crate::controller::Settings;
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::mutant::Mutant;
use crate::observation::Observation;
use crate::record::{Record, RecordId};
use crate::revision::{LoadedRevision, RevisionIdentity};
use crate::rollout::cohort::{CandidateStep, Cohort, Share};
use crate::time::Now;

impl<G: Clone> Controller<G> {
    /// The controller that follows from the decisions so far; it must not run before
    /// they are recorded. None if there is nothing to run yet, or the stable revision may
    /// not run.
    fn desired(&self) -> Option<PendingDecision<DesiredController<G>>> {
        let (spec, stable) = (self.spec.as_ref()?, self.stable.as_ref()?);
        if !self.may_run(&stable.loaded) {
            return None;
        }
        let cohort = spec.rollout.cohort.clone();
        let unsigned = self.unsigned();
        let candidate = self.rollout.candidate().and_then(|candidate| {
            let desired = self.desired.as_ref()?;
            let step = CandidateStep {
                share: Share {
                    cohort: cohort.clone(),
                    // Nobody would write what it owns.
                    weight: if unsigned.contains(&candidate.revision.revision) {
                        0
                    } else {
                        candidate.weight()
                    },
                },
                number: candidate.number,
                window: spec.rollout.analysis.window.map(|window| window.0),
            };
            let is_it = desired.is_recorded_as(&candidate.revision)
                && !self.trust.denies_recorded(&candidate.revision);
            (is_it && self.may_run(&desired.loaded)).then(|| (desired.loaded.clone(), step))
        });
        let desired = DesiredController {
            name: self.name.clone(),
            leads: self.leads(),
            settings: Settings {
                // The grant is also that of the candidate, and of a replaced revision that
                // still runs. Neither gets more than its own: without rules, only what is
                // trusted runs.
                dry_run_only: unsigned,
                ..spec.settings(self.grant(&stable.loaded))
            },
            account: self.account(),
            stable: stable.loaded.clone(),
            // Without steps there is never a candidate: the cache needs only the fields
            // that the guest reads.
            cohort: if spec.rollout.steps.is_empty() && candidate.is_none() {
                Cohort::default()
            } else {
                cohort
            },
            candidate,
            tripped: self.trips.resumed().to_vec(),
            recent: self.carried.former(),
        };
        Some(PendingDecision::new(Decision::of(&self.status), desired))
    }

    /// The names of the revisions that may not write: those whose module is unsigned,
    /// among the decided ones and those that still run.
    fn unsigned(&self) -> BTreeSet<String> {
        if self.trust.admits_unsigned() {
            return BTreeSet::new();
        }
        let stable = self.rollout.stable();
        let candidate = self.rollout.candidate().map(|one| &one.revision);
        let decided: Vec<_> = stable.into_iter().chain(candidate).collect();
        let is_decided = |name: &String| decided.iter().any(|one| one.revision == *name);
        let former = self.applied.iter();
        let former = former.flat_map(|applied| &applied.settings.dry_run_only);
        let former = former.filter(|name| !is_decided(name)).cloned();
        let unsigned = decided.iter().filter(|one| one.unsigned);
        let unsigned = unsigned.map(|one| one.revision.clone());
        unsigned.chain(former).collect()
    }

    /// Applies the decisions that must not wait for the record: an operator's settings,
    /// the withdrawal of a candidate, of a grant, and of a permission of the account.
    pub(in crate::control) fn apply_at_once(&mut self, seen: Option<&Observation>) {
        self.stop_what_may_not_run(seen);
        let desired = self.desired();
        if let (Some(applied), Some(desired)) = (&mut self.applied, &desired) {
            let desired = desired.ahead_of_record();
            applied.settings = desired.settings.clone();
            applied.account.clone_from(&desired.account);
            let keeps = Mutant::KeepRolledBack.is_active();
            if desired.candidate.is_none() && desired.stable == applied.stable && !keeps {
                applied.candidate = None;
            }
        }
    }

    /// Stops what runs and may not run any more.
    fn stop_what_may_not_run(&mut self, seen: Option<&Observation>) {
        let stable = seen.and_then(|seen| seen.stable.as_ref());
        let candidate = seen.and_then(|seen| seen.candidate.as_ref());
        let candidate = candidate.map(|candidate| &candidate.identity);
        let runs = |one: &LoadedRevision<G>| [stable, candidate].contains(&Some(&one.identity));
        self.replaced.retain(runs);
        let Some(applied) = &self.applied else {
            return;
        };
        let replaced = |identity: Option<&RevisionIdentity>| {
            let mut replaced = self.replaced.iter();
            replaced.find(|one| Some(&one.identity) == identity)
        };
        let may_run = |all: &[Option<&LoadedRevision<G>>]| {
            let mut all = all.iter().copied().flatten();
            all.all(|one| self.may_run(one))
        };
        let next = self.stable.as_ref().map(|stable| &stable.loaded);
        let continues = may_run(&[Some(&applied.stable), next, replaced(stable)]);
        let next = applied.candidate.as_ref().map(|(candidate, _)| candidate);
        let keeps = may_run(&[next, replaced(candidate)]);
        if !continues {
            self.set_applied(None);
        } else if let (Some(applied), false) = (&mut self.applied, keeps) {
            applied.candidate = None;
        }
    }

    /// Sets what the data half runs. It runs the former revisions until the watches of the
    /// next ones are synced.
    fn set_applied(&mut self, next: Option<DesiredController<G>>) {
        let former = std::mem::replace(&mut self.applied, next);
        if self.applied.is_none() {
            // Everything stops at once.
            self.replaced.clear();
        } else if let Some(former) = former {
            let candidate = former.candidate.map(|(candidate, _)| candidate);
            for one in [Some(former.stable), candidate].into_iter().flatten() {
                if !self.running().any(|other| other.identity == one.identity) {
                    self.replaced.push(one);
                }
            }
        }
    }

    /// The revisions that the data half may run.
    pub(super) fn running(&self) -> impl Iterator<Item = &LoadedRevision<G>> {
        let applied = self.applied.iter().flat_map(|applied| {
            let candidate = applied.candidate.iter().map(|(candidate, _)| candidate);
            candidate.chain([&applied.stable])
        });
        applied.chain(&self.replaced)
    }

    /// Applies the decisions, if they are recorded.
    pub(in crate::control) fn apply_recorded(&mut self) {
        let recorded = self.recording.decision();
        let desired = self.desired().and_then(|one| one.recorded(recorded));
        if let Some(mut desired) = desired {
            if Mutant::KeepRolledBack.is_active()
                && desired.candidate.is_none()
                && self.rollout.rejected().is_some()
            {
                let former = self.applied.take();
                desired.candidate = former.and_then(|former| former.candidate);
            }
            self.set_applied(Some(desired));
        } else if let (Some(applied), Some(recorded)) =
            (&mut self.applied, self.recording.decision())
        {
            limit_share(applied, recorded);
        }
    }

    /// The next write to the record, if one is due.
    pub(in crate::control) fn next_record(
        &mut self,
        now: Now,
        host: Option<&HostIdentity>,
        id: RecordId,
    ) -> Option<(RecordId, Record)> {
        let loaded = [&self.stable, &self.desired].into_iter().flatten();
        let inputs = RecordInputs {
            revisions: loaded.map(|one| (one.name(), &one.spec)).collect(),
            ..RecordInputs::of_status(&self.status, self.has_lease, now, host)
        };
        self.recording.next(&inputs, id)
    }

    /// A write of the counts, if they are not recorded and everything else is.
    pub(in crate::control) fn counts_record(
        &self,
        now: Now,
        host: Option<&HostIdentity>,
    ) -> Option<Record> {
        let inputs = RecordInputs::of_status(&self.status, self.has_lease, now, host);
        self.recording.counts(&inputs)
    }

    /// Records why the specs of its revisions are not recorded.
    pub(in crate::control) fn explain(
        &mut self,
        error: String,
        now: Now,
        host: Option<&HostIdentity>,
        id: RecordId,
    ) -> Result<(RecordId, Record), RecordOutcome> {
        let inputs = RecordInputs::of_status(&self.status, self.has_lease, now, host);
        self.recording.explain(error, &inputs, id)
    }

    /// The modules that the controller needs: those of the decided revisions, including
    /// those that still have to be loaded after a start, of the running revisions, and
    /// of those that the record may name. None while the record is unknown.
    pub(in crate::control) fn modules(&self) -> Option<impl Iterator<Item = ModuleDigest>> {
        let recorded = self.recording.modules()?;
        let stable = self.rollout.stable().map(|one| &one.digest);
        let candidate = self.rollout.candidate().map(|one| &one.revision.digest);
        let named = stable.into_iter().chain(candidate);
        let named = named.filter_map(|text| text.parse().ok());
        let loaded = self.stable.iter().chain(&self.desired);
        let running = self.running().map(|one| one.identity.digest());
        Some(
            named
                .chain(recorded.iter().copied())
                .chain(loaded.map(Revision::digest))
                .chain(running),
        )
    }
}

/// Takes from the candidate what the record does not give it. The record holds a decision
/// that another one has replaced since: that of the latter is not recorded yet. A candidate
/// that the record does not name stays as a shadow, because its successor may share watches.
fn limit_share<G>(applied: &mut DesiredController<G>, recorded: &Decision) {
    if let Some((candidate, step)) = &mut applied.candidate
        && let Some(most) = recorded.weight_of(&candidate.identity.to_string())
    {
        step.share.weight = step.share.weight.min(most);
    }
}
