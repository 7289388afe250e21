//! RFC 6902 JSON patches, as the API server's library reads them: removing
//! what is not there is an error, adding to a missing parent too.

use serde_json::{Map, Value};

use super::PatchError;

/// Applies the operations in order; on an error `target` is in between.
pub fn apply(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::Malformed(
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned(),
        ));
    };
    operations
        .iter()
        .try_for_each(|operation| apply_one(target, operation))
}

fn apply_one(target: &mut Value, operation: &Value) -> Result<(), PatchError> {
    let text = |name: &str| operation.get(name).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    let name = text("op").unwrap_or_default();
    let path = text("path").ok_or_else(|| unapplicable(name, "missing path"))?;
    let from = || text("from").ok_or_else(|| unapplicable(name, "missing from"));
    match name {
        "add" => add(target, path, value()),
        "remove" => remove(target, path).map(drop),
        "replace" => {
            let slot = at_mut(target, path).ok_or_else(|| missing("replace", path))?;
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
            let copied = target.pointer(from).cloned();
            add(target, path, copied.ok_or_else(|| missing("copy", from))?)
        }
        "test" => {
            let found = target.pointer(path).unwrap_or(&Value::Null);
            if *found == value() {
                Ok(())
            } else {
                Err(unapplicable("test", path))
            }
        }
        other => Err(unapplicable(other, "unexpected operation")),
    }
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), PatchError> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, last) = split(path).ok_or_else(|| missing("add", path))?;
    match at_mut(target, parent).ok_or_else(|| missing("add", path))? {
        Value::Object(fields) => {
            fields.insert(last, value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&last).filter(|at| *at <= items.len());
            items.insert(at.ok_or_else(|| missing("add", path))?, value);
        }
        _ => return Err(missing("add", path)),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &str) -> Result<Value, PatchError> {
    let gone = || missing("remove", path);
    if path.is_empty() {
        return Ok(std::mem::replace(target, Value::Object(Map::new())));
    }
    let (parent, last) = split(path).ok_or_else(gone)?;
    match at_mut(target, parent).ok_or_else(gone)? {
        Value::Object(fields) => fields.remove(&last).ok_or_else(gone),
        Value::Array(items) => {
            let at = index(&last)
                .filter(|at| *at < items.len())
                .ok_or_else(gone)?;
            Ok(items.remove(at))
        }
        _ => Err(gone()),
    }
}

fn at_mut<'a>(target: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    target.pointer_mut(path)
}

/// The parent's pointer and the last reference token, unescaped.
fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

/// RFC 6901: digits without a leading zero.
fn index(token: &str) -> Option<usize> {
    let plain = token == "0" || !token.starts_with(['0', '+']);
    plain.then(|| token.parse().ok()).flatten()
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
    fn what_does_not_apply() {
        for operation in [
            json!({"op": "remove", "path": "/none"}),
            json!({"op": "replace", "path": "/none", "value": 1}),
            json!({"op": "add", "path": "/none/x", "value": 1}),
            json!({"op": "add", "path": "/l/9", "value": 1}),
            json!({"op": "add", "path": "/l/01", "value": 1}),
            json!({"op": "test", "path": "/l/0", "value": 2}),
            json!({"op": "copy", "from": "/none", "path": "/x"}),
            json!({"op": "fly", "path": "/l"}),
            json!({"op": "add"}),
        ] {
            let result = patched(json!({"l": [1]}), &json!([operation]));
            assert!(
                matches!(result, Err(PatchError::Unapplicable(_))),
                "{operation}: {result:?}"
            );
        }
        assert!(matches!(
            patched(json!({}), &json!({})),
            Err(PatchError::Malformed(_))
        ));
    }
}
