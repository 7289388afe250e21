//! What is wrong with a spec, and where.

/// What is wrong with a spec: the path of a field, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", at(field))]
pub struct SpecError {
    /// `limits.instances`; empty for the spec as a whole.
    pub field: String,
    /// What is wrong with its value.
    pub reason: String,
}

impl SpecError {
    pub(super) fn new(field: &str, reason: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            reason: reason.into(),
        }
    }

    /// The same, seen from what holds the spec: `controllers[0]`.
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
