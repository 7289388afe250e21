//! Times and durations: what they have (`getHours`), the zones in which they have it, and their
//! texts.

use chrono::{DateTime, Datelike, Duration, FixedOffset, SecondsFormat, Timelike};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value};

use super::arguments::{operands, wrong};

/// The seconds since the epoch of the times that CEL has: the years 1 to 9999.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// A function that returns a part of a time, or the whole of a duration in a unit.
#[derive(Clone, Copy)]
struct Getter {
    name: &'static str,
    of_time: fn(&DateTime<FixedOffset>) -> i64,
    of_duration: Option<fn(&Duration) -> i64>,
}

const GETTERS: [Getter; 10] = [
    getter("getFullYear", |it| i64::from(it.year()), None),
    getter("getMonth", |it| i64::from(it.month0()), None),
    getter("getDayOfYear", |it| i64::from(it.ordinal0()), None),
    getter("getDayOfMonth", |it| i64::from(it.day0()), None),
    getter("getDate", |it| i64::from(it.day()), None),
    getter(
        "getDayOfWeek",
        |it| i64::from(it.weekday().num_days_from_sunday()),
        None,
    ),
    getter(
        "getHours",
        |it| i64::from(it.hour()),
        Some(Duration::num_hours),
    ),
    getter(
        "getMinutes",
        |it| i64::from(it.minute()),
        Some(Duration::num_minutes),
    ),
    getter(
        "getSeconds",
        |it| i64::from(it.second()),
        Some(Duration::num_seconds),
    ),
    // The specification has 0 to 999 for a duration; Kubernetes, and Davit, the whole of it.
    getter(
        "getMilliseconds",
        |it| i64::from(it.timestamp_subsec_millis()),
        Some(Duration::num_milliseconds),
    ),
];

const fn getter(
    name: &'static str,
    of_time: fn(&DateTime<FixedOffset>) -> i64,
    of_duration: Option<fn(&Duration) -> i64>,
) -> Getter {
    Getter {
        name,
        of_time,
        of_duration,
    }
}

/// Whether a function takes a zone as its argument.
pub(super) fn takes_zone(function: &str) -> bool {
    GETTERS.iter().any(|it| it.name == function)
}

pub(super) fn register(context: &mut Context<'_>) {
    for getter in GETTERS {
        let get = move |call: &FunctionContext<'_, '_>| getter.get(&operands(call)?);
        context.add_function(getter.name, get);
    }
}

impl Getter {
    fn get(&self, operands: &[Value]) -> Result<Value, ExecutionError> {
        let found = match (operands, self.of_duration) {
            ([Value::Timestamp(time)], _) => (self.of_time)(&time.to_utc().fixed_offset()),
            ([Value::Timestamp(time), Value::String(zone)], _) => {
                let zone = zone_of(zone).map_err(|message| wrong(self.name, message))?;
                (self.of_time)(&time.with_timezone(&zone))
            }
            ([Value::Duration(duration)], Some(of_duration)) => of_duration(duration),
            (_, None) => return Err(wrong(self.name, "it takes a time")),
            _ => return Err(wrong(self.name, "it takes a time, or a duration alone")),
        };
        Ok(Value::Int(found))
    }
}

/// A zone: `UTC`, or an offset such as `+02:00`. The rules of named zones are not known here.
pub(super) fn zone_of(text: &str) -> Result<FixedOffset, String> {
    offset_of(text).ok_or_else(|| {
        format!("\"{text}\" is no zone: write a fixed offset such as \"+02:00\", or \"UTC\"")
    })
}

fn offset_of(text: &str) -> Option<FixedOffset> {
    if text == "UTC" {
        return FixedOffset::east_opt(0);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    let number = |text: &str, most: i32| {
        let is_number = text.len() == 2 && text.bytes().all(|it| it.is_ascii_digit());
        let number: i32 = text.parse().ok().filter(|_| is_number)?;
        (number <= most).then_some(number)
    };
    FixedOffset::east_opt(sign * (number(hours, 14)? * 3600 + number(minutes, 59)? * 60))
}

/// A time of those that CEL has.
pub(super) fn in_range(time: DateTime<FixedOffset>) -> Option<Value> {
    is_in_range(&time).then_some(Value::Timestamp(time))
}

fn is_in_range(time: &DateTime<FixedOffset>) -> bool {
    SECONDS.contains(&time.timestamp())
}

/// A duration of those that CEL has: its nanoseconds are an integer.
pub(super) fn duration_in_range(duration: Duration) -> Option<Value> {
    duration
        .num_nanoseconds()
        .map(|_| Value::Duration(duration))
}

/// The time of a text as Kubernetes and CEL write it. The library's parser also reads a small `t`,
/// a space or another minus sign, leap seconds, and the year 0.
pub(crate) fn parsed(text: &str) -> Option<DateTime<FixedOffset>> {
    let is_usual = |c: char| c.is_ascii_digit() || "TZ:.+-".contains(c);
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    let is_usual = text.chars().all(is_usual) && time.timestamp_subsec_nanos() < 1_000_000_000;
    (is_usual && is_in_range(&time)).then_some(time)
}

/// `timestamp(…)` of a text, or of the seconds since the epoch.
pub(super) fn timestamp(operands: &[Value]) -> Result<Value, ExecutionError> {
    let time = match operands {
        [Value::Timestamp(time)] => Some(*time),
        [Value::Int(seconds)] => DateTime::from_timestamp(*seconds, 0).map(|it| it.fixed_offset()),
        [Value::String(text)] => {
            let time = parsed(text);
            Some(time.ok_or_else(|| wrong("timestamp", format!("\"{text}\" is no time")))?)
        }
        _ => return Err(wrong("timestamp", "it takes a text, or seconds")),
    };
    time.and_then(in_range)
        .ok_or_else(|| wrong("timestamp", "the time is out of range"))
}

/// The text of a time, in UTC.
pub(super) fn text_of_time(time: &DateTime<FixedOffset>) -> String {
    let time = time.to_utc();
    let text = time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let fraction = fraction(time.timestamp_subsec_nanos());
    format!("{}{fraction}Z", text.trim_end_matches('Z'))
}

/// The text of a duration, in seconds: `5400s`.
pub(super) fn text_of_duration(duration: &Duration) -> String {
    let sign = if *duration < Duration::zero() {
        "-"
    } else {
        ""
    };
    let seconds = duration.num_seconds().unsigned_abs();
    let fraction = fraction(duration.subsec_nanos().unsigned_abs());
    format!("{sign}{seconds}{fraction}s")
}

/// A part of a second: `.5`, or nothing.
fn fraction(nanos: u32) -> String {
    if nanos == 0 {
        return String::new();
    }
    let digits = format!("{nanos:09}");
    format!(".{}", digits.trim_end_matches('0'))
}
