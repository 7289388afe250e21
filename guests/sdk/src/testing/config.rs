//! A guest's configuration, and the schema that operators read.

use std::collections::BTreeSet;
use std::fmt::Debug;

use serde_json::{Map, Value, json};

use super::Harness;
use crate::{Controller, duration};

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

    /// Asserts that a configuration is refused: the error names this field,
    /// and its message has these words.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[track_caller]
    pub fn assert_refused(config: &Value, field: &str, words: &str) {
        let refused = Self::refused(config);
        let (at, message) = refused.unwrap_or_else(|| panic!("{config} is accepted"));
        assert_eq!(at, field, "{config}: {message}");
        assert!(message.contains(words), "{config}: {message}");
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

    /// Asserts that the schema's defaults are those of the configuration, and
    /// that each duration has the pattern of durations.
    ///
    /// # Panics
    ///
    /// If they are not, or if a property has no default.
    pub fn assert_schema_defaults(&self)
    where
        C::Config: Debug + Default + PartialEq,
    {
        let schema = self.config_schema();
        let properties = schema.pointer("/properties").and_then(Value::as_object);
        let properties = properties.expect("the schema has properties");
        let mut defaults = Map::new();
        for (name, property) in properties {
            let default = property.get("default");
            let default = default.unwrap_or_else(|| panic!("{name} has no default"));
            if default.as_str().and_then(duration::parse).is_some() {
                let pattern = property.get("pattern").and_then(Value::as_str);
                assert_eq!(pattern, Some(duration::PATTERN), "{name}");
            }
            defaults.insert(name.clone(), default.clone());
        }
        let read: C::Config =
            serde_json::from_value(defaults.into()).expect("the defaults are a configuration");
        assert_eq!(read, C::Config::default());
    }
}
