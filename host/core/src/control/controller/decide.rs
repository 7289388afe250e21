//! Which revision of a controller is stable, which is the candidate, and how the
//! candidate's step ends.

use std::time::Duration;

use super::Controller;
use crate::api::RevisionStatus;
use crate::control::notice::Notice;
use crate::control::revision::{Revision, differs_in_module_alone, is_update_of};
use crate::control::state::{Candidate, CandidateEligibility, Wait};
use crate::control::transition::table::{self, Phase};
use crate::control::transition::{Circumstances, OperatorRequests, Transition};
use crate::gate::Mode;
use crate::observation::{CandidateObservation, Observation};
use crate::rollout::progress::{self, Analysis, Progress, Request, StepWait};
use crate::time::Wall;
use crate::times::precise_time;

impl<G: Clone> Controller<G> {
    pub(super) fn choose_stable(&mut self, now: Wall, notices: &mut Vec<Notice>) {
        self.take_stable();
        loop {
            let circumstances = self.circumstances();
            let next = table::next(Phase::Stable, &self.rollout, &circumstances);
            let Some(next) = next else { break };
            self.apply(next, &circumstances, now, notices);
        }
        if self.stable.is_some() {
            self.failure = None;
        }
    }

    pub(super) fn choose_candidate(&mut self, now: Wall, notices: &mut Vec<Notice>) {
        let circumstances = self.circumstances();
        let next = table::next(Phase::Candidate, &self.rollout, &circumstances);
        if let Some(next) = next {
            self.apply(next, &circumstances, now, notices);
        }
    }

    /// Notes whether the described revision is unsigned. The spec determines it: the
    /// same revision may be pinned later.
    pub(super) fn note_unsigned(&mut self) {
        if let Some(described) = self.described_status() {
            self.rollout.note_unsigned(&described);
        }
    }

    /// Decides whether the step of the candidate ends, and how. The data half `leads`, or does
    /// not know yet that it does.
    pub(super) fn judge(
        &mut self,
        seen: Option<&Observation>,
        leads: bool,
        passed: Duration,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) {
        let standing = self.standing();
        let is_current = standing == CandidateEligibility::Current;
        let (Some(spec), Some(candidate)) = (&self.spec, self.rollout.candidate()) else {
            return;
        };
        let rollout = &spec.rollout;
        let is_denied = self.is_denied();
        let may_not_write = candidate.revision.unsigned && !self.trust.admits_unsigned();
        let is_held = rollout.paused || !is_current || may_not_write;
        let interrupted = seen.and_then(|seen| {
            let candidate = seen.candidate.as_ref();
            let candidate = candidate.and_then(|one| one.interrupted.as_ref());
            let both = seen.interrupted.iter().chain(candidate);
            let interrupted = both.min_by_key(|one| one.since)?;
            Some((interrupted.clone(), seen.now.instant))
        });
        let mut seen = self.seen_in_step(seen, candidate).cloned();
        if let Some(seen) = &mut seen {
            seen.observed.trip.take_if(|_| !leads);
        }
        let counts_time = !is_held && spec.mode != Mode::Disabled;
        let request = self.in_force.of(&candidate.status());
        let request = request.filter(|request| is_current || *request == Request::Abort);
        let steps = rollout.steps();
        let analysis = Analysis::from(&rollout.analysis);
        let Some(candidate) = self.rollout.candidate_mut() else {
            return;
        };
        if seen.is_none() {
            candidate.counts.note_absence();
        }
        if let Some(seen) = &seen {
            candidate.counts.observe(&seen.observed, seen.since);
            // Decisions about a state that has passed are no observation of the cluster.
            if counts_time && interrupted.is_none() {
                candidate.elapsed += passed;
            }
        }
        let progress = Progress {
            step: (candidate.number as usize).saturating_sub(1),
            elapsed: candidate.elapsed,
        };
        let counted = candidate.counts.sum();
        let next = progress::next(&steps, &analysis, &progress, counted, is_held, request);
        if let Some(next) = self.rollout.end_step(next, standing) {
            let circumstances = self.circumstances();
            self.apply(next, &circumstances, now, notices);
        }
        if let (Some(spec), Some(candidate)) = (&self.spec, self.rollout.candidate_mut()) {
            // The steps of another revision are not those of this candidate.
            if standing != CandidateEligibility::NotLoaded {
                candidate.follow(&spec.rollout.steps);
            }
            if may_not_write && (is_current || is_denied) && !spec.rollout.paused {
                candidate.wait = Wait::Unsigned;
            }
            if let (Wait::Step(hold @ StepWait::Running { .. }), Some((interrupted, now))) =
                (&candidate.wait, interrupted)
                && interrupted.is_reported(now)
            {
                candidate.wait = Wait::Interrupted(hold.clone(), interrupted.to_string());
            }
        }
    }

