//! The errors in a guest's answer.

use std::fmt;

use crate::msgpack::{JsonError, SyntaxError};

/// A place in an answer, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The decision, and so the work item.
    pub decision: usize,
    /// The plan, if the place is in one.
    pub plan: Option<usize>,
    /// The step, if the place is in one.
    pub step: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "decision {}", self.decision)?;
        if let Some(plan) = self.plan {
            write!(f, ", plan {plan}")?;
        }
        if let Some(step) = self.step {
            write!(f, ", step {step}")?;
        }
        Ok(())
    }
}

/// The error in an answer. The guest's author has to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The answer must have one decision for each item.
    #[error("{decisions} decisions for {items} items")]
    Count {
        /// The number of items.
        items: usize,
        /// The number of decisions.
        decisions: usize,
    },
    /// A string that this version of the host does not know.
    #[error("{place}: {part} is \"{value}\"; this host knows {known}")]
    Unknown {
        /// The place.
        place: Place,
        /// `the patch kind`, …
        part: &'static str,
        /// The value.
        value: String,
        /// The known values.
        known: &'static str,
    },
    /// A name is not in the manifest.
    #[error("{place}: the {part} \"{name}\" is not declared")]
    Undeclared {
        /// The place.
        place: Place,
        /// `queue` or `metric`.
        part: &'static str,
        /// The name.
        name: String,
    },
    /// A measure does not fit its metric.
    #[error("{place}: the measure of \"{metric}\" {problem}")]
    Measure {
        /// The place.
        place: Place,
        /// The metric.
        metric: String,
        /// The reason.
        problem: String,
    },
    /// A body cannot be sent.
    #[error("{place}: the body of the {part} is not JSON in MessagePack: {source}")]
    Body {
        /// The place.
        place: Place,
        /// `patch`, `creation`, `note`.
        part: &'static str,
        /// The reason.
        source: JsonError,
    },
    /// A body is not JSON text, which is the guest's encoding.
    #[error("{place}: the body of the {part} is not JSON: {source}")]
    Syntax {
        /// The place.
        place: Place,
        /// `patch`, `creation`, `note`.
        part: &'static str,
        /// The reason, and where.
        source: SyntaxError,
    },
    /// A body is well-formed, but incomplete or wrong.
    #[error("{place}: the body of the {part} {problem}")]
    Incomplete {
        /// The place.
        place: Place,
        /// `patch` or `creation`.
        part: &'static str,
        /// The reason.
        problem: &'static str,
    },
    /// A number is out of range.
    #[error("{place}: {part} is {value}")]
    Number {
        /// The place.
        place: Place,
        /// The number.
        part: &'static str,
        /// Its value.
        value: String,
    },
    /// A plan depends on a cancellation that its decision does not contain.
    #[error(
        "{place}: the plan depends on the cancellation of \"{key}\", but no command cancels it"
    )]
    NotCancelled {
        /// The place.
        place: Place,
        /// The item's key.
        key: String,
    },
    /// A count exceeds its limit.
    #[error("{place}: {found} {part}; the limit is {limit}")]
    TooMany {
        /// The place.
        place: Place,
        /// `plans`, `steps`, `commands`, `bytes in the cursor`, `bytes in a group`.
        part: &'static str,
        /// The count.
        found: usize,
        /// The limit.
        limit: usize,
    },
}
