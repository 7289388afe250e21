//! Between the values of the API and those of CEL.

use std::collections::HashMap;
use std::sync::Arc;

use davit_guest::dynamic;
use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map};

use super::schema::Schema;
use super::times::{parsed, text_of_duration};

/// A value of the API as one of CEL: a text that the schema calls a time is a time.
pub(crate) fn to_cel(value: &dynamic::Value, schema: &Schema) -> Value {
    match value {
        dynamic::Value::Null => Value::Null,
        dynamic::Value::Bool(value) => Value::Bool(*value),
        dynamic::Value::Int(value) => Value::Int(*value),
        dynamic::Value::Float(value) => Value::Float(*value),
        dynamic::Value::Text(text) if schema.is_time() => match parsed(text) {
            Some(time) => Value::Timestamp(time),
            None => Value::String(Arc::new(text.clone())),
        },
        dynamic::Value::Text(text) => Value::String(Arc::new(text.clone())),
        dynamic::Value::List(elements) => {
            let schema = schema.element();
            let elements = elements.iter().map(|it| to_cel(it, &schema)).collect();
            Value::List(Arc::new(elements))
        }
        dynamic::Value::Map(entries) => {
            let entries: HashMap<Key, Value> = entries
                .iter()
                .map(|(name, value)| {
                    let schema = schema.below(name);
                    (Key::from(name.clone()), to_cel(value, &schema))
                })
                .collect();
            Value::Map(Map {
                map: Arc::new(entries),
            })
        }
    }
}

/// A value of CEL as one of the API: none for what the API has no form for.
pub(crate) fn from_cel(value: &Value) -> Option<dynamic::Value> {
    Some(match value {
        Value::Null => dynamic::Value::Null,
        Value::Bool(value) => dynamic::Value::Bool(*value),
        Value::Int(value) => dynamic::Value::Int(*value),
        Value::UInt(value) => dynamic::Value::Int(i64::try_from(*value).ok()?),
        Value::Float(value) => dynamic::Value::Float(*value),
        Value::String(text) => dynamic::Value::Text(text.as_str().to_owned()),
        Value::Timestamp(time) => dynamic::Value::Text(
            time.to_utc()
                .to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
        ),
        Value::Duration(duration) => dynamic::Value::Text(text_of_duration(duration)),
        Value::List(elements) => {
            dynamic::Value::List(elements.iter().map(from_cel).collect::<Option<_>>()?)
        }
        Value::Map(map) => {
            let mut entries: Vec<(String, dynamic::Value)> = Vec::new();
            for (key, value) in map.map.iter() {
                let Key::String(key) = key else { return None };
                entries.push((key.as_str().to_owned(), from_cel(value)?));
            }
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            dynamic::Value::Map(entries)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_keeps_its_fraction() {
        let duration = Value::Duration(chrono::Duration::milliseconds(-1500));
        let text = dynamic::Value::Text("-1.5s".to_owned());
        assert_eq!(from_cel(&duration), Some(text));
    }
}
