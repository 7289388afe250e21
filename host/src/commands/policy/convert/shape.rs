//! The shapes of the parts of a policy. A part of another shape is refused: without it, a rule
//! would select more objects than the policy.

use serde_json::{Map, Value};

use super::{Converted, Problem};

/// The fields of a map.
pub(super) fn fields<'v>(place: &str, value: &'v Value) -> Converted<&'v Map<String, Value>> {
    let fields = value.as_object();
    fields.ok_or_else(|| Problem::new(place, "it is no map"))
}

/// Fails for a field that has no translation.
pub(super) fn refuse_others(
    place: &str,
    fields: &Map<String, Value>,
    known: &[&str],
) -> Converted<()> {
    for (name, value) in fields {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !known.contains(&name.as_str()) && !is_empty {
            return Err(Problem::new(
                format!("{place}.{name}"),
                "it has no translation",
            ));
        }
    }
    Ok(())
}

/// A text; empty if it is not set.
pub(super) fn text<'v>(place: &str, value: &'v Value) -> Converted<&'v str> {
    match value {
        Value::Null => Ok(""),
        Value::String(text) => Ok(text),
        _ => Err(Problem::new(place, "it is no text")),
    }
}

/// The elements of a list; none if it is not set.
pub(super) fn elements<'v>(place: &str, value: &'v Value) -> Converted<&'v [Value]> {
    match value {
        Value::Null => Ok(&[]),
        Value::Array(elements) => Ok(elements),
        _ => Err(Problem::new(place, "it is no list")),
    }
}

/// The texts of a list; none if it is not set.
pub(super) fn texts(place: &str, value: &Value) -> Converted<Vec<String>> {
    let elements = elements(place, value)?.iter();
    let texts = elements.map(|it| it.as_str().map(str::to_owned));
    texts
        .collect::<Option<_>>()
        .ok_or_else(|| Problem::new(place, "it is no list of texts"))
}
