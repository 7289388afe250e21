//! What one evaluation may take: the texts, lists and maps that it makes, in bytes; the steps that
//! it needs; the elements that its loops visit.
//!
//! What is made or done is counted before, so that an expression over an object's texts fails by
//! itself. Without the bounds, whoever writes an annotation could use up the memory of the guest or
//! the time of a call, and end the call of every other rule.
//!
//! A step is the evaluation of a part of an expression, or the reading of a value: a list counts
//! with all that it has, and a text with one more step for every 128 bytes.

use std::cell::Cell;
use std::sync::Arc;

use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::Key;
use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;
use super::{MAX_ITERATIONS, MAX_MADE, MAX_STEPS};

/// What a value counts beside its text, in bytes.
const OVERHEAD: usize = 16;

/// The bytes of a text that count as a step.
const BYTES_OF_STEP: usize = 128;

/// What is bounded.
#[derive(Clone, Copy, Debug)]
enum Bound {
    Bytes,
    Steps,
    Elements,
}

impl Bound {
    fn error(self) -> ExecutionError {
        match self {
            Self::Bytes => wrong(
                "expression",
                format!("it makes more than {MAX_MADE} bytes of texts and lists"),
            ),
            Self::Steps => wrong(
                "expression",
                format!("it takes more than {MAX_STEPS} steps"),
            ),
            Self::Elements => wrong(
                "loop",
                format!("it visits more than {MAX_ITERATIONS} elements"),
            ),
        }
    }
}

/// What is left for an evaluation.
#[derive(Clone, Copy)]
struct Left {
    bytes: usize,
    steps: usize,
    elements: usize,
    /// What was exceeded first.
    exceeded: Option<Bound>,
}

const ALL: Left = Left {
    bytes: MAX_MADE,
    steps: MAX_STEPS,
    elements: MAX_ITERATIONS,
    exceeded: None,
};

thread_local! {
    static LEFT: Cell<Left> = const { Cell::new(ALL) };
}

/// Starts an evaluation.
pub(super) fn start() {
    LEFT.set(ALL);
}

/// The steps that the evaluation has taken so far.
#[cfg(test)]
fn taken() -> usize {
    MAX_STEPS - LEFT.get().steps
}

/// Counts; an error beyond the bound. Nothing is left then.
fn take(bound: Bound, amount: usize) -> Result<(), ExecutionError> {
    let mut left = LEFT.get();
    let of = match bound {
        Bound::Bytes => &mut left.bytes,
        Bound::Steps => &mut left.steps,
        Bound::Elements => &mut left.elements,
    };
    let rest = of.checked_sub(amount);
    *of = rest.unwrap_or_default();
    if rest.is_none() {
        left.exceeded = left.exceeded.or(Some(bound));
    }
    LEFT.set(left);
    rest.map(|_| ()).ok_or_else(|| bound.error())
}

/// The error of the bound that was exceeded first, if one was.
pub(super) fn check() -> Result<(), ExecutionError> {
    match LEFT.get().exceeded {
        Some(bound) => Err(bound.error()),
        None => Ok(()),
    }
}

/// Counts what is about to be made.
fn bytes(amount: usize) -> Result<(), ExecutionError> {
    take(Bound::Bytes, amount)
}

/// Counts what is about to be done.
pub(super) fn steps(amount: usize) -> Result<(), ExecutionError> {
    take(Bound::Steps, amount)
}

/// Counts the elements that a loop is about to visit.
pub(super) fn elements(amount: usize) -> Result<(), ExecutionError> {
    take(Bound::Elements, amount)
}

/// The steps of reading a text.
pub(super) fn steps_of(bytes: usize) -> usize {
    1 + bytes / BYTES_OF_STEP
}

