//! Mistakes in a configuration.

use davit_guest::ConfigError;

use crate::cel::{Expression, Mistake, Scope, Type};

/// What makes a configuration unusable, with the path of the wrong value.
pub(crate) fn error(field: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.into(),
        message: message.into(),
    }
}

/// A mistake in a rule, with the name that an operator knows it by.
pub(crate) fn in_rule(name: &str, mistake: ConfigError) -> ConfigError {
    error(mistake.field, format!("rule {name}: {}", mistake.message))
}

/// A mistake in an expression, with the path of the expression, or of the rule's variable in
/// which it is.
pub(crate) fn at<T>(field: &str, result: Result<T, Mistake>) -> Result<T, ConfigError> {
    result.map_err(|mistake| {
        let message = mistake.to_string();
        let rule = field.split('.').next().unwrap_or(field);
        match mistake.variable {
            Some(name) => error(format!("{rule}.variables.{name}"), message),
            None => error(field, message),
        }
    })
}

/// An expression whose result has a type.
pub(crate) fn typed(
    field: &str,
    source: &str,
    scope: &Scope<'_>,
    wanted: Type,
) -> Result<Expression, ConfigError> {
    let expression = at(field, Expression::compile(source, scope))?;
    if !expression.result.meets(wanted) {
        let message = format!("it is {}, not {wanted}", expression.result);
        return at(field, Err(Mistake::at_column(expression.start, message)));
    }
    Ok(expression)
}
