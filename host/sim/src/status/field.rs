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
    /// The value cannot be this. `value` is text or a number, as JSON.
    #[must_use]
    pub fn invalid(field: impl Into<String>, value: &Value, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueInvalid",
            field: field.into(),
            body: format!("Invalid value: {value}: {}", why.as_ref()),
        }
    }

    /// The same, for a value that the server prints in a form of its own.
    #[must_use]
    pub fn invalid_printed(field: impl Into<String>, value: &str, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueInvalid",
            field: field.into(),
            body: format!("Invalid value: {value}: {}", why.as_ref()),
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

    /// The value must not be set, or not to this, now.
    #[must_use]
    pub fn forbidden(field: impl Into<String>, why: impl AsRef<str>) -> Self {
        FieldError {
            reason: "FieldValueForbidden",
            field: field.into(),
            body: format!("Forbidden: {}", why.as_ref()),
        }
    }

    /// The value is none of those known.
    #[must_use]
    pub fn not_supported(field: impl Into<String>, value: &Value, known: &[&str]) -> Self {
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

    /// The value has another type than the schema says.
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
