//! Values as the server prints them: with the names and the order of Go's
//! fields, or as Go's `%v` has them.

use serde_json::Value;

/// `{"Key":"k","Effect":null}`.
#[must_use]
pub(super) fn object(fields: &[(&str, &Value)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("\"{name}\":{value}"))
        .collect();
    format!("{{{}}}", fields.join(","))
}

/// A `metav1.LabelSelector`, which keeps its JSON names.
#[must_use]
pub(super) fn selector(selector: &Value) -> String {
    let mut fields = Vec::new();
    for name in ["matchLabels", "matchExpressions"] {
        if let Some(value) = selector.get(name).filter(|value| !value.is_null()) {
            fields.push((name, value));
        }
    }
    if selector.is_null() {
        return "null".to_owned();
    }
    object(&fields)
}

/// A JSON value as Go prints it: `map[spec:map[replicas:3]]`.
#[must_use]
pub(crate) fn print(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(print).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{name}:{}", print(value)))
                .collect();
            format!("map[{}]", fields.join(" "))
        }
    }
}
