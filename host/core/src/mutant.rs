//! Mutants: faults that are put into the core on purpose, one at a time, to prove
//! that the simulation finds them.
//!
//! They exist only with the feature `mutants`, which nothing but that proof turns
//! on. Without it, [`Mutant::is_active`] is the constant false.

#[cfg(feature = "mutants")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// What was written a moment ago holds no plan.
    DropExpectations,
    /// A deletion carries no uid.
    DeleteByName,
    /// A patch carries no uid.
    PatchByName,
    /// A request without an answer is sent again, whatever it is.
    RepeatWrites,
    /// Plans are admitted without leadership.
    IgnoreLeadership,
    /// Plans that wait for their turn start after leadership was lost.
    WithdrawNothing,
    /// A revision writes to what the other one owns.
    IgnoreOwnership,
    /// Plans use up no guardrail.
    SpendNothing,
    /// What a list lacks stays in the cache.
    KeepUnlistedObjects,
    /// The first page of a list counts as the whole.
    StopAtFirstPage,
    /// A watch that expired goes on from the present: what happened between is
    /// lost.
    SkipGaps,
    /// A plan that failed is forgotten.
    ForgetFailures,
    /// The items of a call that failed are never decided.
    ForgetFailedCalls,
    /// The items of a call that is void are never decided.
    ForgetVoidCalls,
    /// Nothing is decided again when an object is no longer held.
    ForgetWaiters,
    /// Nothing is decided again when a dry run ends.
    ForgetDryRuns,
    /// Nothing is decided again when leadership is gained.
    ForgetResync,
    /// Nothing is decided again when the shares change.
    ForgetLeftPlans,
    /// What a rollout decides takes effect before it is recorded.
    ActUnrecorded,
    /// A write to a record that failed counts as recorded.
    CountFailedRecords,
    /// A status is recorded before the specs of the revisions that it names.
    RecordStatusFirst,
    /// A host that starts forgets which guardrails had tripped.
    ForgetTrips,
    /// A host that starts forgets which revision was rolled back.
    ForgetRejections,
    /// A candidate that is rolled back keeps its share.
    KeepRolledBack,
    /// A request that has its answer is considered again.
    AnswerTwice,
}

impl Mutant {
    /// Every mutant, in declaration order.
    pub const ALL: [Self; 25] = [
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
        Self::ForgetWaiters,
        Self::ForgetDryRuns,
        Self::ForgetResync,
        Self::ForgetLeftPlans,
        Self::ActUnrecorded,
        Self::CountFailedRecords,
        Self::RecordStatusFirst,
        Self::ForgetTrips,
        Self::ForgetRejections,
        Self::KeepRolledBack,
        Self::AnswerTwice,
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

    /// Gives the core one fault, or none, in all threads.
    #[cfg(feature = "mutants")]
    pub fn activate(mutant: Option<Self>) {
        let number = mutant.map_or(0, |mutant| mutant as usize + 1);
        ACTIVE.store(number, Ordering::Relaxed);
    }
}

/// The active mutant's number, from 1.
#[cfg(feature = "mutants")]
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
