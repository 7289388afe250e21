//! The control half of the host: decides for every declared controller which revision
//! is stable and which is the candidate, and writes its status.
//!
//! [`Control`] decides; drivers load revisions, read and write records, and emit
//! events. It reconciles every controller once a second and after each input:
//! [`Control::advance`] takes what the data half observes. Each decision is recorded
//! before it takes effect, so that the next host continues from there. Only the
//! withdrawal of a candidate and an operator's settings do not wait for the record.

mod answers;
mod carried;
mod changes;
mod compared;
mod conditions;
mod controller;
mod counts;
mod decision;
mod declaration;
mod declarations;
mod exchange;
mod file;
mod journal;
mod leadership;
mod loading;
mod modules;
mod notice;
mod part;
mod progress;
mod recording;
mod reported;
pub mod requests;
mod rest;
mod restoring;
mod reviewing;
mod reviews;
mod revision;
mod running;
mod state;
mod text;
mod transition;
mod trips;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub use declaration::Declaration;
pub use declarations::{DeclarationChange, Declarations, ForeignStatus};
pub(crate) use exchange::Output;
pub use exchange::{
    ChangeId, ControlEffect, ControlInput, ControlSettings, DeclaredController, FileController,
    HostIdentity, Report,
};
pub use file::{Change, ChangeError};
pub use journal::JournalState;
pub use loading::{Load, LoadFailure, LoadId, LoadProblem, LoadResult, LoadTarget, SourceVersion};
pub use notice::Notice;
pub use progress::StepProgress;
pub use requests::{RequestKind, Requests};
pub use reviews::ReviewId;
pub use revision::is_same_revision;

use crate::api::{ControllerSpec, ControllerStatus};
use crate::desired::DesiredController;
use crate::digest::ModuleDigest;
use crate::object::ObjectRef;
use crate::observation::Observation;
use crate::record::{Owner, Record, RecordFailure, RecordId, RecordReceipt};
use crate::throttle::{Throttle, cause_of};
use crate::time::{Instant, Now};
use changes::{PendingChange, Stage};
use controller::Controller;
use file::FileEntry;
use recording::RecordOutcome;
use reviews::Reviews;

/// The period of reconciling all controllers.
const PERIOD: Duration = Duration::from_secs(1);
/// How many controllers at rest one period observes: with a thousand, what changes in one without an
/// input, such as a report of its guest, is in its status after eight seconds at most.
const OBSERVED_AT_REST: usize = 128;
/// The pause between two checks of a source of a module, for each controller: a thousand files are
/// checked a hundred times a second, all together.
const CHECK_PACE: Duration = Duration::from_millis(10);
/// The pause before the host reads a record again after a failure.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// The most time that one period counts: a host that was suspended has observed nothing
/// meanwhile.
const MOST_PASSED: Duration = Duration::from_secs(5);

/// Decides about the rollouts of all controllers. `G` is the guest of a loaded
/// revision, which only drivers can call.
pub struct Control<G> {
    settings: ControlSettings,
    controllers: BTreeMap<String, Entry<G>>,
    /// The controllers of a configuration file.
    files: BTreeMap<String, FileEntry>,
    changes: Vec<PendingChange>,
    outputs: VecDeque<Output<G>>,
    /// The controllers whose leases this replica holds; none if there are no leases, because
    /// it is the only replica.
    leases: Option<BTreeSet<String>>,
    /// The writes of records without an answer, each with its controller.
    open_writes: BTreeMap<RecordId, String>,
    /// The controllers that the data half last got.
    running: Vec<DesiredController<G>>,
    /// The modules that drivers last got as needed.
    kept_modules: BTreeSet<ModuleDigest>,
    /// Whether the needed modules may have changed since drivers last got them.
    modules_may_change: bool,
    /// None without a journal.
    journal: Option<JournalState>,
    /// What the accounts of controllers may read.
    reviews: Reviews,
    /// Failures to record, by controller and cause, and to review, by account and cause.
    failures: Throttle<(String, String)>,
    /// When the controllers were last reconciled.
    reconciled_at: Instant,
    /// When they are reconciled next.
    due: Instant,
    /// The number of rounds of observations.
    rounds: usize,
    last_id: u64,
}

