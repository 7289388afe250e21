//! Whether the API server answers, and what the log reports while it does not.

use std::time::Duration;

use crate::throttle::{SuppressedCount, Throttle};
use crate::time::Instant;

/// A shorter absence is over before an operator can act on it.
const SHORT: Duration = Duration::from_secs(5);

/// The reachability of the API server.
#[derive(Debug, Default)]
pub struct Reachability {
    absence: Option<Absence>,
    lines: Throttle<String>,
}

/// A time without answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// When the first request got no answer.
    pub since: Instant,
    /// The last request without an answer, and its cause: `GET /api/v1/pods: connection
    /// refused`.
    pub last: String,
}

impl Reachability {
    /// The API server answered, whatever the answer. Returns the absence that is over,
    /// if it is worth a line in the log.
    pub fn answered(&mut self, now: Instant) -> Option<Absence> {
        let absence = self.absence.take()?;
        if now.since(absence.since) < SHORT {
            return None;
        }
        self.lines = Throttle::default();
        Some(absence)
    }

    /// A request got no answer, for this cause: `connection refused`. `Some` if the log
    /// should report it.
    pub fn no_answer(
        &mut self,
        cause: &str,
        request: &str,
        now: Instant,
    ) -> Option<SuppressedCount> {
        let last = format!("{request}: {cause}");
        match &mut self.absence {
            Some(absence) => absence.last = last,
            None => self.absence = Some(Absence { since: now, last }),
        }
        self.lines.admit(cause.to_owned(), now)
    }

    /// The present absence.
    #[must_use]
    pub fn absence(&self) -> Option<&Absence> {
        self.absence.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    #[test]
    fn an_absence_lasts_from_the_first_request_without_an_answer_to_the_next_answer() {
        let mut reach = Reachability::default();
        assert_eq!(reach.absence(), None);
        reach.no_answer("connection refused", "GET /a", at(10));
        reach.no_answer("timed out", "GET /b", at(40));
        let absence = Absence {
            since: at(10),
            last: "GET /b: timed out".to_owned(),
        };
        assert_eq!(reach.absence(), Some(&absence));
        assert_eq!(reach.answered(at(50)), Some(absence));
        assert_eq!(reach.absence(), None);
        assert_eq!(reach.answered(at(51)), None);
    }

    /// A hundred requests a second for a minute, a few of which are answered.
    #[test]
    fn each_cause_has_a_line_and_short_absences_make_no_more() {
        let mut reach = Reachability::default();
        let mut lines = 0;
        for number in 0..6_000_u64 {
            let now = Instant::ZERO.after(Duration::from_millis(10 * number));
            let cause = ["connection refused", "timed out"][usize::from(number % 7 == 0)];
            lines += u32::from(reach.no_answer(cause, "GET /a", now).is_some());
            if number % 100 == 99 {
                assert_eq!(reach.answered(now), None);
            }
        }
        // At 0, 10 and 30 s.
        assert_eq!(lines, 6);
    }

    #[test]
    fn the_next_absence_is_reported_immediately() {
        let mut reach = Reachability::default();
        assert!(reach.no_answer("timed out", "GET /a", at(0)).is_some());
        assert!(reach.no_answer("timed out", "GET /a", at(5)).is_none());
        assert!(reach.answered(at(6)).is_some());
        assert!(reach.no_answer("timed out", "GET /a", at(7)).is_some());
    }
}
