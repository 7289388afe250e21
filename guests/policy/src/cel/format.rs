//! `text.format(list)`: the text with values in the places of its clauses, such as `%s`.

use std::fmt::Write;
use std::iter::Peekable;
use std::str::Chars;

use kube_cel::cel::objects::Key;
use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong as wrong_in;
use super::budget;
use super::conversions::{text_of, text_of_number};

/// How many digits the precision of a clause may have: `%.99f`.
const MAX_PRECISION_DIGITS: usize = 2;

/// The precision of a clause that has none.
const PRECISION: usize = 6;

fn wrong(message: impl ToString) -> ExecutionError {
    wrong_in("format", message)
}

pub(super) fn format(operands: &[Value]) -> Result<Value, ExecutionError> {
    let [Value::String(template), Value::List(values)] = operands else {
        return Err(wrong("it takes a text and a list"));
    };
    budget::made_text(template.len())?;
    let mut text = String::new();
    let mut values = values.iter();
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            text.push(c);
            continue;
        }
        let (precision, clause) = clause(&mut chars)?;
        if clause == '%' {
            text.push('%');
            continue;
        }
        let value = values
            .next()
            .ok_or_else(|| wrong("it has more clauses than values"))?;
        let formatted = match clause {
            's' => {
                printed(value, &mut text)?;
                continue;
            }
            'd' => decimal(value),
            'f' => fixed(value, precision),
            'e' => scientific(value, precision),
            'b' => binary(value),
            'o' => whole(value).map(|(sign, number)| format!("{sign}{number:o}")),
            'x' => hexadecimal(value),
            'X' => hexadecimal(value).map(|it| it.to_uppercase()),
            _ => return Err(wrong(format!("there is no clause %{clause}"))),
        };
        let formatted = formatted.ok_or_else(|| wrong(format!("%{clause} takes another value")))?;
        push(&formatted, &mut text)?;
    }
    Ok(Value::from(text))
}

/// A clause behind its `%`: the precision, and what it is.
fn clause(chars: &mut Peekable<Chars<'_>>) -> Result<(usize, char), ExecutionError> {
    let mut precision = PRECISION;
    if chars.next_if_eq(&'.').is_some() {
        let mut digits = String::new();
        while let Some(digit) = chars.next_if(char::is_ascii_digit) {
            digits.push(digit);
        }
        if digits.len() > MAX_PRECISION_DIGITS {
            return Err(wrong("a precision has two digits at most"));
        }
        precision = digits
            .parse()
            .map_err(|_| wrong("a precision has digits"))?;
        if chars.peek() == Some(&'%') {
            return Err(wrong("there is no clause %.%"));
        }
    }
    let clause = chars
        .next()
        .ok_or_else(|| wrong("the last clause ends too early"))?;
    Ok((precision, clause))
}

fn push(part: &str, text: &mut String) -> Result<(), ExecutionError> {
    budget::made_text(part.len())?;
    text.push_str(part);
    Ok(())
}

/// `%s`: a value as `string` converts it, and lists and maps with what they have.
fn printed(value: &Value, text: &mut String) -> Result<(), ExecutionError> {
    match value {
        Value::Null => push("null", text),
        Value::List(list) => {
            push("[", text)?;
            for (index, element) in list.iter().enumerate() {
                if index > 0 {
                    push(", ", text)?;
                }
                printed(element, text)?;
            }
            push("]", text)
        }
        Value::Map(map) => {
            let mut entries: Vec<(String, &Value)> = Vec::new();
            for (key, value) in map.map.iter() {
                let key = key_of(key);
                budget::made_text(key.len())?;
                entries.push((key, value));
            }
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            push("{", text)?;
            for (index, (key, value)) in entries.into_iter().enumerate() {
                if index > 0 {
                    push(", ", text)?;
                }
                push(&key, text)?;
                push(": ", text)?;
                printed(value, text)?;
            }
            push("}", text)
        }
        Value::String(part) => push(part, text),
        other => {
            let part = text_of(other)?.ok_or_else(|| wrong("%s takes another value"))?;
            push(&part, text)
        }
    }
}

fn key_of(key: &Key) -> String {
    match key {
        Key::Int(key) => key.to_string(),
        Key::Uint(key) => key.to_string(),
        Key::Bool(key) => key.to_string(),
        Key::String(key) => key.as_str().to_owned(),
    }
}

/// The sign and the size of an integer.
fn whole(value: &Value) -> Option<(&'static str, u64)> {
    match value {
        Value::Int(number) => Some((if *number < 0 { "-" } else { "" }, number.unsigned_abs())),
        Value::UInt(number) => Some(("", *number)),
        _ => None,
    }
}

fn decimal(value: &Value) -> Option<String> {
    match value {
        Value::Float(number) => Some(text_of_number(*number)),
        _ => whole(value).map(|(sign, number)| format!("{sign}{number}")),
    }
}

fn binary(value: &Value) -> Option<String> {
    match value {
        Value::Bool(value) => Some(u8::from(*value).to_string()),
        _ => whole(value).map(|(sign, number)| format!("{sign}{number:b}")),
    }
}

fn hexadecimal(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(digits_of(text.as_bytes())),
        Value::Bytes(bytes) => Some(digits_of(bytes)),
        _ => whole(value).map(|(sign, number)| format!("{sign}{number:x}")),
    }
}

fn digits_of(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a number with a fraction is what the clause prints"
)]
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::UInt(number) => Some(*number as f64),
        _ => None,
    }
}

fn fixed(value: &Value, precision: usize) -> Option<String> {
    let number = number(value)?;
    Some(if number.is_finite() {
        format!("{number:.precision$}")
    } else {
        text_of_number(number)
    })
}

/// `1.052033e+03`
fn scientific(value: &Value, precision: usize) -> Option<String> {
    let number = number(value)?;
    if !number.is_finite() {
        return Some(text_of_number(number));
    }
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e')?;
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    Some(format!("{mantissa}e{sign}{exponent:0>2}"))
}
