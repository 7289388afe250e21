//! A guest's configuration, and the schema that operators read.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Harness;
use crate::Controller;

impl<C: Controller> Harness<C> {
    /// The schema of the configuration.
    ///
    /// # Panics
    ///
    /// If it is not JSON.
    #[must_use]
    pub fn config_schema(&self) -> Value {
        let schema = &self.manifest().config_schema;
        serde_json::from_str(schema).expect("the configuration's schema is JSON")
    }

    /// The field and the message of a configuration's error; none if it is
    /// valid.
    #[must_use]
    pub fn refused(config: &Value) -> Option<(String, String)> {
        let error = Self::new(config).err()?;
        Some((error.field, error.message))
    }

    /// Asserts that the schema describes exactly the fields of the
    /// configuration: the error for an unknown field lists the known ones.
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
            .split_once("one of ")
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
