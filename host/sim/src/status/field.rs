//! Findings of validation.

use serde_json::Value;

use super::Cause;

/// One finding of validation (`field.Error`).
#[derive(Clone, Debug, PartialEq)]
pub struct FieldError {
    reason: &'static str,
    pub(super) field: String,
    pub(super) body: String,
}

impl FieldError {
    /// The value is invalid. `value` is text or a number, as JSON.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueInvalid",
            field: field.into(),
            body: invalid_body(&value.to_string(), why.as_ref()),
        }
    }

    /// The same, for a value with its own printed form.
    #[must_use]
    pub fn invalid_printed(field: impl Into<String>, value: &str, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueInvalid",
            field: field.into(),
            body: invalid_body(value, why.as_ref()),
        }
    }

    /// The value is missing.
    #[must_use]
    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let body = if why.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {why}")
        };
        FieldError {
            reason: "FieldValueRequired",
            field: field.into(),
            body,
        }
    }

    /// The value is forbidden.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueForbidden",
            field: field.into(),
            body: format!("Forbidden: {}", why.as_ref()),
        }
    }

    /// The value is not supported.
    #[must_use]
    pub fn not_supported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
        FieldError::not_supported_printed(field, &value.to_string(), known)
    }

    /// The same, for a value with its own printed form.
    #[must_use]
    pub fn not_supported_printed(field: impl Into<String>, value: &str, known: &[&str]) -> Self {
        let known: Vec<String> = known.iter().map(|text| format!("{text:?}")).collect();
        FieldError {
            reason: "FieldValueNotSupported",
            field: field.into(),
            body: format!(
                "Unsupported value: {value}: supported values: {}",
                known.join(", ")
            ),
        }
    }

    /// The value is a duplicate.
    #[must_use]
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        FieldError::duplicate_printed(field, &value.to_string(), "")
    }

    /// The same, for a value with its own printed form.
    #[must_use]
    pub fn duplicate_printed(field: impl Into<String>, value: &str, why: &str) -> Self {
        let mut body = format!("Duplicate value: {value}");
        if !why.is_empty() {
            body = format!("{body}: {why}");
        }
        FieldError {
            reason: "FieldValueDuplicate",
            field: field.into(),
            body,
        }
    }

    /// The value names a missing object.
    #[must_use]
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        FieldError {
            reason: "FieldValueNotFound",
            field: field.into(),
            body: format!("Not found: {value}"),
        }
    }

    /// The text has more than `limit` bytes.
    #[must_use]
    pub fn too_long(field: impl Into<String>, limit: usize) -> Self {
        let unit = if limit == 1 { "byte" } else { "bytes" };
        FieldError {
            reason: "FieldValueTooLong",
            field: field.into(),
            body: format!("Too long: may not be more than {limit} {unit}"),
        }
    }

    /// There are more than `limit`.
    #[must_use]
    pub fn too_many(field: impl Into<String>, found: usize, limit: usize) -> Self {
        let unit = if limit == 1 { "item" } else { "items" };
        FieldError {
            reason: "FieldValueTooMany",
            field: field.into(),
            body: format!("Too many: {found}: must have at most {limit} {unit}"),
        }
    }

    /// Whether the server stops at this finding, before the validation rules of a schema.
    #[must_use]
    pub fn is_blocking(&self) -> bool {
        [
            "FieldValueNotSupported",
            "FieldValueRequired",
            "FieldValueTooLong",
            "FieldValueTooMany",
            "FieldValueTypeInvalid",
        ]
        .contains(&self.reason)
    }

    /// The value has the wrong type.
    #[must_use]
    pub fn wrong_type(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueTypeInvalid",
            field: field.into(),
            body: format!("Invalid value: {value}: {}", why.as_ref()),
        }
    }

    pub(super) fn cause(&self) -> Cause {
        Cause {
            reason: self.reason,
            message: self.body.clone(),
            field: self.field.clone(),
        }
    }
}

fn invalid_body(value: &str, why: &str) -> String {
    if why.is_empty() {
        format!("Invalid value: {value}")
    } else {
        format!("Invalid value: {value}: {why}")
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}
