//! Keeps a log readable while one cause makes many messages: the first is written, then
//! one after each pause, with the number of the suppressed ones.
//!
//! The pause starts at 10 seconds and doubles with each line, up to 10 minutes. A cause
//! starts again after a silence that is longer than its pause, and longer than any
//! pause between two attempts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::time::Instant;

/// The pause after the first line.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_mins(10);
/// A shorter silence does not end a cause: the pause between two attempts is at most 30
/// seconds.
const QUIET: Duration = Duration::from_mins(1);
/// The most causes that are stored. Another one replaces the cause that has been silent
/// for longest.
const MOST_CAUSES: usize = 1_000;

/// Decides which messages of a cause are written.
#[derive(Clone, Debug)]
pub struct Throttle<K> {
    causes: BTreeMap<K, Cause>,
}

#[derive(Clone, Copy, Debug)]
struct Cause {
    /// No line before then.
    until: Instant,
    /// The pause that leads up to it.
    pause: Duration,
    left_out: u64,
    last: Instant,
}

/// The number of suppressed messages of a cause since its last line. Displays as the
/// end of the next line: empty, or ` (41 more since the last line)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuppressedCount(pub u64);

impl fmt::Display for SuppressedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} more since the last line)"),
        }
    }
}

impl<K> Default for Throttle<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Throttle<K> {
    /// Without a cause.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            causes: BTreeMap::new(),
        }
    }
}

/// A message as a cause: without its numbers. The failures of one cause may differ in a
/// version, a time or a port.
#[must_use]
pub fn cause_of(message: &str) -> String {
    let mut cause = String::with_capacity(message.len());
    for character in message.chars() {
        if !character.is_ascii_digit() {
            cause.push(character);
        } else if !cause.ends_with('#') {
            cause.push('#');
        }
    }
    cause
}

impl<K: Ord + Clone> Throttle<K> {
    /// Takes a message. `Some` if it should be written; `None` if it is only counted.
    pub fn admit(&mut self, cause: K, now: Instant) -> Option<SuppressedCount> {
        if let Some(known) = self.causes.get_mut(&cause) {
            return known.admit(now);
        }
        if self.causes.len() >= MOST_CAUSES {
            self.forget_one();
        }
        let first = Cause {
            until: now.after(FIRST_PAUSE),
            pause: FIRST_PAUSE,
            left_out: 0,
            last: now,
        };
        self.causes.insert(cause, first);
        Some(SuppressedCount(0))
    }

    /// The cause is over: its next message is written immediately. Returns the number
    /// of suppressed messages; `None` if there was no message.
    pub fn clear(&mut self, cause: &K) -> Option<SuppressedCount> {
        let known = self.causes.remove(cause)?;
        Some(SuppressedCount(known.left_out))
    }

    fn forget_one(&mut self) {
        let quietest = self.causes.iter().min_by_key(|(_, cause)| cause.last);
        if let Some((quietest, _)) = quietest {
            let quietest = quietest.clone();
            self.causes.remove(&quietest);
        }
    }
}

