//! An invalid spec: the field, and what is wrong with it.

/// An invalid spec.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", at(field))]
pub struct SpecError {
    /// The path of the field, such as `limits.instances`; empty for the whole spec.
    pub field: String,
    /// What is wrong with the value of the field.
    pub reason: String,
}

impl SpecError {
    pub(super) fn new(field: &str, reason: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            reason: reason.into(),
        }
    }

    /// Puts the field below `parent`, such as `controllers[0]`.
    #[must_use]
    pub fn below(self, parent: &str) -> Self {
        let field = match self.field.as_str() {
            "" => parent.to_owned(),
            field => format!("{parent}.{field}"),
        };
        Self { field, ..self }
    }
}

fn at(field: &str) -> String {
    if field.is_empty() {
        String::new()
    } else {
        format!("{field}: ")
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(super) fn out_of_range<T: std::fmt::Display>(value: T, low: T, high: T) -> String {
    format!("expected a number from {low} to {high}, found {value}")
}