/// Counts a value and all that it contains, each by the bytes of its text.
fn walk(
    value: &Value,
    count: &mut impl FnMut(usize) -> Result<(), ExecutionError>,
) -> Result<(), ExecutionError> {
    match value {
        Value::String(text) => count(text.len()),
        Value::Bytes(bytes) => count(bytes.len()),
        Value::List(list) => {
            count(0)?;
            list.iter().try_for_each(|it| walk(it, count))
        }
        Value::Map(map) => {
            count(0)?;
            map.map.iter().try_for_each(|(key, value)| {
                count(match key {
                    Key::String(name) => name.len(),
                    _ => 0,
                })?;
                walk(value, count)
            })
        }
        _ => count(0),
    }
}

/// The steps of reading a value.
pub(super) fn weight(value: &Value) -> usize {
    let mut weight = 0_usize;
    let _ = walk(value, &mut |bytes| {
        weight = weight.saturating_add(steps_of(bytes));
        Ok(())
    });
    weight
}

/// Counts the reading of a value.
pub(super) fn touch(value: &Value) -> Result<(), ExecutionError> {
    walk(value, &mut |bytes| steps(steps_of(bytes)))
}

/// Counts a copy of a value, with all that it contains.
pub(super) fn made(value: &Value) -> Result<(), ExecutionError> {
    walk(value, &mut |length| {
        bytes(OVERHEAD + length)?;
        steps(steps_of(length))
    })
}

/// Counts a text that is about to be made.
pub(super) fn made_text(length: usize) -> Result<(), ExecutionError> {
    bytes(OVERHEAD.saturating_add(length))?;
    steps(steps_of(length))
}

fn counted(
    args: &[Value],
    count: fn(&Value) -> Result<(), ExecutionError>,
) -> Result<Value, ExecutionError> {
    let [value] = args else {
        return Err(wrong("expression", "wrong arguments"));
    };
    count(value)?;
    Ok(value.clone())
}

/// A value that becomes a part of another one, or that a function makes another one of.
pub(super) fn part(args: &[Value]) -> Result<Value, ExecutionError> {
    counted(args, made)
}

/// A value that is read.
pub(super) fn operand(args: &[Value]) -> Result<Value, ExecutionError> {
    counted(args, touch)
}

/// A text in which a regular expression may find as many parts as it has characters.
pub(super) fn haystack(args: &[Value]) -> Result<Value, ExecutionError> {
    if let [Value::String(text)] = args {
        bytes(text.len().saturating_mul(OVERHEAD))?;
    }
    part(args)
}

/// Counts the sum of two texts or lists.
pub(super) fn count_sum(one: &Value, other: &Value) -> Result<(), ExecutionError> {
    for it in [one, other] {
        if matches!(it, Value::String(_) | Value::Bytes(_) | Value::List(_)) {
            made(it)?;
        }
    }
    Ok(())
}

/// `text.replace(from, to)`, and with a number: of the first occurrences. A negative number is no
/// bound.
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
            (from, to, usize::try_from(*most).unwrap_or(usize::MAX))
        }
        _ => return Err(wrong("replace", "it takes two texts")),
    };
    let found = text.matches(from.as_str()).take(most).count();
    let rest = text.len() - found * from.len();
    made_text(rest.saturating_add(found.saturating_mul(to.len())))?;
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
    made_text(separator.len().saturating_mul(texts.len()))?;
    texts.iter().try_for_each(|text| made_text(text.len()))?;
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
    let parts: Box<dyn Iterator<Item = &str>> = if separator.is_empty() {
        Box::new(characters(&text, most))
    } else {
        Box::new(text.splitn(most, separator.as_str()))
    };
    let mut made = Vec::new();
    for part in parts {
        made_text(part.len())?;
        made.push(Value::from(part));
    }
    Ok(Value::List(Arc::new(made)))
}

/// The characters of a text; of so many parts, the last has the rest.
fn characters(text: &str, most: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    (1..=most).map_while(move |part| {
        let end = rest.chars().next()?.len_utf8();
        let (first, after) = rest.split_at(if part == most { rest.len() } else { end });
        rest = after;
        Some(first)
    })
}

#[cfg(test)]
mod tests;
