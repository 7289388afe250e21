//! Why a read or a write failed, classified by the possible reactions.

use std::error::Error;
use std::fmt;
use std::time::Duration;

/// The classes of failure that a controller can distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureClass {
    /// The object does not exist (404, 410).
    NotFound,
    /// Another version than expected, or an object that exists already (409).
    Conflict,
    /// The name belongs to another object (409 on DELETE and PUT, 422 "field is
    /// immutable" on PATCH).
    UidMismatch,
    /// The resource does not accept this kind of patch (415).
    UnsupportedMedia,
    /// The request cannot succeed as it is, unless a schema or an admission
    /// policy changes (400, 422).
    Invalid,
    /// Not allowed (401, 403).
    Forbidden,
    /// Too many requests (429).
    Throttled,
    /// A disruption budget refuses an eviction (429).
    DisruptionBudget,
    /// The server failed (5xx).
    Server,
    /// No answer: the request may have been executed or not.
    Timeout,
    /// The server does not serve the kind.
    Unmappable,
    /// The host's gate did not admit the plan.
    RefusedByGate,
    /// The target was not deleted, because it could not be kept for undo.
    NotKept,
}

impl FailureClass {
    /// Every class, in declaration order.
    pub const ALL: [Self; 13] = [
        Self::NotFound,
        Self::Conflict,
        Self::UidMismatch,
        Self::UnsupportedMedia,
        Self::Invalid,
        Self::Forbidden,
        Self::Throttled,
        Self::DisruptionBudget,
        Self::Server,
        Self::Timeout,
        Self::Unmappable,
        Self::RefusedByGate,
        Self::NotKept,
    ];

    /// The name used in `wit/`, in logs and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::UidMismatch => "uid-mismatch",
            Self::UnsupportedMedia => "unsupported-media",
            Self::Invalid => "invalid",
            Self::Forbidden => "forbidden",
            Self::Throttled => "throttled",
            Self::DisruptionBudget => "disruption-budget",
            Self::Server => "server",
            Self::Timeout => "timeout",
            Self::Unmappable => "unmappable",
            Self::RefusedByGate => "refused-by-gate",
            Self::NotKept => "not-kept",
        }
    }

    /// Whether the object that was decided on is gone: the wanted result of a
    /// deletion.
    #[must_use]
    pub const fn means_gone(self) -> bool {
        matches!(self, Self::NotFound | Self::UidMismatch)
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One failed read or write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class}: {message}")]
pub struct Failure {
    /// The class, which a controller may act on.
    pub class: FailureClass,
    /// The request and the server's answer, for a log.
    pub message: String,
    /// How long the server asked to wait.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure without a `Retry-After`.
    #[must_use]
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self {
            class,
            message: message.into(),
            retry_after: None,
        }
    }
}

/// An error with its causes, as one line.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some libraries repeat the text of their causes in their own.
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
