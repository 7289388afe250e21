//! One controller: its declaration, its loaded revisions, the state of its rollout, and
//! its status.

mod authorized;
mod decide;
mod describe;
mod effect;
mod granted;
mod loads;
mod needs;

use std::sync::Arc;
use std::time::Duration;

use self::needs::Needs;
use super::answers;
use super::carried::CarriedWrites;
use super::compared::ClusterCounts;
use super::declaration::Declaration;
use super::journal::JournalState;
use super::loading::{LoadProblem, LoadState};
use super::notice::Notice;
use super::part::Part;
use super::recording::{RecordProgress, SHOWN_EVERY};
use super::reported::ReportedState;
use super::requests::Requests;
use super::rest::Rest;
use super::reviews::Answers;
use super::revision::{Revision, differs_in_module_alone, is_same_revision};
use super::state::{Candidate, Rollout};
use super::transition::LoadFailureOfStable;
use super::trips::Trips;
use crate::api::{ControllerSpec, ControllerStatus, HostStatus, SpecError};
use crate::desired::DesiredController;
use crate::object::ObjectRef;
use crate::observation::Observation;
use crate::record::StatusVersion;
use crate::revision::LoadedRevision;
use crate::time::{Instant, Now, Wall};
use crate::times;
use crate::trust::TrustPolicy;

/// How long another host counts as running after its last write.
const OTHER_HOST_FOR: Duration = SHOWN_EVERY.saturating_add(Duration::from_secs(30));

/// One controller.
pub(super) struct Controller<G> {
    pub(super) name: String,
    pub(super) object: Option<ObjectRef>,
    /// Davit's own namespace, which also has the controller's account.
    home: String,
    generation: Option<i64>,
    /// The last valid spec. None until this host has read one: then nothing runs.
    /// Recorded specs have the module, configuration and limits of a revision, but not
    /// the mode, guardrails and account that apply now.
    pub(super) spec: Option<ControllerSpec>,
    /// The error of the present spec, if it is invalid.
    spec_error: Option<SpecError>,
    /// The requests in the annotations.
    requests: Requests,
    /// The requests in force: those that fit the state and have no final answer.
    in_force: Requests,
    rollout: Rollout,
    stable: Option<Revision<G>>,
    /// The revision that the spec describes; the former one until that is loaded.
    desired: Option<Revision<G>>,
    pub(super) loading: LoadState,
    /// What the loaded revisions need, those that run included.
    needs: Vec<Needs>,
    /// Whether the needs have changed since the last review.
    have_needs_changed: bool,
    /// Why the revision that the spec describes cannot be loaded.
    problem: Option<LoadProblem>,
    /// Why the stable revision cannot be loaded.
    failure: Option<LoadFailureOfStable>,
    /// What the API server says about the controllers' accounts.
    reviewed: Arc<Answers>,
    /// How many of its requests were refused as forbidden, when it was last observed.
    forbidden: u64,
    trips: Trips,
    /// What guardrails have admitted elsewhere; nothing once it counts here.
    carried: CarriedWrites,
    /// The comparison of the dry run with the cluster.
    compared: ClusterCounts,
    /// Whether the controller has a lease: there are other replicas.
    pub(super) has_lease: bool,
    /// The part of this replica in the decisions.
    pub(super) part: Part,
    pub(super) recording: RecordProgress,
    /// Why decisions cannot be recorded.
    pub(super) unrecorded: Option<String>,
    /// The state of the host's journal; none without one.
    journal: Option<JournalState>,
    /// Whether the decision on the last declaration is recorded, or known not to be.
    pub(super) is_settled: bool,
    /// Another host that has written the status, and when this host noticed that.
    pub(super) other_host: Option<(HostStatus, Instant)>,
    reported: ReportedState,
    /// The status that follows from all of this; the recorded one before the first
    /// reconcile.
    status: ControllerStatus,
    /// The controller that the data half last got.
    pub(super) applied: Option<DesiredController<G>>,
    /// The revisions that it has replaced and that may still run: the data half runs them
    /// until the watches of the next ones are synced.
    replaced: Vec<LoadedRevision<G>>,
    /// Whether the controller needs no reconcile.
    pub(super) rest: Rest,
    /// Which modules may write.
    trust: TrustPolicy,
    /// The last time that was used to name a rollout, a rejection or a loss.
    named: Wall,
}

