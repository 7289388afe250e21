//! The term of a controller's lease: until when requests may be sent, and when they end.

use std::time::Duration;

use crate::time::Instant;

/// Until when a replica leads a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTerm {
    /// The end, on the replica's clock; none while another replica leads.
    pub until: Option<Instant>,
    /// How long a request may take that was sent at the end: see
    /// [`LeaseTiming::grace`](super::LeaseTiming::grace).
    pub grace: Duration,
}

impl LeaseTerm {
    /// Whether requests may be sent, and work may start.
    #[must_use]
    pub fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// When the requests have ended that were sent within the term. Another replica may lead
    /// soon after.
    #[must_use]
    pub fn ends(&self) -> Instant {
        self.until.unwrap_or(Instant::ZERO).after(self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_sent_within_the_term_and_end_soon_after_it() {
        let seconds = |seconds| Instant::ZERO.after(Duration::from_secs(seconds));
        let term = LeaseTerm {
            until: Some(seconds(10)),
            grace: Duration::from_secs(3),
        };
        assert!(term.holds(seconds(9)));
        assert!(!term.holds(seconds(10)));
        assert_eq!(term.ends(), seconds(13));
        let none = LeaseTerm {
            until: None,
            ..term
        };
        assert!(!none.holds(Instant::ZERO));
    }
}
