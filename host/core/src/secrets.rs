//! The data of Secrets, and how it is kept out of what the host writes down.
//!
//! The data is in `data` and `stringData`, and tools such as `kubectl apply`, kapp and Rancher
//! copy it into annotations of their own.

use rmp::encode::{write_map_len, write_str};

use crate::msgpack::{DecodeError, Entries, Value};
use crate::object::{ApiResource, ObjectRef};
use crate::plan::{PatchKind, Step};

/// Nothing, as MessagePack.
const NIL: [u8; 1] = [0xc0];

/// The fields that have the data.
const DATA: [&str; 2] = ["data", "stringData"];

/// Whether a resource has Secrets.
#[must_use]
pub fn are_of(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.plural == "secrets"
}

/// Whether an object is a Secret.
#[must_use]
pub fn is_secret(object: &ObjectRef) -> bool {
    object.group().is_empty() && object.kind == "Secret"
}

/// A Secret without its data and without the values of its annotations: each is an empty text.
/// The keys stay. None if it has neither; nothing but `nil` if it cannot be read.
#[must_use]
pub fn without_data(secret: &[u8]) -> Option<Vec<u8>> {
    strip(secret).unwrap_or_else(|DecodeError| Some(NIL.to_vec()))
}

/// Takes what a step of a plan writes into a Secret out of it. Of a JSON patch, which may write
/// anything anywhere, nothing but `nil` stays.
pub fn strip_step(target: &ObjectRef, step: &mut Step) {
    let (object, body) = match step {
        Step::Patch(patch) if patch.kind == PatchKind::Json => {
            if is_secret(target) {
                patch.body = NIL.to_vec();
            }
            return;
        }
        Step::Patch(patch) => (target, &mut patch.body),
        Step::Create(create) => (&create.object, &mut create.body),
        Step::Apply(apply) => (&apply.object, &mut apply.body),
        Step::Delete(_) | Step::Evict(_) | Step::Event(_) => return,
    };
    if is_secret(object)
        && let Some(stripped) = without_data(body)
    {
        *body = stripped;
    }
}

/// Another value; none if it stays as it is.
type Replacement = Result<Option<Vec<u8>>, DecodeError>;

fn strip(secret: &[u8]) -> Replacement {
    let Value::Map(entries) = Value::read(secret)? else {
        return Ok(None);
    };
    rewrite(entries, &mut |key, value| {
        if DATA.contains(&key) {
            return emptied(value).map(Some);
        }
        if key != "metadata" {
            return Ok(None);
        }
        within(value, "annotations", &mut |annotations| {
            emptied(annotations).map(Some)
        })
    })
}

/// Replaces the value of one key of a map; none if nothing changes.
fn within(map: &[u8], name: &str, replace: &mut dyn FnMut(&[u8]) -> Replacement) -> Replacement {
    let Value::Map(entries) = Value::read(map)? else {
        return Ok(None);
    };
    rewrite(entries, &mut |key, value| {
        if key == name {
            replace(value)
        } else {
            Ok(None)
        }
    })
}

/// The map with other values; none if none is replaced.
fn rewrite(
    entries: Entries<'_>,
    replace: &mut dyn FnMut(&str, &[u8]) -> Replacement,
) -> Replacement {
    let mut written = Vec::new();
    let mut is_changed = false;
    let mut count = 0_u32;
    for entry in entries {
        let (key, value) = entry?;
        count += 1;
        write_str(&mut written, key).map_err(|_| DecodeError)?;
        if let Some(other) = replace(key, value)? {
            is_changed = true;
            written.extend_from_slice(&other);
        } else {
            written.extend_from_slice(value);
        }
    }
    let mut map = Vec::new();
    write_map_len(&mut map, count).map_err(|_| DecodeError)?;
    map.append(&mut written);
    Ok(is_changed.then_some(map))
}

/// A map with its keys and empty texts; of anything else, an empty text.
fn emptied(value: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let Value::Map(entries) = Value::read(value)? else {
        return empty_text();
    };
    let emptied = rewrite(entries, &mut |_, _| empty_text().map(Some))?;
    Ok(emptied.unwrap_or_else(|| value.to_vec()))
}

fn empty_text() -> Result<Vec<u8>, DecodeError> {
    let mut text = Vec::new();
    write_str(&mut text, "").map_err(|_| DecodeError)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stripped(secret: &Value) -> Option<Value> {
        let bytes = rmp_serde::to_vec_named(secret).unwrap();
        without_data(&bytes).map(|bytes| rmp_serde::from_slice(&bytes).unwrap())
    }

    #[test]
    fn a_secret_keeps_the_keys_of_its_data_and_no_value() {
        let secret = json!({
            "data": {"password": "aHVudGVyMg=="},
            "metadata": {
                "annotations": {"kapp.k14s.io/original": "hunter2"},
                "labels": {"a": "b"},
                "name": "s",
            },
            "stringData": {"user": "root"},
            "type": "Opaque",
        });
        let wanted = json!({
            "data": {"password": ""},
            "metadata": {
                "annotations": {"kapp.k14s.io/original": ""},
                "labels": {"a": "b"},
                "name": "s",
            },
            "stringData": {"user": ""},
            "type": "Opaque",
        });
        assert_eq!(stripped(&secret), Some(wanted));
        assert_eq!(stripped(&json!({"data": "x"})), Some(json!({"data": ""})));
    }

    #[test]
    fn a_secret_without_data_stays_as_it_is() {
        let secret = json!({"metadata": {"labels": {"a": "b"}, "name": "s"}, "data": {}});
        assert_eq!(stripped(&secret), Some(secret));
        assert_eq!(stripped(&json!({"metadata": {"name": "s"}})), None);
        assert_eq!(stripped(&json!(null)), None);
    }

    #[test]
    fn nothing_stays_of_bytes_that_are_not_messagepack() {
        let cut = [0x82, 0xa4, b'd', b'a', b't', b'a', 0xa7, b'h'];
        assert_eq!(without_data(&cut), Some(vec![0xc0]));
    }
}
