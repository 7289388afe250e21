//! RFC 6902 JSON patches, as the API server's library applies them: to remove an absent
//! value, or to add to a missing parent, is an error. docs/adr/0011-json-patches-of-the-sim.md
//! says why no library of ours does.

use serde_json::{Map, Value};

use super::PatchError;

/// The most operations that the server accepts.
const MAX_OPERATIONS: usize = 10_000;

/// The most that the copies of one patch may add, in bytes of JSON: without it, 40 operations that
/// double what they copy from are a tebibyte.
const MAX_COPIED: usize = 3 << 20;

/// Applies the operations in order; on an error `target` is in between.
pub fn apply(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let operations = operations(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLong(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut copied = 0;
    operations
        .iter()
        .try_for_each(|operation| apply_one(target, operation, &mut copied))
}

/// The list, if it is one of objects (or of `null`, which does nothing but
/// fail later).
fn operations(patch: &Value) -> Result<&[Value], PatchError> {
    let malformed = |value: &Value, wanted: &str| {
        let found = match value {
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Null | Value::Object(_) => "object",
        };
        PatchError::Malformed(format!(
            "json: cannot unmarshal {found} into Go value of type jsonpatch.{wanted}"
        ))
    };
    match patch {
        Value::Null => Ok(&[]),
        Value::Array(operations) => {
            let plain = |value: &&Value| !value.is_object() && !value.is_null();
            match operations.iter().find(plain) {
                None => Ok(operations),
                Some(value) => Err(malformed(value, "Operation")),
            }
        }
        value => Err(malformed(value, "Patch")),
    }
}

/// `copied` is what the copies before have added.
fn apply_one(target: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), PatchError> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let name = text("op").unwrap_or_default();
    let path = text("path").ok_or_else(|| unapplicable(name, "missing path"))?;
    let from = || text("from").ok_or_else(|| unapplicable(name, "missing from"));
    match name {
        "add" => add(target, path, value()),
        "remove" => remove(target, path).map(drop),
        "replace" => {
            let slot = at(target, path).ok_or_else(|| missing("replace", path))?;
            *slot = value();
            Ok(())
        }
        "move" => {
            let from = from()?;
            if path
                .strip_prefix(from)
                .is_some_and(|rest| rest.starts_with('/'))
            {
                return Err(unapplicable("move", "a value cannot be moved into itself"));
            }
            let moved = remove(target, from)?;
            add(target, path, moved)
        }
        "copy" => {
            let from = from()?;
            let source = at(target, from).ok_or_else(|| missing("copy", from))?;
            *copied += length(source);
            if *copied > MAX_COPIED {
                let why = format!("all copies are {copied} bytes, more than {MAX_COPIED}");
                return Err(unapplicable("copy", &why));
            }
            let copy = source.clone();
            add(target, path, copy)
        }
        "test" => {
            if tested(target, path)? == value() {
                Ok(())
            } else {
                Err(unapplicable("test", path))
            }
        }
        other => Err(unapplicable(other, "unexpected operation")),
    }
}

/// The length of a value as JSON, in bytes.
fn length(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(0, |json| json.len())
}

/// The value that a test compares: an absent field of an object that exists is `null`.
fn tested(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    let gone = || missing("test", path);
    if let Some(value) = at(target, path) {
        return Ok(value.clone());
    }
    let (parent, _) = split(path).ok_or_else(gone)?;
    match at(target, parent) {
        Some(Value::Object(_)) => Ok(Value::Null),
        _ => Err(gone()),
    }
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let gone = || missing("add", path);
    let (parent, last) = split(path).ok_or_else(gone)?;
    match at(target, parent).ok_or_else(gone)? {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let place = index(&last, items.len() + 1).ok_or_else(gone)?;
            items.insert(place, value);
        }
        _ => return Err(gone()),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    let gone = || missing("remove", path);
    if path.is_empty() {
        return Ok(std::mem::replace(target, Value::Object(Map::new())));
    }
    let (parent, last) = split(path).ok_or_else(gone)?;
    match at(target, parent).ok_or_else(gone)? {
        Value::Object(fields) => fields.remove(&last).ok_or_else(gone),
        Value::Array(items) => {
            let place = index(&last, items.len()).ok_or_else(gone)?;
            Ok(items.remove(place))
        }
        _ => Err(gone()),
    }
}

/// The value that a pointer leads to.
fn at<'a>(target: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    if path.is_empty() {
        return Some(target);
    }
    let tokens = path.strip_prefix('/')?.split('/');
    tokens
        .map(unescaped)
        .try_fold(target, |value, token| match value {
            Value::Object(fields) => fields.get_mut(&token),
            Value::Array(items) => {
                let place = index(&token, items.len())?;
                items.get_mut(place)
            }
            _ => None,
        })
}

