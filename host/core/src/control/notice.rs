//! Notices for operators: a Kubernetes event about the Controller, and a line in the
//! log.

use crate::plan::Event;
use crate::untrusted;

/// The component that events come from.
const COMPONENT: &str = "davit";

/// A notice for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is a warning.
    pub warning: bool,
    /// The reason: one word in CamelCase.
    pub reason: &'static str,
    /// The message: one sentence.
    pub message: String,
}

impl Notice {
    pub(super) fn warning(reason: &'static str, message: String) -> Self {
        Self {
            warning: true,
            reason,
            message,
        }
    }

    pub(super) fn normal(reason: &'static str, message: String) -> Self {
        Self {
            warning: false,
            reason,
            message,
        }
    }

    /// The Kubernetes event.
    #[must_use]
    pub fn event(&self) -> Event {
        let event_type = if self.warning { "Warning" } else { "Normal" };
        Event {
            event_type: event_type.to_owned(),
            reason: self.reason.to_owned(),
            // The message may quote a guest.
            message: untrusted::line(&self.message, untrusted::MOST_LOGGED),
            component: COMPONENT.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_holds_no_control_characters() {
        let notice = Notice::warning("RolledBack", "it traps: \u{1b}[2J\nall is well".into());
        let message = notice.event().message;
        assert_eq!(message, "it traps: \\u{1b}[2J\\nall is well");
    }
}
