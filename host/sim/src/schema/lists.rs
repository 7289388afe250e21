//! Lists whose elements must differ.

use serde_json::{Map, Value};

use super::{ListKind, Schema, join};
use crate::status::FieldError;

/// Elements of sets and of maps in disguise that occur twice.
#[must_use]
pub(crate) fn duplicates(schema: &Schema, body: &Map<String, Value>) -> Vec<FieldError> {
    let mut findings = Vec::new();
    in_fields(schema, "", body, &mut findings);
    findings
}

fn in_fields(
    schema: &Schema,
    path: &str,
    fields: &Map<String, Value>,
    findings: &mut Vec<FieldError>,
) {
    for (name, value) in fields {
        if let Some(part) = schema.named(name) {
            in_value(part, &join(path, name), value, findings);
        } else if let Some(part) = schema.field(name) {
            in_value(part, &format!("{path}[{name}]"), value, findings);
        }
    }
}

fn in_value(schema: &Schema, path: &str, value: &Value, findings: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => in_fields(schema, path, fields, findings),
        Value::Array(items) => {
            twice(schema, path, items, findings);
            if let Some(part) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    in_value(part, &format!("{path}[{at}]"), item, findings);
                }
            }
        }
        _ => {}
    }
}

/// Every value that occurs more than once, at its first repetition.
fn twice(schema: &Schema, path: &str, items: &[Value], findings: &mut Vec<FieldError>) {
    let keys: Vec<Value> = match schema.list_kind() {
        ListKind::Atomic => return,
        ListKind::Set => items.to_vec(),
        ListKind::Map(names) => {
            let key = |item: &Value| {
                let fields = names.iter();
                let found = fields.filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
                Value::Object(found.collect())
            };
            items.iter().map(key).collect()
        }
    };
    for (at, key) in keys.iter().enumerate() {
        let before = keys.iter().take(at).filter(|other| *other == key).count();
        if before == 1 {
            findings.push(FieldError::duplicate(format!("{path}[{at}]"), key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn elements_that_occur_twice() {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                    "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        }}));
        let body =
            json!({"set": ["a", "b", "a", "a"], "map": [{"n": "x", "v": 1}, {"n": "x", "v": 2}]});
        let found: Vec<String> = duplicates(&schema, body.as_object().expect("fields"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "map[1]: Duplicate value: {\"n\":\"x\"}",
                "set[2]: Duplicate value: \"a\"",
            ]
        );
    }
}
