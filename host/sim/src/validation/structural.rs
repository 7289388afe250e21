//! Whether a schema is structural: every field has a type outside of the
//! logical operators, and nothing restricts what the API machinery owns.

use regex::Regex;
use serde_json::{Value, json};

use super::at::FieldLocation;
use crate::status::FieldError;

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

const JUNCTORS: [&str; 3] = ["anyOf", "allOf", "oneOf"];

/// A schema of a version of a definition.
pub(super) fn schema(schema: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    if schema.child("nullable").is_true() {
        errors.push(
            schema
                .child("nullable")
                .forbidden("nullable cannot be true at the root"),
        );
    }
    let mut findings = Vec::new();
    invariants(schema, Level::Root, &mut findings);
    findings.sort_by_key(FieldError::to_string);
    errors.append(&mut findings);
    standard(schema, errors);
}

fn invariants(schema: &FieldLocation<'_>, level: Level, errors: &mut Vec<FieldError>) {
    let child = |name: &str| schema.child(name);
    let flag = |name: &str| child(name).is_true();
    let kind = child("type");
    let items = child("items");
    if kind.text() == "array" && !items.is_set() {
        errors.push(items.required("must be specified"));
    }
    if items.is_set() {
        invariants(&items, Level::Item, errors);
    }
    let properties = child("properties");
    for (_, property) in properties.entries() {
        invariants(&property, Level::Field, errors);
    }
    let additional = child("additionalProperties");
    if additional.is_set() && additional.value != &Value::Bool(false) && level == Level::Root {
        errors.push(additional.forbidden("must not be used at the root"));
    }
    if additional.value.is_object() {
        invariants(&additional, Level::Field, errors);
    }
    extensions(schema, errors);
    nested_validation(schema, is_int_or_string(schema), errors);
    let (embedded, preserves) = (
        flag("x-kubernetes-embedded-resource"),
        flag("x-kubernetes-preserve-unknown-fields"),
    );
    if embedded && kind.text() != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            kind.required(why)
        } else {
            kind.invalid(why)
        });
    } else if kind.is_empty() && !flag("x-kubernetes-int-or-string") && !preserves {
        errors.push(kind.required(match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        }));
    }
    if level == Level::Root && !kind.is_empty() && kind.text() != "object" {
        errors.push(kind.invalid("must be object at the root"));
    }
    if level == Level::Root || embedded {
        own_fields(&properties, level, errors);
    }
    if embedded && !preserves && properties.is_empty() {
        errors.push(properties.required(
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields",
        ));
    }
}

/// `kind`, `apiVersion` and `metadata` belong to the API machinery.
fn own_fields(properties: &FieldLocation<'_>, level: Level, errors: &mut Vec<FieldError>) {
    for name in ["kind", "apiVersion"] {
        let field = properties.key(name);
        if field.is_set() && field.child("type").text() != "string" {
            errors.push(field.child("type").invalid_text("must be string"));
        }
    }
    let metadata = properties.key("metadata");
    if !metadata.is_set() {
        return;
    }
    if metadata.child("type").text() != "object" {
        errors.push(metadata.child("type").invalid_text("must be object"));
    }
    let restricts = metadata
        .child("properties")
        .entries()
        .any(|(name, _)| name != "name" && name != "generateName");
    if level == Level::Root && restricts {
        errors.push(metadata.forbidden(
            "must not specify anything other than name and generateName, but metadata is implicitly specified",
        ));
    }
}

fn extensions(schema: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    if !schema.child("x-kubernetes-int-or-string").is_true() {
        return;
    }
    for name in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ] {
        let flag = schema.child(name);
        if flag.is_true() {
            errors.push(flag.invalid("must be false if x-kubernetes-int-or-string is true"));
        }
    }
}

fn is_int_or_string(schema: &FieldLocation<'_>) -> bool {
    schema.child("x-kubernetes-int-or-string").is_true()
        && schema.child("anyOf").value == &json!([{"type": "integer"}, {"type": "string"}])
}

/// Schemas under logical operators do not define structure.
fn nested_validation(schema: &FieldLocation<'_>, skips_any_of: bool, errors: &mut Vec<FieldError>) {
    for junctor in JUNCTORS {
        if junctor == "anyOf" && skips_any_of {
            continue;
        }
        for part in schema.child(junctor).items() {
            nested(&part, errors);
        }
    }
    if schema.child("not").is_set() {
        nested(&schema.child("not"), errors);
    }
    let pattern = schema.child("pattern");
    if let Err(error) = Regex::new(pattern.text()) {
        errors.push(pattern.invalid(format!(
            "must be a valid regular expression, but isn't: {error}"
        )));
    }
}

