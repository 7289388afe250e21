//! A driver in memory: it executes loads, writes records to a [`ControllerRecord`], and
//! observes the controllers that should run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::revisions::{identity_with, loaded, loaded_with, module, module_after, name_of};
use crate::api::{CandidateStatus, ControllerSpec, ControllerStatus, SpecError};
use crate::control::{
    Control, ControlEffect, ControlInput, ControlSettings, Declaration, DeclaredController,
    HostIdentity, Load, LoadFailure, LoadId, LoadProblem, LoadResult, LoadTarget, Output, Requests,
    ReviewId, SourceVersion,
};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::notes::GuestReport;
use crate::object::ObjectRef;
use crate::observation::{CandidateObservation, InterruptedResource, Observation};
use crate::record::{
    ControllerRecord, Owner, Record, RecordFailure, RecordId, RecordReceipt, StoredRecord,
};
use crate::request::review::{AccessReview, ReviewAnswer};
use crate::revision::RevisionIdentity;
use crate::rollout::compare::Counts;
use crate::rollout::progress::StepObservation;
use crate::time::{Instant, Now, Wall};

pub(super) const NAME: &str = "podgc";
const NOON: i64 = 1_795_176_000_000;

/// The name of the guest, which is never called.
pub(super) type Guest = &'static str;

pub(super) struct Bench {
    pub(super) now: Now,
    pub(super) control: Control<Guest>,
    /// The record, which outlives a host.
    pub(super) record: ControllerRecord,
    pub(super) declaration: Declaration,
    /// The controllers that the data half runs.
    pub(super) running: Vec<DesiredController<Guest>>,
    /// The observation of the candidate in its step.
    pub(super) observed: StepObservation,
    pub(super) reasons: Vec<&'static str>,
    /// How often the data half was reset.
    pub(super) resets: usize,
    /// The modules that drivers last got as needed.
    pub(super) modules: Option<BTreeSet<ModuleDigest>>,
    /// Effects that are not executed yet: writes and loads.
    pub(super) writes: Vec<(RecordId, Owner, Record)>,
    pub(super) loads: Vec<Load>,
    pub(super) pending: Vec<(RecordId, Owner)>,
    /// The owner whose record was last read or written.
    pub(super) last_owner: Option<Owner>,
    /// Whether writes succeed.
    pub(super) is_recording: bool,
    /// Why the record cannot be read, if it cannot.
    pub(super) unreadable: Option<String>,
    /// Whether recorded revisions cannot be loaded.
    pub(super) is_cache_lost: bool,
    /// Whether the source of the spec's module cannot be read.
    pub(super) is_source_away: bool,
    /// What accounts may not do: `list pods`.
    pub(super) denied: BTreeSet<&'static str>,
    /// Why the API server answers no review, if it does not.
    pub(super) no_reviews: Option<&'static str>,
    /// Reviews without an answer yet.
    pub(super) reviews: Vec<(ReviewId, AccessReview)>,
    /// Every permission that was reviewed.
    pub(super) reviewed: Vec<String>,
    /// A request that was refused as forbidden.
    pub(super) refused: Option<&'static str>,
    /// A resource of the stable revision that cannot be watched.
    pub(super) interrupted: Option<InterruptedResource>,
    /// One of the candidate.
    pub(super) candidate_interrupted: Option<InterruptedResource>,
    /// What the stable revision's guest reports.
    pub(super) reports: Vec<GuestReport>,
    /// How many requests of the account were refused as forbidden.
    pub(super) forbidden: u64,
    /// The observed stable revision, while the next one still waits for its watches.
    pub(super) former_stable: Option<RevisionIdentity>,
    /// The same of the candidate.
    pub(super) former_candidate: Option<RevisionIdentity>,
    /// How often the controller was stopped.
    pub(super) stops: usize,
    /// How often the module at the source was replaced, under the same tag.
    pub(super) replaced: u32,
}

fn object(uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: "davit.dev/v1alpha1".into(),
        kind: "Controller".into(),
        namespace: String::new(),
        name: NAME.into(),
        uid: uid.into(),
    }
}

fn settings() -> ControlSettings {
    ControlSettings {
        namespace: "davit".into(),
        host: Some(HostIdentity {
            id: "1".into(),
            name: "here".into(),
        }),
        trust: crate::trust::TrustPolicy {
            files: true,
            ..Default::default()
        },
        has_leases: false,
    }
}

