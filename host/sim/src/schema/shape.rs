//! Pruning and defaulting of custom objects.

use serde_json::Value;

use super::{AdditionalProperties, Fields, Schema, is_machinery, join};

/// Drops unknown fields and `null`s that are not allowed, and fills in defaults. `body`
/// is an object without its metadata. Returns the paths of the unknown fields, sorted.
pub(crate) fn shape(schema: &Schema, body: &mut Fields) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_fields(Some(schema), true, "", body, &mut unknown);
    unknown.sort();
    drop_nulls(Some(schema), body);
    fill_fields(schema, body);
    unknown
}

fn prune(schema: Option<&Schema>, path: &str, value: &mut Value, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let embedded = schema.is_some_and(|schema| schema.embedded);
            prune_fields(schema, embedded, path, fields, unknown);
        }
        Value::Array(items) => {
            let preserves = schema.is_some_and(|schema| schema.preserves_unknown);
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for (at, item) in items.iter_mut().enumerate() {
                if !preserves || schema.is_some() {
                    prune(schema, &format!("{path}[{at}]"), item, unknown);
                }
            }
        }
        _ => {}
    }
}

fn prune_fields(
    schema: Option<&Schema>,
    has_machinery: bool,
    path: &str,
    fields: &mut Fields,
    unknown: &mut Vec<String>,
) {
    fields.retain(|name, value| {
        if has_machinery && is_machinery(name) {
            return true;
        }
        let here = join(path, name);
        let Some(schema) = schema else {
            unknown.push(here);
            return false;
        };
        if let Some(field) = schema.named(name) {
            prune(Some(field), &here, value, unknown);
            return true;
        }
        match &schema.additional {
            AdditionalProperties::Like(field) => prune(Some(field), &here, value, unknown),
            AdditionalProperties::Allowed(true) if !schema.preserves_unknown => {
                prune(None, &here, value, unknown);
            }
            _ if schema.preserves_unknown => {}
            _ => {
                unknown.push(here);
                return false;
            }
        }
        true
    });
}

/// Drops a `null` that is not allowed, unless a default replaces it.
fn drop_nulls(schema: Option<&Schema>, fields: &mut Fields) {
    fields.retain(|name, value| {
        let schema = schema.and_then(|schema| schema.field(name));
        let kept = schema.is_none_or(|schema| schema.nullable || schema.default.is_some());
        if value.is_null() {
            return kept;
        }
        drop_nulls_below(schema, value);
        true
    });
}

fn drop_nulls_below(schema: Option<&Schema>, value: &mut Value) {
    match value {
        Value::Object(fields) => drop_nulls(schema, fields),
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                drop_nulls_below(schema, item);
            }
        }
        _ => {}
    }
}

fn fill_fields(schema: &Schema, fields: &mut Fields) {
    for (name, schema) in &schema.fields {
        let Some(default) = &schema.default else {
            continue;
        };
        let unset = match fields.get(name) {
            None => true,
            Some(Value::Null) => !schema.nullable,
            Some(_) => false,
        };
        if unset {
            fields.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            fill(schema, value);
        }
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    if let (true, false, Some(default)) = (value.is_null(), schema.nullable, &schema.default) {
        *value = default.clone();
    }
    match value {
        Value::Object(fields) => fill_fields(schema, fields),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    fill(schema, item);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shaped(schema: &Value, mut body: Value) -> (Value, Vec<String>) {
        let schema = Schema::from_json(schema);
        let unknown = shape(&schema, body.as_object_mut().expect("an object"));
        (body, unknown)
    }

    #[test]
    fn unknown_fields_are_dropped_unless_preserved() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a": {"type": "integer"}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"b": {"type": "object"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "string"}}}},
        }});
        let (body, unknown) = shaped(
            &schema,
            json!({
                "spec": {"a": 1, "x": 1}, "free": {"any": {"thing": 1}, "b": {"c": 1}},
                "labels": {"k": "v"}, "list": [{"n": "a", "m": "b"}], "other": 1,
            }),
        );
        assert_eq!(unknown, ["free.b.c", "list[0].m", "other", "spec.x"]);
        assert_eq!(
            body,
            json!({
                "spec": {"a": 1}, "free": {"any": {"thing": 1}, "b": {}},
                "labels": {"k": "v"}, "list": [{"n": "a"}],
            })
        );
    }

    #[test]
    fn defaults_replace_absent_fields_and_forbidden_nulls() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "a": {"type": "integer", "default": 3},
                "b": {"type": "string", "nullable": true, "default": "x"},
                "c": {"type": "string"},
            }},
        }});
        assert_eq!(
            shaped(&schema, json!({})).0,
            json!({"spec": {"a": 3, "b": "x"}})
        );
        let nulls = json!({"spec": {"a": null, "b": null, "c": null}});
        assert_eq!(
            shaped(&schema, nulls).0,
            json!({"spec": {"a": 3, "b": null}})
        );
    }
}