impl<G: Clone> Controller<G> {
    /// A controller that continues from its record.
    pub(super) fn restore(
        name: &str,
        object: Option<ObjectRef>,
        home: &str,
        recorded: ControllerStatus,
        version: Option<StatusVersion>,
        trust: TrustPolicy,
        now: Now,
    ) -> Self {
        let status = ControllerStatus {
            host: None,
            ..recorded
        };
        Self {
            name: name.to_owned(),
            object,
            home: home.to_owned(),
            generation: None,
            spec: None,
            spec_error: None,
            requests: Requests::default(),
            in_force: Requests::default(),
            rollout: Rollout::restore(&status),
            stable: None,
            desired: None,
            loading: LoadState::new(now.instant),
            needs: Vec::new(),
            have_needs_changed: true,
            problem: None,
            failure: None,
            reviewed: Arc::default(),
            forbidden: 0,
            trips: Trips::restore(&status.tripped),
            carried: CarriedWrites::recorded(&status, now),
            compared: ClusterCounts::recorded(&status),
            has_lease: false,
            part: Part::Leader,
            recording: RecordProgress::new(status.clone(), version),
            unrecorded: None,
            journal: None,
            is_settled: false,
            other_host: None,
            reported: ReportedState::default(),
            applied: None,
            replaced: Vec::new(),
            rest: Rest::default(),
            trust,
            named: last_name(&status),
            status,
        }
    }

    /// Continues from what another replica has recorded, with the revisions that are loaded
    /// and run.
    pub(super) fn continue_from(
        &mut self,
        recorded: ControllerStatus,
        version: Option<StatusVersion>,
        now: Now,
    ) {
        let status = ControllerStatus {
            host: None,
            ..recorded
        };
        self.rest.end();
        let former = std::mem::replace(&mut self.rollout, Rollout::restore(&status));
        let is_same = recorded_stable(&former) == recorded_stable(&self.rollout);
        self.trips.continue_from(&status.tripped);
        self.carried = CarriedWrites::recorded(&status, now);
        self.compared = ClusterCounts::recorded(&status);
        self.recording = RecordProgress::new(status.clone(), version);
        self.unrecorded = None;
        self.failure = self.failure.take().filter(|_| is_same);
        self.named = self.named.max(last_name(&status));
        self.status = status;
        let decided = self.rollout.stable();
        let is_it = |one: &Revision<G>| decided.is_some_and(|decided| one.is_recorded_as(decided));
        self.stable = self.stable.take().filter(is_it);
        self.take_stable();
        if self.stable.is_none() && !is_same {
            self.loading.restore_again(now.instant);
        }
    }

    /// The status that the leader has recorded, if that is another replica.
    pub(super) fn follow_status(&mut self, recorded: ControllerStatus, now: Now) {
        let status = ControllerStatus {
            host: None,
            ..recorded
        };
        if !self.leads() && self.status != status {
            self.continue_from(status, None, now);
        }
    }

    /// The host's journal has this state.
    pub(super) fn note_journal(&mut self, journal: Option<JournalState>) {
        if self.journal != journal {
            self.journal = journal;
            self.rest.end();
        }
    }

    /// Whether the controller was last declared like this, except for its status.
    pub(super) fn is_declared(&self, declaration: &Declaration) -> bool {
        let spec = match (&self.spec_error, &self.spec) {
            (Some(error), _) => Err(error),
            (None, Some(spec)) => Ok(spec),
            (None, None) => return false,
        };
        declaration.generation.is_some()
            && declaration.generation == self.generation
            && declaration.requests == self.requests
            && declaration.spec.as_ref() == spec
    }

    /// The generation of the spec, if it has one.
    pub(super) fn generation(&self) -> Option<i64> {
        self.generation
    }

    /// There are other replicas: this one decides once it holds the lease.
    pub(super) fn await_lease(&mut self) {
        (self.has_lease, self.part) = (true, Part::Follower);
    }

