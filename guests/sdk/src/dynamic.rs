//! Objects that are read without a view: for guests whose fields follow from their
//! configuration.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};

use crate::msgpack;
use crate::views::OwnerReference;

/// Any value of the API: what a watch's declared fields hold.
///
/// A map keeps the order of its keys as the host sent them, and never has a key twice.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Nothing.
    #[default]
    Null,
    /// A boolean.
    Bool(bool),
    /// A number without a fraction.
    Int(i64),
    /// A number with a fraction, or beyond 64 bits.
    Float(f64),
    /// A text. Times are texts in Kubernetes' format.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A map, or an object with its fields.
    Map(Vec<(String, Value)>),
}

impl Value {
    /// The value of a key; none if this is no map, or the map lacks the key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(entries) => entries
                .iter()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// The value at a path of keys through maps.
    #[must_use]
    pub fn at<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Option<&Self> {
        path.into_iter().try_fold(self, Self::get)
    }

    /// Any value that can be written, in this form: an
    /// [`OwnerReference`], a list of conditions.
    #[must_use]
    pub fn of(value: &impl Serialize) -> Self {
        msgpack::decode(&msgpack::encode(value)).unwrap_or_default()
    }

    /// The value of a key, to change it.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        match self {
            Self::Map(entries) => entries
                .iter_mut()
                .find(|(name, _)| name == key)
                .map(|(_, value)| value),
            _ => None,
        }
    }

    /// Sets the value of a key, if this is a map.
    pub fn set(&mut self, key: &str, value: Self) {
        if let Some(former) = self.get_mut(key) {
            *former = value;
        } else if let Self::Map(entries) = self {
            entries.push((key.to_owned(), value));
        }
    }

    /// The text, if this is one.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text of a key; empty if there is none.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        self.get(key).and_then(Self::as_text).unwrap_or_default()
    }

    /// The elements; none for anything but a list.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        let elements: &[Self] = match self {
            Self::List(elements) => elements,
            _ => &[],
        };
        elements.iter()
    }

    /// Whether this is nothing.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// Maps are equal whatever the order of their keys.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::Int(one), Self::Int(other)) => one == other,
            (Self::Float(one), Self::Float(other)) => one == other,
            (Self::Text(one), Self::Text(other)) => one == other,
            (Self::List(one), Self::List(other)) => one == other,
            (Self::Map(one), Self::Map(entries)) => {
                let has_same = |(key, value): &(String, Self)| other.get(key) == Some(value);
                one.len() == entries.len() && one.iter().all(has_same)
            }
            _ => false,
        }
    }
}

/// A [`Value`](crate::dynamic::Value), written like JSON. Anything else than a name or a
/// literal is in parentheses.
///
/// ```
/// use davit_guest::value;
///
/// let replicas = 3;
/// let spec = value!({"replicas": replicas, "paths": ["/", (format!("/{replicas}"))]});
/// assert_eq!(spec.get("replicas"), Some(&value!(3)));
/// ```
#[macro_export]
macro_rules! value {
    ({ $($key:tt : $value:tt),* $(,)? }) => {
        $crate::dynamic::Value::Map(::std::vec![
            $(($crate::value!(@key $key), $crate::value!($value))),*
        ])
    };
    ([ $($element:tt),* $(,)? ]) => {
        $crate::dynamic::Value::List(::std::vec![$($crate::value!($element)),*])
    };
    (null) => { $crate::dynamic::Value::Null };
    (@key ($key:expr)) => { ::std::string::String::from($key) };
    (@key $key:expr) => { ::std::string::String::from($key) };
    (($value:expr)) => { $crate::dynamic::Value::from($value) };
    ($value:expr) => { $crate::dynamic::Value::from($value) };
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Int(number.into())
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Int(number.into())
    }
}

impl From<OwnerReference> for Value {
    fn from(reference: OwnerReference) -> Self {
        Self::of(&reference)
    }
}

/// None is nothing.
impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Self>> From<Vec<T>> for Value {
    fn from(elements: Vec<T>) -> Self {
        Self::List(elements.into_iter().map(Into::into).collect())
    }
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
        f.write_str("a value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a number beyond 63 bits has no exact type in CEL or JSON either"
    )]
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Float(value as f64), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Value::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(elements) => {
                let mut seq = serializer.serialize_seq(Some(elements.len()))?;
                for element in elements {
                    seq.serialize_element(element)?;
                }
                seq.end()
            }
            Self::Map(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
