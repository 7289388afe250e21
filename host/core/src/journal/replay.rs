//! Making again what a guest read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::entry::{AnswerEntry, CallEntry, ControllerEntry, Entry, Record, RevisionEntry};
use super::keyframe::HeldByController;
use super::reads::{LiveRead, SnapshotReads};
use crate::circuit::CallFailure;
use crate::controller::{CallId, DecisionId};
use crate::coverage::UnlistedResourcesByView;
use crate::grant::Grant;
use crate::mapping::Mapping;
use crate::notes::Notes;
use crate::plan::{Decision, WorkItem};
use crate::queue::{EnqueueReason, PendingSnapshot};
use crate::rollout::Role;
use crate::store::{MisfitChange, Object, ReplayedCache, Snapshot, StateChange};
use crate::time::Now;

/// The state that a journal describes, entry by entry.
///
/// It takes the entries in their order, from any keyframe on. A later keyframe says the same
/// as the state by then and is skipped, unless a host starts with it.
#[derive(Debug, Default)]
pub struct Replay {
    phase: Phase,
    cache: ReplayedCache,
    mapping: Option<Arc<Mapping>>,
    unlisted: UnlistedResourcesByView,
    controllers: BTreeMap<String, Arc<ControllerEntry>>,
    specs: BTreeMap<String, Arc<str>>,
    /// The objects that the calls of each controller read in a former state.
    held: HeldByController,
    calls: BTreeMap<CallId, Result<CallUnderWay, Unreplayable>>,
    /// Whether the cache had Secrets whose data is left out.
    is_stripped: bool,
    /// Whether an entry of the state is missing.
    is_incomplete: bool,
}

/// How much of the state is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No keyframe was read yet.
    #[default]
    Empty,
    /// The entries are those of a keyframe.
    Keyframe,
    /// The entries are those of a keyframe that adds nothing.
    KnownKeyframe,
    /// The state is complete.
    Complete,
}

/// A call whose answer was not read yet.
#[derive(Debug)]
struct CallUnderWay {
    call: CallEntry,
    now: Now,
    revision: RevisionEntry,
    grant: Grant,
    snapshot: Snapshot,
    held: Vec<Arc<Object>>,
    mapping: Arc<Mapping>,
    unlisted: UnlistedResourcesByView,
    is_stripped: bool,
}

/// A call, with everything that the guest may read, and how it ended.
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// Identifies the call.
    pub id: CallId,
    /// The controller.
    pub controller: Arc<str>,
    /// The revision that was called.
    pub revision: RevisionEntry,
    /// Its role.
    pub role: Role,
    /// The time that the guest read.
    pub now: Now,
    /// The items.
    pub items: Vec<WorkItem>,
    /// What made each item due; none for a page.
    pub reasons: Vec<EnqueueReason>,
    /// The decision whose next page the call asked for.
    pub continues: Option<DecisionId>,
    /// The cache.
    pub snapshot: Snapshot,
    /// The pending items that the guest asked for. Others are missing.
    pub pending: PendingSnapshot,
    /// The notes that the guest asked for. Others are missing.
    pub notes: Notes,
    /// What the guest may read live.
    pub grant: Grant,
    /// The resources that the API server served.
    pub mapping: Arc<Mapping>,
    /// The resources of which views may have lacked objects.
    pub unlisted: UnlistedResourcesByView,
    /// The live reads, in order.
    pub live: Vec<LiveRead>,
    /// The decisions, or the failure.
    pub result: Result<Vec<Decision>, CallFailure>,
    /// How long the call took.
    pub took: Duration,
    /// Whether the cache had Secrets whose data the journal does not have: the guest may
    /// decide otherwise without it.
    pub is_stripped: bool,
}

/// A call that ended.
#[derive(Clone, Debug)]
pub enum ReplayOutcome {
    /// The guest can be called again.
    Call(Box<RecordedCall>),
    /// It cannot.
    Skip {
        /// The call.
        call: CallId,
        /// Why.
        why: Unreplayable,
    },
}

/// Why a call cannot be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreplayable {
    /// It started before the first entry that was read.
    #[error("the call started before the keyframe that the replay starts with")]
    StartUnknown,
    /// The journal does not have its revision.
    #[error("the journal does not have the revision that was called")]
    RevisionUnknown,
    /// An entry before it is missing.
    #[error("an entry was too large for the journal: the state before the call is not all known")]
    EntryLost,
    /// What the guest read is not known.
    #[error("the journal does not have what the guest read of its queues and notes")]
    ReadsUnknown,
    /// The guest read more than is kept.
    #[error(
        "the guest read more than {} keys of its queues and notes, and the journal has no more",
        SnapshotReads::MOST
    )]
    ReadsCut,
}

/// Entries that do not fit together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// A change of the cache.
    #[error(transparent)]
    Misfit(#[from] MisfitChange),
    /// The end of a keyframe without its start, or the reverse.
    #[error("the journal has only a part of a keyframe")]
    BrokenKeyframe,
}