fn nested(schema: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    nested_validation(schema, false, errors);
    if schema.child("items").is_set() {
        nested(&schema.child("items"), errors);
    }
    for (_, property) in schema.child("properties").entries() {
        nested(&property, errors);
    }
    for (field, why) in [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        (
            "x-kubernetes-preserve-unknown-fields",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-embedded-resource",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-int-or-string",
            "must be false to be structural",
        ),
        (
            "x-kubernetes-list-map-keys",
            "must be empty to be structural",
        ),
        (
            "x-kubernetes-list-type",
            "must be undefined to be structural",
        ),
        (
            "x-kubernetes-map-type",
            "must be undefined to be structural",
        ),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ] {
        let field = schema.child(field);
        if !field.is_empty() && field.value != &Value::Bool(false) {
            errors.push(field.forbidden(why));
        }
    }
    let metadata = schema.child("properties").key("metadata");
    if metadata.is_set() {
        errors.push(metadata.forbidden("must not be specified in a nested context"));
    }
}

/// What no schema of a custom resource may hold, structural or not.
fn standard(schema: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let child = |name: &str| schema.child(name);
    let kind = child("type");
    if !kind.is_empty() && !TYPES.contains(&kind.text()) {
        errors.push(kind.not_supported(&TYPES));
    }
    for (field, why) in [
        ("id", "id is not supported"),
        ("additionalItems", "additionalItems is not supported"),
        ("patternProperties", "patternProperties is not supported"),
        ("definitions", "definitions is not supported"),
        ("dependencies", "dependencies is not supported"),
        ("$ref", "$ref is not supported"),
    ] {
        if child(field).is_set() {
            errors.push(child(field).forbidden(why));
        }
    }
    if child("uniqueItems").is_true() {
        errors.push(child("uniqueItems").forbidden(
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ));
    }
    let additional = child("additionalProperties");
    let excludes = additional.value == &Value::Bool(false) || additional.value.is_object();
    if excludes && !child("properties").is_empty() {
        errors
            .push(additional.forbidden("additionalProperties and properties are mutual exclusive"));
    }
    if additional.value.is_object() {
        standard(&additional, errors);
    }
    for (_, property) in child("properties").entries() {
        standard(&property, errors);
    }
    for junctor in JUNCTORS {
        for part in child(junctor).items() {
            standard(&part, errors);
        }
    }
    if child("items").is_set() {
        standard(&child("items"), errors);
    }
    if child("x-kubernetes-preserve-unknown-fields").value == &Value::Bool(false) {
        errors.push(
            child("x-kubernetes-preserve-unknown-fields").invalid("must be true or undefined"),
        );
    }
    merge_types(schema, errors);
}

fn merge_types(schema: &FieldLocation<'_>, errors: &mut Vec<FieldError>) {
    let child = |name: &str| schema.child(name);
    let kind = child("type");
    for (field, wanted, known) in [
        (
            "x-kubernetes-map-type",
            "object",
            &["atomic", "granular"][..],
        ),
        (
            "x-kubernetes-list-type",
            "array",
            &["atomic", "set", "map"][..],
        ),
    ] {
        let field_at = child(field);
        if !field_at.is_set() {
            continue;
        }
        let why = format!("must be {wanted} if {field} is specified");
        if kind.is_empty() {
            errors.push(kind.required(&why));
        } else if kind.text() != wanted {
            errors.push(kind.invalid(why));
        }
        if !known.contains(&field_at.text()) {
            errors.push(field_at.not_supported(known));
        }
    }
    let (list, keys) = (
        child("x-kubernetes-list-type"),
        child("x-kubernetes-list-map-keys"),
    );
    if !keys.is_empty() && list.text() != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list.is_set() {
            list.invalid(why)
        } else {
            list.required(why)
        });
    }
    if list.text() != "map" {
        return;
    }
    if keys.is_empty() {
        errors.push(keys.required("must not be empty if x-kubernetes-list-type is map"));
    }
    let items = child("items");
    if !items.is_set() {
        errors.push(items.required("must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    for key in keys.items() {
        if !items.child("properties").key(key.text()).is_set() {
            errors.push(key.invalid("entries must all be names of item properties"));
        }
    }
}
