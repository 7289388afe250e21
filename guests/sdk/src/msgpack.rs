//! The contract's MessagePack, read into types.
//!
//! The SDK reads it itself instead of with rmp-serde for three reasons: an
//! error names the path of the field, unknown fields of a configuration are
//! refused at every depth, and a component stays small (rmp-serde repeats its
//! code for numbers and lists for every type, 5 kB each).

mod error;
mod spelling;

use rmp::Marker;
use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde::{Serialize, forward_to_deserialize_any};

pub(crate) use error::Error;

/// Reads a value and ignores the fields that its type does not have.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    Reader::new(bytes, false).whole()
}

/// Reads a value and refuses the fields that its type does not have.
pub(crate) fn decode_strictly<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    Reader::new(bytes, true).whole()
}

/// What the host adds to the declared fields of every object.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Identity<'de> {
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: &'de str,
    pub(crate) name: &'de str,
    /// Empty for an object without one, such as those of `metrics.k8s.io`: they are not stored.
    pub(crate) uid: &'de str,
}

/// Reads the identity of an object, and nothing behind its metadata: a pass reads thousands of
/// objects, and each is read through a view afterwards.
pub(crate) fn identity(bytes: &[u8]) -> Result<Identity<'_>, Error> {
    let mut reader = Reader::new(bytes, false);
    let mut object = reader.entries()?;
    let mut identity = Identity::default();
    while let Some(name) = object.next_name()? {
        if name == b"metadata" {
            identity = object
                .reader
                .identity()
                .map_err(|error| error.below("metadata"))?;
            break;
        }
        object.reader.skip()?;
    }
    if identity.name.is_empty() {
        return Err(Error::missing_field("name").below("metadata"));
    }
    Ok(identity)
}

/// Writes a value with the names of its fields.
pub(crate) fn encode(value: &impl Serialize) -> Vec<u8> {
    match rmp_serde::to_vec_named(value) {
        Ok(bytes) => bytes,
        Err(error) => unwritable(&error),
    }
}

#[allow(
    clippy::panic,
    reason = "only a type that refuses to be serialized: the author's mistake"
)]
fn unwritable(error: &rmp_serde::encode::Error) -> ! {
    panic!("a value cannot be written as MessagePack: {error}");
}

/// One value, or the head of one.
enum Token<'de> {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// See [`valid`].
    Text(&'de [u8]),
    Bytes(&'de [u8]),
    List(u32),
    Map(u32),
}

impl Token<'_> {
    /// The error for a value of another type.
    #[cold]
    #[inline(never)]
    fn invalid_type(&self, expected: &dyn Expected) -> Error {
        let found = match *self {
            Self::Nil => Unexpected::Unit,
            Self::Bool(value) => Unexpected::Bool(value),
            Self::Unsigned(value) => Unexpected::Unsigned(value),
            Self::Signed(value) => Unexpected::Signed(value),
            Self::Float(value) => Unexpected::Float(value),
            Self::Text(value) => Unexpected::Str(valid(value).unwrap_or_default()),
            Self::Bytes(value) => Unexpected::Bytes(value),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        };
        Error::invalid_type(found, expected)
    }
}

/// The text of these bytes. The host sends no others, so that a text is checked where it is kept,
/// and not where it is skipped or only compared with a name: a pass reads thousands of objects.
#[inline(never)]
fn valid(text: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(text).map_err(|_| Error::custom("a text is not UTF-8"))
}

/// How nil is written: a call of rmp's own conversion for each value would be seen in a pass.
const NIL: u8 = 0xc0;

struct Reader<'de> {
    rest: &'de [u8],
    strict: bool,
}

impl<'de> Reader<'de> {
    fn new(bytes: &'de [u8], strict: bool) -> Self {
        let rest = bytes;
        Self { rest, strict }
    }

    fn whole<T: DeserializeOwned>(mut self) -> Result<T, Error> {
        let value = T::deserialize(&mut self)?;
        if self.rest.is_empty() {
            Ok(value)
        } else {
            Err(Error::custom("more bytes follow the MessagePack value"))
        }
    }

