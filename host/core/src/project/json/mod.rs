//! Reading JSON, fast where nothing of it is kept.
//!
//! A pod has twenty times as many bytes as a controller declares of it. Readers for all
//! purposes check what they skip; this one only looks for its end ([`skip`]), 64 bytes at a
//! time. What is skipped is therefore not checked, except that its strings and its brackets
//! end. What is read is checked as by `serde_json`, which reads the numbers and the strings
//! with escapes; but of bytes, it is for their visitor to check that they are UTF-8.

mod skip;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{self, DeserializeSeed, Visitor};
use serde::forward_to_deserialize_any;

/// How deep a value is read. What is nested deeper is null: an object that one user made must not keep
/// the host from reading all others. What is skipped may be nested deeper.
const MAX_DEPTH: u32 = 128;

/// Why a text cannot be read.
#[derive(Debug)]
pub(super) struct ReadError {
    reason: Box<str>,
    /// The position in the text, in bytes, if it is known.
    at: Option<usize>,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.at.map_or(Ok(()), |at| write!(f, " at byte {at}"))
    }
}

impl std::error::Error for ReadError {}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self {
            reason: reason.to_string().into(),
            at: None,
        }
    }
}

/// Reads a whole text: anything after the value is an error.
pub(super) fn read_all<'de, S: DeserializeSeed<'de>>(
    json: &'de [u8],
    seed: S,
) -> Result<S::Value, ReadError> {
    let mut reader = Reader {
        json,
        at: 0,
        depth: 0,
    };
    let value = seed.deserialize(&mut reader).and_then(|value| {
        if reader.peek().is_some() {
            return Err(reader.error("the text should end"));
        }
        Ok(value)
    });
    value.map_err(|error| ReadError {
        at: error.at.or(Some(reader.at)),
        ..error
    })
}

/// A text, and the place up to which it has been read.
struct Reader<'de> {
    json: &'de [u8],
    at: usize,
    /// The maps and lists around this place.
    depth: u32,
}

impl<'de> Reader<'de> {
    #[cold]
    fn error(&self, reason: &str) -> ReadError {
        let reason = if self.at < self.json.len() {
            reason.into()
        } else {
            format!("the text breaks off: {reason}").into()
        };
        ReadError {
            reason,
            at: Some(self.at),
        }
    }

    /// The next byte that is no space, which stays; none at the end.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.json.get(self.at).copied() {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                next => return next,
            }
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8, what: &str) -> Result<(), ReadError> {
        if self.peek() != Some(byte) {
            return Err(self.error(what));
        }
        self.at += 1;
        Ok(())
    }

    /// The next byte has to be a quote, which stays.
    #[inline]
    fn expect_quote(&mut self) -> Result<(), ReadError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("there should be a string"));
        }
        Ok(())
    }

    /// The text up to a place, up to which it is read.
    fn take(&mut self, end: Option<usize>, what: &str) -> Result<&'de [u8], ReadError> {
        let end = end.unwrap_or(self.json.len() + 1);
        let Some(taken) = self.json.get(self.at..end) else {
            return Err(self.error(what));
        };
        self.at = end;
        Ok(taken)
    }

    /// Goes to the end of a value without reading it.
    fn skip(&mut self) -> Result<(), ReadError> {
        const OPEN: &str = "a value has no end";
        match self.peek() {
            Some(b'{' | b'[') => {
                let end = skip::container(self.json, self.at + 1);
                self.take(end, OPEN)?;
            }
            Some(b'"') => {
                let end = skip::text(self.json, self.at + 1);
                self.take(end, OPEN)?;
            }
            _ => {
                self.scalar()?;
            }
        }
        Ok(())
    }

    /// A number or a word.
    fn scalar(&mut self) -> Result<&'de [u8], ReadError> {
        let rest = self.json.get(self.at..).unwrap_or_default();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let len = rest.iter().take_while(|byte| is_part(byte)).count();
        if len == 0 {
            return Err(self.error("there should be a value"));
        }
        self.take(Some(self.at + len), "")
    }

    /// Goes behind a string, whose quote is next, and returns its bytes; none if it has escapes, or is
    /// no string. Then the place is the same.
    fn plain(&mut self) -> Option<&'de [u8]> {
        let start = self.at + 1;
        let end = skip::plain_text(self.json, start)?;
        let plain = self.json.get(start..end - 1)?;
        self.at = end;
        Some(plain)
    }

    /// A string, whose quote is next, without a copy if it has no escapes.
    fn text(&mut self) -> Result<Cow<'de, str>, ReadError> {
        let start = self.at;
        if let Some(plain) = self.plain()
            && let Ok(text) = std::str::from_utf8(plain)
        {
            return Ok(Cow::Borrowed(text));
        }
        self.at = start;
        let end = skip::text(self.json, start + 1);
        let quoted = self.take(end, "a string has no end")?;
        serde_json::from_slice(quoted)
            .map(Cow::Owned)
            .map_err(|error| ReadError {
                reason: error.to_string().into(),
                at: Some(start),
            })
    }

    /// Whether another element of a container follows; otherwise it is left. The place is
    /// before the element.
    fn next(&mut self, container: &mut Container) -> Result<bool, ReadError> {
        let next = self.peek();
        if next == Some(container.close) {
            self.at += 1;
            container.is_left = true;
            return Ok(false);
        }
        if !std::mem::take(&mut container.is_at_start) {
            self.expect(b',', "there should be a comma or the end")?;
        }
        Ok(true)
    }

    /// Reads a container, whose opening bracket is next.
    fn nested<T>(
        &mut self,
        close: u8,
        read: impl FnOnce(Elements<'_, 'de>) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        self.depth += 1;
        self.at += 1;
        let mut container = Container {
            close,
            is_at_start: true,
            is_left: false,
        };
        let value = read(Elements {
            reader: self,
            container: &mut container,
        })?;
        if !container.is_left {
            return Err(self.error("it has more elements than expected"));
        }
        self.depth -= 1;
        Ok(value)
    }
}

