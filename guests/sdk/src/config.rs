//! An operator's configuration, read so that every mistake is named by the path
//! of its field.

use std::fmt::{self, Display};

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use crate::ConfigError;

/// Reads a configuration: a MessagePack map; nil or nothing for the defaults.
pub(crate) fn read<T: DeserializeOwned>(config: &[u8]) -> Result<T, ConfigError> {
    let value = match config {
        [] => Value::Nil,
        bytes => rmp_serde::from_slice(bytes).map_err(|error| ConfigError {
            field: String::new(),
            message: format!("the configuration is not readable as MessagePack: {error}"),
        })?,
    };
    let value = match value {
        Value::Nil => Value::Map(Vec::new()),
        value => value,
    };
    T::deserialize(value).map_err(|error| ConfigError {
        field: error.path,
        message: error.message,
    })
}

impl ConfigError {
    /// Says what is wrong with the value at a path: `terminatedPodThreshold`.
    #[must_use]
    pub fn new(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: field.to_owned(),
            message: message.into(),
        }
    }
}

/// A configuration before it is known what it should be.
enum Value {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON can write")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Signed(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element()? {
            list.push(element);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

/// What is wrong, and where.
#[derive(Debug)]
struct Error {
    path: String,
    message: String,
}

impl Error {
    fn below(mut self, field: &str) -> Self {
        if !self.path.is_empty() && !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, field);
        self
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for Error {}

impl serde::de::Error for Error {
    fn custom<T: Display>(message: T) -> Self {
        Self {
            path: String::new(),
            message: message.to_string(),
        }
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let known = known.join(", ");
        Self::custom(format_args!(
            "there is no such field; there are: {known}"
        ))
        .below(field)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom("it must be set").below(field)
    }
}

impl<'de> IntoDeserializer<'de, Error> for Value {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Value {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Nil => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Unsigned(value) => visitor.visit_u64(value),
            Self::Signed(value) => visitor.visit_i64(value),
            Self::Float(value) => visitor.visit_f64(value),
            Self::Text(value) => visitor.visit_string(value),
            Self::List(list) => visitor.visit_seq(List {
                left: list.into_iter().enumerate(),
            }),
            Self::Map(entries) => visitor.visit_map(Entries::new(entries)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Nil => visitor.visit_none(),
            value => visitor.visit_some(value),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A struct is a map with these fields and no other, and never a list.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let entries = match self {
            Self::Map(entries) => entries,
            value => return Err(Error::invalid_type(value.unexpected(), &"a map of fields")),
        };
        let unknown = entries
            .iter()
            .find(|(name, _)| !fields.contains(&name.as_str()));
        match unknown {
            Some((name, _)) => Err(Error::unknown_field(name, fields)),
            None => visitor.visit_map(Entries::new(entries)),
        }
    }

