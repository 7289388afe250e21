//! One controller: what is declared, which of its revisions are loaded, the state of
//! its rollout, and what is said of it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::answers::{self, Outcome};
use super::conditions::{self, ConditionInputs, Loaded, Readiness};
use super::decision::{Decision, Unrecorded};
use super::declaration::Declaration;
use super::loading::{self, LoadId, LoadProblem, LoadResult, LoadTarget, Loading};
use super::notice::Notice;
use super::record::{Record, RecordId};
use super::recording::{Recordable, Recorded, Recording};
use super::reported::ReportedState;
use super::requests::Requests;
use super::revision::{Revision, is_same_revision, is_update_of};
use super::state::{Candidate, Rollout};
use super::times::{self, precise_time, time};
use super::transition::{self, Asked, Circumstances, LoadFailureOfStable, Phase, Transition};
use super::trips::Trips;
use crate::api::{
    ConditionStatus, ControllerSpec, ControllerStatus, HostStatus, ModeConfig, SpecError,
};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::object::ObjectRef;
use crate::observation::Observation;
use crate::revision::LoadedRevision;
use crate::rollout::cohort::{CandidateStep, Cohort, Share};
use crate::rollout::progress::{self, Analysis, Progress, Request, StepObservation};
use crate::time::{Instant, Now, Wall};

/// How long after its last write another host counts as running: each writes every
/// ten seconds.
const OTHER_HOST_FOR: Duration = Duration::from_secs(30);

