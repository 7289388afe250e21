//! Custom objects: their schema, and the numbers of `scale`.

use serde_json::{Value, json};

use super::go::print as go_print;
use crate::object::Object;
use crate::resource::Custom;
use crate::schema::{self, Schema};
use crate::status::FieldError;

/// A new object.
pub(super) fn create(custom: &Custom, object: &Object, errors: &mut Vec<FieldError>) {
    let body = Value::Object(object.body.clone());
    if let Some(schema) = &custom.schema {
        errors.extend(schema::check(schema, "", &body, None));
    }
    scale_spec(custom, object, errors);
    scale_status(custom, object, errors);
    if let Some(schema) = &custom.schema {
        errors.extend(schema::duplicates(schema, &object.body));
        rules(schema, errors);
    }
}

/// A change through the object's own endpoint.
pub(super) fn update(custom: &Custom, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    if let Some(schema) = &custom.schema {
        let (body, before) = (
            Value::Object(new.body.clone()),
            Value::Object(old.body.clone()),
        );
        errors.extend(schema::check(schema, "", &body, Some(&before)));
    }
    scale_spec(custom, new, errors);
    scale_status(custom, new, errors);
    new_duplicates(custom, new, old, errors);
}

/// A change through the status endpoint.
pub(super) fn status_update(
    custom: &Custom,
    new: &Object,
    old: &Object,
    errors: &mut Vec<FieldError>,
) {
    let part = custom
        .schema
        .as_ref()
        .and_then(|schema| schema.root_field("status"));
    if let (Some(schema), Some(status)) = (part, new.body.get("status")) {
        let before = old.body.get("status");
        errors.extend(schema::check(schema, "status", status, before));
    }
    scale_status(custom, new, errors);
    new_duplicates(custom, new, old, errors);
}

/// A duplicate is valid if the old object has it too.
fn new_duplicates(custom: &Custom, new: &Object, old: &Object, errors: &mut Vec<FieldError>) {
    let Some(schema) = &custom.schema else {
        return;
    };
    if schema::duplicates(schema, &old.body).is_empty() {
        errors.extend(schema::duplicates(schema, &new.body));
    }
    rules(schema, errors);
}

/// Rules in CEL are not evaluated, but the server reports where it cannot evaluate
/// them.
fn rules(schema: &Schema, errors: &mut Vec<FieldError>) {
    if schema.has_rules() && errors.iter().any(FieldError::is_blocking) {
        errors.push(FieldError::invalid(
            "<nil>",
            &Value::Null,
            "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation",
        ));
    }
}

fn scale_spec(custom: &Custom, object: &Object, errors: &mut Vec<FieldError>) {
    if let Some(scale) = &custom.scale {
        replicas(&scale.spec_replicas, object, errors);
    }
}

fn scale_status(custom: &Custom, object: &Object, errors: &mut Vec<FieldError>) {
    if let Some(scale) = &custom.scale {
        replicas(&scale.status_replicas, object, errors);
    }
}

fn replicas(path: &str, object: &Object, errors: &mut Vec<FieldError>) {
    let names: Vec<&str> = path.split('.').collect();
    let Some(value) = object.at(&names) else {
        return;
    };
    let field = format!(".{path}");
    match value.as_i64() {
        Some(number) if number < 0 => {
            let why = "should be a non-negative integer";
            errors.push(FieldError::invalid(field, value, why));
        }
        Some(number) if number > i64::from(i32::MAX) => {
            let why = format!("should be less than or equal to {}", i32::MAX);
            errors.push(FieldError::invalid(field, value, why));
        }
        Some(_) => {}
        None => {
            let found = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Number(_) => "float64",
                _ => "map[string]interface {}",
            };
            let shown = go_print(value);
            let why =
                format!(".{path} accessor error: {shown} is of the type {found}, expected int64");
            errors.push(FieldError::invalid(field, &json!(0), why));
        }
    }
}
