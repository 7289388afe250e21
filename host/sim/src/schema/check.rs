//! Validation against a schema, in the words and the order of the API server's
//! library.

use serde_json::{Value, json};

use super::{AdditionalProperties, Fields, ListKind, Schema, format, join};
use crate::status::FieldError;

/// The server's text for a path that does not exist.
const NOWHERE: &str = "<nil>";

/// Validates a value under `prefix` (`""` for a whole object, else `status`). Values that
/// did not change since `old` are not validated: a schema may become stricter than the
/// stored objects.
#[must_use]
pub(crate) fn check(
    schema: &Schema,
    prefix: &str,
    value: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let mut findings = Vec::new();
    Check { prefix }.value(schema, "", value, old, &mut findings);
    findings
}

struct Check<'a> {
    prefix: &'a str,
}

impl Check<'_> {
    /// The path of the field in the finding; `path` is its path in the message.
    fn field(&self, path: &str) -> String {
        match (self.prefix, path) {
            ("", "") => NOWHERE.to_owned(),
            (prefix, "") => prefix.to_owned(),
            (prefix, path) => join(prefix, path),
        }
    }

    fn value(
        &self,
        schema: &Schema,
        path: &str,
        value: &Value,
        old: Option<&Value>,
        findings: &mut Vec<FieldError>,
    ) {
        if old == Some(value) {
            return;
        }
        self.kind(schema, path, value, findings);
        if !value.is_null() {
            self.junctors(schema, path, value, findings);
        }
        match value {
            Value::String(text) => self.text(schema, path, text, findings),
            Value::Number(_) => self.number(schema, path, value, findings),
            Value::Array(items) => self.items(schema, path, items, old, findings),
            _ => {}
        }
        self.choice(schema, path, value, findings);
        if let Value::Object(fields) = value {
            self.fields(schema, path, fields, old, findings);
        }
    }

    fn kind(&self, schema: &Schema, path: &str, value: &Value, findings: &mut Vec<FieldError>) {
        let wanted = if schema.int_or_string {
            "integer,string"
        } else {
            schema.kind.as_str()
        };
        let found = type_name(value);
        let fits = match value {
            Value::Null => schema.nullable,
            Value::Number(number) if wanted.contains("integer") => {
                number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            Value::Number(_) => wanted == "number",
            _ => wanted.split(',').any(|kind| kind == found),
        };
        if !wanted.is_empty() && !fits {
            findings.push(FieldError::wrong_type(
                self.field(path),
                &json!(found),
                format!("{path} in body must be of type {wanted}: {found:?}"),
            ));
        }
    }

    fn junctors(&self, schema: &Schema, path: &str, value: &Value, findings: &mut Vec<FieldError>) {
        let try_all = |parts: &[Schema]| -> Vec<Vec<FieldError>> {
            let attempt = |part: &Schema| {
                let mut findings = Vec::new();
                self.value(part, path, value, None, &mut findings);
                findings
            };
            parts.iter().map(attempt).collect()
        };
        let mut say = |text: String| findings.push(FieldError::invalid(NOWHERE, &json!(""), text));
        let mut outcomes = Vec::new();
        let any = try_all(&schema.any_of);
        if !any.is_empty() && !any.iter().any(Vec::is_empty) {
            say(format!(
                "{path:?} must validate at least one schema (anyOf)"
            ));
            outcomes.extend(any.into_iter().next().unwrap_or_default());
        }
        let one = try_all(&schema.one_of);
        let valid = one.iter().filter(|findings| findings.is_empty()).count();
        if !one.is_empty() && valid != 1 {
            let found = if valid == 0 {
                "Found none valid".to_owned()
            } else {
                format!("Found {valid} valid alternatives")
            };
            say(format!(
                "{path:?} must validate one and only one schema (oneOf). {found}"
            ));
            if valid == 0 {
                outcomes.extend(one.into_iter().next().unwrap_or_default());
            }
        }
        findings.append(&mut outcomes);
        let all = try_all(&schema.all_of);
        let valid = all.iter().filter(|findings| findings.is_empty()).count();
        let total = all.len();
        findings.extend(all.into_iter().flatten());
        let mut say = |text: String| findings.push(FieldError::invalid(NOWHERE, &json!(""), text));
        if valid != total {
            let none = if valid == 0 { ". None validated" } else { "" };
            say(format!(
                "{path:?} must validate all the schemas (allOf){none}"
            ));
        }
        if let Some(part) = &schema.not
            && try_all(std::slice::from_ref(part))
                .iter()
                .any(Vec::is_empty)
        {
            say(format!("{path:?} must not validate the schema (not)"));
        }
    }

    fn text(&self, schema: &Schema, path: &str, text: &str, findings: &mut Vec<FieldError>) {
        if let Some(finding) = self.text_limits(schema, path, text) {
            findings.push(finding);
        }
        let named = ["", "string"].contains(&schema.kind.as_str());
        if named && !format::fits(&schema.format, text) {
            findings.push(FieldError::wrong_type(
                self.field(path),
                &json!(text),
                format!("{path} in body must be of type {}: {text:?}", schema.format),
            ));
        }
    }

    fn text_limits(&self, schema: &Schema, path: &str, text: &str) -> Option<FieldError> {
        let length = text.chars().count() as u64;
        if let Some(most) = schema.length.most.filter(|most| length > *most) {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            return Some(FieldError::too_long(self.field(path), most));
        }
        let why = if let Some(least) = schema.length.least.filter(|least| length < *least) {
            format!("{path} in body should be at least {least} chars long")
        } else {
            let pattern = schema.pattern.as_ref()?;
            if pattern
                .regex
                .as_ref()
                .is_none_or(|regex| regex.is_match(text))
            {
                return None;
            }
            format!("{path} in body should match '{}'", pattern.text)
        };
        Some(FieldError::invalid(self.field(path), &json!(text), why))
    }

    fn number(&self, schema: &Schema, path: &str, value: &Value, findings: &mut Vec<FieldError>) {
        let Some(number) = value.as_f64() else {
            return;
        };
        let limits = &schema.number;
        let mut refuse = |why: String| {
            let why = format!("{path} in body should be {why}");
            findings.push(FieldError::invalid(self.field(path), value, why));
        };
        if let Some(factor) = limits.multiple_of
            && (number / factor).fract() != 0.0
        {
            refuse(format!("a multiple of {factor}"));
        }
        if let Some(least) = limits.minimum {
            if limits.excludes_minimum && number <= least {
                refuse(format!("greater than {least}"));
            } else if number < least {
                refuse(format!("greater than or equal to {least}"));
            }
        }
        if let Some(most) = limits.maximum {
            if limits.excludes_maximum && number >= most {
                refuse(format!("less than {most}"));
            } else if number > most {
                refuse(format!("less than or equal to {most}"));
            }
        }
        let small = i64::from(i32::MIN)..=i64::from(i32::MAX);
        if schema.kind == "integer"
            && schema.format == "int32"
            && value.as_i64().is_none_or(|number| !small.contains(&number))
        {
            let why = format!("Checked value must be of type integer with format int32 in {path}");
            findings.push(FieldError::invalid(NOWHERE, &json!(""), why));
        }
    }

    fn items(
        &self,
        schema: &Schema,
        path: &str,
        items: &[Value],
        old: Option<&Value>,
        findings: &mut Vec<FieldError>,
    ) {
        if let Some(part) = &schema.items {
            for (at, item) in items.iter().enumerate() {
                let before = old.and_then(|old| correlated(schema, item, old));
                self.value(part, &format!("{path}[{at}]"), item, before, findings);
            }
        }
        let count = items.len() as u64;
        if let Some(least) = schema.count.least.filter(|least| count < *least) {
            findings.push(FieldError::invalid(
                self.field(path),
                &json!(count),
                format!("{path} in body should have at least {least} items"),
            ));
        }
        if let Some(most) = schema.count.most.filter(|most| count > *most) {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            findings.push(FieldError::too_many(self.field(path), items.len(), most));
        }
    }

    fn choice(&self, schema: &Schema, path: &str, value: &Value, findings: &mut Vec<FieldError>) {
        if schema.choices.is_empty() || schema.choices.contains(value) {
            return;
        }
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
        findings.push(FieldError::not_supported(self.field(path), value, &known));
    }

    fn fields(
        &self,
        schema: &Schema,
        path: &str,
        fields: &Fields,
        old: Option<&Value>,
        findings: &mut Vec<FieldError>,
    ) {
        let count = fields.len() as u64;
        if let Some(least) = schema.properties.least.filter(|least| count < *least) {
            findings.push(FieldError::invalid(
                self.field(path),
                &json!(count),
                format!("{path} in body should have at least {least} properties"),
            ));
        }
        if let Some(most) = schema.properties.most.filter(|most| count > *most) {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            findings.push(FieldError::too_many(self.field(path), fields.len(), most));
        }
        for (name, value) in fields {
            if let (None, AdditionalProperties::Allowed(false)) =
                (schema.named(name), &schema.additional)
            {
                findings.push(FieldError::invalid(
                    self.field(path),
                    &json!(name),
                    format!("{path}.{name} in body is a forbidden property"),
                ));
            }
            if let Some(part) = schema.field(name) {
                let before = old.and_then(|old| old.get(name));
                self.value(part, &join(path, name), value, before, findings);
            }
        }
        for name in &schema.required {
            // The API machinery validates the fields outside of the body.
            let elsewhere = path.is_empty() && super::is_machinery(name);
            if !fields.contains_key(name) && !elsewhere {
                findings.push(FieldError::required(self.field(&join(path, name)), ""));
            }
        }
    }
}

