//! Reads a configuration. An error names the path of the value, what is expected there
//! and what was found, in the words of YAML and not of Rust.
//!
//! Null is the same as an absent field, as in Kubernetes.

use std::fmt::{self, Display};
use std::str::FromStr;

use crate::untrusted;
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected,
    IntoDeserializer, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Number, Value};

use super::error::SpecError;

/// The longest quotation of a text in an error, in bytes.
const MOST_SHOWN: usize = 100;

/// Reads a value. Unknown fields are errors.
pub fn read<T: DeserializeOwned>(value: &Value) -> Result<T, SpecError> {
    T::deserialize(Node(value)).map_err(|Mistake { path, reason }| SpecError {
        field: path,
        reason,
    })
}

/// Reads a value from its text; an error says that `expected` was expected.
pub fn text<'de, T, D>(deserializer: D, expected: &'static str) -> Result<T, D::Error>
where
    T: FromStr<Err = String>,
    D: Deserializer<'de>,
{
    struct Text<T>(&'static str, std::marker::PhantomData<T>);
    impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_str(Text(expected, std::marker::PhantomData))
}

/// Reads a percentage from `LEAST` to 100.
pub fn percent<'de, D, const LEAST: u8>(deserializer: D) -> Result<Option<u8>, D::Error>
where
    D: Deserializer<'de>,
{
    let Some(number) = Option::<Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let percent = number.as_u64().and_then(|number| u8::try_from(number).ok());
    let percent = percent.filter(|percent| (LEAST..=100).contains(percent));
    let wrong = || {
        let what = format_args!("a whole number from {LEAST} to 100");
        D::Error::custom(expected(what, &Value::Number(number)))
    };
    percent.map(Some).ok_or_else(wrong)
}

/// The error for a value that is not the expected one.
pub fn expected(what: impl Display, found: &Value) -> String {
    format!("expected {what}, found {}", described(found))
}

/// The error for a text that is not the expected one.
pub fn expected_text(what: impl Display, found: &str) -> String {
    format!("expected {what}, found {}", quoted(found))
}

/// A value as an error shows it.
fn described(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

/// A text of an operator as an error quotes it: one line, cut.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", untrusted::line(text, MOST_SHOWN))
}

/// An invalid value, and its path.
#[derive(Debug)]
struct Mistake {
    /// The path of the value, such as `rollout.steps[0]`; empty for the whole value.
    path: String,
    reason: String,
}

impl Mistake {
    /// Puts the path below `segment`, the place of the value in its map or list.
    fn below(mut self, segment: &str) -> Self {
        if !self.path.is_empty() && !self.path.starts_with('[') {
            self.path.insert(0, '.');
        }
        self.path.insert_str(0, segment);
        self
    }

    fn mismatch(what: &str, found: &dyn Display) -> Self {
        Self::custom(format_args!("expected {what}, found {found}"))
    }
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Mistake {}

impl serde::de::Error for Mistake {
    fn custom<T: Display>(message: T) -> Self {
        Self {
            path: String::new(),
            reason: message.to_string(),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = in_words(&expected.to_string(), false);
        Self::mismatch(&expected, &unexpected(found))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = in_words(&expected.to_string(), true);
        Self::mismatch(&expected, &unexpected(found))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::mismatch(&one_of(known), &quoted(variant))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        let reason = format!("unknown field, expected one of {}", known.join(", "));
        Self::custom(reason).below(&untrusted::line(field, MOST_SHOWN))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom("it must be set").below(field)
    }
}

fn one_of(known: &[&str]) -> String {
    format!("one of {}", known.join(", "))
}

fn unexpected(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => value.to_string(),
        Unexpected::Signed(value) => value.to_string(),
        Unexpected::Float(value) => value.to_string(),
        Unexpected::Str(text) => quoted(text),
        Unexpected::Unit | Unexpected::Option => "nothing".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a map".to_owned(),
        Unexpected::UnitVariant => "its name alone".to_owned(),
        other => other.to_string(),
    }
}

/// The name of a Rust type in words. `is_range` if a number of the right type is out of
/// its range.
fn in_words(expected: &str, is_range: bool) -> String {
    let whole = |least: i128, most: i128| {
        if is_range {
            format!("a whole number from {least} to {most}")
        } else {
            "a whole number".to_owned()
        }
    };
    match expected {
        "u8" => whole(0, u8::MAX.into()),
        "u16" => whole(0, u16::MAX.into()),
        "u32" => whole(0, u32::MAX.into()),
        "u64" => whole(0, u64::MAX.into()),
        "i8" => whole(i8::MIN.into(), i8::MAX.into()),
        "i16" => whole(i16::MIN.into(), i16::MAX.into()),
        "i32" => whole(i32::MIN.into(), i32::MAX.into()),
        "i64" => whole(i64::MIN.into(), i64::MAX.into()),
        "f32" | "f64" => "a number".to_owned(),
        "a JSON number" => "a whole number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" => "text".to_owned(),
        "a sequence" => "a list".to_owned(),
        // A type with a name in words.
        other => other.to_owned(),
    }
}

/// One value.
#[derive(Clone, Copy)]
struct Node<'de>(&'de Value);

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Mistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => {
                if let Some(value) = number.as_u64() {
                    visitor.visit_u64(value)
                } else if let Some(value) = number.as_i64() {
                    visitor.visit_i64(value)
                } else {
                    visitor.visit_f64(number.as_f64().unwrap_or(f64::NAN))
                }
            }
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(list) => visitor.visit_seq(Elements(list.iter().enumerate())),
            Value::Object(map) => visitor.visit_map(Entries::of(map, None)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        visitor.visit_newtype_struct(self)
    }

    /// A struct is a map, never a list.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::Object(map) => visitor.visit_map(Entries::of(map, Some(fields))),
            other => {
                let what = format!("a map ({})", fields.join(", "));
                Err(Mistake::mismatch(&what, &described(other)))
            }
        }
    }

    /// A name, or a map with one key, which is the name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mistake> {
        match self.0 {
            Value::String(name) => {
                let name: StrDeserializer<'_, Mistake> = name.as_str().into_deserializer();
                visitor.visit_enum(name)
            }
            Value::Object(map) if map.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries::of(map, None)))
            }
            other => Err(Mistake::mismatch(&one_of(variants), &described(other))),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mistake> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier
    }
}