    /// Only enums without fields, written as their name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(name) => {
                let name: StrDeserializer<'_, Error> = name.as_str().into_deserializer();
                visitor.visit_enum(name)
            }
            value => Err(Error::invalid_type(value.unexpected(), &"a name")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl Value {
    fn unexpected(&self) -> Unexpected<'_> {
        match self {
            Self::Nil => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(*value),
            Self::Unsigned(value) => Unexpected::Unsigned(*value),
            Self::Signed(value) => Unexpected::Signed(*value),
            Self::Float(value) => Unexpected::Float(*value),
            Self::Text(value) => Unexpected::Str(value),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        }
    }
}

/// The elements of a list, whose errors are put below their position.
struct List {
    left: std::iter::Enumerate<std::vec::IntoIter<Value>>,
}

impl<'de> SeqAccess<'de> for List {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some((position, element)) = self.left.next() else {
            return Ok(None);
        };
        seed.deserialize(element)
            .map(Some)
            .map_err(|error| error.below(&format!("[{position}]")))
    }
}

/// The entries of a map, whose errors are put below their name.
struct Entries {
    left: std::vec::IntoIter<(String, Value)>,
    current: (String, Value),
}

impl Entries {
    fn new(entries: Vec<(String, Value)>) -> Self {
        Self {
            left: entries.into_iter(),
            current: (String::new(), Value::Nil),
        }
    }
}

impl<'de> MapAccess<'de> for Entries {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(entry) = self.left.next() else {
            return Ok(None);
        };
        self.current = entry;
        let name: StrDeserializer<'_, Error> = self.current.0.as_str().into_deserializer();
        seed.deserialize(name)
            .map(Some)
            .map_err(|error: Error| error.below(&self.current.0))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        let (name, value) = std::mem::replace(&mut self.current, (String::new(), Value::Nil));
        seed.deserialize(value).map_err(|error| error.below(&name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Config {
        pod_threshold: i32,
        #[serde(with = "crate::duration")]
        period: Duration,
        rates: Vec<Rate>,
        mode: Mode,
        limit: Option<u32>,
        by_zone: BTreeMap<String, u32>,
    }

    impl Default for Config {
        fn default() -> Self {
            Self {
                pod_threshold: 7,
                period: Duration::from_secs(20),
                rates: Vec::new(),
                mode: Mode::Strict,
                limit: None,
                by_zone: BTreeMap::new(),
            }
        }
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Rate {
        per_second: f64,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    enum Mode {
        Strict,
        Lax,
    }

    fn parse(config: &serde_json::Value) -> Result<Config, ConfigError> {
        read(&rmp_serde::to_vec_named(config).unwrap())
    }

    #[test]
    fn nothing_nil_and_an_empty_map_are_the_defaults() {
        assert_eq!(read::<Config>(&[]).unwrap(), Config::default());
        assert_eq!(parse(&json!(null)).unwrap(), Config::default());
        assert_eq!(parse(&json!({})).unwrap(), Config::default());
    }

    #[test]
    fn every_field_is_read() {
        let config = parse(&json!({
            "podThreshold": -1,
            "period": "1m30s",
            "rates": [{"perSecond": 0.5}],
            "mode": "Lax",
            "limit": 3,
            "byZone": {"a": 1},
        }));
        assert_eq!(
            config.unwrap(),
            Config {
                pod_threshold: -1,
                period: Duration::from_secs(90),
                rates: vec![Rate { per_second: 0.5 }],
                mode: Mode::Lax,
                limit: Some(3),
                by_zone: BTreeMap::from([("a".to_owned(), 1)]),
            }
        );
    }

    #[test]
    fn every_mistake_is_named_by_its_path() {
        for (config, field, message) in [
            (json!({"podThreshhold": 1}), "podThreshhold", "no such field"),
            (json!({"podThreshold": "1"}), "podThreshold", "expected i32"),
            (json!({"podThreshold": 1.5}), "podThreshold", "expected i32"),
            (json!({"podThreshold": 3_000_000_000_u64}), "podThreshold", "expected i32"),
            (json!({"podThreshold": null}), "podThreshold", "expected i32"),
            (json!({"period": 20}), "period", "expected a string"),
            (json!({"period": "20"}), "period", "is no duration"),
            (json!({"rates": [{"perSecond": 1.0}, {}]}), "rates[1].perSecond", "must be set"),
            (json!({"rates": [{"perSecond": "x"}]}), "rates[0].perSecond", "expected f64"),
            (json!({"rates": [{"perSecond": 1.0, "burst": 1}]}), "rates[0].burst", "no such"),
            (json!({"rates": [[1.0]]}), "rates[0]", "expected a map"),
            (json!({"rates": {}}), "rates", "expected a sequence"),
            (json!({"mode": "lax"}), "mode", "unknown variant"),
            (json!({"mode": 1}), "mode", "expected a name"),
            (json!({"limit": -1}), "limit", "expected u32"),
            (json!({"byZone": {"a": "1"}}), "byZone.a", "expected u32"),
            (json!([]), "", "expected a map"),
            (json!("x"), "", "expected a map"),
        ] {
            let error = parse(&config).unwrap_err();
            assert_eq!(error.field, field, "{config}: {}", error.message);
            assert!(error.message.contains(message), "{config}: {}", error.message);
        }
    }

    #[test]
    fn what_is_no_messagepack_is_refused() {
        let error = read::<Config>(&[0xc1]).unwrap_err();
        assert!(error.message.contains("MessagePack"), "{}", error.message);
    }
}
