//! The status of a controller: a projection of its state, with the conditions and the
//! answers to requests.

use super::{Controller, is_running};
use crate::api::{ConditionStatus, ControllerStatus, RecentWritesStatus, RequestStatus};
use crate::budget::CountedWrites;
use crate::control::answers::{self, Outcome};
use crate::control::conditions::{self, Authorization, ConditionInputs, LoadedModule, Readiness};
use crate::control::notice::Notice;
use crate::control::revision::Revision;
use crate::control::state::Candidate;
use crate::observation::Observation;
use crate::time::Wall;
use crate::times::time;

impl<G: Clone> Controller<G> {
    /// The status without its answers to requests.
    pub(super) fn project(
        &mut self,
        seen: Option<&Observation>,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) -> ControllerStatus {
        let mut status = ControllerStatus {
            observed_generation: self.generation,
            tripped: self.trips.statuses().to_vec(),
            recent_writes: RecentWritesStatus::of(
                self.counted_writes(seen),
                self.status.recent_writes.as_ref(),
                now,
            ),
            reports: seen.map(|seen| seen.reports.clone()).unwrap_or_default(),
            cluster_comparison: self.compared.status(),
            ..ControllerStatus::default()
        };
        self.rollout
            .write(&mut status, self.eligible().map(Revision::name));
        let digest = self
            .desired
            .as_ref()
            .map(|one| format!("sha256:{}", one.digest()));
        let (granted, not_granted) = (self.granted(), self.not_granted());
        let authorization = self.authorization();
        let missing = not_granted.as_ref().map(|one| one.to_add.shortened());
        status.missing_permissions = missing.unwrap_or_default();
        let inputs = ConditionInputs {
            granted,
            not_granted: not_granted.as_ref(),
            authorization: authorization.as_ref(),
            ..self.condition_inputs(&status, seen, digest.as_deref())
        };
        let is_settled = inputs.loaded.is_some() || inputs.problem.is_some();
        let description = conditions::describe(&inputs);
        status.summary = description.summary;
        let conditions = description.conditions.into_iter();
        let conditions =
            conditions.map(|one| condition(one, &self.status.conditions, self.generation, now));
        status.conditions = conditions.collect();
        self.reported
            .report(description.notices, is_settled, notices);
        status
    }

    /// What the guardrails have admitted, here or, until it counts here, elsewhere.
    fn counted_writes(&self, seen: Option<&Observation>) -> CountedWrites {
        if self.carried.is_empty() {
            seen.and_then(|seen| seen.recent).unwrap_or_default()
        } else {
            self.carried.former()
        }
    }

    fn condition_inputs<'a>(
        &'a self,
        status: &'a ControllerStatus,
        seen: Option<&'a Observation>,
        digest: Option<&'a str>,
    ) -> ConditionInputs<'a> {
        let spec = self.spec.as_ref();
        let loaded = self
            .described()
            .zip(digest)
            .map(|(desired, digest)| LoadedModule {
                origin: &desired.origin,
                digest,
                away: desired.loaded.away.as_deref(),
                is_pinned: spec.is_some_and(|spec| spec.module.digest.is_some()),
                is_dry_run_only: self.is_unsigned() && !self.trust.admits_unsigned(),
            });
        ConditionInputs {
            name: &self.name,
            status,
            mode: spec.map(|spec| spec.mode),
            spec_error: self.spec_error.as_ref(),
            problem: self.problem.as_ref(),
            loaded,
            granted: None,
            not_granted: None,
            authorization: None,
            running: self.readiness(seen),
            former: self.former(seen),
            stable_is_dry_run_only: status.stable.as_ref().is_some_and(|one| one.unsigned)
                && !self.trust.admits_unsigned(),
            pending: seen.and_then(|seen| seen.pending.as_ref()),
            interrupted: seen.and_then(|seen| {
                let interrupted = seen.interrupted.as_ref();
                interrupted.filter(|one| one.is_reported(seen.now.instant))
            }),
            circuit: seen.and_then(|seen| seen.circuit_open.as_deref()),
            hold: self.rollout.candidate().and_then(Candidate::hold),
            unrecorded: self.unrecorded.as_deref(),
            refused: seen.and_then(|seen| seen.refused.as_deref()),
            deferred_deletions: seen.and_then(|seen| seen.deferred_deletions.as_deref()),
            idle_undo_kinds: seen.and_then(|seen| seen.idle_undo_kinds.as_ref()),
            other_host: self.other_host.as_ref().map(|(host, _)| host),
            has_lease: self.has_lease,
            journal: self.journal,
        }
    }

    /// The name of the revision that runs until the watches of the stable one are synced.
    fn former<'a>(&self, seen: Option<&'a Observation>) -> Option<&'a str> {
        let running = seen.filter(|seen| seen.executes)?.stable.as_ref()?;
        let is_stable = self
            .stable
            .as_ref()
            .is_some_and(|one| one.identity() == running);
        (!is_stable).then(|| running.name())
    }

    fn readiness(&self, seen: Option<&Observation>) -> Readiness {
        let (Some(stable), Some(seen)) = (&self.stable, seen) else {
            return Readiness::No;
        };
        match &seen.stable {
            Some(running) if running == stable.identity() && seen.complete => Readiness::Yes,
            Some(running) if running == stable.identity() => Readiness::NotServed,
            _ => Readiness::Starting,
        }
    }

    pub(super) fn answer(
        &self,
        open: Vec<answers::OpenRequest>,
        status: &ControllerStatus,
        seen: Option<&Observation>,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) -> Vec<RequestStatus> {
        let outcome = Outcome {
            status,
            in_force: &self.in_force,
            is_running: is_running(seen),
            described: self.eligible().map(Revision::name),
            problem: &|| self.hindrance(),
        };
        let former = &self.status.requests;
        answers::answer(former, &self.requests, open, &outcome, now, notices)
    }

    /// Why the revision that the spec describes cannot run.
    fn hindrance(&self) -> Option<String> {
        let invalid = self.spec_error.as_ref().map(ToString::to_string);
        let problem = || Some(self.problem.as_ref()?.message.clone());
        let not_granted = || self.not_granted().map(|one| one.message(&self.name));
        let not_authorized = || match self.authorization()? {
            Authorization::Denied(denied) => Some(denied.message()),
            _ => None,
        };
        invalid
            .or_else(problem)
            .or_else(not_granted)
            .or_else(not_authorized)
    }
}

/// A condition as it is written. Its time changes only with its status.
fn condition(
    one: conditions::Condition,
    former: &[ConditionStatus],
    generation: Option<i64>,
    now: Wall,
) -> ConditionStatus {
    let status = one.status.as_str();
    let mut former = former.iter();
    let former = former.find(|former| former.type_ == one.type_ && former.status == status);
    ConditionStatus {
        type_: one.type_.to_owned(),
        status: status.to_owned(),
        reason: one.reason.to_owned(),
        message: one.message,
        last_transition_time: match former {
            Some(former) => former.last_transition_time.clone(),
            None => time(now),
        },
        observed_generation: generation,
    }
}