    fn apply(
        &mut self,
        transition: Transition,
        circumstances: &Circumstances,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) {
        let named = &mut self.named;
        let name = || {
            // Unique, whatever the wall clock does.
            *named = now.max(Wall(named.0.saturating_add(1)));
            precise_time(*named)
        };
        notices.extend(self.rollout.apply(transition, circumstances, name));
        self.take_stable();
    }

    /// Sets the loaded stable revision to that of the state.
    pub(super) fn take_stable(&mut self) {
        let Some(decided) = self.rollout.stable() else {
            return;
        };
        let stable = self.stable.as_ref();
        if stable.is_none_or(|stable| !stable.is_recorded_as(decided)) {
            let desired = self.desired.as_ref();
            let decided = desired.filter(|one| one.is_recorded_as(decided));
            self.stable = decided.map(Revision::to_stable);
        }
    }

    /// The revision that the spec describes, once it is loaded and may run.
    fn described_status(&self) -> Option<RevisionStatus> {
        let described = self.eligible()?;
        Some(described.status(String::new(), self.is_unsigned()))
    }

    fn circumstances(&self) -> Circumstances {
        let described = self.described_status();
        let name = described.as_ref().map(|one| one.revision.as_str());
        let stable = self.stable.as_ref();
        let spec = self.spec.as_ref();
        let former = self.rollout.stable();
        let (recorded, rejected) = (&self.status, self.rollout.rejected());
        Circumstances {
            stable_loaded: stable.is_some(),
            is_superseded: self.is_superseded(),
            steps: spec.map_or_else(Vec::new, |spec| spec.rollout.steps.clone()),
            failure: self.failure.clone(),
            // Only a loss depends on it.
            is_update: self.rollout.loss().is_some()
                && spec
                    .zip(former)
                    .is_some_and(|(spec, former)| is_update_of(spec, former)),
            requests: OperatorRequests {
                abandon: self.in_force.abandons(recorded),
                swap: name.is_some_and(|name| self.in_force.swaps(name, self.generation)),
                retry: rejected.is_some_and(|rejected| self.in_force.retries(rejected)),
            },
            described,
        }
    }

    /// Whether the present spec describes another revision than the candidate, and that is
    /// loaded.
    fn is_superseded(&self) -> bool {
        let stable = self.stable.as_ref();
        let describes_stable = stable.is_some_and(|stable| stable.is_described);
        let described = self.described();
        (describes_stable && !self.may_describe_candidate())
            || described.is_some_and(|one| !self.is_candidate(Some(one)))
    }

    /// Whether the present spec describes the candidate, or may do so once its module is read: a
    /// tag, a file or a `ConfigMap` has another module than for the stable revision, and the spec
    /// is the same.
    fn may_describe_candidate(&self) -> bool {
        let (Some(spec), Some(candidate)) = (&self.spec, self.rollout.candidate()) else {
            return false;
        };
        match &self.desired {
            Some(desired) if desired.is_confirmed => {
                desired.is_described && self.is_candidate(Some(desired))
            }
            _ => differs_in_module_alone(spec, &candidate.revision),
        }
    }

    /// Whether the present spec still describes the candidate, which then may run.
    fn standing(&self) -> CandidateEligibility {
        if self.is_candidate(self.eligible()) {
            CandidateEligibility::Current
        } else if let Some(candidate) = self.described().filter(|one| self.is_candidate(Some(one)))
        {
            if self.is_granted(&candidate.loaded) {
                CandidateEligibility::MissingAuthorization
            } else {
                CandidateEligibility::MissingGrant
            }
        } else {
            CandidateEligibility::NotLoaded
        }
    }

    /// The observation of the candidate in this step, while both revisions run.
    fn seen_in_step<'a>(
        &self,
        seen: Option<&'a Observation>,
        candidate: &Candidate,
    ) -> Option<&'a CandidateObservation> {
        let stable = self.stable.as_ref()?;
        let seen = seen.filter(|seen| seen.complete)?;
        // An observation beside a replaced revision does not count.
        if seen.stable.as_ref() != Some(stable.identity()) {
            return None;
        }
        let running = seen.candidate.as_ref().filter(|one| one.complete)?;
        let is_it = running.identity.name() == candidate.revision.revision;
        (is_it && running.step == candidate.number).then_some(running)
    }
}
