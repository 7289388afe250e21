//! Durations as people write them: `90s`, `10m`, `1h30m`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::strict::{expected_text, text};

/// The pattern of a duration in the custom resource: each unit once, the larger first. The host
/// also accepts other forms that [`jiff`] reads, such as `1h 30m`.
pub(super) fn pattern() -> String {
    format!("^({})$", expression())
}

/// The regular expression of a duration, without anchors.
pub(super) fn expression() -> String {
    starting_with(["[0-9]+h", "[0-9]+m", "[0-9]+s", "[0-9]+ms"])
}

/// The regular expression of durations whose first unit is one of these: of hours, minutes,
/// seconds or milliseconds. Any smaller units may follow.
pub(super) fn starting_with([hours, minutes, seconds, millis]: [&str; 4]) -> String {
    let (minutes_too, seconds_too, millis_too) = ("([0-9]+m)?", "([0-9]+s)?", "([0-9]+ms)?");
    format!(
        "{hours}{minutes_too}{seconds_too}{millis_too}|{minutes}{seconds_too}{millis_too}\
         |{seconds}{millis_too}|{millis}"
    )
}

/// The form that an error asks for.
pub(super) const EXPECTED: &str = "a duration such as 30s, 10m or 1h30m";

/// A duration such as `90s`, `10m` or `1h30m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(into = "String")]
#[schemars(with = "String", extend("pattern" = pattern()))]
pub struct HumanDuration(pub Duration);

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed: Option<SignedDuration> = text.parse().ok();
        let duration = parsed.and_then(|parsed| Duration::try_from(parsed).ok());
        // It is written in milliseconds. A finer one would be read as another duration.
        let is_whole = |duration: &Duration| duration.subsec_nanos().is_multiple_of(1_000_000);
        duration
            .filter(is_whole)
            .map(Self)
            .ok_or_else(|| expected_text(EXPECTED, text))
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer, EXPECTED)
    }
}

impl From<HumanDuration> for String {
    fn from(duration: HumanDuration) -> Self {
        duration.to_string()
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let parts = [
            (seconds / 3600, "h"),
            (seconds / 60 % 60, "m"),
            (seconds % 60, "s"),
            (u64::from(self.0.subsec_millis()), "ms"),
        ];
        let mut empty = true;
        for (number, unit) in parts.iter().filter(|(number, _)| *number > 0) {
            write!(f, "{number}{unit}")?;
            empty = false;
        }
        if empty { f.write_str("0s") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_read_as_it_is_written() {
        for (text, millis) in [
            ("0s", 0),
            ("200ms", 200),
            ("90s", 90_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1h 30m", 5_400_000),
        ] {
            let duration: HumanDuration = text.parse().unwrap();
            assert_eq!(duration.0, Duration::from_millis(millis), "{text}");
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
        for bad in ["", "10", "ten minutes", "-5m", "500us", "0.0001s"] {
            let error = bad.parse::<HumanDuration>().unwrap_err();
            let expected = "expected a duration such as 30s, 10m or 1h30m, found";
            assert_eq!(error, format!("{expected} \"{bad}\""));
        }
    }
}
