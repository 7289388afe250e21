//! The types of the built-in kinds: JSON is decoded like in Go. Unknown fields are
//! dropped; a value of a wrong type is an error.

use serde_json::Value;

use crate::go_time;
use crate::protobuf::{self, Shape, Slot};

/// What decoding found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Findings {
    /// The paths of fields that no type has; they are dropped.
    pub(crate) unknown: Vec<String>,
    /// The first value of a wrong type.
    pub(crate) error: Option<WrongType>,
}

/// A value of a wrong type, in Go's words.
#[derive(Debug, PartialEq)]
pub(crate) struct WrongType {
    /// As the decoder of JSON has it.
    pub(crate) json: String,
    /// As the converter of strategic merge patches has it.
    pub(crate) conversion: String,
}

impl WrongType {
    /// A message that all decoders share.
    pub(crate) fn text(problem: String) -> Self {
        WrongType {
            conversion: problem.clone(),
            json: problem,
        }
    }
}

/// Decodes `value` as an object of that type. Kinds that are not known are
/// left as they are.
pub(crate) fn decode(api_version: &str, kind: &str, value: &mut Value) -> Findings {
    let mut decoder = Decoder::default();
    let message = protobuf::message_name(api_version, kind);
    if protobuf::is_message(&message) {
        decoder.fields(&message, value);
    }
    decoder.findings
}

/// The text of a strict decoding that found unknown fields.
pub(crate) fn strict_error(unknown: &[String]) -> String {
    let list: Vec<String> = unknown
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect();
    format!("strict decoding error: {}", list.join(", "))
}

#[derive(Default)]
struct Decoder {
    findings: Findings,
    /// Where it is: field names, and positions in lists (`[0]`), which Go's
    /// type errors leave out.
    path: Vec<String>,
}

impl Decoder {
    fn fields(&mut self, message: &str, value: &mut Value) {
        let Value::Object(fields) = value else {
            return;
        };
        let root = self.path.is_empty();
        fields.retain(|name, value| {
            if root && (name == "kind" || name == "apiVersion") {
                return true;
            }
            self.path.push(name.clone());
            let slot = protobuf::json_field(message, name);
            match slot {
                Some(slot) => self.field(message, slot, value),
                None => self.findings.unknown.push(self.strict_path()),
            }
            self.path.pop();
            slot.is_some()
        });
    }

    fn field(&mut self, message: &str, slot: &Slot, value: &mut Value) {
        match (&slot.shape, value) {
            (_, Value::Null) => {}
            (Shape::Single, value) => self.single(message, slot.kind, value),
            (Shape::Repeated, Value::Array(items)) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.path.push(format!("[{at}]"));
                    self.single(message, slot.kind, item);
                    self.path.pop();
                }
            }
            (Shape::Map, Value::Object(entries)) => {
                for (key, entry) in entries {
                    // Go does not count a map's keys as fields.
                    self.path.push(format!("[{key}]"));
                    self.single(message, slot.kind, entry);
                    self.path.pop();
                }
            }
            (Shape::Repeated, value) => {
                self.mismatch(message, value, &format!("[]{}", go_type(slot.kind)));
            }
            (Shape::Map, value) => {
                self.mismatch(
                    message,
                    value,
                    &format!("map[string]{}", go_type(slot.kind)),
                );
            }
        }
    }

    fn single(&mut self, message: &str, kind: &str, value: &mut Value) {
        let fits = match kind {
            _ if value.is_null() => true,
            "string" | "bytes" => value.is_string(),
            "bool" => value.is_boolean(),
            "int32" => is_integer(value, i64::from(i32::MIN)..=i64::from(i32::MAX)),
            "int64" => is_integer(value, i64::MIN..=i64::MAX),
            "double" => value.is_number(),
            "texts" => value
                .as_array()
                .is_some_and(|texts| texts.iter().all(Value::is_string)),
            "intorstring" => {
                value.is_string() || is_integer(value, i64::from(i32::MIN)..=i64::from(i32::MAX))
            }
            "time" | "microtime" => return self.time(value, kind == "microtime"),
            "quantity" | "raw" => true,
            _ if value.is_object() => {
                if protobuf::is_message(kind) {
                    self.fields(kind, value);
                }
                true
            }
            _ => false,
        };
        if !fits {
            self.mismatch(message, value, &go_type(kind));
        }
    }

    fn time(&mut self, value: &Value, micro: bool) {
        let problem = match value {
            Value::String(text) => match go_time::error(text, micro) {
                Some(problem) => problem,
                None => return,
            },
            other => format!(
                "json: cannot unmarshal {} into Go value of type string",
                go_value(other)
            ),
        };
        self.note(problem.clone(), problem);
    }

    fn mismatch(&mut self, message: &str, value: &Value, wanted: &str) {
        let owner = message.rsplit('.').next().unwrap_or_default();
        let path: Vec<&str> = self
            .path
            .iter()
            .filter(|part| !part.starts_with('['))
            .map(String::as_str)
            .collect();
        let mut found = go_value(value).to_owned();
        if let (Value::Number(number), true) = (value, wanted.starts_with("int")) {
            found = format!("number {number}");
        }
        let json = format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{} of type {wanted}",
            path.join(".")
        );
        self.note(json, conversion_error(value, wanted));
    }

    fn note(&mut self, json: String, conversion: String) {
        let error = WrongType { json, conversion };
        self.findings.error.get_or_insert(error);
    }

    /// The path with the positions in lists.
    fn strict_path(&self) -> String {
        let mut text = String::new();
        for part in &self.path {
            if !part.starts_with('[') && !text.is_empty() {
                text.push('.');
            }
            text.push_str(part);
        }
        text
    }
}