    fn token(&mut self) -> Result<Token<'de>, Error> {
        let [marker] = self.array()?;
        Ok(match Marker::from_u8(marker) {
            Marker::Null => Token::Nil,
            Marker::True => Token::Bool(true),
            Marker::False => Token::Bool(false),
            Marker::FixPos(value) => Token::Unsigned(value.into()),
            Marker::FixNeg(value) => Token::Signed(value.into()),
            Marker::U8 => Token::Unsigned(self.unsigned::<1>()?),
            Marker::U16 => Token::Unsigned(self.unsigned::<2>()?),
            Marker::U32 => Token::Unsigned(self.unsigned::<4>()?),
            Marker::U64 => Token::Unsigned(self.unsigned::<8>()?),
            Marker::I8 => Token::Signed(i8::from_be_bytes(self.array()?).into()),
            Marker::I16 => Token::Signed(i16::from_be_bytes(self.array()?).into()),
            Marker::I32 => Token::Signed(i32::from_be_bytes(self.array()?).into()),
            Marker::I64 => Token::Signed(i64::from_be_bytes(self.array()?)),
            Marker::F32 => Token::Float(f32::from_be_bytes(self.array()?).into()),
            Marker::F64 => Token::Float(f64::from_be_bytes(self.array()?)),
            Marker::FixStr(len) => Token::Text(self.slice(len.into())?),
            Marker::Str8 => Token::Text(self.counted::<1>()?),
            Marker::Str16 => Token::Text(self.counted::<2>()?),
            Marker::Str32 => Token::Text(self.counted::<4>()?),
            Marker::Bin8 => Token::Bytes(self.counted::<1>()?),
            Marker::Bin16 => Token::Bytes(self.counted::<2>()?),
            Marker::Bin32 => Token::Bytes(self.counted::<4>()?),
            Marker::FixArray(len) => Token::List(len.into()),
            Marker::Array16 => Token::List(self.length::<2>()?),
            Marker::Array32 => Token::List(self.length::<4>()?),
            Marker::FixMap(len) => Token::Map(len.into()),
            Marker::Map16 => Token::Map(self.length::<2>()?),
            Marker::Map32 => Token::Map(self.length::<4>()?),
            _ => return Err(Error::custom("JSON has no such type")),
        })
    }

    /// The text that comes next, if it has less than 32 bytes, as most texts do: a token would
    /// be compared with every other type first.
    fn short_text(&mut self) -> Option<&'de [u8]> {
        let (marker, rest) = self.rest.split_first()?;
        let Marker::FixStr(len) = Marker::from_u8(*marker) else {
            return None;
        };
        let (text, rest) = rest.split_at_checked(len.into())?;
        self.rest = rest;
        Some(text)
    }

    /// Skips one value, however deep.
    fn skip(&mut self) -> Result<(), Error> {
        let mut left = 1_u64;
        while left > 0 {
            left -= 1;
            if self.short_text().is_some() {
                continue;
            }
            match self.token()? {
                Token::List(len) => left += u64::from(len),
                Token::Map(len) => left += 2 * u64::from(len),
                _ => {}
            }
        }
        Ok(())
    }

    /// The entries of a map.
    fn entries(&mut self) -> Result<Entries<'_, 'de>, Error> {
        match self.token()? {
            Token::Map(left) => Ok(Entries {
                reader: self,
                left,
                fields: None,
                name: b"",
            }),
            token => Err(token.invalid_type(&"a map")),
        }
    }

    /// The identity in an object's metadata.
    fn identity(&mut self) -> Result<Identity<'de>, Error> {
        let mut identity = Identity::default();
        let mut metadata = self.entries()?;
        while let Some(name) = metadata.next_name()? {
            let value = match name {
                b"namespace" => &mut identity.namespace,
                b"name" => &mut identity.name,
                b"uid" => &mut identity.uid,
                _ => {
                    metadata.reader.skip()?;
                    continue;
                }
            };
            let read = metadata.reader.name();
            *value = read.map_err(|error| error.below_name(name))?;
        }
        Ok(identity)
    }

    /// The text that comes next.
    fn text(&mut self, expected: &dyn Expected) -> Result<&'de [u8], Error> {
        if let Some(text) = self.short_text() {
            return Ok(text);
        }
        match self.token()? {
            Token::Text(text) => Ok(text),
            token => Err(token.invalid_type(expected)),
        }
    }

    fn name(&mut self) -> Result<&'de str, Error> {
        valid(self.text(&"a string")?)
    }

    /// Skips the next value if it is nil.
    fn skip_nil(&mut self) -> bool {
        match self.rest.split_first() {
            Some((&NIL, rest)) => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// A number of this many bytes, 8 at most.
    fn unsigned<const N: usize>(&mut self) -> Result<u64, Error> {
        let bytes = self.array::<N>()?;
        Ok(bytes
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn length<const N: usize>(&mut self) -> Result<u32, Error> {
        u32::try_from(self.unsigned::<N>()?).map_err(Error::custom)
    }

    fn slice(&mut self, len: u32) -> Result<&'de [u8], Error> {
        let split = self.rest.split_at_checked(len as usize);
        let (slice, rest) = split.ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(slice)
    }

    /// Bytes behind their number, which has N bytes.
    fn counted<const N: usize>(&mut self) -> Result<&'de [u8], Error> {
        let len = self.length::<N>()?;
        self.slice(len)
    }

    fn map<V: Visitor<'de>>(
        &mut self,
        len: u32,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Entries {
            reader: self,
            left: len,
            fields,
            name: b"",
        })
    }
}

