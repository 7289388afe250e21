//! A place in an object: what validation walks over, and what its findings
//! are about.

use serde_json::{Value, json};

use crate::object::Object;
use crate::status::FieldError;

static NOTHING: Value = Value::Null;

/// A value and the path that leads to it, as the API server writes paths
/// (`spec.containers[0].ports[1].name`, `data[key]`).
#[derive(Clone)]
pub(crate) struct FieldLocation<'a> {
    path: String,
    /// The value; `null` if the field is missing.
    pub(crate) value: &'a Value,
}

impl<'a> FieldLocation<'a> {
    /// A top-level field of an object (never `metadata`).
    pub(crate) fn field(object: &'a Object, name: &str) -> Self {
        FieldLocation::new(name, object.body.get(name).unwrap_or(&NOTHING))
    }

    /// Any value under any path.
    pub(crate) fn new(path: impl Into<String>, value: &'a Value) -> Self {
        FieldLocation {
            path: path.into(),
            value,
        }
    }

    /// Where this is.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// A field of an object.
    pub(crate) fn child(&self, name: &str) -> FieldLocation<'a> {
        FieldLocation {
            path: format!("{}.{name}", self.path),
            value: self.value.get(name).unwrap_or(&NOTHING),
        }
    }

    /// An entry of a map.
    pub(crate) fn key(&self, name: &str) -> FieldLocation<'a> {
        FieldLocation {
            path: format!("{}[{name}]", self.path),
            value: self.value.get(name).unwrap_or(&NOTHING),
        }
    }

    /// The elements of a list.
    pub(crate) fn items(&self) -> impl Iterator<Item = FieldLocation<'a>> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().map_or(&[][..], Vec::as_slice);
        items
            .iter()
            .enumerate()
            .map(move |(at, value)| FieldLocation {
                path: format!("{path}[{at}]"),
                value,
            })
    }

    /// The entries of a map with their keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, FieldLocation<'a>)> + use<'a> {
        let path = self.path.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| {
            let path = format!("{path}[{key}]");
            (key.as_str(), FieldLocation { path, value })
        })
    }

    /// Whether the field is set.
    pub(crate) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether it is `true`.
    pub(crate) fn is_true(&self) -> bool {
        self.value == &Value::Bool(true)
    }

    /// Whether the list, the map or the text is empty.
    pub(crate) fn is_empty(&self) -> bool {
        match self.value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// The text, or `""`.
    pub(crate) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    /// The whole number, if it is one.
    pub(crate) fn number(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// The value is missing.
    pub(crate) fn required(&self, why: &str) -> FieldError {
        FieldError::required(&*self.path, why)
    }

    /// The value cannot be this.
    pub(crate) fn invalid(&self, why: impl AsRef<str>) -> FieldError {
        FieldError::invalid(&*self.path, self.value, why)
    }

    /// The same, where the server prints the value in its internal form.
    pub(crate) fn invalid_as(&self, printed: &Value, why: impl AsRef<str>) -> FieldError {
        FieldError::invalid(&*self.path, printed, why)
    }

    /// The text is invalid; a missing text counts as `""`.
    pub(crate) fn invalid_text(&self, why: impl AsRef<str>) -> FieldError {
        FieldError::invalid(&*self.path, &json!(self.text()), why)
    }

    /// The value must not be set now.
    pub(crate) fn forbidden(&self, why: impl AsRef<str>) -> FieldError {
        FieldError::forbidden(&*self.path, why)
    }

    /// The text is not one of the supported values.
    pub(crate) fn not_supported(&self, known: &[&str]) -> FieldError {
        FieldError::not_supported(&*self.path, &json!(self.text()), known)
    }

    /// The value was there before.
    pub(crate) fn duplicate(&self) -> FieldError {
        FieldError::duplicate(&*self.path, self.value)
    }

    /// One finding for each thing that is wrong with the text.
    pub(crate) fn each(&self, problems: Vec<String>, errors: &mut Vec<FieldError>) {
        errors.extend(
            problems
                .into_iter()
                .map(|problem| self.invalid_text(problem)),
        );
    }

    /// A number must not be negative.
    pub(crate) fn not_negative(&self, errors: &mut Vec<FieldError>) {
        if self.number().is_some_and(|number| number < 0) {
            errors.push(self.invalid("must be greater than or equal to 0"));
        }
    }

    /// One of the known texts is demanded.
    pub(crate) fn one_of(&self, known: &[&str], errors: &mut Vec<FieldError>) {
        if self.is_empty() {
            errors.push(self.required(""));
        } else if !known.contains(&self.text()) {
            errors.push(self.not_supported(known));
        }
    }
}
