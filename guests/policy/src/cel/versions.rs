//! Versions as Kubernetes reads them, written for the library.

use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;

/// The text of a version, as the library reads it without being lenient. `true` as the second operand
/// normalises it. Kubernetes neither compares nor orders versions by what stands behind their `+`.
/// What is no version is left to the library.
pub(super) fn text(operands: &[Value]) -> Result<Value, ExecutionError> {
    let text = match operands {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            text.as_str().to_owned()
        }
        [Value::String(text), Value::Bool(true)] => normalised(text),
        [_] => return Err(wrong("semver", "it takes a text")),
        _ => return Err(wrong("semver", "it takes a text and a boolean")),
    };
    let version = without_build(&text);
    // To Kubernetes, such a text is no version; to the library, it is one.
    let is_too_large = numbers_behind(version).any(|number| number.parse::<u64>().is_err());
    Ok(Value::from(if is_too_large { "" } else { version }))
}

/// A version without the `v` before it and the zeros before its numbers, and with those of its three
/// numbers that it lacks. A shorter one has no `-` and no `+`.
fn normalised(text: &str) -> String {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<&str> = text.splitn(3, '.').map(without_zeros).collect();
    let is_short = parts.len() < 3;
    if is_short && parts.last().is_some_and(|it| it.contains(['-', '+'])) {
        return String::new();
    }
    parts.resize(3, "0");
    parts.join(".")
}

/// A part without the zeros before its number, of which one stays if there is no other digit.
fn without_zeros(part: &str) -> &str {
    let zeros = part.len() - part.trim_start_matches('0').len();
    let has_digit = part[zeros..].starts_with(|c: char| c.is_ascii_digit());
    let start = if has_digit {
        zeros
    } else {
        zeros.saturating_sub(1)
    };
    &part[start..]
}

/// A version without its build, if that is one.
fn without_build(text: &str) -> &str {
    match text.split_once('+') {
        Some((version, build)) if is_full(version) && is_build(build) => version,
        _ => text,
    }
}

/// The numbers behind the `-`, which separates what comes before a version.
fn numbers_behind(version: &str) -> impl Iterator<Item = &str> {
    let (_, behind) = version.split_once('-').unwrap_or((version, ""));
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
    behind.split('.').filter(is_number)
}

/// Whether it has three numbers.
fn is_full(version: &str) -> bool {
    let numbers = version.split_once('-').map_or(version, |(it, _)| it);
    numbers.split('.').count() == 3
}

fn is_build(build: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut parts = build.split('.');
    parts.all(|part| !part.is_empty() && part.chars().all(is_part))
}