/// A map or list that is being read.
struct Container {
    close: u8,
    is_at_start: bool,
    is_left: bool,
}

struct Elements<'a, 'de> {
    reader: &'a mut Reader<'de>,
    container: &'a mut Container,
}

impl<'de> de::MapAccess<'de> for Elements<'_, 'de> {
    type Error = ReadError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, ReadError> {
        if !self.reader.next(self.container)? {
            return Ok(None);
        }
        self.reader.expect_quote()?;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ReadError> {
        self.reader.expect(b':', "there should be a colon")?;
        seed.deserialize(&mut *self.reader)
    }
}

impl<'de> de::SeqAccess<'de> for Elements<'_, 'de> {
    type Error = ReadError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ReadError> {
        if !self.reader.next(self.container)? {
            return Ok(None);
        }
        seed.deserialize(&mut *self.reader).map(Some)
    }
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.peek() {
            Some(b'{' | b'[') if self.depth == MAX_DEPTH => {
                self.skip()?;
                visitor.visit_unit()
            }
            Some(b'{') => self.nested(b'}', |entries| visitor.visit_map(entries)),
            Some(b'[') => self.nested(b']', |elements| visitor.visit_seq(elements)),
            Some(b'"') => match self.text()? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            },
            _ => {
                let start = self.at;
                let mut scalar = serde_json::Deserializer::from_slice(self.scalar()?);
                let value = de::Deserializer::deserialize_any(&mut scalar, visitor);
                value
                    .and_then(|value| scalar.end().map(|()| value))
                    .map_err(|error| ReadError {
                        reason: error.to_string().into(),
                        at: Some(start),
                    })
            }
        }
    }

    /// Bytes that may not be UTF-8; text if the string has escapes.
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.peek() == Some(b'"')
            && let Some(plain) = self.plain()
        {
            return visitor.visit_borrowed_bytes(plain);
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        if self.peek() == Some(b'n') {
            return self.deserialize_any(visitor);
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    /// Of an enum, the API server sends the name of a variant.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        self.expect_quote()?;
        match self.text()? {
            Cow::Borrowed(name) => visitor.visit_enum(BorrowedStrDeserializer::new(name)),
            Cow::Owned(name) => visitor.visit_enum(StringDeserializer::new(name)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string byte_buf
        unit unit_struct seq tuple tuple_struct map struct identifier
    }
}
