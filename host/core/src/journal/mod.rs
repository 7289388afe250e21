//! The journal: what a host saw and decided, so that a decision can be made again.
//!
//! A guest's decision is a pure function of its module and configuration, and of what it
//! reads: the time, the items, the cache, its queues and notes, discovery and live reads. The
//! journal has all of that. [`Replay`] makes it again for each call, and
//! [`compare()`] finds the first part in which two answers differ. Queues, gate and control
//! half are not run again: what they decided is recorded.
//!
//! | entry | when | what |
//! |---|---|---|
//! | [`Entry::Keyframe`] … [`Entry::KeyframeEnd`] | at the start, and on request | the whole state as the entries between them: reading may start here |
//! | [`Entry::Cache`] | the cache changes | a view, a segment or an object that was added, replaced or removed ([`StateChange`]) |
//! | [`Entry::Mapping`] | discovery's result changes | the resources that the API server serves |
//! | [`Entry::Unlisted`] | it changes | the resources of which views may lack objects |
//! | [`Entry::Controller`], [`Entry::Removed`] | it changes | which revisions run, their modules, configurations and views; the mode, the grant, whether this replica leads |
//! | [`Entry::Spec`] | it changes | the controller's spec |
//! | [`Entry::Call`] | a guest is called | the items and what made them due; the snapshot of the call is the state at this entry |
//! | [`Entry::Answer`] | the call ends | the decisions or the failure, and what the guest read besides the cache |
//! | [`Entry::Failure`] | a call fails | why: its items are retried, and no decision counts |
//! | [`Entry::Ruling`] | the gate rules on a plan | the ruling |
//! | [`Entry::Execution`] | a plan ends | its outcome, and how long it took |
//! | [`Entry::Stream`] | a stream's condition changes | the condition |
//! | [`Entry::Held`] | a call of a compared dry run reads other objects in a former state | the objects, and those that it reads as they are again: the snapshot of a call has them too |
//! | [`Entry::Kept`] | before an object is deleted that [`crate::undo`] keeps | the whole object |
//! | [`Entry::Lost`] | an entry is too large | what is missing: calls after it cannot be made again |
//!
//! A call has two entries, because the cache may change while it lasts: the first one says
//! which state the guest read, the second one what it decided.
//!
//! **What a journal does not have.** The data of Secrets ([`crate::secrets`]): neither in
//! the cache, nor in live reads, nor in what a plan writes to a Secret; a value that the guest
//! copies elsewhere stays, and so does a Secret that `spec.undo` names. The versions that heartbeats change alone: an answer has the
//! versions of its plans' targets, so that a guest that names the version of another object
//! may get an older one when it decides again. What a guest read of its queues and notes beyond
//! [`SnapshotReads::MOST`] keys.
//!
//! Entries are made on the machine's task, from references. [`Keyframe::entries`],
//! [`encode`] and [`decode`] are for other tasks.

mod compare;
mod entry;
mod keyframe;
mod lost;
mod profile;
mod reads;
mod recorder;
mod replay;
mod strip;
#[cfg(test)]
mod tests;
mod wire;

pub use compare::{DecisionPart, Difference, compare, difference};
pub use entry::{
    AnswerEntry, CallEntry, CandidateEntry, ControllerEntry, Entry, ExecutionEntry, HeldEntry,
    KeptEntry, LostEntry, Record, RevisionEntry, RulingEntry, StreamEntry,
};
pub use keyframe::{JournalItem, Keyframe};
pub use profile::Profile;
pub use reads::{AnswerCopy, LiveRead, SnapshotReads};
pub(crate) use recorder::Recorder;
pub(crate) use replay::Phase;
pub use replay::{RecordedCall, Replay, ReplayError, ReplayOutcome, Unreplayable};
pub use wire::{EncodedRecord, MOST_BYTES, UnreadableEntry, VERSION, decode, encode};

#[cfg(doc)]
use crate::store::StateChange;
