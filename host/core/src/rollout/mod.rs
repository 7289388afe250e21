//! Rollouts: which targets a candidate owns, how its decisions compare with those of
//! the stable revision, and when it is promoted or rolled back.
//!
//! - [`cohort`]: which of the two revisions owns a target.
//! - [`compare`]: how their decisions differ.
//! - [`progress`]: when a step ends, and how.

pub mod cohort;
pub mod compare;
pub mod progress;

/// The role of a revision in a rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// The stable revision. It owns every target that the candidate does not own.
    #[default]
    Stable,
    /// The revision that is being rolled out.
    Candidate,
}

impl Role {
    /// Both roles.
    pub const ALL: [Self; 2] = [Self::Stable, Self::Candidate];

    /// The role of the other revision.
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
