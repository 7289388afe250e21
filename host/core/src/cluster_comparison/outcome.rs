//! What a plan and the end of its object are together: the one table of a comparison beside a
//! cluster, and of one with a recorded history.

use std::time::Duration;

use super::deletion::{Counterpart, ObservedDeletion};
use crate::time::Instant;

/// How an object ended, and when at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Nobody has deleted it.
    NotDeleted,
    /// The other side has deleted it.
    Counterpart {
        /// When.
        at: Instant,
        /// Whether that is certain without a plan too, and the controller had the time to decide.
        is_proof: bool,
    },
    /// Somebody else has.
    Others {
        /// When.
        at: Instant,
    },
    /// The other side has, or the object has left the selector of its watch.
    Left {
        /// When.
        at: Instant,
    },
    /// Nobody knows whether it was deleted, or by whom.
    Unknown {
        /// When.
        at: Instant,
    },
}

/// The result of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides delete it.
    Agree,
    /// Only the controller would.
    OnlyPlan,
    /// Only the other side has.
    OnlyDeletion,
    /// The controller would, and somebody else has.
    Others,
    /// It cannot be compared.
    Unknown,
}

/// How long one side waits for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// How long a plan waits for the object's end.
    pub plan: Duration,
    /// How long a deletion waits for a plan.
    pub deletion: Duration,
}

impl Windows {
    /// Whoever comes too late does not come: who compares ends the windows itself, or has none.
    pub const ENDLESS: Self = Self {
        plan: Duration::MAX,
        deletion: Duration::MAX,
    };
}

impl End {
    /// When it happened; none if nobody has deleted the object.
    const fn at(self) -> Option<Instant> {
        match self {
            Self::NotDeleted => None,
            Self::Counterpart { at, .. }
            | Self::Others { at }
            | Self::Left { at }
            | Self::Unknown { at } => Some(at),
        }
    }
}

impl Counterpart {
    /// The end that a deletion is, which happened at this time at the earliest. `was_held` says
    /// whether the controller had the object for the whole window.
    #[must_use]
    pub fn end(self, deletion: &ObservedDeletion, at: Instant, was_held: bool) -> End {
        match (self.counts(deletion.actor), self.is_unknown(deletion)) {
            (true, false) => End::Counterpart {
                at,
                is_proof: was_held && self.has_author(deletion),
            },
            (true, true) => End::Left { at },
            (false, true) => End::Unknown { at },
            (false, false) => End::Others { at },
        }
    }
}

/// What an object counts as that the controller plans to delete at this time, if ever. None if it
/// counts as nothing.
#[must_use]
pub fn outcome(plan: Option<Instant>, end: End, windows: Windows) -> Option<Outcome> {
    let is_over = |from: Instant, window: Duration, at: Instant| from.after(window) < at;
    // Every object ends at some time.
    let has_outlived = plan
        .zip(end.at())
        .is_some_and(|(plan, at)| is_over(plan, windows.plan, at));
    let is_late = |at: Instant| plan.is_some_and(|plan| is_over(at, windows.deletion, plan));
    match (plan, end) {
        (Some(_), End::NotDeleted) => Some(Outcome::OnlyPlan),
        (Some(_), _) if has_outlived => Some(Outcome::OnlyPlan),
        (Some(_), End::Counterpart { at, .. }) if !is_late(at) => Some(Outcome::Agree),
        (_, End::Counterpart { is_proof: true, .. }) => Some(Outcome::OnlyDeletion),
        (_, End::Counterpart { .. } | End::Left { .. }) | (Some(_), End::Unknown { .. }) => {
            Some(Outcome::Unknown)
        }
        (Some(_), End::Others { .. }) => Some(Outcome::Others),
        (None, End::NotDeleted | End::Others { .. } | End::Unknown { .. }) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows {
        plan: Duration::from_secs(300),
        deletion: Duration::from_secs(600),
    };

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    fn result(plan: Option<u64>, end: End) -> Option<Outcome> {
        outcome(plan.map(at), end, WINDOWS)
    }

    fn counterpart(seconds: u64, is_proof: bool) -> End {
        let at = at(seconds);
        End::Counterpart { at, is_proof }
    }

    #[test]
    fn a_plan_and_an_end_within_the_windows() {
        let at = at(1_000);
        let ends = [
            End::NotDeleted,
            counterpart(1_000, true),
            counterpart(1_000, false),
            End::Others { at },
            End::Left { at },
            End::Unknown { at },
        ];
        let (agree, unknown) = (Some(Outcome::Agree), Some(Outcome::Unknown));
        let others = Some(Outcome::Others);
        let planned = [
            Some(Outcome::OnlyPlan),
            agree,
            agree,
            others,
            unknown,
            unknown,
        ];
        let alone = [
            None,
            Some(Outcome::OnlyDeletion),
            unknown,
            None,
            unknown,
            None,
        ];
        for plan in [700, 1_000, 1_600] {
            assert_eq!(ends.map(|end| result(Some(plan), end)), planned, "{plan}");
        }
        assert_eq!(ends.map(|end| result(None, end)), alone);
    }

    #[test]
    fn what_comes_after_the_window_does_not_count() {
        let at = at(1_000);
        let late = [
            counterpart(1_000, true),
            counterpart(1_000, false),
            End::Others { at },
            End::Left { at },
            End::Unknown { at },
        ];
        for end in late {
            assert_eq!(result(Some(699), end), Some(Outcome::OnlyPlan), "{end:?}");
            let endless = outcome(Some(Instant::ZERO), end, Windows::ENDLESS);
            assert_ne!(endless, Some(Outcome::OnlyPlan), "{end:?}");
        }
        for (is_proof, alone) in [(true, Outcome::OnlyDeletion), (false, Outcome::Unknown)] {
            assert_eq!(
                result(Some(1_601), counterpart(1_000, is_proof)),
                Some(alone)
            );
        }
    }
}