/// The parent's pointer and the last reference token, unescaped.
fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    let rooted = parent.is_empty() || parent.starts_with('/');
    rooted.then(|| (parent, unescaped(last)))
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

/// A place among `length`: beyond RFC 6901, the library counts negative ones
/// from the end, and does not mind leading zeros.
fn index(token: &str, length: usize) -> Option<usize> {
    let place: i64 = token.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let place = if place < 0 { place + length } else { place };
    let place = Some(place).filter(|place| (0..length).contains(place))?;
    usize::try_from(place).ok()
}

fn missing(operation: &str, path: &str) -> PatchError {
    PatchError::Unapplicable(format!(
        "{operation} operation does not apply: doc is missing path: {path}"
    ))
}

fn unapplicable(operation: &str, why: &str) -> PatchError {
    PatchError::Unapplicable(format!("{operation} operation does not apply: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(mut target: Value, patch: &Value) -> Result<Value, PatchError> {
        apply(&mut target, patch).map(|()| target)
    }

    #[test]
    fn every_operation() {
        let target = json!({"a": {"b/c": 1}, "l": [1, 2]});
        let patch = json!([
            {"op": "test", "path": "/a/b~1c", "value": 1},
            {"op": "add", "path": "/l/-", "value": 4},
            {"op": "add", "path": "/l/2", "value": 3},
            {"op": "remove", "path": "/l/0"},
            {"op": "copy", "from": "/l/0", "path": "/d"},
            {"op": "move", "from": "/a/b~1c", "path": "/e"},
            {"op": "replace", "path": "/a", "value": null},
        ]);
        assert_eq!(
            patched(target, &patch),
            Ok(json!({"a": null, "d": 2, "e": 1, "l": [2, 3, 4]}))
        );
    }

    #[test]
    fn inapplicable_patches_are_refused() {
        for operation in [
            json!({"op": "remove", "path": "/none"}),
            json!({"op": "replace", "path": "/none", "value": 1}),
            json!({"op": "add", "path": "/none/x", "value": 1}),
            json!({"op": "add", "path": "/l/9", "value": 1}),
            json!({"op": "add", "path": "/l/x", "value": 1}),
            json!({"op": "remove", "path": "/l/-2"}),
            json!({"op": "add", "path": "l", "value": 1}),
            json!({"op": "test", "path": "/l/0", "value": 2}),
            json!({"op": "copy", "from": "/none", "path": "/x"}),
            json!({"op": "test", "path": "/none/x", "value": null}),
            json!({"op": "test", "path": "/l/9", "value": null}),
            json!({"op": "fly", "path": "/l"}),
            json!({"op": "replace", "path": "/".repeat(1 << 20), "value": 1}),
            json!({"op": "add"}),
        ] {
            let result = patched(json!({"l": [1]}), &json!([operation]));
            assert!(
                matches!(result, Err(PatchError::Unapplicable(_))),
                "{operation}: {result:?}"
            );
        }
        for bad in [json!({}), json!("x"), json!([1])] {
            let result = patched(json!({}), &bad);
            assert!(matches!(result, Err(PatchError::Malformed(_))), "{bad}");
        }
        let long = Value::from(vec![json!({"op": "remove"}); 10_001]);
        let result = patched(json!({}), &long);
        assert!(matches!(result, Err(PatchError::TooLong(_))));
    }

    #[test]
    fn an_absent_field_is_tested_as_null() {
        let patch = json!([{"op": "test", "path": "/none", "value": null}]);
        assert_eq!(patched(json!({"l": []}), &patch), Ok(json!({"l": []})));
    }

    #[test]
    fn negative_places_count_from_the_end() {
        let patch = json!([
            {"op": "remove", "path": "/l/-1"}, {"op": "add", "path": "/l/-1", "value": 9},
            {"op": "replace", "path": "/l/00", "value": 0},
        ]);
        let patched = patched(json!({"l": [1, 2, 3]}), &patch);
        assert_eq!(patched, Ok(json!({"l": [0, 2, 9]})));
    }
}
