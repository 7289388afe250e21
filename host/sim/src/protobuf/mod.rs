//! Reading protobuf: Go clients send built-in kinds in it (kubectl where it
//! creates by flags, controllers always). Answers are JSON, which they accept.

mod reader;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use crate::time::Time;
use reader::{Field, Reader};

/// The media type.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every object.
const MAGIC: &[u8] = b"k8s\0";

/// How deep messages may nest.
const MAX_DEPTH: usize = 64;

/// Fields whose content belongs to the object around them in JSON.
const INLINED: [&str; 5] = [
    "volumeSource",
    "persistentVolumeSource",
    "ephemeralContainerCommon",
    "handler",
    "localObjectReference",
];

/// A field of a message.
#[derive(Debug)]
pub(crate) struct Slot {
    name: &'static str,
    /// A plain type (`string`, `time`) or the name of a message.
    pub(crate) kind: &'static str,
    pub(crate) shape: Shape,
    pub(crate) zero: Zero,
}

/// What JSON does with a field that is zero or was never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    /// It leaves it out if it was never set; a zero means something.
    Meant,
    /// It leaves it out.
    Exclusion,
    /// It writes it.
    Written,
}

/// How often a field occurs.
#[derive(Debug, PartialEq)]
pub(crate) enum Shape {
    Single,
    Repeated,
    /// By text keys.
    Map,
}

type Message = HashMap<u64, Slot>;

static MESSAGES: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = include_str!("fields.txt").lines();
    lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(message)
        .collect()
});

fn message(line: &'static str) -> Option<(&'static str, Message)> {
    let mut parts = line.split(' ');
    let name = parts.next()?;
    Some((name, parts.filter_map(slot).collect()))
}

fn slot(text: &'static str) -> Option<(u64, Slot)> {
    let mut parts = text.split(':');
    let number = parts.next()?.parse().ok()?;
    let (name, kind) = (parts.next()?, parts.next()?);
    let zero = match parts.next() {
        None => Zero::Meant,
        Some("o") => Zero::Exclusion,
        Some(_) => Zero::Written,
    };
    let (shape, kind) = match kind.split_at_checked(1)? {
        ("*", kind) => (Shape::Repeated, kind),
        ("%", kind) => (Shape::Map, kind),
        _ => (Shape::Single, kind),
    };
    let slot = Slot {
        name,
        kind,
        shape,
        zero,
    };
    Some((number, slot))
}

/// Whether the fields of that message are known.
pub(crate) fn is_message(name: &str) -> bool {
    MESSAGES.get(name).is_some_and(|fields| !fields.is_empty())
}

/// Whether objects are of that kind.
pub(crate) fn is_kind(api_version: &str, kind: &str) -> bool {
    let message = message_name(api_version, kind);
    let bodies = ["core.v1.Binding", "policy.v1.Eviction"];
    json_field(&message, "metadata").is_some() || bodies.contains(&message.as_str())
}

/// The field that JSON calls `name`, of a message or of one that JSON writes
/// into it.
pub(crate) fn json_field(message: &str, name: &str) -> Option<&'static Slot> {
    let fields = MESSAGES.get(message)?;
    fields.values().find_map(|slot| {
        if slot.is_inlined() {
            // Some are also written under their own name elsewhere.
            return json_field(slot.kind, name);
        }
        (slot.name == name).then_some(slot)
    })
}

/// The fields of a message, in no order; those that JSON writes into the surrounding
/// object come as one.
pub(crate) fn slots(message: &str) -> impl Iterator<Item = &'static Slot> {
    MESSAGES.get(message).into_iter().flat_map(HashMap::values)
}

impl Slot {
    /// The field's name.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether JSON writes its content into the object around it.
    pub(crate) fn is_inlined(&self) -> bool {
        self.shape == Shape::Single && INLINED.contains(&self.name) && is_message(self.kind)
    }
}

