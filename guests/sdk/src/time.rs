//! Kubernetes' timestamps.
//!
//! The SDK has its own calendar because a guest needs little of one: jiff,
//! which knows time zones and much else, would make a component 210 kB larger.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::Instant;

const SECONDS_A_DAY: i64 = 86_400;

/// A point in time to the second, as objects carry it (`metav1.Time`):
/// `2023-11-14T22:13:20Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    seconds: i64,
}

impl Time {
    /// Reads a time in RFC 3339. A fraction of a second is dropped, an offset
    /// is applied, a leap second becomes the second before it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time) = text.split_once(['T', 't'])?;
        let [year, month, day] = parse_date(date)?;
        let zone = time.find(['Z', 'z', '+', '-'])?;
        let (time, offset) = time.split_at_checked(zone)?;
        let time = match time.split_once('.') {
            Some((_, "")) => return None,
            Some((time, fraction)) if fraction.bytes().all(|b| b.is_ascii_digit()) => time,
            Some(_) => return None,
            None => time,
        };
        let mut parts = time.split(':');
        let [hour, minute, second] = two_digits(&mut parts)?;
        let in_range = (1..=12).contains(&month)
            && (1..=days_in_month(year, month)).contains(&day)
            && hour < 24
            && minute < 60
            && second <= 60;
        if !in_range {
            return None;
        }
        let seconds = days_since_epoch(year, month, day) * SECONDS_A_DAY
            + hour * 3_600
            + minute * 60
            + second.min(59)
            - parse_offset(offset)?;
        Some(Self { seconds })
    }
}

impl From<Instant> for Time {
    /// The second in which an instant lies.
    fn from(instant: Instant) -> Self {
        Self {
            seconds: instant.as_millis().div_euclid(1_000),
        }
    }
}

impl From<Time> for Instant {
    /// The first millisecond of the second.
    fn from(time: Time) -> Self {
        Self::from_millis(time.seconds.saturating_mul(1_000))
    }
}

impl fmt::Display for Time {
    /// In UTC, as Kubernetes writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.seconds.div_euclid(SECONDS_A_DAY));
        let second = self.seconds.rem_euclid(SECONDS_A_DAY);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        // Kubernetes writes four digits after a sign.
        let width = if year < 0 { 5 } else { 4 };
        write!(
            f,
            "{year:0width$}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| D::Error::custom(format_args!("\"{text}\" is no time of RFC 3339")))
    }
}

/// The year, the month and the day. A time that Kubernetes accepted with an offset can have a
/// year after 9999, or before 0, when it is written in UTC.
fn parse_date(text: &str) -> Option<[i64; 3]> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let (year, rest) = text.split_once('-')?;
    let [month, day] = two_digits(&mut rest.split('-'))?;
    Some([sign * fixed(year, year.len().clamp(4, 5))?, month, day])
}

/// As many numbers of two digits, and nothing else.
fn two_digits<'a, const N: usize>(parts: &mut impl Iterator<Item = &'a str>) -> Option<[i64; N]> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = fixed(parts.next()?, 2)?;
    }
    parts.next().is_none().then_some(numbers)
}

fn fixed(text: &str, digits: usize) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

/// The seconds by which a zone is ahead of UTC.
fn parse_offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let (hours, minutes) = (fixed(hours, 2)?, fixed(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap(year) => 29,
        2 => 28,
        _ => 31,
    }
}

// Both conversions count years from March, so that the leap day is a year's
// last, and in eras of 400 years, which all have 146,097 days. 719,468 days lie
// between 0000-03-01 and 1970-01-01.
const DAYS_AN_ERA: i64 = 146_097;
const DAYS_TO_EPOCH: i64 = 719_468;

/// The days from 1970-01-01 to a date of the Gregorian calendar.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * DAYS_AN_ERA + year * 365 + year / 4 - year / 100 + day_of_year - DAYS_TO_EPOCH
}

/// The year, month and day so many days after 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + DAYS_TO_EPOCH;
    let (era, day) = (days.div_euclid(DAYS_AN_ERA), days.rem_euclid(DAYS_AN_ERA));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    match month {
        0..=9 => (year, month + 3, day),
        _ => (year + 1, month - 9, day),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time { seconds }
    }

    #[test]
    fn times_are_written_as_kubernetes_does() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
            // The same day west of UTC, and the first one east of it.
            (253_402_318_799, "10000-01-01T04:59:59Z"),
            (-62_167_237_200, "-0001-12-31T19:00:00Z"),
        ] {
            assert_eq!(at(seconds).to_string(), text);
            assert_eq!(Time::parse(text), Some(at(seconds)), "{text}");
        }
    }

    #[test]
    fn every_day_of_four_centuries_is_restored() {
        let mut before = String::new();
        for day in -DAYS_AN_ERA..=DAYS_AN_ERA {
            let time = at(day * SECONDS_A_DAY + 1);
            let text = time.to_string();
            assert!(text > before, "{text} follows {before}");
            assert_eq!(Time::parse(&text), Some(time));
            before = text;
        }
    }

    #[test]
    fn other_forms_of_rfc_3339_are_read() {
        for text in [
            "2023-11-14T22:13:20.999999Z",
            "2023-11-15T00:13:20+02:00",
            "2023-11-14T16:43:20-05:30",
            "2023-11-14t22:13:20z",
        ] {
            assert_eq!(Time::parse(text), Some(at(1_700_000_000)), "{text}");
        }
        assert_eq!(
            Time::parse("2016-12-31T23:59:60Z"),
            Time::parse("2016-12-31T23:59:59Z")
        );
    }

    #[test]
    fn any_other_text_is_not_a_time() {
        for text in [
            "",
            "2023-11-14",
            "2023-11-14T22:13:20",
            "2023-11-14 22:13:20Z",
            "2023-13-01T00:00:00Z",
            "2023-00-01T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "1900-02-29T00:00:00Z",
            "2023-04-31T00:00:00Z",
            "2023-01-00T00:00:00Z",
            "2023-01-01T24:00:00Z",
            "2023-01-01T00:60:00Z",
            "2023-01-01T00:00:61Z",
            "2023-01-01T00:00:00.Z",
            "2023-01-01T00:00:00.xZ",
            "2023-01-01T00:00:00+2:00",
            "2023-01-01T00:00:00+24:00",
            "2023-01-01T00:00:00ZZ",
            "+023-01-01T00:00:00Z",
            "100000-01-01T00:00:00Z",
            "-1-01-01T00:00:00Z",
            "--001-01-01T00:00:00Z",
            "2023-01-01-01T00:00:00Z",
            "2023-01T00:00:00Z",
            "23-01-01T00:00:00Z",
            "2023-01-01T00:00:00Ä",
        ] {
            assert_eq!(Time::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_instant_loses_its_milliseconds() {
        let second_of = |millis| Time::from(Instant::from_millis(millis));
        assert_eq!(second_of(1_700_000_000_999), at(1_700_000_000));
        assert_eq!(second_of(-1), at(-1));
        assert_eq!(Instant::from(at(5)), Instant::from_millis(5_000));
    }
}
