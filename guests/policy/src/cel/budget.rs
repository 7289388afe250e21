//! What one evaluation may make: texts, lists and maps, in bytes.
//!
//! The bytes are counted before a value is made, so that an expression over an object's texts
//! fails by itself. Without the bound, it would use up the memory of the guest and end the call of
//! every other rule.

use std::cell::Cell;
use std::sync::Arc;

use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::Key;
use kube_cel::cel::{ExecutionError, Value};

use super::MAX_MADE;

/// What a value counts beside its text.
const OVERHEAD: usize = 16;

/// How many digits the precision of a format may have: `%.99f`.
const MAX_PRECISION_DIGITS: usize = 2;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(0) };
}

/// Starts an evaluation.
pub(super) fn start() {
    LEFT.set(MAX_MADE);
}

fn wrong(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

/// Counts what is about to be made; an error beyond the bound.
fn count(bytes: usize) -> Result<(), ExecutionError> {
    let Some(left) = LEFT.get().checked_sub(bytes) else {
        return Err(wrong(
            "expression",
            format!("it makes more than {MAX_MADE} bytes of texts and lists"),
        ));
    };
    LEFT.set(left);
    Ok(())
}

/// Counts a copy of a value, with all that it contains.
fn count_value(value: &Value) -> Result<(), ExecutionError> {
    count(OVERHEAD)?;
    match value {
        Value::String(text) => count(text.len()),
        Value::Bytes(bytes) => count(bytes.len()),
        Value::List(list) => list.iter().try_for_each(count_value),
        Value::Map(map) => map.map.iter().try_for_each(|(key, value)| {
            count(OVERHEAD)?;
            if let Key::String(name) = key {
                count(name.len())?;
            }
            count_value(value)
        }),
        _ => Ok(()),
    }
}

/// A value that becomes a part of another one, or that a function makes another one of.
pub(super) fn part(args: &[Value]) -> Result<Value, ExecutionError> {
    let [value] = args else {
        return Err(wrong("expression", "wrong arguments"));
    };
    count_value(value)?;
    Ok(value.clone())
}

/// A text in which a regular expression may find as many parts as it has characters.
pub(super) fn haystack(args: &[Value]) -> Result<Value, ExecutionError> {
    if let [Value::String(text)] = args {
        count(text.len().saturating_mul(OVERHEAD))?;
    }
    part(args)
}

/// The text of a format: its precisions are bounded.
pub(super) fn template(args: &[Value]) -> Result<Value, ExecutionError> {
    if let [Value::String(text)] = args {
        for precision in text.split("%.").skip(1) {
            let digits = precision.chars().take_while(char::is_ascii_digit);
            if digits.count() > MAX_PRECISION_DIGITS {
                return Err(wrong("format", "a precision has two digits at most"));
            }
        }
    }
    part(args)
}

/// Counts the sum of two texts or lists.
pub(super) fn count_sum(one: &Value, other: &Value) -> Result<(), ExecutionError> {
    for it in [one, other] {
        if matches!(it, Value::String(_) | Value::Bytes(_) | Value::List(_)) {
            count_value(it)?;
        }
    }
    Ok(())
}

/// `text.replace(from, to)`, and with a number: of the first occurrences.
#[allow(
    clippy::needless_pass_by_value,
    reason = "the library gives arguments as values"
)]
pub(super) fn replace(
    This(text): This<Arc<String>>,
    Arguments(args): Arguments,
) -> Result<Value, ExecutionError> {
    let (from, to, most) = match &args[..] {
        [Value::String(from), Value::String(to)] => (from, to, usize::MAX),
        [Value::String(from), Value::String(to), Value::Int(most)] => {
            (from, to, usize::try_from(*most).unwrap_or_default())
        }
        _ => return Err(wrong("replace", "it takes two texts")),
    };
    let found = text.matches(from.as_str()).take(most).count();
    count(OVERHEAD)?;
    count(text.len() - found * from.len())?;
    count(found.saturating_mul(to.len()))?;
    Ok(Value::from(text.replacen(from.as_str(), to, found)))
}

/// `list.join(separator)`
#[allow(
    clippy::needless_pass_by_value,
    reason = "the library gives arguments as values"
)]
pub(super) fn join(
    This(list): This<Arc<Vec<Value>>>,
    Arguments(args): Arguments,
) -> Result<Value, ExecutionError> {
    let separator = match &args[..] {
        [] => "",
        [Value::String(separator)] => separator.as_str(),
        _ => return Err(wrong("join", "it takes a text")),
    };
    let texts = list.iter().map(|it| match it {
        Value::String(text) => Ok(text.as_str()),
        _ => Err(wrong("join", "only texts are joined")),
    });
    let texts = texts.collect::<Result<Vec<&str>, _>>()?;
    count(OVERHEAD)?;
    count(separator.len().saturating_mul(texts.len()))?;
    texts.iter().try_for_each(|text| count(text.len()))?;
    Ok(Value::from(texts.join(separator)))
}

/// `text.split(separator)`, and with a number: into so many parts at most.
#[allow(
    clippy::needless_pass_by_value,
    reason = "the library gives arguments as values"
)]
pub(super) fn split(
    This(text): This<Arc<String>>,
    Arguments(args): Arguments,
) -> Result<Value, ExecutionError> {
    let (separator, most) = match &args[..] {
        [Value::String(separator)] => (separator, usize::MAX),
        [Value::String(separator), Value::Int(most)] => {
            // A negative number is no bound.
            (separator, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(wrong("split", "it takes a text")),
    };
    let mut parts = Vec::new();
    for part in text.splitn(most, separator.as_str()) {
        count(OVERHEAD + part.len())?;
        parts.push(Value::from(part));
    }
    Ok(Value::List(Arc::new(parts)))
}
