//! One controller: its declaration, its loaded revisions, the state of its rollout, and
//! its status.

use std::time::Duration;

use super::answers::{self, Outcome};
use super::conditions::{self, ConditionInputs, LoadedModule, Readiness};
use super::decision::{Decision, Unrecorded};
use super::declaration::Declaration;
use super::loading::{LoadId, LoadOutcome, LoadProblem, LoadResult, LoadTarget, Loading};
use super::notice::Notice;
use super::record::{Record, RecordId};
use super::recording::{RecordInputs, RecordOutcome, Recording};
use super::reported::ReportedState;
use super::requests::Requests;
use super::rest::Rest;
use super::revision::{Revision, is_same_revision, is_update_of};
use super::state::{Candidate, Rollout};
use super::times::{self, precise_time, time};
use super::transition::{
    self, Circumstances, LoadFailureOfStable, OperatorRequests, Phase, Transition,
};
use super::trips::Trips;
use crate::api::{
    ConditionStatus, ControllerSpec, ControllerStatus, HostStatus, ModeConfig, SpecError,
};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::mutant::Mutant;
use crate::object::ObjectRef;
use crate::observation::Observation;
use crate::revision::LoadedRevision;
use crate::rollout::Role;
use crate::rollout::cohort::{CandidateStep, Cohort, Share};
use crate::rollout::progress::{self, Analysis, Progress, Request, StepObservation};
use crate::time::{Instant, Now, Wall};

/// How long another host counts as running after its last write: each writes every ten
/// seconds.
const OTHER_HOST_FOR: Duration = Duration::from_secs(30);

/// One controller.
pub(super) struct Controller<G> {
    pub(super) name: String,
    pub(super) object: Option<ObjectRef>,
    generation: Option<i64>,
    /// The last valid spec. None until this host has read one: then nothing runs.
    /// Recorded specs have the module, configuration and limits of a revision, but not
    /// the mode, guardrails and account that apply now.
    pub(super) spec: Option<ControllerSpec>,
    /// The error of the present spec, if it is invalid.
    spec_error: Option<SpecError>,
    /// The requests in the annotations.
    asked: Requests,
    /// The requests in force: those that fit the state and have no final answer.
    in_force: Requests,
    rollout: Rollout,
    stable: Option<Revision<G>>,
    /// The revision that the spec describes; the former one until that is loaded.
    desired: Option<Revision<G>>,
    pub(super) loading: Loading,
    /// Why the revision that the spec describes cannot be loaded.
    problem: Option<LoadProblem>,
    /// Why the stable revision cannot be loaded.
    failure: Option<LoadFailureOfStable>,
    trips: Trips,
    pub(super) recording: Recording,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<String>,
    /// Whether the decision on the last declaration is recorded, or known not to be.
    pub(super) is_settled: bool,
    /// Another host that has written the status, and when this host noticed that.
    pub(super) other_host: Option<(HostStatus, Instant)>,
    reported: ReportedState,
    /// The status that follows from all of this; the recorded one before the first
    /// reconcile.
    status: ControllerStatus,
    /// The controller that the data half was last told to run.
    pub(super) applied: Option<DesiredController<G>>,
    /// Whether anything happens to it.
    pub(super) rest: Rest,
    /// The last time that was used to name a rollout, a rejection or a loss.
    named: Wall,
}

impl<G: Clone> Controller<G> {
    /// A controller that continues from its record.
    pub(super) fn restore(
        name: &str,
        object: Option<ObjectRef>,
        recorded: ControllerStatus,
        now: Instant,
    ) -> Self {
        let status = ControllerStatus {
            host: None,
            ..recorded
        };
        Self {
            name: name.to_owned(),
            object,
            generation: None,
            spec: None,
            spec_error: None,
            asked: Requests::default(),
            in_force: Requests::default(),
            rollout: Rollout::restore(&status),
            stable: None,
            desired: None,
            loading: Loading::new(now),
            problem: None,
            failure: None,
            trips: Trips::restore(&status.tripped),
            recording: Recording::new(status.clone()),
            unrecorded: None,
            is_settled: false,
            other_host: None,
            reported: ReportedState::default(),
            applied: None,
            rest: Rest::default(),
            named: last_name(&status),
            status,
        }
    }