impl Cause {
    fn admit(&mut self, now: Instant) -> Option<SuppressedCount> {
        let was_quiet = now.since(self.last) > self.pause.max(QUIET);
        self.last = now;
        if now < self.until {
            self.left_out += 1;
            return None;
        }
        self.pause = if was_quiet {
            FIRST_PAUSE
        } else {
            (self.pause * 2).min(LONGEST_PAUSE)
        };
        self.until = now.after(self.pause);
        Some(SuppressedCount(std::mem::take(&mut self.left_out)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::ZERO.after(Duration::from_secs(seconds))
    }

    /// The seconds at which a message that comes every second is written, and the
    /// number of suppressed messages before each.
    fn lines(throttle: &mut Throttle<&str>, seconds: u64) -> Vec<(u64, u64)> {
        (0..seconds)
            .filter_map(|second| Some((second, throttle.admit("refused", at(second))?.0)))
            .collect()
    }

    #[test]
    fn the_pauses_between_lines_grow_and_each_line_counts_the_suppressed() {
        let lines = lines(&mut Throttle::default(), 3600);
        assert_eq!(
            lines,
            [
                (0, 0),
                (10, 9),
                (30, 19),
                (70, 39),
                (150, 79),
                (310, 159),
                (630, 319),
                (1230, 599),
                (1830, 599),
                (2430, 599),
                (3030, 599),
            ]
        );
    }

    /// Records, watches and loads are attempted this often.
    #[test]
    fn attempts_every_30_seconds_are_one_cause() {
        let mut throttle = Throttle::default();
        let attempts = (0..=3600).step_by(30);
        let lines = attempts.filter(|second| throttle.admit("refused", at(*second)).is_some());
        let lines: Vec<u64> = lines.collect();
        assert_eq!(
            lines,
            [0, 30, 60, 120, 210, 390, 720, 1320, 1920, 2520, 3120]
        );
    }

    #[test]
    fn numbers_do_not_distinguish_causes() {
        let refused = |version| format!("409: pods \"a\" was changed: {version} is not the latest");
        assert_eq!(cause_of(&refused(1_234)), cause_of(&refused(99)));
        assert_eq!(cause_of("timed out after 30 s"), "timed out after # s");
        assert_ne!(cause_of("refused"), cause_of("reset"));
        let mut throttle = Throttle::default();
        let lines = (0..3_600).filter(|second| {
            let cause = cause_of(&refused(*second));
            throttle.admit(cause, at(*second)).is_some()
        });
        assert_eq!(lines.count(), 11);
    }

    #[test]
    fn every_cause_has_a_line_of_its_own() {
        let mut throttle = Throttle::default();
        assert_eq!(throttle.admit("refused", at(0)), Some(SuppressedCount(0)));
        assert_eq!(throttle.admit("forbidden", at(1)), Some(SuppressedCount(0)));
        assert_eq!(throttle.admit("refused", at(2)), None);
    }

    #[test]
    fn a_cause_that_was_quiet_for_long_starts_again() {
        let mut throttle = Throttle::default();
        lines(&mut throttle, 631);
        // Its pause was ten minutes.
        assert_eq!(
            throttle.admit("refused", at(630 + 700)),
            Some(SuppressedCount(0))
        );
        assert_eq!(throttle.admit("refused", at(1330 + 5)), None);
        assert_eq!(
            throttle.admit("refused", at(1330 + 10)),
            Some(SuppressedCount(1))
        );
    }

    #[test]
    fn a_cleared_cause_is_logged_immediately_when_it_returns() {
        let mut throttle = Throttle::default();
        throttle.admit("refused", at(0));
        throttle.admit("refused", at(1));
        assert_eq!(throttle.clear(&"refused"), Some(SuppressedCount(1)));
        assert_eq!(throttle.clear(&"refused"), None);
        assert_eq!(throttle.admit("refused", at(2)), Some(SuppressedCount(0)));
    }

    #[test]
    fn the_number_of_causes_is_bounded_and_the_quietest_is_dropped() {
        let mut throttle = Throttle::default();
        let moment = |number: u64| Instant::ZERO.after(Duration::from_millis(number));
        for number in 1..=2 * MOST_CAUSES as u64 {
            throttle.admit(0, moment(number));
            throttle.admit(number, moment(number));
        }
        assert_eq!(throttle.causes.len(), MOST_CAUSES);
        assert_eq!(throttle.admit(0, at(3)), None);
        assert_eq!(throttle.admit(1, at(3)), Some(SuppressedCount(0)));
    }

    #[test]
    fn a_line_has_the_number_of_suppressed_lines() {
        assert_eq!(SuppressedCount(0).to_string(), "");
        assert_eq!(
            SuppressedCount(41).to_string(),
            " (41 more since the last line)"
        );
    }
}