impl Bench {
    /// A host that was just started, with the record of a former one.
    pub(super) fn start(spec: ControllerSpec, record: ControllerRecord) -> Self {
        Self::start_at(0, spec, record)
    }

    fn start_at(seconds: i64, spec: ControllerSpec, record: ControllerRecord) -> Self {
        let now = Now {
            instant: Instant::ZERO,
            wall: Wall(NOON + 1000 * seconds),
        };
        let declaration = Declaration {
            name: NAME.into(),
            generation: Some(1),
            object: Some(object("1")),
            status: None,
            spec: Ok(spec),
            requests: Requests::default(),
        };
        let mut bench = Self {
            now,
            control: Control::new(now, settings()),
            record,
            declaration,
            running: Vec::new(),
            observed: StepObservation::default(),
            reasons: Vec::new(),
            resets: 0,
            modules: None,
            writes: Vec::new(),
            loads: Vec::new(),
            pending: Vec::new(),
            last_owner: None,
            is_recording: true,
            unreadable: None,
            is_cache_lost: false,
            is_source_away: false,
            denied: BTreeSet::new(),
            no_reviews: None,
            reviews: Vec::new(),
            reviewed: Vec::new(),
            refused: None,
            interrupted: None,
            candidate_interrupted: None,
            reports: Vec::new(),
            forbidden: 0,
            former_stable: None,
            former_candidate: None,
            stops: 0,
            replaced: 0,
        };
        bench.declare();
        bench
    }

    /// A controller whose first revision runs.
    pub(super) fn running(spec: ControllerSpec) -> Self {
        let mut bench = Self::start(spec, ControllerRecord::default());
        bench.settle();
        assert_eq!(bench.running.len(), 1);
        bench
    }

    /// Ends this host immediately, and starts another one.
    pub(super) fn crash(&self) -> Self {
        let spec = self.declaration.spec.clone().unwrap();
        let seconds = (self.now.wall.0 - NOON) / 1000;
        let mut next = Self::start_at(seconds + 60, spec, self.record.clone());
        next.declaration = self.declaration.clone();
        next.replaced = self.replaced;
        next.declare();
        next
    }

    /// The name of the revision of a spec with the module that is at its source.
    pub(super) fn name_at_source(&self, spec: &ControllerSpec) -> String {
        identity_with(module_after(self.replaced, spec), spec).to_string()
    }

    /// Another host after a crash, whose spec cannot be read.
    pub(super) fn start_unreadable(former: &Self) -> Self {
        let mut next = former.crash();
        next.control = Control::new(next.now, settings());
        next.pending.clear();
        next.declaration.spec = Err(SpecError {
            field: "spec.module".into(),
            reason: "it names two sources".into(),
        });
        next.declare();
        next
    }

    pub(super) fn declare(&mut self) {
        let declared = DeclaredController {
            declaration: self.declaration.clone(),
            loaded: None,
        };
        self.handle(ControlInput::Declared(vec![declared]));
    }

    /// Declares another spec.
    pub(super) fn change(&mut self, spec: ControllerSpec) {
        self.declaration.spec = Ok(spec);
        let generation = self.declaration.generation.unwrap_or_default();
        self.declaration.generation = Some(generation + 1);
        self.declare();
    }

    /// Declares another resource of the same name.
    pub(super) fn replace(&mut self, uid: &str, spec: ControllerSpec) {
        self.declaration.object = Some(object(uid));
        self.declaration.spec = Ok(spec);
        self.declaration.generation = Some(1);
        self.declare();
    }

    pub(super) fn ask(&mut self, change: impl FnOnce(&mut Requests)) {
        change(&mut self.declaration.requests);
        self.declare();
    }

    pub(super) fn handle(&mut self, input: ControlInput<Guest>) {
        self.control.handle(self.now, input);
        self.poll();
    }

    /// Takes the outputs of the control half.
    fn poll(&mut self) {
        while let Some(output) = self.control.poll() {
            let effect = match output {
                Output::Effect(effect) => effect,
                Output::Run(desired) => {
                    self.run(desired);
                    continue;
                }
                Output::Reset { .. } => {
                    self.resets += 1;
                    continue;
                }
            };
            match effect {
                ControlEffect::Load(load) => self.loads.push(load),
                ControlEffect::ReadRecord { id, owner } => {
                    self.last_owner = Some(owner.clone());
                    self.pending.push((id, owner));
                }
                ControlEffect::Record { id, owner, record } => {
                    self.last_owner = Some(owner.clone());
                    self.writes.push((id, owner, record));
                }
                ControlEffect::Review { id, review } => {
                    self.reviewed.push(review.to_string());
                    self.reviews.push((id, review));
                }
                ControlEffect::Event { notice, .. } => self.reasons.push(notice.reason),
                ControlEffect::KeepModules(modules) => self.modules = Some(modules),
                ControlEffect::Answer { .. } | ControlEffect::Report(_) => {}
            }
        }
    }