    /// Keeps what the record names loaded, while another replica decides.
    pub(super) fn run_in_the_dark(&mut self, seen: Option<&Observation>) {
        self.drop_needs();
        self.take_stable();
        self.is_settled = true;
        self.loading.was_complete |= self.is_prepared();
        self.rest.note_reconcile(seen, false);
    }

    /// Whether everything is loaded that this replica would run as the leader, or known not
    /// to be loadable.
    fn is_prepared(&self) -> bool {
        let has_stable = self.stable.is_some() || self.failure.is_some();
        let has_described = self.described().is_some() || self.problem.is_some();
        (has_stable || self.rollout.stable().is_none()) && (has_described || self.spec.is_none())
    }

    /// Whether the data half has the revision that is recorded as stable.
    pub(super) fn has_applied_stable(&self) -> bool {
        let both = self.stable.as_ref().zip(self.applied.as_ref());
        both.is_some_and(|(stable, applied)| *stable.identity() == applied.stable.identity)
    }

    /// Decides from now on, from what another replica has recorded.
    pub(super) fn take_over(
        &mut self,
        recorded: ControllerStatus,
        version: Option<StatusVersion>,
        now: Now,
    ) {
        self.continue_from(recorded, version, now);
        self.confirm_module(now.instant);
        if self.stable.is_none() {
            // What failed may be possible by now.
            self.failure = None;
            self.loading.restore_again(now.instant);
        }
        if let Some(candidate) = self.rollout.candidate_mut() {
            candidate.counts.take_over();
        }
        self.compared.take_over();
        self.part = Part::Leader;
        self.rest.end();
    }

    /// Reads the source again if the former leader has described another module at it than this
    /// replica, which may have read it before: a tag was moved. Until then, what is recorded
    /// continues.
    fn confirm_module(&mut self, now: Instant) {
        let Some(spec) = &self.spec else { return };
        let candidate = self.rollout.candidate().map(|one| &one.revision);
        let described = candidate.or(self.rollout.stable());
        let Some(described) = described else { return };
        let is_other = |desired: &Revision<G>| match self.rollout.rejected() {
            // Its record does not have its module.
            Some(rejected) => rejected.revision != desired.name(),
            None => !desired.is_recorded_as(described) && differs_in_module_alone(spec, described),
        };
        // What is still being read counts neither.
        let is_other = self.desired.as_ref().is_none_or(is_other);
        let may_change = spec.module.check_interval().is_some()
            && spec.module.digest.is_none()
            && !spec.module.source.is_builtin();
        if may_change && is_other {
            if let Some(desired) = &mut self.desired {
                desired.is_confirmed = false;
            }
            self.loading.read_again(now);
            self.compute_new_needs();
        }
    }

    /// Applies a declaration, with the revision of its spec if that was loaded before.
    pub(super) fn declare(
        &mut self,
        declaration: Declaration,
        loaded: Option<LoadedRevision<G>>,
        now: Instant,
    ) {
        self.rest.end();
        self.is_settled = false;
        self.generation = declaration.generation;
        self.requests = declaration.requests;
        let spec = match declaration.spec {
            Err(error) => {
                self.spec_error = Some(error);
                return;
            }
            Ok(spec) => spec,
        };
        self.spec_error = None;
        let former = self.spec.replace(spec.clone());
        let guardrails = former.as_ref().map(|former| &former.guardrails);
        if guardrails.is_some_and(|former| *former != spec.guardrails) {
            self.trips.end_unless_observed();
        }
        let is_another = former.is_none_or(|former| !is_same_revision(&former, &spec));
        if is_another {
            // The problem belongs to another spec.
            self.problem = None;
        }
        if let Some(loaded) = loaded {
            self.desired = Some(Revision::new(loaded, &spec));
            self.problem = None;
            self.loading.provided(&spec, now);
        } else if is_another || (self.desired.is_none() && !self.loading.is_unusable()) {
            self.loading.start_again(now, &spec);
        }
        self.compute_needs();
    }