fn is_integer(value: &Value, range: std::ops::RangeInclusive<i64>) -> bool {
    value.as_i64().is_some_and(|number| range.contains(&number))
}

fn conversion_error(value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
        other => go_value(other),
    };
    if wanted.starts_with("[]") {
        format!("cannot restore slice from {found}")
    } else if wanted.starts_with("map[") {
        format!("cannot restore map from {found}")
    } else if wanted.contains('.') {
        format!("cannot restore struct from: {found}")
    } else {
        format!("cannot convert {found} to {wanted}")
    }
}

/// What Go calls a type of the table.
fn go_type(kind: &str) -> String {
    match kind {
        "bytes" => "[]uint8".to_owned(),
        "texts" => "[]string".to_owned(),
        "double" => "float64".to_owned(),
        "intorstring" => "intstr.IntOrString".to_owned(),
        "quantity" => "resource.Quantity".to_owned(),
        message => match message.split_once('.') {
            // `core.v1.PodSpec` is in the package v1.
            Some((_, rest)) => rest.to_owned(),
            None => message.to_owned(),
        },
    }
}

/// What Go calls the type of a JSON value.
fn go_value(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(api_version: &str, kind: &str, mut value: Value) -> String {
        let findings = decode(api_version, kind, &mut value);
        findings.error.expect("an error").json
    }

    #[test]
    fn unknown_fields_are_dropped_and_named() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"any": "x"}, "x": 1},
            "spec": {
                "containers": [{"name": "c", "imagePull": "Always"}],
                "volumes": [{"name": "v", "configMap": {"name": "m"}}], "node": "n",
            },
        });
        let findings = decode("v1", "Pod", &mut pod);
        assert_eq!(findings.error, None);
        assert_eq!(
            strict_error(&findings.unknown),
            "strict decoding error: unknown field \"metadata.x\", unknown field \"spec.containers[0].imagePull\", unknown field \"spec.node\""
        );
        assert_eq!(
            pod["metadata"],
            json!({"name": "p", "labels": {"any": "x"}})
        );
        assert_eq!(pod["spec"]["volumes"][0]["configMap"]["name"], "m");
        assert_eq!(pod["spec"]["containers"], json!([{"name": "c"}]));
    }

    #[test]
    fn wrong_types_have_gos_messages() {
        assert_eq!(
            error("apps/v1", "Deployment", json!({"spec": {"replicas": "3"}})),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        let env = json!({"spec": {"containers": [{"env": [{"name": "A", "value": 1}]}]}});
        assert_eq!(
            error("v1", "Pod", env),
            "json: cannot unmarshal number into Go struct field EnvVar.spec.containers.env.value of type string"
        );
        assert_eq!(
            error("v1", "ConfigMap", json!({"data": {"a": true}})),
            "json: cannot unmarshal bool into Go struct field ConfigMap.data of type string"
        );
        assert_eq!(
            error("v1", "Pod", json!({"spec": {"containers": {}}})),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"
        );
        assert_eq!(
            error("v1", "Node", json!({"metadata": {"generation": 1.5}})),
            "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64"
        );
        assert_eq!(
            error(
                "v1",
                "Pod",
                json!({"metadata": {"deletionTimestamp": "soon"}})
            ),
            "parsing time \"soon\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"soon\" as \"2006\""
        );
    }

    #[test]
    fn null_fits_everywhere_and_other_kinds_are_left_alone() {
        let mut pod = json!({"spec": {"containers": null, "nodeName": null}, "status": null});
        assert_eq!(decode("v1", "Pod", &mut pod), Findings::default());
        let mut other = json!({"spec": {"anything": 1}});
        assert_eq!(
            decode("e.com/v1", "Widget", &mut other),
            Findings::default()
        );
        assert_eq!(other["spec"]["anything"], 1);
    }
}