    /// Stops at once what is not among the controllers that should run. A controller that is
    /// led from now on has only the trips of its record.
    fn run(&mut self, desired: Vec<DesiredController<Guest>>) {
        let leads = |all: &[DesiredController<Guest>]| all.iter().any(|one| one.leads);
        if leads(&desired) && !leads(&self.running) {
            self.observed.trip = None;
        }
        if desired.is_empty() {
            self.former_stable = None;
            self.stops += usize::from(!self.running.is_empty());
        }
        if desired.iter().all(|one| one.candidate.is_none()) {
            self.former_candidate = None;
        }
        self.running = desired;
    }

    /// Executes one effect: a review, a read of the record, a load, or a write. Returns
    /// whether there was one.
    pub(super) fn execute_one(&mut self) -> bool {
        if self.answer_review() {
            return true;
        }
        if !self.pending.is_empty() {
            let (id, _) = self.pending.remove(0);
            let record = Box::new(StoredRecord {
                status: self
                    .unreadable
                    .clone()
                    .map_or_else(|| Ok(self.record.status.clone()), Err),
                version: None,
                paused: None,
            });
            self.handle(ControlInput::RecordRead { id, record });
            return true;
        }
        if !self.loads.is_empty() {
            let load = self.loads.remove(0);
            let result = self.load(&load);
            self.handle(ControlInput::Loaded {
                id: load.id,
                result,
            });
            return true;
        }
        self.write_one()
    }

    /// Answers one review. Returns whether there was one.
    pub(super) fn answer_review(&mut self) -> bool {
        let Some((id, review)) = self.reviews.pop() else {
            return false;
        };
        let is_denied = self.denied.contains(&*review.to_string());
        let result = match self.no_reviews {
            Some(error) => Err(error.to_owned()),
            None if is_denied => Ok(ReviewAnswer::Denied {
                reason: "no role allows it".to_owned(),
            }),
            None => Ok(ReviewAnswer::Allowed),
        };
        self.handle(ControlInput::Reviewed { id, result });
        true
    }

    pub(super) fn write_one(&mut self) -> bool {
        if self.writes.is_empty() {
            return false;
        }
        let (id, _, record) = self.writes.remove(0);
        let result = if self.is_recording {
            self.record.write(record);
            Ok(RecordReceipt::default())
        } else {
            Err(RecordFailure::Failed("the API server is away".to_owned()))
        };
        self.handle(ControlInput::Recorded { id, result });
        true
    }

    /// Whether the next write records this candidate.
    pub(super) fn writes_candidate(&self, spec: &ControllerSpec) -> bool {
        self.writes.first().is_some_and(|(_, _, record)| {
            let Record::Status(write) = record else {
                return false;
            };
            let candidate = write.status.candidate.as_ref();
            candidate.is_some_and(|one| one.revision == name_of(spec))
        })
    }

    /// A write succeeded.
    pub(super) fn succeed(&mut self, id: RecordId) {
        self.handle(ControlInput::Recorded {
            id,
            result: Ok(RecordReceipt::default()),
        });
    }

    /// A write failed.
    pub(super) fn fail(&mut self, id: RecordId) {
        let result = Err(RecordFailure::Failed("no answer".to_owned()));
        self.handle(ControlInput::Recorded { id, result });
    }