/// A declared controller.
enum Entry<G> {
    /// The host is reading its record.
    ReadingRecord(Box<PendingController<G>>),
    Restored(Box<Controller<G>>),
}

struct PendingController<G> {
    id: RecordId,
    declared: DeclaredController<G>,
    /// The error, and when the host reads the record again.
    failure: Option<(String, Instant)>,
}

impl<G: Clone> Control<G> {
    /// A host without controllers.
    #[must_use]
    pub fn new(now: Now, settings: ControlSettings) -> Self {
        Self {
            leases: settings.has_leases.then(BTreeSet::new),
            settings,
            controllers: BTreeMap::new(),
            files: BTreeMap::new(),
            changes: Vec::new(),
            outputs: VecDeque::new(),
            open_writes: BTreeMap::new(),
            running: Vec::new(),
            kept_modules: BTreeSet::new(),
            modules_may_change: true,
            journal: None,
            reviews: Reviews::default(),
            failures: Throttle::default(),
            reconciled_at: now.instant,
            due: now.instant,
            rounds: 0,
            last_id: 0,
        }
    }

    /// Handles an input. [`Self::advance`] is due immediately after most inputs.
    pub fn handle(&mut self, now: Now, input: ControlInput<G>) {
        self.modules_may_change = true;
        match input {
            ControlInput::Declared(all) => self.handle_declared(now, all),
            ControlInput::File(all) => self.handle_file(now, all),
            ControlInput::Change {
                id,
                controller,
                change,
            } => self.handle_change(now, id, &controller, change),
            ControlInput::RecordRead { id, record } => {
                self.handle_record_read(now, id, *record);
            }
            ControlInput::Loaded { id, result } => self.handle_loaded(now, id, result),
            ControlInput::Recorded { id, result } => self.handle_recorded(now, id, result),
            ControlInput::Reviewed { id, result } => self.handle_reviewed(now, id, result),
            ControlInput::Journal(state) => {
                self.journal = Some(state);
                self.due = now.instant;
            }
        }
    }

    /// The next output; none if nothing is left to do.
    pub(crate) fn poll(&mut self) -> Option<Output<G>> {
        self.outputs.pop_front()
    }

    /// When [`Self::advance`] is due.
    #[must_use]
    pub fn next_wake(&self) -> Instant {
        self.due
    }

    /// Starts a round: chooses the controllers that [`Self::advance`] observes. Of those at
    /// rest, each has its turn.
    pub(crate) fn start_round(&mut self) {
        self.rounds = self.rounds.wrapping_add(1);
        let resting = known(&mut self.controllers).filter(|(_, one)| one.rest.is_complete());
        let turns = resting.count().div_ceil(OBSERVED_AT_REST).max(1);
        let turn = self.rounds % turns;
        for (place, (_, controller)) in known(&mut self.controllers).enumerate() {
            controller.rest.start_round(place % turns == turn);
        }
    }

    /// Whether this round observes a controller.
    pub(crate) fn observes(&self, name: &str) -> bool {
        let known = self.controllers.get(name).and_then(Entry::known);
        known.is_none_or(|one| !one.rest.is_passed_over())
    }

