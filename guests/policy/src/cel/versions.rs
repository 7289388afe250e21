//! Versions: Kubernetes neither compares nor orders them by what stands behind their `+`.

use kube_cel::cel::{ExecutionError, Value};

use super::arguments::wrong;

/// The text of a version without its build. What is no version is left to the library.
pub(super) fn without_build(operands: &[Value]) -> Result<Value, ExecutionError> {
    match operands {
        [Value::String(text)] => Ok(match text.split_once('+') {
            Some((version, build)) if is_full(version) && is_build(build) => Value::from(version),
            _ => Value::String(text.clone()),
        }),
        [value] => Ok(value.clone()),
        _ => Err(wrong("semver", "it takes a text")),
    }
}

/// Whether it has three numbers: a shorter one has no build, even where shorter ones are admitted.
fn is_full(version: &str) -> bool {
    let numbers = version.split_once('-').map_or(version, |(it, _)| it);
    numbers.split('.').count() == 3
}

fn is_build(build: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut parts = build.split('.');
    parts.all(|part| !part.is_empty() && part.chars().all(is_part))
}