    /// Takes a declaration, and the revision of its spec if that was loaded before.
    pub(super) fn declare(
        &mut self,
        declaration: Declaration,
        loaded: Option<LoadedRevision<G>>,
        now: Instant,
    ) {
        self.rest.end();
        self.is_settled = false;
        self.generation = declaration.generation;
        self.asked = declaration.requests;
        let spec = match declaration.spec {
            Err(error) => {
                self.spec_error = Some(error);
                return;
            }
            Ok(spec) => spec,
        };
        self.spec_error = None;
        let former = self.spec.replace(spec.clone());
        let is_another = former.is_none_or(|former| !is_same_revision(&former, &spec));
        if is_another {
            // The problem was of another spec.
            self.problem = None;
        }
        if let Some(loaded) = loaded {
            self.desired = Some(Revision::new(loaded, &spec));
            self.problem = None;
            self.loading.provided(&spec, now);
        } else if is_another || (self.desired.is_none() && !self.loading.is_unusable()) {
            self.loading.start_again(now);
        }
    }

    /// The next revision to load, if one is due.
    pub(super) fn next_load(
        &mut self,
        now: Instant,
        id: impl FnOnce() -> LoadId,
    ) -> Option<(LoadId, LoadTarget)> {
        self.loading.start_desired(now, self.spec.as_ref(), id)
    }

    /// The next revision of the record to load, if one is due.
    pub(super) fn next_recorded_load(
        &mut self,
        now: Instant,
        id: impl FnOnce() -> LoadId,
    ) -> Option<(LoadId, LoadTarget)> {
        if !self.loading.may_restore(now) {
            return None;
        }
        let (which, revision) = if self.stable.is_none() {
            let stable = self.rollout.stable()?;
            (Role::Stable, stable.revision.clone())
        } else if self.desired.is_none() && self.spec.is_some() {
            let candidate = self.rollout.candidate()?;
            (Role::Candidate, candidate.revision.revision.clone())
        } else {
            self.loading.restored();
            return None;
        };
        Some(self.loading.start_recorded(which, revision, id()))
    }

    /// Takes the result of an attempt to load a revision.
    pub(super) fn handle_loaded(
        &mut self,
        now: Instant,
        id: LoadId,
        result: Result<LoadResult<G>, LoadProblem>,
    ) {
        self.rest.end();
        match self.loading.handle(now, id, result, self.spec.as_ref()) {
            // The candidate may be loaded from its source.
            LoadOutcome::Nothing | LoadOutcome::Missing(Role::Candidate, _) => {}
            LoadOutcome::Desired { revision, problem } => {
                if let Some((loaded, spec)) = revision {
                    self.desired = Some(Revision::new(loaded, &spec));
                }
                self.problem = problem;
            }
            LoadOutcome::Recorded(Role::Stable, loaded, spec) => {
                let loaded = Revision::new(loaded, &spec);
                self.stable.get_or_insert(loaded);
            }
            LoadOutcome::Recorded(Role::Candidate, loaded, spec) => {
                let loaded = Revision::new(loaded, &spec);
                // The spec may have changed while no host was running.
                if self.is_described(&loaded) {
                    self.desired.get_or_insert(loaded);
                } else {
                    self.loading.restored();
                }
            }
            LoadOutcome::Missing(Role::Stable, problem) => {
                if self.stable.is_none() {
                    self.failure = Some(LoadFailureOfStable {
                        is_updated: problem.is_updated(),
                        reason: problem.message,
                    });
                }
            }
        }
    }

    /// Reconciles the controller with an observation. `passed` is the time since the
    /// last reconcile. Returns notices for the operator.
    pub(super) fn reconcile(
        &mut self,
        seen: Option<&Observation>,
        passed: Duration,
        now: Now,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        let (in_force, open) = answers::review(&self.asked, &self.status, self.generation);
        self.in_force = in_force;
        self.choose_stable(now.wall, &mut notices);
        self.choose_candidate(now.wall, &mut notices);
        self.judge(seen, passed, now.wall, &mut notices);
        self.trips.observe(seen, &mut notices);
        self.forget_other_host(now.instant);
        let mut status = self.project(seen, now.wall, &mut notices);
        status.requests = self.answer(open, &status, seen, now.wall, &mut notices);
        let changes_with_time = self.other_host.is_some() || self.rollout.candidate().is_some();
        let is_changed = changes_with_time || !notices.is_empty() || self.status != status;
        self.rest.look(seen, is_changed);
        self.status = status;
        notices
    }