fn cut_short() -> Error {
    Error::custom("the MessagePack value is cut short")
}

impl<'de> Deserializer<'de> for &mut Reader<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let Some(text) = self.short_text() {
            return visitor.visit_borrowed_str(valid(text)?);
        }
        match self.token()? {
            Token::Nil => visitor.visit_unit(),
            Token::Bool(value) => visitor.visit_bool(value),
            Token::Unsigned(value) => visitor.visit_u64(value),
            Token::Signed(value) => visitor.visit_i64(value),
            Token::Float(value) => visitor.visit_f64(value),
            Token::Text(value) => visitor.visit_borrowed_str(valid(value)?),
            Token::Bytes(value) => visitor.visit_borrowed_bytes(value),
            Token::List(len) => visitor.visit_seq(Elements {
                reader: self,
                len,
                next: 0,
            }),
            Token::Map(len) => self.map(len, None, visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.skip_nil() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A struct is a map, never a list.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Map(len) => self.map(len, Some(fields), visitor),
            token => Err(token.invalid_type(&"a map")),
        }
    }

    /// Only enums without fields, written as their name.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.token()? {
            Token::Text(name) => {
                let name: StrDeserializer<'_, Error> = valid(name)?.into_deserializer();
                visitor.visit_enum(name)
            }
            token => {
                let known = format!("one of {}", variants.join(", "));
                Err(token.invalid_type(&known.as_str()))
            }
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.skip()?;
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier
    }
}

/// The elements of a list. An error inside an element names its position.
struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    len: u32,
    next: u32,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        if self.next == self.len {
            return Ok(None);
        }
        let position = self.next;
        self.next += 1;
        seed.deserialize(&mut *self.reader)
            .map(Some)
            .map_err(|error| error.below(&format!("[{position}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some((self.len - self.next) as usize)
    }
}

/// The entries of a map. An error inside an entry names it.
struct Entries<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: u32,
    /// The fields of the struct, if the map is one.
    fields: Option<&'static [&'static str]>,
    name: &'de [u8],
}

impl<'de> Entries<'_, 'de> {
    /// The name of the next entry with a value. Null is the same as an absent
    /// field in Kubernetes. In a map of a configuration it is a value: it may
    /// mean that something is removed.
    fn next_name(&mut self) -> Result<Option<&'de [u8]>, Error> {
        while self.left > 0 {
            self.left -= 1;
            let name = self.reader.text(&"a field's name")?;
            if let Some(fields) = self.fields
                && self.reader.strict
                && !fields.iter().any(|field| field.as_bytes() == name)
            {
                return Err(Error::unknown_field(valid(name)?, fields));
            }
            let keeps_null = self.fields.is_none() && self.reader.strict;
            if keeps_null || !self.reader.skip_nil() {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

impl<'de> MapAccess<'de> for Entries<'_, 'de> {
    type Error = Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Error> {
        let Some(name) = self.next_name()? else {
            return Ok(None);
        };
        self.name = name;
        seed.deserialize(Name(name))
            .map(Some)
            .map_err(|error: Error| error.below_name(name))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Error> {
        seed.deserialize(&mut *self.reader)
            .map_err(|error| error.below_name(self.name))
    }
}

/// The name of an entry. The fields of a view are found by its bytes.
struct Name<'de>(&'de [u8]);

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_str(valid(self.0)?)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_borrowed_bytes(self.0)
    }

    /// The key of a map: the name of a variant without fields.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(BorrowedStrDeserializer::new(valid(self.0)?))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests;