    fn load(&self, load: &Load) -> Result<LoadResult<Guest>, LoadProblem> {
        let version = Some(SourceVersion(self.replaced.to_string()));
        match &load.target {
            LoadTarget::Desired { .. } if self.is_source_away => {
                Err(LoadProblem::new(LoadFailure::NotFound, "it cannot be read"))
            }
            LoadTarget::Desired { before, .. } if *before == version => Ok(LoadResult::Unchanged),
            LoadTarget::Desired { spec, .. } => Ok(LoadResult::Loaded {
                revision: loaded_with(module_after(self.replaced, spec), spec),
                spec: spec.clone(),
                version,
            }),
            LoadTarget::Stable { revision } | LoadTarget::Candidate { revision } => {
                let spec = self.record.spec(revision).filter(|_| !self.is_cache_lost);
                let spec = spec
                    .ok_or_else(|| LoadProblem::new(LoadFailure::NotRecorded, "it is not kept"))?;
                let module = spec.module.digest.unwrap_or_else(|| module(&spec));
                Ok(LoadResult::Loaded {
                    revision: loaded_with(module, &spec),
                    spec: Box::new(spec),
                    version: None,
                })
            }
        }
    }

    /// The answer to a load for this spec.
    pub(super) fn answer(&mut self, id: LoadId, spec: &ControllerSpec) {
        let result = Ok(LoadResult::Loaded {
            revision: loaded(spec),
            spec: Box::new(spec.clone()),
            version: Some(SourceVersion(self.replaced.to_string())),
        });
        self.handle(ControlInput::Loaded { id, result });
    }

    /// Reconciles the controllers, without executing effects.
    pub(super) fn look(&mut self) {
        let observed = self.observe();
        self.control.advance(self.now, &observed);
        self.poll();
    }

    /// Lets this much time pass, with a reconcile each second.
    pub(super) fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now.instant = self.now.instant.after(Duration::from_secs(1));
            self.now.wall.0 += 1000;
            self.settle();
        }
    }

    /// Reconciles and executes until nothing is left to do.
    pub(super) fn settle(&mut self) {
        self.look();
        while self.execute_one() {
            if self.control.next_wake() <= self.now.instant {
                self.look();
            }
        }
    }

    /// The observation of the data half: the revisions that run, synced immediately.
    fn observe(&self) -> BTreeMap<String, Observation> {
        let observed = self.running.iter().map(|desired| {
            let candidate = desired.candidate.as_ref();
            let stable = self.former_stable.as_ref();
            let former = self.former_candidate.as_ref();
            let observation = Observation {
                stable: Some(stable.unwrap_or(&desired.stable.identity).clone()),
                executes: true,
                pending: None,
                complete: true,
                interrupted: self.interrupted.clone(),
                circuit_open: None,
                recent: None,
                refused: self.refused.map(str::to_owned),
                deferred_deletions: None,
                idle_undo_kinds: None,
                reports: self.reports.clone(),
                candidate: candidate.map(|(revision, step)| CandidateObservation {
                    identity: former.unwrap_or(&revision.identity).clone(),
                    step: step.number,
                    complete: true,
                    interrupted: self.candidate_interrupted.clone(),
                    since: Instant::ZERO,
                    observed: self.observed.clone(),
                }),
                tripped: Vec::new(),
                forbidden: self.forbidden,
                cluster: None,
                now: self.now,
            };
            (desired.name.clone(), observation)
        });
        observed.collect()
    }

    pub(super) fn status(&self) -> ControllerStatus {
        let mut statuses = self.control.statuses();
        let found = statuses.find(|(name, _)| *name == NAME);
        found.map(|(_, status)| status.clone()).unwrap_or_default()
    }

    pub(super) fn candidate(&self) -> CandidateStatus {
        let candidate = self.status().candidate;
        candidate.expect("a candidate is rolling out")
    }

    /// The name of the stable revision of the status.
    pub(super) fn stable(&self) -> String {
        let stable = self.status().stable;
        stable.expect("a revision is stable").revision
    }

    /// Status, reason and message of a condition.
    pub(super) fn condition(&self, type_: &str) -> (String, String, String) {
        let conditions = self.status().conditions;
        let found = conditions.into_iter().find(|one| one.type_ == type_);
        let found = found.expect("every status has it");
        (found.status, found.reason, found.message)
    }

    /// The names of the revisions that run, and the weight of the candidate.
    pub(super) fn runs(&self) -> Option<(String, Option<(String, u8)>)> {
        let desired = self.running.first()?;
        let candidate = desired.candidate.as_ref();
        let candidate =
            candidate.map(|(revision, step)| (revision.identity.to_string(), step.share.weight));
        Some((desired.stable.identity.to_string(), candidate))
    }

    pub(super) fn disagree(&mut self, targets: u64) {
        self.observed = StepObservation {
            counts: Counts {
                different: targets,
                ..Counts::default()
            },
            ..StepObservation::default()
        };
    }
}