impl Replay {
    /// Whether the state is complete: a keyframe was read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.phase == Phase::Complete
    }

    /// The cache by now.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.cache.snapshot()
    }

    /// The controllers by now, by name.
    #[must_use]
    pub fn controllers(&self) -> &BTreeMap<String, Arc<ControllerEntry>> {
        &self.controllers
    }

    /// The spec of a controller by now, as JSON.
    #[must_use]
    pub fn spec(&self, controller: &str) -> Option<&Arc<str>> {
        self.specs.get(controller)
    }

    /// Takes the next entry. Returns the call that ends with it, if one does. After an error,
    /// the state is of no use any more.
    pub fn handle(&mut self, record: Record) -> Result<Option<ReplayOutcome>, ReplayError> {
        let Record { now, entry } = record;
        match (self.phase, entry) {
            (Phase::Keyframe | Phase::KnownKeyframe, Entry::Keyframe { .. })
            | (Phase::Empty | Phase::Complete, Entry::KeyframeEnd) => {
                return Err(ReplayError::BrokenKeyframe);
            }
            (Phase::Complete, Entry::Keyframe { is_start: false }) if !self.is_incomplete => {
                self.phase = Phase::KnownKeyframe;
            }
            (Phase::Empty | Phase::Complete, Entry::Keyframe { .. }) => {
                *self = Self {
                    phase: Phase::Keyframe,
                    ..Self::default()
                };
            }
            (Phase::Keyframe | Phase::KnownKeyframe, Entry::KeyframeEnd) => {
                self.phase = Phase::Complete;
            }
            (Phase::Empty | Phase::KnownKeyframe, _) => {}
            (Phase::Complete, Entry::Call(call)) => {
                let started = self.start((*call).clone(), now);
                self.calls.insert(call.id, started);
            }
            (Phase::Complete, Entry::Answer(answer)) => return Ok(Some(self.end(*answer))),
            (_, entry) => self.apply(entry)?,
        }
        Ok(None)
    }

    fn apply(&mut self, entry: Entry) -> Result<(), ReplayError> {
        match entry {
            Entry::Cache(change) => {
                self.is_stripped |= matches!(
                    change,
                    StateChange::Put {
                        is_stripped: true,
                        ..
                    }
                );
                self.cache.apply(&change)?;
            }
            Entry::Mapping(mapping) => self.mapping = Some(mapping),
            Entry::Unlisted(unlisted) => self.unlisted = unlisted,
            Entry::Controller(controller) => {
                self.controllers.insert(controller.name.clone(), controller);
            }
            Entry::Removed { controller } => {
                self.controllers.remove(&controller);
                self.specs.remove(&controller);
                self.held.remove(&*controller);
            }
            Entry::Spec { controller, spec } => {
                self.specs.insert(controller, spec);
            }
            Entry::Lost(_) => self.is_incomplete = true,
            Entry::Held(entry) => {
                self.is_stripped |= entry.is_stripped;
                let held = self.held.entry(entry.controller).or_default();
                for uid in &entry.releases {
                    held.remove(uid);
                }
                let holds = entry.holds.into_iter();
                held.extend(holds.map(|object| (object.uid().clone(), object)));
            }
            Entry::Keyframe { .. }
            | Entry::KeyframeEnd
            | Entry::Call(_)
            | Entry::Answer(_)
            | Entry::Failure { .. }
            | Entry::Ruling(_)
            | Entry::Execution(_)
            | Entry::Stream(_)
            | Entry::Kept(_) => {}
        }
        Ok(())
    }

    fn start(&self, call: CallEntry, now: Now) -> Result<CallUnderWay, Unreplayable> {
        if self.is_incomplete {
            return Err(Unreplayable::EntryLost);
        }
        let controller = self.controllers.get(&*call.controller);
        let revision = controller.and_then(|one| one.revision(call.role));
        let revision = revision.filter(|revision| revision.name == call.revision);
        let (Some(controller), Some(revision), Some(mapping)) =
            (controller, revision, &self.mapping)
        else {
            return Err(Unreplayable::RevisionUnknown);
        };
        let held = self.held.get(&call.controller);
        Ok(CallUnderWay {
            now,
            revision: revision.clone(),
            grant: controller.grant.clone(),
            snapshot: self.cache.snapshot(),
            held: held
                .into_iter()
                .flat_map(BTreeMap::values)
                .cloned()
                .collect(),
            mapping: Arc::clone(mapping),
            unlisted: Arc::clone(&self.unlisted),
            is_stripped: self.is_stripped,
            call,
        })
    }

    fn end(&mut self, answer: AnswerEntry) -> ReplayOutcome {
        let call = answer.call;
        let started = self.calls.remove(&call);
        let started = started.unwrap_or(Err(Unreplayable::StartUnknown));
        match started.and_then(|started| recorded(started, answer)) {
            Ok(call) => ReplayOutcome::Call(Box::new(call)),
            Err(why) => ReplayOutcome::Skip { call, why },
        }
    }
}

fn recorded(started: CallUnderWay, answer: AnswerEntry) -> Result<RecordedCall, Unreplayable> {
    let reads = answer.reads.ok_or(Unreplayable::ReadsUnknown)?;
    if reads.is_cut {
        return Err(Unreplayable::ReadsCut);
    }
    let pending = reads.pending.into_iter();
    let pending = pending.filter_map(|(item, pending)| Some((item, pending?)));
    let notes = reads.notes.into_iter();
    // The versions are of the cache: what is held has its own, and takes slots after those.
    let cached = started.snapshot.with_versions(&answer.versions);
    let snapshot = match started.held.as_slice() {
        [] => cached,
        held => cached.with_former(held.iter()),
    };
    let CallEntry {
        id,
        controller,
        revision: _,
        role,
        items,
        reasons,
        continues,
    } = started.call;
    Ok(RecordedCall {
        id,
        controller,
        role,
        now: started.now,
        items,
        reasons,
        continues,
        snapshot,
        revision: started.revision,
        pending: PendingSnapshot::of(pending),
        notes: notes
            .filter_map(|(key, value)| Some((key, value?)))
            .collect(),
        grant: started.grant,
        mapping: started.mapping,
        unlisted: started.unlisted,
        live: answer.live,
        result: answer.result,
        took: answer.took,
        is_stripped: started.is_stripped,
    })
}