    /// Reconciles the controller with an observation. `passed` is the time since the
    /// last reconcile. Returns notices for the operator.
    pub(super) fn reconcile(
        &mut self,
        seen: Option<&Observation>,
        passed: Duration,
        now: Now,
    ) -> Vec<Notice> {
        self.drop_needs();
        let mut notices = Vec::new();
        let (in_force, open) = answers::review(&self.requests, &self.status, self.generation);
        self.in_force = in_force;
        self.choose_stable(now.wall, &mut notices);
        self.choose_candidate(now.wall, &mut notices);
        self.note_unsigned();
        // Until the data half leads, it has the trips and counts of a former term.
        let leads = self.applied.as_ref().is_some_and(|applied| applied.leads);
        self.judge(seen, leads, passed, now.wall, &mut notices);
        self.trips.observe(seen.filter(|_| leads), &mut notices);
        self.carried.observe(seen, leads, now.instant);
        if leads {
            let spec = self.spec.as_ref();
            let is_compared = spec.is_some_and(|spec| spec.compare_with.is_some());
            self.compared.observe(seen, is_compared, now);
        }
        self.forget_other_host(now.instant);
        let mut status = self.project(seen, now.wall, &mut notices);
        status.requests = self.answer(open, &status, seen, now.wall, &mut notices);
        let has_end = self.other_host.is_some() || !self.carried.is_empty();
        let changes_with_time = has_end || self.rollout.candidate().is_some();
        let is_changed = changes_with_time || !notices.is_empty() || self.status != status;
        self.rest.note_reconcile(seen, is_changed);
        self.status = status;
        notices
    }

    /// Whether there is nothing to decide, to apply, or to record.
    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        // Nobody has changed the status since the last round that observed it.
        let is_idle = if self.rest.is_passed_over() {
            !self.recording.is_open()
        } else {
            self.recording.is_idle(&self.status, now)
        };
        let is_recorded = self.unrecorded.is_none() && is_idle;
        self.rest.is_complete() && self.is_settled && is_recorded
    }

    /// The loaded revision that the present spec describes.
    fn described(&self) -> Option<&Revision<G>> {
        let described = self.desired.as_ref().filter(|one| one.is_described);
        described.filter(|_| !self.is_denied())
    }

    /// Whether the present spec describes an unsigned module.
    fn is_unsigned(&self) -> bool {
        let spec = self.spec.as_ref();
        spec.is_some_and(|spec| self.trust.is_unsigned(&spec.module))
    }

    /// Whether the host does not run the module that the present spec describes.
    fn is_denied(&self) -> bool {
        let spec = self.spec.as_ref();
        spec.is_some_and(|spec| self.trust.denies(&spec.module))
    }

    /// Whether the candidate is what a revision is.
    fn is_candidate(&self, revision: Option<&Revision<G>>) -> bool {
        let candidate = self.rollout.candidate();
        revision
            .zip(candidate)
            .is_some_and(|(revision, candidate)| revision.is_recorded_as(&candidate.revision))
    }

    fn forget_other_host(&mut self, now: Instant) {
        let is_over = |(_, at): &(HostStatus, Instant)| now.since(*at) >= OTHER_HOST_FOR;
        if self.other_host.as_ref().is_some_and(is_over) {
            self.other_host = None;
        }
    }

    /// Whether an operator resets the guardrails that have tripped.
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
}

/// The revision that a record names as stable, and its module.
fn recorded_stable(rollout: &Rollout) -> Option<(&str, &str)> {
    let stable = rollout.stable()?;
    Some((&stable.revision, &stable.digest))
}

/// Whether a controller's stable revision runs on this host.
fn is_running(seen: Option<&Observation>) -> bool {
    seen.is_some_and(|seen| seen.stable.is_some())
}

/// The last time in a record that identifies a rollout, a rejection or a loss.
fn last_name(status: &ControllerStatus) -> Wall {
    let stable = status.stable.as_ref().map(|one| &one.since);
    let candidate = status.candidate.as_ref().map(|one| &one.since);
    let rejected = status.rejected.as_ref().map(|one| &one.at);
    let lost = status.lost.as_ref().map(|one| &one.since);
    let all = [stable, candidate, rejected, lost].into_iter().flatten();
    let last = all.filter_map(|text| times::read(text)).max();
    last.unwrap_or(Wall(i64::MIN))
}
