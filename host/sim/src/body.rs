//! Bodies of requests: from bytes of any media type to JSON.

use std::fmt::Write as _;

use bytes::Bytes;
use serde_json::Value;

use crate::status::{Result, Status};
use crate::{patch, protobuf, syntax};

/// What a request carries.
#[derive(Clone, Debug)]
pub enum Body {
    /// JSON that is parsed already.
    Json(Value),
    /// JSON text.
    JsonText(Bytes),
    /// YAML text.
    YamlText(Bytes),
    /// Kubernetes' protobuf, of a built-in kind.
    Protobuf(Bytes),
}

impl Body {
    /// The text, if it is some.
    pub(crate) fn text(&self) -> Option<Bytes> {
        match self {
            Body::JsonText(bytes) | Body::YamlText(bytes) => Some(bytes.clone()),
            Body::Json(_) | Body::Protobuf(_) => None,
        }
    }

    /// Parses the configuration of an apply.
    pub(crate) fn configuration(self) -> Result<Value> {
        let bytes = match self {
            Body::Json(value) => return Ok(value),
            Body::JsonText(bytes) | Body::YamlText(bytes) | Body::Protobuf(bytes) => bytes,
        };
        let bad = |problem: String| Status::bad_request(format!("error decoding YAML: {problem}"));
        let value: Value =
            serde_saphyr::from_slice(&bytes).map_err(|error| bad(error.to_string()))?;
        if !patch::is_shallow(&value) {
            return Err(Status::bad_request("the body is nested too deeply"));
        }
        let found = match value {
            Value::Object(_) => return Ok(value),
            Value::Null => return Ok(Value::Object(serde_json::Map::new())),
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
        };
        Err(bad(format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )))
    }

    /// Parses the text, if it is text. `kind` is what should be in it.
    pub fn parse(self, kind: &str) -> Result<Value> {
        let (parsed, bytes) = match self {
            Body::Json(value) => return Ok(value),
            Body::JsonText(bytes) => {
                let parsed = serde_json::from_slice(&bytes).map_err(|error| {
                    let problem = syntax::error(&bytes, &error);
                    format!("couldn't get version/kind; json parse error: {problem}")
                });
                (parsed, bytes)
            }
            Body::Protobuf(bytes) => (protobuf::decode(&bytes), bytes),
            Body::YamlText(bytes) => {
                let parsed = serde_saphyr::from_slice(&bytes).map_err(|error| error.to_string());
                (parsed, bytes)
            }
        };
        let value: Value = parsed.map_err(|error| unrecognized(kind, &bytes, &error))?;
        if !patch::is_shallow(&value) {
            return Err(Status::bad_request("the body is nested too deeply"));
        }
        if value.is_object() {
            return Ok(value);
        }
        let found = match value {
            Value::Null => return Err(unrecognized(kind, &bytes, "unexpected end of JSON input")),
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) | Value::Object(_) => "array",
        };
        // What Go prints for the struct that it tries to read the type from.
        let problem = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        );
        Err(unrecognized(kind, &bytes, &problem))
    }
}

pub(crate) fn unrecognized(kind: &str, body: &[u8], problem: &str) -> Box<Status> {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {problem} ({})",
        excerpt(body)
    ))
}

/// The start of a body: as text if it looks like JSON, otherwise in hex.
fn excerpt(body: &[u8]) -> String {
    const LIMIT: usize = 30;
    match body {
        [] => "<empty>".to_owned(),
        [b'{', ..] => {
            let text = String::from_utf8_lossy(body.get(..LIMIT).unwrap_or(body)).into_owned();
            if body.len() > LIMIT {
                text + " ..."
            } else {
                text
            }
        }
        _ => {
            let mut hex = String::new();
            for byte in body.iter().take(LIMIT / 2) {
                // Writing to a String cannot fail.
                let _ = write!(hex, "{byte:02x}");
            }
            if body.len() > LIMIT / 2 {
                hex + " ..."
            } else {
                hex
            }
        }
    }
}
