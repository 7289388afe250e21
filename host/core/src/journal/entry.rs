//! The entries of a journal.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::reads::{LiveRead, SnapshotReads};
use crate::account::Account;
use crate::circuit::CallFailure;
use crate::controller::{CallId, ControllerId, DecisionId, Outcome};
use crate::coverage::UnlistedResourcesByView;
use crate::digest::ModuleDigest;
use crate::gate::{Mode, Ruling};
use crate::grant::Grant;
use crate::mapping::Mapping;
use crate::object::{ApiResource, ObjectRef, Uid};
use crate::plan::{Command, Decision, Plan, QueueKey, WorkItem};
use crate::queue::EnqueueReason;
use crate::revision::CallLimits;
use crate::rollout::Role;
use crate::store::{Object, ResourceVersion, Slot, StateChange, ViewId};
use crate::time::Now;
use crate::watch::Condition;

/// An entry and its time.
#[derive(Clone, Debug)]
pub struct Record {
    /// Both clocks of the host.
    pub now: Now,
    /// What happened.
    pub entry: Entry,
}

/// What the host saw or decided.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The entries up to [`Self::KeyframeEnd`] are the whole state.
    Keyframe {
        /// Whether the journal of a host that has just started starts with it: identifiers
        /// of earlier entries mean nothing any more.
        is_start: bool,
    },
    /// The state is complete.
    KeyframeEnd,
    /// The cache changed.
    Cache(StateChange),
    /// The API server serves these resources.
    Mapping(Arc<Mapping>),
    /// Views may lack objects of these resources.
    Unlisted(UnlistedResourcesByView),
    /// A controller as it is from now on.
    Controller(Arc<ControllerEntry>),
    /// A controller was removed.
    Removed {
        /// Its name.
        controller: String,
    },
    /// A controller's spec as it is from now on, as JSON.
    Spec {
        /// The controller's name.
        controller: String,
        /// The spec, as JSON.
        spec: Arc<str>,
    },
    /// A guest was called.
    Call(Box<CallEntry>),
    /// A call ended.
    Answer(Box<AnswerEntry>),
    /// A call has failed: its guest, or the host, which refuses an answer that exceeds a bound.
    Failure {
        /// The call.
        call: CallId,
        /// Why.
        failure: Box<CallFailure>,
    },
    /// The gate ruled on a plan.
    Ruling(Box<RulingEntry>),
    /// The execution of a plan ended.
    Execution(Box<ExecutionEntry>),
    /// The condition of a stream changed.
    Stream(Box<StreamEntry>),
    /// Calls of a controller read other objects in a former state from now on.
    Held(Box<HeldEntry>),
    /// An object was kept before a plan deletes it. It needs no other entry.
    Kept(Box<KeptEntry>),
    /// An entry is missing here, because it was too large for the journal.
    Lost(LostEntry),
}

impl Entry {
    /// The bytes of the object of the cache that it refers to.
    pub(super) fn shared_bytes(&self) -> usize {
        match self {
            Self::Cache(StateChange::Put {
                object,
                is_stripped: false,
                ..
            }) => object.bytes(),
            _ => 0,
        }
    }

    /// The bytes of what it refers to, as far as their number has no small bound and the cache
    /// does not have it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Cache(StateChange::Put {
                object,
                is_stripped: true,
                ..
            }) => object.plain_bytes(),
            Self::Cache(StateChange::Renew(renewals)) => renewals.bytes(),
            Self::Spec { spec, .. } => spec.len(),
            Self::Call(call) => {
                let items = call.items.iter();
                let items = items.map(|item| size_of::<WorkItem>() + item.key.len());
                size_of::<CallEntry>() + items.sum::<usize>()
            }
            Self::Answer(answer) => answer.bytes(),
            Self::Ruling(ruling) => size_of::<RulingEntry>() + ruling.reason.len(),
            Self::Execution(execution) => size_of::<ExecutionEntry>() + execution.reason.len(),
            Self::Held(held) => {
                let holds = held.holds.iter().map(|object| object.plain_bytes());
                size_of::<HeldEntry>() + size_of_val(&*held.releases) + holds.sum::<usize>()
            }
            Self::Kept(kept) => kept.object.len(),
            _ => 0,
        }
    }
}

/// A controller and the revisions that run.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerEntry {
    /// Its name.
    pub name: String,
    /// The id that its calls and plans have; none until it runs.
    pub id: Option<ControllerId>,
    /// Whether this replica leads it.
    pub leads: bool,
    /// Its mode.
    pub mode: Mode,
    /// The account that reads and writes for it; none for the host's own.
    pub account: Option<Account>,
    /// What its guests may read and write.
    pub grant: Grant,
    /// The stable revision; none until it runs.
    pub stable: Option<RevisionEntry>,
    /// The candidate, if one runs.
    pub candidate: Option<CandidateEntry>,
}

impl ControllerEntry {
    /// The revision with this role.
    #[must_use]
    pub fn revision(&self, role: Role) -> Option<&RevisionEntry> {
        match role {
            Role::Stable => self.stable.as_ref(),
            Role::Candidate => self.candidate.as_ref().map(|one| &one.revision),
        }
    }
}

