//! Conversions: `string`, `int`, `uint`, `bool`, and what `base64.decode` takes.

use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;
use super::budget;
use super::lists::whole;
use super::times::{text_of_duration, text_of_time};

/// The text of a value, if CEL has one for it.
pub(super) fn text_of(value: &Value) -> Result<Option<String>, ExecutionError> {
    Ok(Some(match value {
        Value::String(text) => text.as_str().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::UInt(value) => value.to_string(),
        Value::Float(value) => text_of_number(*value),
        Value::Bytes(bytes) => std::str::from_utf8(bytes)
            .map_err(|_| wrong("string", "the bytes are no text"))?
            .to_owned(),
        Value::Timestamp(time) => text_of_time(time),
        Value::Duration(duration) => text_of_duration(duration),
        _ => return Ok(None),
    }))
}

pub(super) fn text_of_number(number: f64) -> String {
    if number.is_infinite() {
        let sign = if number < 0.0 { "-" } else { "" };
        return format!("{sign}Infinity");
    }
    number.to_string()
}

/// What `string` converts: a text, if it is not an address, whose text the library knows.
pub(super) fn text(operands: &[Value]) -> Result<Value, ExecutionError> {
    let [value] = operands else {
        return Err(wrong("string", "it takes one value"));
    };
    budget::made(value)?;
    if let Value::Float(number) = value {
        return Ok(Value::from(short_text_of_number(*number)));
    }
    Ok(text_of(value)?.map_or_else(|| value.clone(), Value::from))
}

/// A number as `string` has it, and `format` has not: as Go's `%g` prints it, with an exponent if
/// that is less than -4 or more than 5.
fn short_text_of_number(number: f64) -> String {
    if number.is_infinite() {
        let sign = if number < 0.0 { '-' } else { '+' };
        return format!("{sign}Inf");
    }
    let text = format!("{number:e}");
    let parts = text.split_once('e');
    let parts = parts.and_then(|(digits, power)| Some((digits, power.parse::<i32>().ok()?)));
    match parts {
        Some((digits, power @ (..-4 | 6..))) => {
            let sign = if power < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", power.unsigned_abs())
        }
        _ => number.to_string(),
    }
}

fn out_of_range(function: &str) -> ExecutionError {
    wrong(function, "the number is out of range")
}

pub(super) fn int(operands: &[Value]) -> Result<Value, ExecutionError> {
    let converted = match operands {
        [Value::Int(value)] => Some(*value),
        [Value::UInt(value)] => i64::try_from(*value).ok(),
        [Value::Float(value)] => whole(*value).and_then(|it| i64::try_from(it).ok()),
        [Value::Timestamp(time)] => Some(time.timestamp()),
        [Value::String(text)] => {
            let number = text.parse();
            Some(number.map_err(|_| wrong("int", format!("\"{text}\" is no whole number")))?)
        }
        _ => return Err(wrong("int", "it takes a number, a text or a time")),
    };
    converted.map(Value::Int).ok_or_else(|| out_of_range("int"))
}

pub(super) fn uint(operands: &[Value]) -> Result<Value, ExecutionError> {
    let converted = match operands {
        [Value::UInt(value)] => Some(*value),
        [Value::Int(value)] => u64::try_from(*value).ok(),
        [Value::Float(value)] => whole(*value).and_then(|it| u64::try_from(it).ok()),
        [Value::String(text)] => {
            // Go, which reads it for Kubernetes, knows no sign here.
            let number = text.parse().ok().filter(|_| !text.starts_with('+'));
            Some(number.ok_or_else(|| wrong("uint", format!("\"{text}\" is no such number")))?)
        }
        _ => return Err(wrong("uint", "it takes a number or a text")),
    };
    converted
        .map(Value::UInt)
        .ok_or_else(|| out_of_range("uint"))
}

/// What `base64.decode` takes, as Go reads it for Kubernetes: without its line ends, and with all of its
/// `=` or none.
pub(super) fn base64(operands: &[Value]) -> Result<Value, ExecutionError> {
    let [value @ Value::String(text)] = operands else {
        return Err(wrong("base64.decode", "it takes a text"));
    };
    budget::made(value)?;
    let text = text.replace(['\r', '\n'], "");
    if text.contains('=') && !text.len().is_multiple_of(4) {
        return Err(wrong("base64.decode", "it has too few or too many ="));
    }
    Ok(Value::from(text))
}

/// `bool(…)` of the texts that CEL takes for one.
pub(super) fn boolean(operands: &[Value]) -> Result<Value, ExecutionError> {
    match operands {
        [Value::Bool(value)] => Ok(Value::Bool(*value)),
        [Value::String(text)] => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Value::Bool(false)),
            _ => Err(wrong("bool", format!("\"{text}\" is no boolean"))),
        },
        _ => Err(wrong("bool", "it takes a text")),
    }
}