/// The JSON of the object that `bytes` hold.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, String> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or_else(|| {
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
            .to_owned()
    })?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader::new(envelope) {
        match field? {
            (1, Field::Bytes(type_meta)) => {
                for field in Reader::new(type_meta) {
                    match field? {
                        (1, Field::Bytes(text)) => api_version = utf8(text)?,
                        (2, Field::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = message_name(&api_version, &kind);
    if !MESSAGES.contains_key(name.as_str()) {
        return Err(format!(
            "no kind {kind:?} is registered for version {api_version:?}"
        ));
    }
    let mut object = fields(&name, raw, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// The message of a kind: `core.v1.Pod` for `v1` `Pod`.
pub(crate) fn message_name(api_version: &str, kind: &str) -> String {
    if kind == "DeleteOptions" {
        return "meta.v1.DeleteOptions".to_owned();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = match group {
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or_default(),
    };
    format!("{package}.{version}.{kind}")
}

fn fields(name: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, String> {
    if depth > MAX_DEPTH {
        return Err("the message is nested too deeply".to_owned());
    }
    let mut object = Map::new();
    let Some(message) = MESSAGES.get(name) else {
        return Ok(object);
    };
    for field in Reader::new(bytes) {
        let (number, field) = field?;
        let Some(slot) = message.get(&number) else {
            continue;
        };
        if field == Field::Number(0) && slot.zero == Zero::Exclusion {
            continue;
        }
        match slot.shape {
            Shape::Single => {
                if let Some(value) = value(slot.kind, field, depth)? {
                    insert(&mut object, slot.name, value);
                }
            }
            Shape::Repeated => {
                let list = object.entry(slot.name).or_insert_with(|| json!([]));
                if let Value::Array(list) = list {
                    list.push(value(slot.kind, field, depth)?.unwrap_or_else(|| json!("")));
                }
            }
            Shape::Map => {
                let (key, value) = map_entry(slot.kind, field, depth)?;
                let map = object.entry(slot.name).or_insert_with(|| json!({}));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(object)
}

fn insert(object: &mut Map<String, Value>, name: &str, value: Value) {
    match value {
        Value::Object(inner) if INLINED.contains(&name) => object.extend(inner),
        value => {
            object.insert(name.to_owned(), value);
        }
    }
}

fn map_entry(kind: &str, field: Field<'_>, depth: usize) -> Result<(String, Value), String> {
    let Field::Bytes(bytes) = field else {
        return Err("a map entry is no message".to_owned());
    };
    let (mut key, mut found) = (String::new(), json!(""));
    for field in Reader::new(bytes) {
        match field? {
            (1, Field::Bytes(text)) => key = utf8(text)?,
            (2, field) => found = value(kind, field, depth)?.unwrap_or_else(|| json!("")),
            _ => {}
        }
    }
    Ok((key, found))
}

/// A value; none if JSON omits it. Go writes empty text and unset times for fields that
/// were never set.
fn value(kind: &str, field: Field<'_>, depth: usize) -> Result<Option<Value>, String> {
    let value = match (kind, field) {
        ("string", Field::Bytes(text)) => {
            let text = utf8(text)?;
            return Ok((!text.is_empty()).then(|| text.into()));
        }
        ("bytes", Field::Bytes(bytes)) => BASE64_STANDARD.encode(bytes).into(),
        ("raw", Field::Bytes(bytes)) => return raw(bytes),
        ("quantity", Field::Bytes(bytes)) => return first_text(bytes),
        ("time", Field::Bytes(bytes)) => return time(bytes, false),
        ("microtime", Field::Bytes(bytes)) => return time(bytes, true),
        ("intorstring", Field::Bytes(bytes)) => int_or_string(bytes)?,
        ("texts", Field::Bytes(bytes)) => texts(bytes)?,
        ("bool", Field::Number(number)) => (number != 0).into(),
        // Negative numbers have 64 bits, whatever the type.
        ("int32" | "int64", Field::Number(number)) => number.cast_signed().into(),
        ("double", Field::Number(bits)) => f64::from_bits(bits).into(),
        (name, Field::Bytes(bytes)) => Value::Object(fields(name, bytes, depth + 1)?),
        (kind, Field::Number(_)) => return Err(format!("a number where {kind} belongs")),
    };
    Ok(Some(value))
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())
}

/// JSON that is carried as bytes in field 1.
fn raw(bytes: &[u8]) -> Result<Option<Value>, String> {
    for field in Reader::new(bytes) {
        if let (1, Field::Bytes(json)) = field? {
            return serde_json::from_slice(json)
                .map(Some)
                .map_err(|error| error.to_string());
        }
    }
    Ok(None)
}

fn first_text(bytes: &[u8]) -> Result<Option<Value>, String> {
    for field in Reader::new(bytes) {
        if let (1, Field::Bytes(text)) = field? {
            return utf8(text).map(|text| Some(text.into()));
        }
    }
    Ok(None)
}

fn time(bytes: &[u8], micro: bool) -> Result<Option<Value>, String> {
    let (mut seconds, mut nanos, mut set) = (0, 0, false);
    for field in Reader::new(bytes) {
        match field? {
            (1, Field::Number(number)) => (seconds, set) = (number.cast_signed(), true),
            (2, Field::Number(number)) => nanos = number,
            _ => {}
        }
    }
    if !set {
        return Ok(None);
    }
    let text = Time::from_unix(seconds).to_string();
    Ok(Some(if micro {
        let fraction = format!(".{:06}Z", nanos / 1000 % 1_000_000);
        text.replace('Z', &fraction).into()
    } else {
        text.into()
    }))
}

/// A list of texts, which is a separate message as the value of a map.
fn texts(bytes: &[u8]) -> Result<Value, String> {
    let mut texts = Vec::new();
    for field in Reader::new(bytes) {
        if let (1, Field::Bytes(text)) = field? {
            texts.push(utf8(text)?.into());
        }
    }
    Ok(Value::Array(texts))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in Reader::new(bytes) {
        match field? {
            (1, Field::Number(kind)) => is_text = kind == 1,
            (2, Field::Number(value)) => number = value.cast_signed(),
            (3, Field::Bytes(value)) => text = utf8(value)?,
            _ => {}
        }
    }
    Ok(if is_text { text.into() } else { number.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length-delimited field of a short message.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let length = u8::try_from(bytes.len()).expect("short");
        let tag = match number {
            0..16 => vec![number << 3 | 2],
            _ => vec![(number << 3 | 2) | 0x80, number >> 4],
        };
        [tag.as_slice(), &[length], bytes].concat()
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let kinds = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC, &field(1, &kinds), &field(2, raw)].concat()
    }

    #[test]
    fn a_pod_encoded_by_go_is_decoded() {
        let labels = field(11, &[field(1, b"app"), field(2, b"x")].concat());
        let metadata = field(1, &[field(1, b"p"), field(3, b""), labels].concat());
        let port = field(6, &[0x18, 0x50]);
        let source = field(2, &field(19, &field(1, &field(1, b"map"))));
        let volume = field(1, &[field(1, b"v"), source].concat());
        let spec = field(
            2,
            &[
                volume,
                field(2, &[field(1, b"c"), port].concat()),
                vec![0x20, 0],
            ]
            .concat(),
        );
        let decoded = decode(&envelope("v1", "Pod", &[metadata, spec].concat())).expect("decodes");
        assert_eq!(
            decoded,
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"app": "x"}},
                "spec": {
                    "volumes": [{"name": "v", "configMap": {"name": "map"}}],
                    "containers": [{"name": "c", "ports": [{"containerPort": 80}]}],
                    "terminationGracePeriodSeconds": 0,
                },
            })
        );
    }

    #[test]
    fn every_field_has_a_known_type() {
        let plain = [
            "string",
            "bytes",
            "raw",
            "quantity",
            "time",
            "microtime",
            "intorstring",
            "texts",
            "bool",
            "int32",
            "int64",
            "double",
        ];
        for (name, message) in &*MESSAGES {
            for slot in message.values() {
                let known = plain.contains(&slot.kind) || MESSAGES.contains_key(slot.kind);
                assert!(known, "{name}.{}: {}", slot.name, slot.kind);
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(decode(b"{}").is_err());
        assert!(decode(&envelope("v1", "Nothing", b"")).is_err());
        assert!(decode(&envelope("v1", "Pod", &[0x0a, 0x7f])).is_err());
        let mut deep = Vec::new();
        for _ in 0..20 {
            deep = field(1, &deep);
        }
        assert!(decode(&envelope("v1", "Pod", &deep)).is_ok());
    }
}
