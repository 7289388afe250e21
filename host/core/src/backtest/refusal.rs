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
    #[error(
        "{controller} never rests: it is called {what} by {at}, the last time for the item {item}"
    )]
    Restless {
        /// The controller.
        controller: String,
        /// The queue and the key of the last item.
        item: String,
        /// How often it is called.
        what: String,
        /// The time.
        at: String,
    },
    /// An entry claims a time that no host reaches without an entry.
    #[error(
        "the entry of {at} is {days} days after the one before it on the monotonic clock of its \
         host: it is damaged, or the journal was forged"
    )]
    Leap {
        /// The wall-clock time of the entry.
        at: String,
        /// The days between both.
        days: u64,
    },
    /// The journal ends before the policy could start.
    #[error("the policy never started: {why}")]
    NotStarted {
        /// What it waited for.
        why: String,
    },
}
