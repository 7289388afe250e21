//! Durations in a configuration: `20s`, `500ms`, `1m30s`.
//!
//! Use it as `#[serde(with = "davit_guest::duration")]`.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserializer, Serializer};

/// The pattern of such a text in a JSON Schema.
pub const PATTERN: &str = "^([0-9]+(ms|s|m|h))+$";

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a duration. Any other text is refused.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Text)
}

/// Writes a duration, in whole milliseconds.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*duration))
}

/// The text of a duration in its largest unit that is whole: `90s`, `2h`.
#[must_use]
pub fn text(duration: Duration) -> String {
    let millis = duration.as_millis();
    let mut units = UNITS.iter().rev();
    let unit = units.find(|(_, unit)| millis > 0 && millis.is_multiple_of(u128::from(*unit)));
    match unit {
        Some((name, unit)) => format!("{}{name}", millis / u128::from(*unit)),
        None => "0s".to_owned(),
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as 30s, 10m or 1h30m")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// The duration of a text; none if the text is not a duration, or is one of 584
/// million years or more.
#[must_use]
pub fn parse(text: &str) -> Option<Duration> {
    let mut total = 0_u64;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (number, after) = split_while(rest, |c| c.is_ascii_digit());
        let (unit, after) = split_while(after, |c| c.is_ascii_lowercase());
        let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let number: u64 = number.parse().ok()?;
        total = total.checked_add(number.checked_mul(*millis)?)?;
        rest = after;
    }
    Some(Duration::from_millis(total))
}

fn split_while(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, millis) in [
            ("20s", 20_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("2h0m1ms", 7_200_001),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn any_other_text_is_not_a_duration() {
        for text in [
            "",
            "20",
            "s",
            "20 s",
            "-20s",
            "1.5s",
            "1d",
            "1S",
            "20s!",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
