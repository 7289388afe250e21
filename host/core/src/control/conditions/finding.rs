//! One fact about a controller as a whole.

use super::{ConditionStatus, Topic};

/// Who has to act on the state of a controller.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    None,
    /// Davit is at work.
    Reconciling,
    /// Nothing changes unless somebody acts.
    Stalled,
}

/// One fact about a controller as a whole.
pub(super) struct Finding {
    pub(super) ready: ConditionStatus,
    pub(super) reason: &'static str,
    pub(super) summary: String,
    pub(super) message: String,
    pub(super) is_degraded: bool,
    pub(super) effort: Effort,
    pub(super) notice: Option<(Topic, String)>,
}

pub(super) fn fine(reason: &'static str, summary: &str, message: &str) -> Finding {
    Finding {
        ready: ConditionStatus::True,
        reason,
        summary: summary.to_owned(),
        message: message.to_owned(),
        is_degraded: false,
        effort: Effort::None,
        notice: None,
    }
}

pub(super) fn under_way(
    ready: ConditionStatus,
    reason: &'static str,
    summary: &str,
    message: &str,
) -> Finding {
    Finding {
        ready,
        effort: Effort::Reconciling,
        ..fine(reason, summary, message)
    }
}
