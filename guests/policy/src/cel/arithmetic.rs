//! Times and durations: read and added with care for what is out of range.

use chrono::Duration;
use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;
use super::budget;
use super::times::{duration_in_range, in_range};

/// A duration in Go's format: `1h30m`. Nothing of the text is left over.
pub(super) fn duration(args: &[Value]) -> Result<Value, ExecutionError> {
    let text = match args {
        [Value::Duration(duration)] => return Ok(Value::Duration(*duration)),
        [Value::String(text)] => text,
        _ => return Err(wrong("duration", "it takes a text such as 1h30m")),
    };
    parse_duration(text).map(Value::Duration).ok_or_else(|| {
        wrong(
            "duration",
            format!("\"{text}\" is no duration: the units are h, m, s, ms, us and ns"),
        )
    })
}

fn parse_duration(text: &str) -> Option<Duration> {
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(Duration::zero());
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i64 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit_on) = rest.split_at(end);
        let unit_end = unit_on
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit_on.len());
        let (unit, after) = unit_on.split_at(unit_end);
        let unit: i64 = match unit {
            "h" => 3_600_000_000_000,
            "m" => 60_000_000_000,
            "s" => 1_000_000_000,
            "ms" => 1_000_000,
            "us" | "µs" => 1000,
            "ns" => 1,
            _ => return None,
        };
        nanos = nanos.checked_add(scaled(number, unit)?)?;
        rest = after;
    }
    let nanos = if is_negative { -nanos } else { nanos };
    Some(Duration::nanoseconds(nanos))
}

/// A decimal number of units in nanoseconds.
fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut nanos = whole.checked_mul(unit)?;
    let mut part = unit;
    for digit in fraction.chars() {
        part /= 10;
        nanos = nanos.checked_add(part.checked_mul(i64::from(digit.to_digit(10)?))?)?;
    }
    Some(nanos)
}

pub(super) fn sum(args: &[Value]) -> Result<Value, ExecutionError> {
    let added = match args {
        [Value::Timestamp(time), Value::Duration(by)]
        | [Value::Duration(by), Value::Timestamp(time)] => {
            time.checked_add_signed(*by).and_then(in_range)
        }
        [Value::Duration(one), Value::Duration(other)] => {
            one.checked_add(other).and_then(duration_in_range)
        }
        [Value::Timestamp(_), _] | [_, Value::Timestamp(_)] => None,
        [one, other] => {
            budget::count_sum(one, other)?;
            return one.clone() + other.clone();
        }
        _ => None,
    };
    added.ok_or_else(|| wrong("+", "the sum is out of range, or there is none"))
}

pub(super) fn difference(args: &[Value]) -> Result<Value, ExecutionError> {
    let difference = match args {
        [Value::Timestamp(time), Value::Duration(by)] => {
            time.checked_sub_signed(*by).and_then(in_range)
        }
        [Value::Timestamp(one), Value::Timestamp(other)] => {
            duration_in_range(one.signed_duration_since(*other))
        }
        [Value::Duration(one), Value::Duration(other)] => {
            one.checked_sub(other).and_then(duration_in_range)
        }
        [Value::Timestamp(_), _] | [_, Value::Timestamp(_)] => None,
        [one, other] => return one.clone() - other.clone(),
        _ => None,
    };
    difference.ok_or_else(|| wrong("-", "the difference is out of range, or there is none"))
}

/// `-number`
pub(super) fn negation(args: &[Value]) -> Result<Value, ExecutionError> {
    let negated = match args {
        [Value::Int(number)] => number.checked_neg().map(Value::Int),
        [Value::Float(number)] => Some(Value::Float(-number)),
        _ => return Err(wrong("-", "only a number has another sign")),
    };
    negated.ok_or_else(|| wrong("-", "the number is out of range"))
}
