//! Mistakes in a configuration.

use davit_guest::ConfigError;

/// What makes a configuration unusable, with the path of the wrong value.
pub(crate) fn error(field: impl Into<String>, message: impl Into<String>) -> ConfigError {
    ConfigError {
        field: field.into(),
        message: message.into(),
    }
}
