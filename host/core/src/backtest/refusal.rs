//! Why a backtest cannot be made.

use super::history::HistoryError;

/// Why a backtest cannot be made: what the journal does not have, by name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A watched resource is not recorded.
    #[error("the guest watches {resource}, which the journal does not have")]
    Resource {
        /// The resource.
        resource: String,
    },
    /// Fields of a watched resource are not recorded.
    #[error("the guest watches fields of {resource} that the journal does not have: {fields}")]
    Fields {
        /// The resource.
        resource: String,
        /// The paths of the fields.
        fields: String,
    },
    /// The resource is recorded with other selectors.
    #[error("the guest watches {resource} with {selectors}, and the journal has other selectors")]
    Selectors {
        /// The resource.
        resource: String,
        /// The selectors of the guest.
        selectors: String,
    },
    /// A live read needs what is not recorded.
    #[error("the guest reads {what} live, which the journal does not have")]
    Read {
        /// The object or the list, and the fields.
        what: String,
    },
    /// Entries do not fit together.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The policy never rests.
    #[error("the policy never waits for time to pass at {at}")]
    Restless {
        /// The time.
        at: String,
    },
    /// The journal ends before the policy could start.
    #[error("the policy never started: {why}")]
    NotStarted {
        /// What it waited for.
        why: String,
    },
}
