//! Mutants: deliberate faults in the core, one at a time, to prove that the simulation
//! detects them.
//!
//! One fault is not a mutant: that an item which waits for the cache is not enqueued when
//! the cache has observed the last write. The expectation expires and enqueues it anyway,
//! so the fault costs half a minute and no story shows it. A unit test does:
//! `requeue_when_observed_waits_for_the_cache` in `controller/tests/outcomes.rs`.
//!
//! Mutants exist only with the feature `mutants`, which only that proof enables. Without
//! it, [`Mutant::is_active`] is the constant false.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Recent writes hold no plan back.
    DropExpectations,
    /// A deletion carries no uid.
    DeleteByName,
    /// A patch carries no uid.
    PatchByName,
    /// A request without an answer is always sent again.
    RepeatWrites,
    /// Plans are admitted without leadership.
    IgnoreLeadership,
    /// Waiting plans start although leadership was lost.
    WithdrawNothing,
    /// A revision writes to targets of the other one.
    IgnoreOwnership,
    /// No plan counts for a guardrail.
    SpendNothing,
    /// Objects that a list lacks stay in the cache.
    KeepUnlistedObjects,
    /// The first page of a list counts as the whole list.
    StopAtFirstPage,
    /// A watch that expired continues from the present: the changes in between are
    /// lost.
    SkipGaps,
    /// A plan that failed is dropped.
    ForgetFailures,
    /// The items of a failed call are dropped.
    ForgetFailedCalls,
    /// The items of a void call are dropped.
    ForgetVoidCalls,
    /// Nothing is decided again after the end of a dry run.
    ForgetDryRuns,
    /// Nothing is decided again after the reset of a guardrail.
    ForgetReset,
    /// Nothing is decided again after leadership was gained.
    ForgetResync,
    /// Nothing is decided again after a change of the shares.
    ForgetLeftPlans,
    /// A decision of a rollout takes effect before it is recorded.
    ActUnrecorded,
    /// A failed write to a record counts as recorded.
    CountFailedRecords,
    /// A status is recorded before the specs of its revisions.
    RecordStatusFirst,
    /// A host that starts ignores recorded trips.
    ForgetTrips,
    /// A host that starts ignores a recorded rejection.
    ForgetRejections,
    /// A rolled-back candidate keeps its share.
    KeepRolledBack,
    /// A request with an answer is handled again.
    AnswerTwice,
    /// A revision runs that declares more than the operator grants.
    RunUngranted,
    /// Plans are admitted without a grant.
    IgnoreGrant,
    /// A revision runs whose account may not read what it declares.
    IgnoreDenials,
    /// A holder that cannot renew its lease leads on.
    LeadForever,
    /// A lease is acquired before it has ended.
    AcquireEarly,
    /// A new leader decides before it has read the record.
    SkipRecord,
    /// A status replaces whatever another host has written.
    ReplaceStatus,
    /// What undo names is deleted without a copy.
    SkipCopies,
    /// An object counts as kept although the journal could not take it.
    CountFailedCopies,
}

impl Mutant {
    /// Every mutant, in declaration order.
    pub const ALL: [Self; 34] = [
        Self::DropExpectations,
        Self::DeleteByName,
        Self::PatchByName,
        Self::RepeatWrites,
        Self::IgnoreLeadership,
        Self::WithdrawNothing,
        Self::IgnoreOwnership,
        Self::SpendNothing,
        Self::KeepUnlistedObjects,
        Self::StopAtFirstPage,
        Self::SkipGaps,
        Self::ForgetFailures,
        Self::ForgetFailedCalls,
        Self::ForgetVoidCalls,
        Self::ForgetDryRuns,
        Self::ForgetReset,
        Self::ForgetResync,
        Self::ForgetLeftPlans,
        Self::ActUnrecorded,
        Self::CountFailedRecords,
        Self::RecordStatusFirst,
        Self::ForgetTrips,
        Self::ForgetRejections,
        Self::KeepRolledBack,
        Self::AnswerTwice,
        Self::RunUngranted,
        Self::IgnoreGrant,
        Self::IgnoreDenials,
        Self::LeadForever,
        Self::AcquireEarly,
        Self::SkipRecord,
        Self::ReplaceStatus,
        Self::SkipCopies,
        Self::CountFailedCopies,
    ];

    /// Whether the core has this fault.
    #[cfg(not(feature = "mutants"))]
    #[must_use]
    pub const fn is_active(self) -> bool {
        false
    }

    /// Whether the core has this fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is_active(self) -> bool {
        ACTIVE.load(Ordering::Relaxed) == self as usize + 1
    }

    /// Activates one fault, or none, in all threads.
    #[cfg(feature = "mutants")]
    pub fn activate(mutant: Option<Self>) {
        let number = mutant.map_or(0, |mutant| mutant as usize + 1);
        ACTIVE.store(number, Ordering::Relaxed);
    }
}

/// The active mutant's number, from 1.
#[cfg(feature = "mutants")]
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