/// One controller.
pub(super) struct Controller<G> {
    pub(super) name: String,
    pub(super) object: Option<ObjectRef>,
    generation: Option<i64>,
    /// The last spec that could be read. None as long as this host has read none: then
    /// nothing runs. What is recorded of former specs says what a revision was made
    /// of, not what it may do by now.
    pub(super) spec: Option<ControllerSpec>,
    /// What is wrong with the present one.
    spec_error: Option<SpecError>,
    /// What the annotations ask for.
    asked: Requests,
    /// The part of it that is in force: that fits, and has not been answered.
    in_force: Requests,
    rollout: Rollout,
    stable: Option<Revision<G>>,
    /// What the spec describes; what it described before as long as that is being
    /// loaded, or cannot be.
    desired: Option<Revision<G>>,
    pub(super) loading: Loading,
    /// Why what the spec describes cannot be loaded.
    problem: Option<LoadProblem>,
    /// Why the stable revision cannot be loaded.
    failure: Option<LoadFailureOfStable>,
    trips: Trips,
    pub(super) recording: Recording,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<String>,
    /// Whether what was declared last is decided on, and recorded or known not to be.
    pub(super) is_settled: bool,
    /// Another host that has written the status, and when that was seen.
    pub(super) other_host: Option<(HostStatus, Instant)>,
    reported: ReportedState,
    /// The status as it follows from all of this; the recorded one before the first
    /// look.
    status: ControllerStatus,
    /// What the data half was last asked to run.
    pub(super) applied: Option<DesiredController<G>>,
    /// The last time that names a rollout, a rejection or a loss.
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
            named: last_name(&status),
            status,
        }
    }

    /// What is declared of it now, and the revision of the spec if that was loaded
    /// before.
    pub(super) fn declare(
        &mut self,
        declaration: Declaration,
        loaded: Option<LoadedRevision<G>>,
        now: Instant,
    ) {
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
            // It was about what another spec describes.
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
            (loading::Recorded::Stable, stable.revision.clone())
        } else if self.desired.is_none() && self.spec.is_some() {
            let candidate = self.rollout.candidate()?;
            (
                loading::Recorded::Candidate,
                candidate.revision.revision.clone(),
            )
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
        match self.loading.handle(now, id, result, self.spec.as_ref()) {
            // The candidate may be loaded from its source.
            loading::Loaded::Nothing
            | loading::Loaded::Missing(loading::Recorded::Candidate, _) => {}
            loading::Loaded::Desired { revision, problem } => {
                if let Some((loaded, spec)) = revision {
                    self.desired = Some(Revision::new(loaded, &spec));
                }
                self.problem = problem;
            }
            loading::Loaded::Recorded(loading::Recorded::Stable, loaded, spec) => {
                let loaded = Revision::new(loaded, &spec);
                self.stable.get_or_insert(loaded);
            }
            loading::Loaded::Recorded(loading::Recorded::Candidate, loaded, spec) => {
                let loaded = Revision::new(loaded, &spec);
                // The spec may have changed while no host was there.
                if self.is_described(&loaded) {
                    self.desired.get_or_insert(loaded);
                } else {
                    self.loading.restored();
                }
            }
            loading::Loaded::Missing(loading::Recorded::Stable, problem) => {
                if self.stable.is_none() {
                    self.failure = Some(LoadFailureOfStable {
                        is_updated: problem.is_updated(),
                        reason: problem.message,
                    });
                }
            }
        }
    }

    /// Decides what follows from what is observed; `passed` is the time since the last
    /// look. Returns what people are notified of.
    pub(super) fn look(
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
        self.status = status;
        notices
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

    /// Decides how the step of the candidate goes on.
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
            // Never the same twice, whatever the wall clock does.
            *named = now.max(Wall(named.0.saturating_add(1)));
            precise_time(*named)
        };
        notices.extend(self.rollout.apply(transition, circumstances, name));
        self.take_stable();
    }

    /// Keeps the loaded stable revision that of the state.
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
            is_update: spec
                .zip(former)
                .is_some_and(|(spec, former)| is_update_of(spec, former)),
            asked: Asked {
                abandon: self.in_force.abandons(recorded),
                swap: name.is_some_and(|name| self.in_force.swaps(name, self.generation)),
                retry: rejected.is_some_and(|rejected| self.in_force.retries(rejected)),
            },
            described,
        }
    }

    /// What is seen of the candidate in this step, while both revisions run.
    fn seen_in_step<'a>(
        &self,
        seen: Option<&'a Observation>,
        candidate: &Candidate,
    ) -> Option<&'a StepObservation> {
        let stable = self.stable.as_ref()?;
        let seen = seen.filter(|seen| seen.complete)?;
        // Beside a revision that has been replaced it says nothing.
        if seen.stable.as_ref() != Some(stable.identity()) {
            return None;
        }
        let running = seen.candidate.as_ref().filter(|one| one.complete)?;
        let is_it = running.identity.to_string() == candidate.revision.revision;
        (is_it && running.step == candidate.number).then_some(&running.observed)
    }

    /// The loaded revision that the present spec describes. Without one nothing starts
    /// and nothing advances: the spec may be what an operator has just taken back.
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
            .map(|(desired, digest)| Loaded {
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

    /// Whether an operator resets the guardrails that have tripped.
    pub(super) fn is_reset(&self, seen: Option<&Observation>) -> bool {
        is_running(seen) && self.in_force.resets(&self.status)
    }

    /// The status as it follows from the last look.
    pub(super) fn status(&self) -> &ControllerStatus {
        &self.status
    }

    /// The candidate, and the step that the spec has for it.
    pub(super) fn candidate(&self) -> Option<(&Candidate, &ControllerSpec)> {
        self.rollout.candidate().zip(self.spec.as_ref())
    }

    /// What follows from the decisions so far: of no use until they are recorded. None
    /// if there is nothing to run yet.
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
            // Without steps there is never a candidate: nothing beyond what the guest
            // reads has to be held.
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

    /// Applies what must not wait for the record: what an operator has decided, and
    /// that a candidate is withdrawn.
    pub(super) fn apply_at_once(&mut self, namespace: &str) {
        let desired = self.desired(namespace);
        if let (Some(applied), Some(desired)) = (&mut self.applied, &desired) {
            let desired = desired.ahead_of_record();
            applied.settings = desired.settings.clone();
            applied.user.clone_from(&desired.user);
            if desired.candidate.is_none() && desired.stable == applied.stable {
                applied.candidate = None;
            }
        }
    }

    /// Applies the decisions, if they are recorded.
    pub(super) fn apply_recorded(&mut self, namespace: &str) {
        let Some(desired) = self.desired(namespace) else {
            return;
        };
        if let Some(desired) = desired.recorded(self.recording.decision()) {
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
        let what = Recordable {
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
    ) -> Result<(RecordId, Record), Recorded> {
        let what = Recordable {
            now,
            status: &self.status,
            revisions: Vec::new(),
            host,
        };
        self.recording.explain(error, &what, id)
    }

    /// The modules that the controller needs: those of the revisions that are decided,
    /// also of those that are still to be loaded after a start, of those that run, and
    /// of those that the record may name. None as long as nobody knows the record.
    pub(super) fn modules(&self) -> Option<BTreeSet<ModuleDigest>> {
        let recorded = self.recording.modules()?;
        let stable = self.rollout.stable().map(|one| &one.digest);
        let candidate = self.rollout.candidate().map(|one| &one.revision.digest);
        let named = recorded.iter().chain(stable).chain(candidate);
        let named = named.filter_map(|text| text.parse().ok());
        let loaded = self.stable.iter().chain(&self.desired);
        let running = self.applied.iter().flat_map(|applied| {
            let candidate = applied.candidate.iter().map(|(candidate, _)| candidate);
            candidate.chain([&applied.stable])
        });
        let running = running.map(|one| one.identity.digest());
        Some(
            named
                .chain(loaded.map(Revision::digest))
                .chain(running)
                .collect(),
        )
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

/// A condition as it is written; its time changes with its status only.
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