/// The elements of a list. An error in one is put below its position.
struct Elements<'de>(std::iter::Enumerate<std::slice::Iter<'de, Value>>);

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = Mistake;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        let Some((position, value)) = self.0.next() else {
            return Ok(None);
        };
        let element = seed.deserialize(Node(value));
        let element = element.map_err(|mistake| mistake.below(&format!("[{position}]")));
        element.map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

/// The entries of a map. An error in one is put below its name.
struct Entries<'de> {
    rest: serde_json::map::Iter<'de>,
    /// The fields of a struct, where it is one.
    fields: Option<&'static [&'static str]>,
    present: Option<(&'de str, &'de Value)>,
}

impl<'de> Entries<'de> {
    fn of(map: &'de Map<String, Value>, fields: Option<&'static [&'static str]>) -> Self {
        Self {
            rest: map.iter(),
            fields,
            present: None,
        }
    }

    /// The next entry; of a struct, the next that has a value.
    fn next(&mut self) -> Result<Option<&'de str>, Mistake> {
        for (name, value) in self.rest.by_ref() {
            if let Some(fields) = self.fields {
                if !fields.contains(&name.as_str()) {
                    return Err(Mistake::unknown_field(name, fields));
                }
                if value.is_null() {
                    continue;
                }
            }
            self.present = Some((name, value));
            return Ok(Some(name));
        }
        Ok(None)
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Mistake;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Mistake> {
        let Some(name) = self.next()? else {
            return Ok(None);
        };
        let name: StrDeserializer<'_, Mistake> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Mistake> {
        let Some((name, value)) = self.present else {
            return Err(Mistake::custom("a value without a name"));
        };
        seed.deserialize(Node(value))
            .map_err(|mistake| mistake.below(&untrusted::line(name, MOST_SHOWN)))
    }
}