/// A revision that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionEntry {
    /// Its name.
    pub name: Arc<str>,
    /// The digest of its module.
    pub module: ModuleDigest,
    /// Its configuration, as the guest receives it.
    pub config: Arc<[u8]>,
    /// What its calls may use.
    pub limits: CallLimits,
    /// The view of each watch, by the watch's name.
    pub views: Arc<BTreeMap<String, ViewId>>,
}

/// A candidate.
#[derive(Clone, Debug, PartialEq)]
pub struct CandidateEntry {
    /// The revision.
    pub revision: RevisionEntry,
    /// Its share, in percent of the cohorts.
    pub weight: u32,
    /// The number of its step.
    pub step: u32,
}

/// A call into a guest. Its time is that of the record.
#[derive(Clone, Debug, PartialEq)]
pub struct CallEntry {
    /// Identifies the answer.
    pub id: CallId,
    /// The name of the controller.
    pub controller: Arc<str>,
    /// The name of the revision.
    pub revision: Arc<str>,
    /// Its role.
    pub role: Role,
    /// The items.
    pub items: Vec<WorkItem>,
    /// What made each item due; none for a page.
    pub reasons: Vec<EnqueueReason>,
    /// The decision whose next page the call asks for; none for new decisions.
    pub continues: Option<DecisionId>,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerEntry {
    /// The call.
    pub call: CallId,
    /// A decision for each item, in their order, or the failure.
    pub result: Result<Vec<Decision>, CallFailure>,
    /// Whether the answer counts for nothing: the revision was replaced meanwhile.
    pub is_void: bool,
    /// How long the call took.
    pub took: Duration,
    /// What the guest read of its queues and notes; none if the driver did not report it.
    pub reads: Option<SnapshotReads>,
    /// What it read live, in order.
    pub live: Vec<LiveRead>,
    /// The versions of the targets of the decisions' plans in the call's snapshot, by the
    /// slots of the objects.
    pub versions: Vec<(Slot, ResourceVersion)>,
}

impl AnswerEntry {
    /// The bytes of memory that it keeps.
    fn bytes(&self) -> usize {
        let decisions = self.result.iter().flatten();
        let decisions = decisions.map(|decision| {
            let commands = decision.commands.iter().map(Command::bytes);
            let plans = decision.plans.iter().map(Plan::bytes);
            size_of::<Decision>() + plans.chain(commands).sum::<usize>()
        });
        let live = self.live.iter().map(|read| read.answer.bytes());
        let reads = self.reads.iter().map(SnapshotReads::bytes);
        size_of::<Self>()
            + size_of_val(&*self.versions)
            + decisions.chain(live).chain(reads).sum::<usize>()
    }
}

/// A ruling of the gate.
#[derive(Clone, Debug, PartialEq)]
pub struct RulingEntry {
    /// The name of the controller.
    pub controller: String,
    /// The name of the revision that decided the plan.
    pub revision: Arc<str>,
    /// Its role.
    pub role: Role,
    /// The work item.
    pub item: QueueKey,
    /// The decision that the plan is a part of.
    pub decision: DecisionId,
    /// The target of the plan.
    pub target: ObjectRef,
    /// The reason of the plan.
    pub reason: String,
    /// The ruling.
    pub ruling: Ruling,
}

/// The end of a plan's execution.
#[derive(Clone, Debug)]
pub struct ExecutionEntry {
    /// The name of the controller.
    pub controller: String,
    /// The name of the revision that decided the plan.
    pub revision: Arc<str>,
    /// The decision that the plan is a part of.
    pub decision: DecisionId,
    /// The target of the plan.
    pub target: ObjectRef,
    /// The reason of the plan.
    pub reason: String,
    /// The outcome.
    pub outcome: Outcome,
    /// How long it took, without the wait for its turn.
    pub took: Duration,
}

/// How the objects change that a controller's calls read in a former state, because its dry
/// run is compared with the cluster.
#[derive(Clone, Debug)]
pub struct HeldEntry {
    /// The name of the controller.
    pub controller: Arc<str>,
    /// Objects that its calls read like this from now on, whatever the cache has.
    pub holds: Vec<Arc<Object>>,
    /// Objects that they read as the cache has them again.
    pub releases: Vec<Uid>,
    /// Whether the data of a Secret is left out.
    pub is_stripped: bool,
}

/// An object that was kept before its deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptEntry {
    /// The name of the controller that deletes it.
    pub controller: String,
    /// The name of the revision that decided the plan.
    pub revision: Arc<str>,
    /// The decision that the plan is a part of.
    pub decision: DecisionId,
    /// The reason of the plan.
    pub reason: String,
    /// The object, with its uid.
    pub target: ObjectRef,
    /// Its resource.
    pub resource: ApiResource,
    /// How long the journal has it at least.
    pub keep_for: Duration,
    /// The whole object, as JSON of the API server.
    pub object: Vec<u8>,
}

/// An entry that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostEntry {
    /// What it was about, for a person.
    pub what: String,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// The condition of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamEntry {
    /// Its resource.
    pub resource: String,
    /// The condition.
    pub condition: Condition,
    /// Whether the cache shows this stream. Otherwise the stream is only listing, to
    /// replace another one.
    pub is_current: bool,
}
