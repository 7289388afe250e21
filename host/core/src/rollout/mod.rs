//! A new revision of a controller beside the one that runs: which targets it
//! owns, how its decisions compare, and when it takes over or is taken back.
//!
//! - [`cohort`]: which of the two revisions owns a target.
//! - [`compare`]: how what they decided differs.
//! - [`progress`]: the steps of a rollout, and what ends each of them.

pub mod cohort;
pub mod compare;
pub mod progress;

/// A revision's part in a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It runs, and owns every target that the candidate does not.
    #[default]
    Stable,
    /// It is being tried.
    Candidate,
}

impl Role {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Stable, Self::Candidate];

    /// The part of the other revision.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Stable => Self::Candidate,
            Self::Candidate => Self::Stable,
        }
    }

    /// The word used in logs, metrics and answers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stable => "stable",
            Self::Candidate => "candidate",
        }
    }
}