    /// Whether there is nothing to decide, to apply, or to record.
    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        let is_recorded = self.unrecorded.is_none() && self.recording.is_idle(now);
        self.rest.is_complete() && self.is_settled && is_recorded
    }

    fn choose_stable(&mut self, now: Wall, notices: &mut Vec<Notice>) {
        self.take_stable();
        loop {
            let circumstances = self.circumstances();
            let next = transition::next(Phase::Stable, &self.rollout, &circumstances);
            let Some(next) = next else { break };
            self.apply(next, &circumstances, now, notices);
        }
        if self.stable.is_some() {
            self.failure = None;
        }
    }

    fn choose_candidate(&mut self, now: Wall, notices: &mut Vec<Notice>) {
        let circumstances = self.circumstances();
        let next = transition::next(Phase::Candidate, &self.rollout, &circumstances);
        if let Some(next) = next {
            self.apply(next, &circumstances, now, notices);
        }
    }

    /// Decides whether the candidate's step ends, and how.
    fn judge(
        &mut self,
        seen: Option<&Observation>,
        passed: Duration,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) {
        let is_current = self.is_candidate_described();
        let (Some(spec), Some(candidate)) = (&self.spec, self.rollout.candidate()) else {
            return;
        };
        let rollout = &spec.rollout;
        let is_held = rollout.paused || !is_current;
        let seen = self.seen_in_step(seen, candidate).cloned();
        let counts_time = !is_held && spec.mode != ModeConfig::Disabled;
        let request = self.in_force.of(&candidate_status(&self.rollout));
        let request = request.filter(|request| is_current || *request == Request::Abort);
        let steps = rollout.steps();
        let analysis = Analysis::from(&rollout.analysis);
        let Some(candidate) = self.rollout.candidate_mut() else {
            return;
        };
        if let Some(seen) = &seen {
            candidate.counts.observe(seen);
            if counts_time {
                candidate.elapsed += passed;
            }
        }
        let progress = Progress {
            step: (candidate.number as usize).saturating_sub(1),
            elapsed: candidate.elapsed,
        };
        let counted = candidate.counts.sum();
        let next = progress::next(&steps, &analysis, &progress, counted, is_held, request);
        if let Some(next) = self.rollout.end_step(next, is_current) {
            let circumstances = self.circumstances();
            self.apply(next, &circumstances, now, notices);
        }
        if let (Some(spec), Some(candidate)) = (&self.spec, self.rollout.candidate_mut()) {
            candidate.follow(&spec.rollout.steps);
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

    /// Makes the loaded stable revision that of the state.
    fn take_stable(&mut self) {
        let Some(name) = self.rollout.stable().map(|stable| &stable.revision) else {
            return;
        };
        if self
            .stable
            .as_ref()
            .is_none_or(|stable| stable.name() != *name)
        {
            let desired = self.desired.as_ref().filter(|one| one.name() == *name);
            self.stable = desired.cloned();
        }
    }

    fn circumstances(&self) -> Circumstances {
        let described = self.described();
        let described = described.map(|one| one.status(String::new()));
        let name = described.as_ref().map(|one| one.revision.as_str());
        let stable = self.stable.as_ref();
        let spec = self.spec.as_ref();
        let former = self.rollout.stable();
        let (recorded, rejected) = (&self.status, self.rollout.rejected());
        Circumstances {
            stable_loaded: stable.is_some(),
            describes_stable: stable.is_some_and(|stable| self.is_described(stable)),
            steps: spec.map_or_else(Vec::new, |spec| spec.rollout.steps.clone()),
            failure: self.failure.clone(),
            // Only then it matters.
            is_update: self.rollout.loss().is_some()
                && spec
                    .zip(former)
                    .is_some_and(|(spec, former)| is_update_of(spec, former)),
            asked: OperatorRequests {
                abandon: self.in_force.abandons(recorded),
                swap: name.is_some_and(|name| self.in_force.swaps(name, self.generation)),
                retry: rejected.is_some_and(|rejected| self.in_force.retries(rejected)),
            },
            described,
        }
    }

    /// The observation of the candidate in this step, while both revisions run.
    fn seen_in_step<'a>(
        &self,
        seen: Option<&'a Observation>,
        candidate: &Candidate,
    ) -> Option<&'a StepObservation> {
        let stable = self.stable.as_ref()?;
        let seen = seen.filter(|seen| seen.complete)?;
        // Beside a stable revision that was replaced, it means nothing.
        if seen.stable.as_ref() != Some(stable.identity()) {
            return None;
        }
        let running = seen.candidate.as_ref().filter(|one| one.complete)?;
        let is_it = running.identity.to_string() == candidate.revision.revision;
        (is_it && running.step == candidate.number).then_some(&running.observed)
    }

    /// The loaded revision that the present spec describes. Without one, no rollout
    /// starts or advances: the operator may just have reverted the spec.
    fn described(&self) -> Option<&Revision<G>> {
        self.desired.as_ref().filter(|one| self.is_described(one))
    }

    fn is_described(&self, revision: &Revision<G>) -> bool {
        let spec = self.spec.as_ref();
        spec.is_some_and(|spec| revision.is_described_by(spec))
    }

    /// Whether the candidate is what the present spec describes, and loaded.
    fn is_candidate_described(&self) -> bool {
        let candidate = self.rollout.candidate();
        let described = self.described();
        described
            .zip(candidate)
            .is_some_and(|(described, candidate)| described.name() == candidate.revision.revision)
    }

    fn forget_other_host(&mut self, now: Instant) {
        let is_over = |(_, at): &(HostStatus, Instant)| now.since(*at) >= OTHER_HOST_FOR;
        if self.other_host.as_ref().is_some_and(is_over) {
            self.other_host = None;
        }
    }

    /// The status, but for its answers to requests.
    fn project(
        &mut self,
        seen: Option<&Observation>,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) -> ControllerStatus {
        let mut status = ControllerStatus {
            observed_generation: self.generation,
            tripped: self.trips.statuses().to_vec(),
            ..ControllerStatus::default()
        };
        self.rollout
            .write(&mut status, self.described().map(Revision::name));
        let digest = self
            .desired
            .as_ref()
            .map(|one| format!("sha256:{}", one.digest()));
        let inputs = self.condition_inputs(&status, seen, digest.as_deref());
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
            });
        ConditionInputs {
            name: &self.name,
            status,
            mode: spec.map(|spec| spec.mode),
            spec_error: self.spec_error.as_ref(),
            problem: self.problem.as_ref(),
            loaded,
            running: self.readiness(seen),
            pending: seen.and_then(|seen| seen.pending.as_ref()),
            circuit: seen.and_then(|seen| seen.circuit_open.as_deref()),
            hold: self.rollout.candidate().and_then(Candidate::hold),
            unrecorded: self.unrecorded.as_deref(),
            other_host: self.other_host.as_ref().map(|(host, _)| host),
        }
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

    fn answer(
        &self,
        open: Vec<answers::OpenRequest>,
        status: &ControllerStatus,
        seen: Option<&Observation>,
        now: Wall,
        notices: &mut Vec<Notice>,
    ) -> Vec<crate::api::RequestStatus> {
        let described = self.described().map(Revision::name);
        let problem = self.spec_error.as_ref().map(ToString::to_string);
        let outcome = Outcome {
            status,
            in_force: &self.in_force,
            is_running: is_running(seen),
            described: described.as_deref(),
            problem: problem.or_else(|| Some(self.problem.as_ref()?.message.clone())),
        };
        let former = &self.status.requests;
        answers::answer(former, &self.asked, open, &outcome, now, notices)
    }

    /// Whether an operator resets the tripped guardrails.
    pub(super) fn is_reset(&self, seen: Option<&Observation>) -> bool {
        is_running(seen) && self.in_force.resets(&self.status)
    }

    /// The status after the last reconcile.
    pub(super) fn status(&self) -> &ControllerStatus {
        &self.status
    }

    /// The candidate, and the step that the spec has for it.
    pub(super) fn candidate(&self) -> Option<(&Candidate, &ControllerSpec)> {
        self.rollout.candidate().zip(self.spec.as_ref())
    }

    /// The controller to run by the present decision, which must be recorded first.
    /// None if there is nothing to run yet.
    fn desired(&self, namespace: &str) -> Option<Unrecorded<DesiredController<G>>> {
        let (spec, stable) = (self.spec.as_ref()?, self.stable.as_ref()?);
        let cohort = Cohort::from(&spec.rollout.cohort);
        let candidate = self.rollout.candidate().and_then(|candidate| {
            let desired = self.desired.as_ref()?;
            let step = CandidateStep {
                share: Share {
                    cohort: cohort.clone(),
                    weight: candidate.weight(),
                },
                number: candidate.number,
                window: spec.rollout.analysis.window.map(|window| window.0),
            };
            let is_it = desired.name() == candidate.revision.revision;
            is_it.then(|| (desired.loaded.clone(), step))
        });
        let account = spec.service_account_name.as_ref();
        let desired = DesiredController {
            name: self.name.clone(),
            settings: spec.settings(),
            user: account.map(|name| format!("system:serviceaccount:{namespace}:{name}")),
            stable: stable.loaded.clone(),
            // Without steps there is never a candidate, so the cache needs no fields
            // for cohorts.
            cohort: if spec.rollout.steps.is_empty() && candidate.is_none() {
                Cohort::default()
            } else {
                cohort
            },
            candidate,
            tripped: self.trips.resumed().to_vec(),
        };
        Some(Unrecorded::new(Decision::of(&self.status), desired))
    }

    /// Applies what must not wait for the record: an operator's settings, and the
    /// withdrawal of a candidate.
    pub(super) fn apply_at_once(&mut self, namespace: &str) {
        let desired = self.desired(namespace);
        if let (Some(applied), Some(desired)) = (&mut self.applied, &desired) {
            let desired = desired.ahead_of_record();
            applied.settings = desired.settings.clone();
            applied.user.clone_from(&desired.user);
            let keeps = Mutant::KeepRolledBack.is_active();
            if desired.candidate.is_none() && desired.stable == applied.stable && !keeps {
                applied.candidate = None;
            }
        }
    }

    /// Applies the decisions, if they are recorded.
    pub(super) fn apply_recorded(&mut self, namespace: &str) {
        let Some(desired) = self.desired(namespace) else {
            return;
        };
        if let Some(mut desired) = desired.recorded(self.recording.decision()) {
            if Mutant::KeepRolledBack.is_active()
                && desired.candidate.is_none()
                && self.rollout.rejected().is_some()
            {
                let former = self.applied.take();
                desired.candidate = former.and_then(|former| former.candidate);
            }
            self.applied = Some(desired);
        }
    }

    /// The next write to its record, if there is something to record now.
    pub(super) fn next_record(
        &mut self,
        now: Now,
        host: Option<HostStatus>,
        id: RecordId,
    ) -> Option<(RecordId, Record)> {
        let loaded = [&self.stable, &self.desired].into_iter().flatten();
        let what = RecordInputs {
            now,
            status: &self.status,
            revisions: loaded.map(|one| (one.name(), &one.spec)).collect(),
            host,
        };
        self.recording.next(&what, id)
    }

    /// Records why the specs of its revisions are not recorded.
    pub(super) fn explain(
        &mut self,
        error: String,
        now: Now,
        host: Option<HostStatus>,
        id: RecordId,
    ) -> Result<(RecordId, Record), RecordOutcome> {
        let what = RecordInputs {
            now,
            status: &self.status,
            revisions: Vec::new(),
            host,
        };
        self.recording.explain(error, &what, id)
    }

    /// The modules of its revisions, also of those that are not loaded yet.
    pub(super) fn modules(&self) -> Vec<ModuleDigest> {
        let loaded = self.stable.iter().chain(&self.desired);
        let loaded = loaded.map(Revision::digest);
        let stable = self.rollout.stable().map(|one| &one.digest);
        let candidate = self.rollout.candidate().map(|one| &one.revision.digest);
        let recorded = stable.into_iter().chain(candidate);
        loaded
            .chain(recorded.filter_map(|text| text.parse().ok()))
            .collect()
    }
}

/// Whether a controller's stable revision runs on this host.
fn is_running(seen: Option<&Observation>) -> bool {
    seen.is_some_and(|seen| seen.stable.is_some())
}

/// The candidate as requests name it.
fn candidate_status(rollout: &Rollout) -> crate::api::CandidateStatus {
    let mut status = ControllerStatus::default();
    rollout.write(&mut status, None);
    status.candidate.unwrap_or_default()
}

/// The last time of a record that names something.
fn last_name(status: &ControllerStatus) -> Wall {
    let stable = status.stable.as_ref().map(|one| &one.since);
    let candidate = status.candidate.as_ref().map(|one| &one.since);
    let rejected = status.rejected.as_ref().map(|one| &one.at);
    let lost = status.lost.as_ref().map(|one| &one.since);
    let all = [stable, candidate, rejected, lost].into_iter().flatten();
    let last = all.filter_map(|text| times::read(text)).max();
    last.unwrap_or(Wall(i64::MIN))
}

/// A condition of the status. Its time changes only with its status.
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