    /// Reconciles every controller with its observation, but those that the round passes over.
    pub fn advance(&mut self, now: Now, observed: &BTreeMap<String, Observation>) {
        self.due = now.instant.after(PERIOD);
        let passed = now.instant.since(self.reconciled_at).min(MOST_PASSED);
        self.reconciled_at = now.instant;
        self.load_what_is_due(now.instant);
        self.read_what_is_due(now.instant);
        self.take_over(now.instant);
        self.review(now.instant, observed);
        for (name, controller) in known(&mut self.controllers) {
            controller.note_journal(self.journal);
            if controller.rest.is_passed_over() {
                if !controller.rest.is_complete() {
                    self.due = now.instant;
                }
                continue;
            }
            let seen = observed.get(name);
            if controller.rest.is_for(seen) {
                continue;
            }
            self.modules_may_change = true;
            if !controller.leads() {
                controller.run_in_the_dark(seen);
                continue;
            }
            for notice in controller.reconcile(seen, passed, now) {
                let event = ControlEffect::Event {
                    controller: name.clone(),
                    object: controller.object.clone(),
                    notice,
                };
                self.outputs.push_back(event.into());
            }
            if controller.is_reset(seen) {
                let controller = name.clone();
                self.outputs.push_back(Output::Reset { controller });
            }
        }
        // A candidate that is rolled back loses its share before anything else.
        for (name, controller) in known(&mut self.controllers) {
            if !controller.rest.is_complete() && !controller.rest.is_passed_over() {
                controller.apply_at_once(observed.get(name));
            }
        }
        self.run();
        for change in &mut self.changes {
            if matches!(change.stage, Stage::Made) {
                change.stage = Stage::Reconciled;
            }
        }
        let has_changes = !self.changes.is_empty();
        let is_left = |entry: &Entry<G>| {
            let known = entry.known();
            has_changes || known.is_none_or(|one| !one.is_at_rest(now.instant))
        };
        let left = self.controllers.iter().filter(|(_, entry)| is_left(entry));
        let left: Vec<String> = left.map(|(name, _)| name.clone()).collect();
        self.modules_may_change |= !left.is_empty();
        for name in left {
            self.record(now, &name);
        }
        self.run();
        self.keep_modules();
    }

