//! A guest's configuration against the schema that it tells operators.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Harness;
use crate::Controller;

impl<C: Controller> Harness<C> {
    /// The schema of the configuration.
    ///
    /// # Panics
    ///
    /// If it is no JSON.
    #[must_use]
    pub fn config_schema(&self) -> Value {
        let schema = &self.manifest().config_schema;
        serde_json::from_str(schema).expect("the configuration's schema is JSON")
    }

    /// The field and the message with which a configuration is refused; none if
    /// it is valid.
    #[must_use]
    pub fn refused(config: &Value) -> Option<(String, String)> {
        let error = Self::new(config).err()?;
        Some((error.field, error.message))
    }

    /// Makes sure that the schema describes the fields that are read and allows
    /// no others: an unknown field is refused with the names of those that there
    /// are.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn assert_schema_is_read(&self) {
        let schema = self.config_schema();
        let described = schema.pointer("/properties").and_then(Value::as_object);
        let described = described.expect("the schema has properties");
        let described: BTreeSet<&str> = described.keys().map(String::as_str).collect();
        let (_, message) = Self::refused(&json!({"": 1})).expect("an unknown field is refused");
        let (_, read) = message
            .split_once("only ")
            .expect("the known fields are named");
        assert_eq!(described, read.split(", ").collect());
        let others = schema.pointer("/additionalProperties");
        assert_eq!(
            others,
            Some(&Value::Bool(false)),
            "other fields are refused"
        );
    }
}
