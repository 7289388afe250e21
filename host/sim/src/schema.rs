//! The structural schema of a custom resource: pruning, defaults, and the
//! validation of types and required fields.

use serde_json::{Map, Value, json};

use crate::object::Object;
use crate::resource::Resource;
use crate::status::{FieldError, Status};
use crate::typed::{self, Undecodable};

/// The part of an `openAPIV3Schema` that is enforced.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// As it was declared; only kept at the root.
    json: Value,
    kind: String,
    fields: Vec<(String, Schema)>,
    additional: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    required: Vec<String>,
    choices: Vec<Value>,
    minimum: Option<f64>,
    maximum: Option<f64>,
    default: Option<Value>,
    nullable: bool,
    int_or_string: bool,
    preserves_unknown: bool,
}

impl Schema {
    /// Reads a schema; what it says beyond the enforced part is ignored.
    #[must_use]
    pub fn from_json(schema: &Value) -> Self {
        Schema {
            json: schema.clone(),
            ..Schema::part(schema)
        }
    }

    /// The schema as it was declared.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.json
    }

    fn part(schema: &Value) -> Self {
        let flag = |name: &str| schema.get(name) == Some(&Value::Bool(true));
        let list = |name: &str| {
            schema
                .get(name)
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default()
        };
        let nested = |name: &str| {
            schema
                .get(name)
                .filter(|value| value.is_object())
                .map(|value| Box::new(Schema::part(value)))
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        Schema {
            json: Value::Null,
            kind: schema
                .get("type")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            fields: properties
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.clone(), Schema::part(value)))
                .collect(),
            additional: nested("additionalProperties"),
            items: nested("items"),
            required: list("required")
                .iter()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
            choices: list("enum"),
            minimum: schema.get("minimum").and_then(Value::as_f64),
            maximum: schema.get("maximum").and_then(Value::as_f64),
            default: schema.get("default").cloned(),
            nullable: flag("nullable"),
            int_or_string: flag("x-kubernetes-int-or-string"),
            preserves_unknown: flag("x-kubernetes-preserve-unknown-fields")
                || schema.get("additionalProperties") == Some(&Value::Bool(true)),
        }
    }

    fn field(&self, name: &str) -> Option<&Schema> {
        self.fields
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, schema)| schema)
            .or(self.additional.as_deref())
    }
}

/// Brings a custom object into the form that its schema demands, or says why
/// it cannot be: unknown fields are dropped (refused if `strict`), defaults
/// are filled in, types and required fields are checked.
pub(crate) fn shape(
    schema: &Schema,
    resource: &Resource,
    object: &mut Object,
    strict: bool,
) -> Result<(), Undecodable> {
    let mut unknown = Vec::new();
    prune_fields(schema, "", &mut object.body, &mut unknown);
    if strict && !unknown.is_empty() {
        return Err(Undecodable::text(typed::strict_error(&unknown)));
    }
    fill_defaults(schema, &mut object.body);
    let mut errors = Vec::new();
    check_fields(schema, "", &object.body, &mut errors);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Undecodable::Invalid(Status::invalid(
        &resource.kind,
        &resource.group,
        &object.metadata.name,
        &errors,
    )))
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn prune_fields(
    schema: &Schema,
    path: &str,
    fields: &mut Map<String, Value>,
    unknown: &mut Vec<String>,
) {
    fields.retain(|name, value| {
        let here = join(path, name);
        match schema.field(name) {
            Some(schema) => prune(schema, &here, value, unknown),
            None if schema.preserves_unknown => {}
            None => {
                unknown.push(here);
                return false;
            }
        }
        true
    });
}

fn prune(schema: &Schema, path: &str, value: &mut Value, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => prune_fields(schema, path, fields, unknown),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (at, item) in items.iter_mut().enumerate() {
                    prune(schema, &format!("{path}[{at}]"), item, unknown);
                }
            }
        }
        _ => {}
    }
}

fn fill_defaults(schema: &Schema, fields: &mut Map<String, Value>) {
    for (name, schema) in &schema.fields {
        let unset = match fields.get(name) {
            None => true,
            Some(Value::Null) => !schema.nullable,
            Some(_) => false,
        };
        if let (true, Some(default)) = (unset, &schema.default) {
            fields.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            fill_value(schema, value);
        }
    }
}

fn fill_value(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => fill_defaults(schema, fields),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    fill_value(schema, item);
                }
            }
        }
        _ => {}
    }
}

fn check_fields(
    schema: &Schema,
    path: &str,
    fields: &Map<String, Value>,
    errors: &mut Vec<FieldError>,
) {
    for name in &schema.required {
        // What is not in the body, the API machinery sees to.
        let elsewhere =
            path.is_empty() && ["metadata", "kind", "apiVersion"].contains(&name.as_str());
        if !fields.contains_key(name) && !elsewhere {
            errors.push(FieldError::required(join(path, name), ""));
        }
    }
    for (name, value) in fields {
        if let Some(schema) = schema.field(name) {
            check(schema, &join(path, name), value, errors);
        }
    }
}

fn check(schema: &Schema, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema.nullable {
        return;
    }
    let found = type_name(value);
    if !has_type(schema, value) {
        let wanted = if schema.int_or_string {
            "integer,string"
        } else {
            &schema.kind
        };
        errors.push(FieldError::wrong_type(
            path,
            &json!(found),
            format!("{path} in body must be of type {wanted}: {found:?}"),
        ));
        return;
    }
    if !schema.choices.is_empty() && !schema.choices.contains(value) {
        let known: Vec<String> = schema
            .choices
            .iter()
            .map(|choice| {
                choice
                    .as_str()
                    .map_or_else(|| choice.to_string(), str::to_owned)
            })
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        errors.push(FieldError::not_supported(path, value, &known));
    }
    check_bounds(schema, path, value, errors);
    match value {
        Value::Object(fields) => check_fields(schema, path, fields, errors),
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    check(schema, &format!("{path}[{at}]"), item, errors);
                }
            }
        }
        _ => {}
    }
}

fn check_bounds(schema: &Schema, path: &str, value: &Value, errors: &mut Vec<FieldError>) {
    let Some(number) = value.as_f64() else {
        return;
    };
    if let Some(minimum) = schema.minimum.filter(|minimum| number < *minimum) {
        let why = format!("{path} in body should be greater than or equal to {minimum}");
        errors.push(FieldError::invalid(path, value, why));
    }
    if let Some(maximum) = schema.maximum.filter(|maximum| number > *maximum) {
        let why = format!("{path} in body should be less than or equal to {maximum}");
        errors.push(FieldError::invalid(path, value, why));
    }
}

fn has_type(schema: &Schema, value: &Value) -> bool {
    if schema.int_or_string {
        return value.is_i64() || value.is_u64() || value.is_string();
    }
    match schema.kind.as_str() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        _ => true,
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