    /// Whether the first decision on every declaration is recorded, or known not to be.
    /// Later writes do not count: with many controllers, one is nearly always under
    /// way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let mut controllers = self.controllers.values();
        controllers.all(|entry| match entry {
            Entry::Restored(one) => one.is_settled,
            Entry::ReadingRecord(one) => one.failure.is_some(),
        })
    }

    /// The last valid spec of each controller.
    #[must_use]
    pub fn specs(&self) -> BTreeMap<String, ControllerSpec> {
        let specs = self.controllers.iter().filter_map(|(name, entry)| {
            let spec = entry.known()?.spec.clone()?;
            Some((name.clone(), spec))
        });
        specs.collect()
    }

    /// The status of each controller whose record was read.
    pub fn statuses(&self) -> impl Iterator<Item = (&str, &ControllerStatus)> {
        let controllers = self.controllers.iter();
        controllers.filter_map(|(name, entry)| Some((name.as_str(), entry.known()?.status())))
    }

    /// The progress of a controller's candidate; none without a candidate.
    #[must_use]
    pub fn progress(&self, controller: &str) -> Option<StepProgress> {
        let controller = self.controllers.get(controller)?.known()?;
        let (candidate, spec) = controller.candidate()?;
        Some(StepProgress::of(candidate, spec))
    }

    fn handle_declared(&mut self, now: Now, all: Vec<DeclaredController<G>>) {
        let names: BTreeSet<&str> = all.iter().map(DeclaredController::name).collect();
        let gone = self.controllers.keys();
        let gone = gone.filter(|name| !names.contains(name.as_str())).cloned();
        for name in gone.collect::<Vec<_>>() {
            self.remove(&name);
        }
        for declared in all {
            let name = declared.name().to_owned();
            // Another resource of the same name inherits nothing from the former one.
            let former = self.controllers.get(&name).map(Entry::object);
            if former.is_some_and(|former| former != declared.declaration.object.as_ref()) {
                self.forget(&name);
                self.report_recording(&name, None);
            }
            self.declare(now, declared);
        }
        self.due = now.instant;
    }

    fn declare(&mut self, now: Now, declared: DeclaredController<G>) {
        let name = declared.name().to_owned();
        match self.controllers.get_mut(&name) {
            Some(Entry::Restored(controller)) => {
                let mut declaration = declared.declaration;
                if let Some(status) = declaration.status.take() {
                    controller.follow_status(status, now);
                }
                // With leases, a status that another replica wrote declares the same again.
                let is_known = controller.has_lease && controller.is_declared(&declaration);
                if !is_known {
                    controller.declare(declaration, declared.loaded, now.instant);
                }
            }
            Some(Entry::ReadingRecord(pending)) => pending.declared = declared,
            None => {
                let id = RecordId(self.next_id());
                let owner = Owner::of(&name, declared.declaration.object.as_ref());
                self.push(ControlEffect::ReadRecord { id, owner });
                let pending = PendingController {
                    id,
                    declared,
                    failure: None,
                };
                let entry = Entry::ReadingRecord(Box::new(pending));
                self.controllers.insert(name, entry);
            }
        }
    }

    /// Drops a controller, and refuses its pending changes.
    fn forget(&mut self, name: &str) {
        self.controllers.remove(name);
        let is_of = |one: &mut PendingChange| one.controller == name;
        for change in self.changes.extract_if(.., is_of).collect::<Vec<_>>() {
            let error = ChangeError::NotFound(name.to_owned());
            self.answer(change.id, Err(error));
        }
    }

    fn remove(&mut self, name: &str) {
        self.forget(name);
        self.files.remove(name);
        let controller = name.to_owned();
        self.report(Report::Removed { controller });
    }

    fn handle_loaded(&mut self, now: Now, id: LoadId, result: Result<LoadResult<G>, LoadProblem>) {
        let count = u32::try_from(self.controllers.len()).unwrap_or(u32::MAX);
        let mut controllers = known(&mut self.controllers);
        // A controller that was removed or declared again does not wait for this.
        if let Some((_, controller)) = controllers.find(|(_, one)| one.loading.is_about(id))
            && controller.handle_loaded(now.instant, id, result, CHECK_PACE * count)
        {
            self.due = now.instant;
        }
    }

    fn handle_recorded(
        &mut self,
        now: Now,
        id: RecordId,
        result: Result<RecordReceipt, RecordFailure>,
    ) {
        self.open_writes.remove(&id);
        let mut controllers = known(&mut self.controllers);
        let found = controllers.find(|(_, one)| one.recording.is_about(id));
        let recorded = found.map(|(name, controller)| {
            controller.rest.end();
            let recorded = controller.recording.handle(id, result, now.instant);
            (name.clone(), recorded)
        });
        drop(controllers);
        if let Some((name, recorded)) = recorded {
            self.recorded(now, &name, id, recorded);
            self.run();
        }
    }

    /// Continues after a write to the record of a controller.
    fn recorded(&mut self, now: Now, name: &str, id: RecordId, recorded: RecordOutcome) {
        let Some(controller) = self.controllers.get_mut(name).and_then(Entry::known_mut) else {
            return;
        };
        if !controller.leads() {
            return;
        }
        match recorded {
            RecordOutcome::Nothing => {}
            RecordOutcome::Done { other_host } => {
                // With leases, it is the former leader.
                if let Some(other) = other_host.filter(|_| !controller.has_lease) {
                    controller.other_host = Some((other, now.instant));
                }
                self.record(now, name);
            }
            RecordOutcome::Failed(error) => self.fail(now, name, error),
            RecordOutcome::Overtaken(error) => {
                // It decides again from what is recorded now, if it still holds the lease.
                controller.read_again(now, id);
                self.due = now.instant;
                self.report_recording(name, Some(error));
            }
            RecordOutcome::Paused(result) => {
                self.paused(now, name, result);
                self.record(now, name);
            }
            RecordOutcome::Explain(error) => {
                self.last_id += 1;
                let host = self.settings.host.as_ref();
                let id = RecordId(self.last_id);
                match controller.explain(error, now, host, id) {
                    Ok((id, record)) => self.write(name, id, record),
                    Err(recorded) => self.recorded(now, name, id, recorded),
                }
            }
        }
    }

    fn fail(&mut self, now: Now, name: &str, error: String) {
        let Some(controller) = self.controllers.get_mut(name).and_then(Entry::known_mut) else {
            return;
        };
        controller.unrecorded = Some(error.clone());
        controller.is_settled |= self.due > now.instant;
        let cause = (name.to_owned(), cause_of(&error));
        if let Some(suppressed) = self.failures.admit(cause, now.instant) {
            let message = format!("the rollout cannot be recorded: {error}{suppressed}");
            let event = ControlEffect::Event {
                controller: name.to_owned(),
                object: controller.object.clone(),
                notice: Notice::warning("NotRecorded", message),
            };
            self.push(event);
        }
        self.report_recording(name, Some(error));
        self.answer_changes(name);
    }

    /// Writes the record of a controller, if there is something to record. Recorded
    /// decisions take effect with the next [`Self::run`].
    fn record(&mut self, now: Now, name: &str) {
        self.last_id += 1;
        let id = RecordId(self.last_id);
        let host = self.settings.host.as_ref();
        let Some(controller) = self.controllers.get_mut(name).and_then(Entry::known_mut) else {
            return;
        };
        if !controller.leads() {
            controller.apply_recorded();
            return;
        }
        if let Some((id, record)) = controller.next_record(now, host, id) {
            self.write(name, id, record);
        } else {
            let is_complete = controller.recording.is_complete(now.instant);
            // Only after a reconcile of what was declared.
            controller.is_settled |= self.due > now.instant && !controller.recording.is_under_way();
            if is_complete && controller.unrecorded.take().is_some() {
                controller.rest.end();
                self.report_recording(name, None);
            }
            self.answer_changes(name);
        }
        if let Some(controller) = self.controllers.get_mut(name).and_then(Entry::known_mut) {
            controller.apply_recorded();
        }
    }

    fn write(&mut self, name: &str, id: RecordId, record: Record) {
        let object = self.controllers.get(name).and_then(Entry::object);
        let owner = Owner::of(name, object);
        self.open_writes.insert(id, name.to_owned());
        self.push(ControlEffect::Record { id, owner, record });
    }

    fn load_what_is_due(&mut self, now: Instant) {
        let last_id = &mut self.last_id;
        let mut id = || {
            *last_id += 1;
            LoadId(*last_id)
        };
        for (name, controller) in known(&mut self.controllers) {
            let desired = controller.next_load(now, &mut id);
            let recorded = controller.next_recorded_load(now, &mut id);
            for (id, target) in desired.into_iter().chain(recorded) {
                let owner = Owner::of(name, controller.object.as_ref());
                let load = ControlEffect::Load(Load { id, owner, target });
                self.outputs.push_back(load.into());
            }
        }
    }

    fn report(&mut self, report: Report) {
        self.push(ControlEffect::Report(report));
    }

    fn push(&mut self, effect: ControlEffect) {
        self.outputs.push_back(effect.into());
    }

    fn report_recording(&mut self, name: &str, failure: Option<String>) {
        let controller = name.to_owned();
        self.report(Report::Recording {
            controller,
            failure,
        });
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl<G> Entry<G> {
    fn known(&self) -> Option<&Controller<G>> {
        match self {
            Self::Restored(controller) => Some(controller),
            Self::ReadingRecord(_) => None,
        }
    }

    fn known_mut(&mut self) -> Option<&mut Controller<G>> {
        match self {
            Self::Restored(controller) => Some(controller),
            Self::ReadingRecord(_) => None,
        }
    }

    fn object(&self) -> Option<&ObjectRef> {
        match self {
            Self::Restored(controller) => controller.object.as_ref(),
            Self::ReadingRecord(one) => one.declared.declaration.object.as_ref(),
        }
    }
}

/// The controllers whose records were read.
fn known<G>(
    controllers: &mut BTreeMap<String, Entry<G>>,
) -> impl Iterator<Item = (&String, &mut Controller<G>)> {
    let controllers = controllers.iter_mut();
    controllers.filter_map(|(name, entry)| Some((name, entry.known_mut()?)))
}
