//! The bodies of writes.

use std::fmt::Write as _;

use crate::failure::chain;
use crate::msgpack::{JsonError, check_json};
use crate::mutant::Mutant;
use crate::object::ObjectRef;
use crate::plan::{Apply, Create, DeleteOptions, Patch, PatchKind};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Why a guest's value cannot become a body.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("its body cannot be sent as JSON: {0}")]
    JsonError(#[from] JsonError),
    #[error("its body cannot be written as JSON: {0}")]
    Json(String),
    #[error("its body is {found} where {wanted} is needed")]
    Shape {
        found: &'static str,
        wanted: &'static str,
    },
    #[error("its body names the uid {found}, which is not the target's")]
    OtherUid { found: Value },
}

/// Whether the body of a patch names a resource version. Zero and texts that are not numbers stand
/// for any version.
pub(super) fn names_version(body: &[u8]) -> bool {
    let body = decode(body).unwrap_or_default();
    let version = body.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str).map(str::parse::<u64>);
    matches!(version, Some(Ok(1..)))
}

/// The JSON of a patch, with the target's uid and, if given, `version` as
/// preconditions.
pub(super) fn patch(patch: &Patch, uid: &str, version: &str) -> Result<Vec<u8>, BodyError> {
    let mut body = decode(&patch.body)?;
    if Mutant::PatchByName.is_active() {
        // Some guests add the uid themselves.
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.remove("uid");
        }
        return encode(body);
    }
    match patch.kind {
        PatchKind::StrategicMerge | PatchKind::Merge => require_uid(&mut body, uid, version)?,
        PatchKind::Json => {
            let Value::Array(operations) = &mut body else {
                return Err(shape(&body, "a list of operations"));
            };
            let test = json!({"op": "test", "path": "/metadata/uid", "value": uid});
            operations.insert(0, test);
        }
    }
    encode(body)
}

/// Whether a JSON patch has a test of its own. One that fails is no mistake of the guest: the
/// object has changed since it was read.
pub(super) fn has_test(body: &[u8]) -> bool {
    let body = decode(body).unwrap_or_default();
    let mut operations = body.as_array().into_iter().flatten();
    operations.any(|operation| operation.get("op").and_then(Value::as_str) == Some("test"))
}

/// The JSON of a configuration to apply, with the uid of its object or that which was found, and
/// `version`, as preconditions if they are not empty.
pub(super) fn apply(apply: &Apply, found: &str, version: &str) -> Result<Vec<u8>, BodyError> {
    let mut body = decode(&apply.body)?;
    let named = &apply.object.uid;
    let uid = if named.is_empty() { found } else { named };
    if Mutant::PatchByName.is_active() {
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.remove("uid");
        }
    } else if !uid.is_empty() {
        require_uid(&mut body, uid, version)?;
    }
    Ok(as_yaml(encode(body)?))
}

/// JSON that is the same value to the API server, which reads a configuration to apply as YAML
/// 1.1: there, some characters are breaks of lines within a text, and others are refused.
fn as_yaml(json: Vec<u8>) -> Vec<u8> {
    let is_other = |c: char| {
        matches!(
            c,
            '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
        )
    };
    let text = match str::from_utf8(&json) {
        Ok(text) if text.contains(is_other) => text,
        _ => return json,
    };
    let mut yaml = String::with_capacity(text.len());
    for c in text.chars() {
        if is_other(c) {
            // JSON has them in texts only.
            let _ = write!(yaml, "\\u{:04x}", u32::from(c));
        } else {
            yaml.push(c);
        }
    }
    yaml.into_bytes()
}

/// The JSON of an object to create.
pub(super) fn create(create: &Create) -> Result<Vec<u8>, BodyError> {
    let body = decode(&create.body)?;
    if !body.is_object() {
        return Err(shape(&body, "an object"));
    }
    encode(body)
}

/// Kubernetes' `DeleteOptions`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DeleteBody<'a> {
    api_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    grace_period_seconds: Option<i64>,
    kind: &'static str,
    preconditions: Preconditions<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    propagation_policy: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Preconditions<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    resource_version: &'a str,
    #[serde(skip_serializing_if = "is_left_out")]
    uid: &'a str,
}

fn is_left_out(_: &str) -> bool {
    Mutant::DeleteByName.is_active()
}

pub(super) fn delete_options<'a>(
    options: &DeleteOptions,
    uid: &'a str,
    version: &'a str,
) -> DeleteBody<'a> {
    DeleteBody {
        api_version: "v1",
        grace_period_seconds: options.grace_period_seconds,
        kind: "DeleteOptions",
        preconditions: Preconditions {
            resource_version: version,
            uid,
        },
        propagation_policy: options
            .propagation_policy
            .map(crate::plan::PropagationPolicy::as_str),
    }
}

/// Kubernetes' `Eviction`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EvictionBody<'a> {
    api_version: &'static str,
    delete_options: DeleteBody<'a>,
    kind: &'static str,
    metadata: EvictionMeta<'a>,
}

#[derive(Serialize)]
struct EvictionMeta<'a> {
    name: &'a str,
    namespace: &'a str,
}

pub(super) fn eviction<'a>(pod: &'a ObjectRef, delete_options: DeleteBody<'a>) -> EvictionBody<'a> {
    EvictionBody {
        api_version: "policy/v1",
        delete_options,
        kind: "Eviction",
        metadata: EvictionMeta {
            name: &pod.name,
            namespace: &pod.namespace,
        },
    }
}

fn require_uid(body: &mut Value, uid: &str, version: &str) -> Result<(), BodyError> {
    let Value::Object(fields) = body else {
        return Err(shape(body, "a map"));
    };
    let metadata = fields
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else {
        return Err(shape(metadata, "metadata as a map"));
    };
    let found = metadata.entry("uid").or_insert_with(|| uid.into());
    if found != uid {
        let found = found.clone();
        return Err(BodyError::OtherUid { found });
    }
    if !version.is_empty() {
        metadata.insert("resourceVersion".to_owned(), version.into());
    }
    Ok(())
}

fn decode(messagepack: &[u8]) -> Result<Value, BodyError> {
    check_json(messagepack)?;
    rmp_serde::from_slice(messagepack).map_err(|error| BodyError::Json(chain(&error)))
}

/// Sorted keys make equal bodies equal bytes, whatever the guest's order and the
/// features of `serde_json` that other crates enable.
fn encode(mut body: Value) -> Result<Vec<u8>, BodyError> {
    body.sort_all_objects();
    match serde_json::to_vec(&body) {
        Ok(json) => Ok(json),
        Err(error) => Err(BodyError::Json(chain(&error))),
    }
}

fn shape(found: &Value, wanted: &'static str) -> BodyError {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    };
    BodyError::Shape { found, wanted }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters that go-yaml v2 takes for something else, from its reader and scanner.
    #[test]
    fn yaml_has_the_texts_of_the_json() {
        let text = "a\u{7f}b\u{85} \u{2028} \u{2029}\u{feff}\u{ffff}ü€😀\n\"";
        let yaml = as_yaml(encode(json!({"text": text})).unwrap());
        let yaml = String::from_utf8(yaml).unwrap();
        let escaped = r#"{"text":"a\u007fb\u0085 \u2028 \u2029\ufeff\uffffü€😀\n\""}"#;
        assert_eq!(yaml, escaped);
        assert_eq!(serde_json::from_str::<Value>(&yaml).unwrap()["text"], text);
    }
}
