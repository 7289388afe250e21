//! Points in time as the API writes them.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time in whole seconds, written as RFC 3339 in UTC (`metav1.Time`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// The time that many seconds after 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn from_unix(seconds: i64) -> Self {
        Time(seconds)
    }

    /// Seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn unix(self) -> i64 {
        self.0
    }

    /// This time, `seconds` later (saturating).
    #[must_use]
    pub fn after(self, seconds: i64) -> Self {
        Time(self.0.saturating_add(seconds))
    }

    /// Reads RFC 3339 with or without fractions of a second, which are dropped.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.parse::<jiff::Timestamp>()
            .ok()
            .map(|at| Time(at.as_second()))
    }
}

impl From<jiff::Timestamp> for Time {
    fn from(at: jiff::Timestamp) -> Self {
        Time(at.as_second())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Out of jiff's range (years -9999 to 9999) only after arithmetic on a
        // made-up time: the nearest representable one is as good.
        let at = jiff::Timestamp::from_second(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        });
        write!(f, "{}", at.strftime("%Y-%m-%dT%H:%M:%SZ"))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Time::parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?}"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_drops_fractions() {
        let at = Time::parse("2026-01-01T00:00:05.250000Z").expect("valid");
        assert_eq!(at.to_string(), "2026-01-01T00:00:05Z");
        assert_eq!(Time::parse("yesterday"), None);
    }
}