/// The element of the old list that an element was.
fn correlated<'a>(schema: &Schema, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let ListKind::Map(keys) = schema.list_kind() else {
        return None;
    };
    let same = |old: &&Value| keys.iter().all(|key| old.get(key) == item.get(key));
    old.as_array()?.iter().find(same)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(schema: &Value, value: &Value) -> Vec<String> {
        let schema = Schema::from_json(schema);
        let findings = check(&schema, "", value, None);
        findings.iter().map(ToString::to_string).collect()
    }

    fn of_spec(spec: &Value) -> Value {
        json!({"type": "object", "properties": {"spec": spec}})
    }

    #[test]
    fn limits_have_the_servers_messages() {
        let cases = [
            (
                json!({"type": "integer", "minimum": 1}),
                json!(0),
                "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
            ),
            (
                json!({"type": "integer", "maximum": 5, "exclusiveMaximum": true}),
                json!(5),
                "spec: Invalid value: 5: spec in body should be less than 5",
            ),
            (
                json!({"type": "string", "maxLength": 2}),
                json!("abc"),
                "spec: Too long: may not be more than 2 bytes",
            ),
            (
                json!({"type": "string", "minLength": 2}),
                json!("a"),
                "spec: Invalid value: \"a\": spec in body should be at least 2 chars long",
            ),
            (
                json!({"type": "string", "pattern": "^a+$"}),
                json!("b"),
                "spec: Invalid value: \"b\": spec in body should match '^a+$'",
            ),
            (
                json!({"type": "string", "enum": ["a", "b"]}),
                json!("c"),
                "spec: Unsupported value: \"c\": supported values: \"a\", \"b\"",
            ),
            (
                json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}),
                json!(["a", "b"]),
                "spec: Too many: 2: must have at most 1 item",
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                json!("soon"),
                "spec: Invalid value: \"soon\": spec in body must be of type date-time: \"soon\"",
            ),
            (
                json!({"type": "object", "required": ["size"]}),
                json!({}),
                "spec.size: Required value",
            ),
            (
                json!({"type": "integer"}),
                json!(1.5),
                "spec: Invalid value: \"number\": spec in body must be of type integer: \"number\"",
            ),
            (
                json!({"x-kubernetes-int-or-string": true}),
                json!(true),
                "spec: Invalid value: \"boolean\": spec in body must be of type integer,string: \"boolean\"",
            ),
        ];
        for (schema, value, said) in cases {
            assert_eq!(
                found(&of_spec(&schema), &json!({"spec": value})),
                [said],
                "{schema}"
            );
        }
    }

    #[test]
    fn junctors() {
        let one = of_spec(&json!({"type": "object", "oneOf": [
            {"required": ["a"]}, {"required": ["b"]},
        ]}));
        assert_eq!(
            found(&one, &json!({"spec": {"a": 1, "b": 2}})),
            [
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found 2 valid alternatives"
            ]
        );
        assert_eq!(
            found(&one, &json!({"spec": {}})),
            [
                "<nil>: Invalid value: \"\": \"spec\" must validate one and only one schema (oneOf). Found none valid",
                "spec.a: Required value",
            ]
        );
        assert!(found(&one, &json!({"spec": {"a": 1}})).is_empty());
    }

    #[test]
    fn unchanged_values_are_not_validated_again() {
        let schema = Schema::from_json(&of_spec(&json!({"type": "object", "properties": {
            "a": {"type": "integer", "minimum": 5}, "b": {"type": "integer", "minimum": 5},
        }})));
        let (old, new) = (
            json!({"spec": {"a": 1, "b": 9}}),
            json!({"spec": {"a": 1, "b": 2}}),
        );
        let findings = check(&schema, "", &new, Some(&old));
        assert_eq!(
            findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["spec.b: Invalid value: 2: spec.b in body should be greater than or equal to 5"]
        );
    }
}
