//! What can be wrong with a guest's answer.

use std::fmt;

use super::body::BodyError;

/// Where in an answer something stands, counted from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The decision, so also the work item.
    pub decision: usize,
    /// The plan, if it is in one.
    pub plan: Option<usize>,
    /// The plan's step, if it is in one.
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

/// What is wrong with an answer. It is the guest author's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// There must be one decision for each item.
    #[error("{decisions} decisions about {items} items")]
    Count {
        /// How many items it was asked about.
        items: usize,
        /// How many decisions it made.
        decisions: usize,
    },
    /// A string is not one of those that this version of the host knows.
    #[error("{place}: {what} is \"{value}\", this host knows {known}")]
    Unknown {
        /// Where.
        place: Place,
        /// `the patch kind`, …
        what: &'static str,
        /// What it is.
        value: String,
        /// What it could be.
        known: &'static str,
    },
    /// A name is not in the manifest.
    #[error("{place}: the {what} \"{name}\" is not declared")]
    Undeclared {
        /// Where.
        place: Place,
        /// `queue` or `metric`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A measure does not fit its metric.
    #[error("{place}: the measure of \"{metric}\" {problem}")]
    Measure {
        /// Where.
        place: Place,
        /// The metric.
        metric: String,
        /// In what it does not fit.
        problem: String,
    },
    /// A body cannot be sent.
    #[error("{place}: the body of the {what} is no JSON in MessagePack: {source}")]
    Body {
        /// Where.
        place: Place,
        /// `patch`, `creation`, `note`.
        what: &'static str,
        /// Why not.
        source: BodyError,
    },
    /// A body is well-formed but says too little or the wrong thing.
    #[error("{place}: the body of the {what} {problem}")]
    Incomplete {
        /// Where.
        place: Place,
        /// `patch` or `creation`.
        what: &'static str,
        /// What is missing.
        problem: &'static str,
    },
    /// A number makes no sense.
    #[error("{place}: {what} is {value}")]
    Number {
        /// Where.
        place: Place,
        /// Which.
        what: &'static str,
        /// What it is.
        value: String,
    },
    /// A plan waits for a cancellation that its decision does not ask for.
    #[error("{place}: it waits for the cancellation of \"{key}\", which no command asks for")]
    NotCancelled {
        /// Where.
        place: Place,
        /// The item's key.
        key: String,
    },
    /// More of something than the limits allow.
    #[error("{place}: {found} {what}, {limit} are allowed")]
    TooMany {
        /// Where.
        place: Place,
        /// `plans`, `steps`, `commands`, `bytes in the cursor`.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
}
