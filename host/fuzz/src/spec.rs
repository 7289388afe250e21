//! The spec of a controller: it is written as it is read, and an error is one short
//! line.

use std::sync::LazyLock;

use davit_core::api::{ControllerSpec, encode_config};
use davit_core::untrusted;
use serde_json::Value;

/// The longest text of an error, in bytes: a quotation, where it is, and what is
/// expected there.
const MOST_BYTES: usize = 1024;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(ControllerSpec).to_value());

/// A spec in JSON.
pub fn run(data: &[u8]) {
    let Ok(value) = serde_json::from_slice::<Value>(data) else {
        return;
    };
    let spec = match ControllerSpec::read(&value) {
        Ok(spec) => spec,
        Err(error) => {
            let text = error.to_string();
            assert!(!error.reason.is_empty());
            assert!(text.len() <= MOST_BYTES, "{} bytes: {text}", text.len());
            assert_eq!(untrusted::line(&text, MOST_BYTES), text);
            return;
        }
    };
    let written = serde_json::to_value(&spec).expect("JSON");
    assert_eq!(ControllerSpec::read(&written).as_ref(), Ok(&spec));
    if let Err(problem) = fits(&written, &SCHEMA, "spec") {
        panic!("{problem}: {written}");
    }
    let config = encode_config(&spec.config).expect("a configuration");
    let config: Value = rmp_serde::from_slice(&config).expect("MessagePack");
    if !spec.config.is_null() {
        assert_eq!(config, spec.config);
    }
}

/// Whether a value has the types, fields, choices and ranges of a JSON Schema. Patterns
/// are not compared.
fn fits(value: &Value, schema: &Value, path: &str) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return fits(value, &SCHEMA["$defs"][name], path);
    }
    if let Some(choices) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        let fitting = choices
            .iter()
            .any(|choice| fits(value, choice, path).is_ok());
        return fitting
            .then_some(())
            .ok_or(format!("{path} fits no choice"));
    }
    let one = std::slice::from_ref(&schema["type"]);
    let types = schema["type"].as_array().map_or(one, Vec::as_slice);
    if !types
        .iter()
        .any(|name| name.is_null() || is_of(value, name.as_str()))
    {
        return Err(format!("{path} is no {types:?}"));
    }
    let choices = schema["enum"].as_array();
    if choices.is_some_and(|choices| !choices.contains(value)) {
        return Err(format!("{path} is none of {choices:?}"));
    }
    let bound = |name: &str| schema[name].as_f64();
    if let Some(number) = value.as_f64()
        && (bound("minimum").is_some_and(|least| number < least)
            || bound("maximum").is_some_and(|most| number > most))
    {
        return Err(format!("{path} is out of range"));
    }
    if let Some(list) = value.as_array() {
        let size = list.len() as f64;
        if bound("minItems").is_some_and(|least| size < least)
            || bound("maxItems").is_some_and(|most| size > most)
        {
            return Err(format!("{path} has {size} elements"));
        }
        for (position, element) in list.iter().enumerate() {
            fits(element, &schema["items"], &format!("{path}[{position}]"))?;
        }
    }
    let Some(map) = value.as_object() else {
        return Ok(());
    };
    for name in schema["required"].as_array().into_iter().flatten() {
        if !name.as_str().is_some_and(|name| map.contains_key(name)) {
            return Err(format!("{path} has no {name}"));
        }
    }
    for (name, value) in map {
        let path = format!("{path}.{name}");
        match (
            schema["properties"].get(name),
            &schema["additionalProperties"],
        ) {
            (Some(schema), _) => fits(value, schema, &path)?,
            (None, Value::Bool(false)) => return Err(format!("{path} is not declared")),
            (None, schema @ Value::Object(_)) => fits(value, schema, &path)?,
            (None, _) => {}
        }
    }
    Ok(())
}

fn is_of(value: &Value, name: Option<&str>) -> bool {
    match name {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}
