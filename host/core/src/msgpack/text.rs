//! JSON text for MessagePack, and MessagePack for JSON text: the payloads of guests that
//! read and write JSON.
//!
//! Both directions are one pass without a tree, and exact: integers from -2^63 to 2^64 - 1
//! keep every digit, a number with a fraction keeps its value and stays one with a
//! fraction. [`check_json`](super::check_json) has the rules that are not about the text;
//! this module has those of the text.

use std::fmt;

use serde::Serialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Head, JsonError, MAX_DEPTH, OpenContainer};

/// Why a text is not JSON that the host can read, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem} at line {line} column {column}")]
pub struct SyntaxError {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, counted from 1, in bytes; 0 at the start of a line.
    pub column: usize,
    /// What is wrong.
    pub problem: String,
}

/// Writes the JSON of one MessagePack value, without space between its parts.
///
/// Fails if JSON cannot express the value, or if it is nested deeper than [`MAX_DEPTH`].
/// It checks less than [`check_json`](super::check_json): of two equal keys it writes both.
pub fn to_json(messagepack: &[u8]) -> Result<Vec<u8>, JsonError> {
    // Quotes and commas take about the room of MessagePack's lengths, and a little more.
    let mut json = Vec::with_capacity(messagepack.len() + messagepack.len() / 4 + 16);
    match write(messagepack, MAX_DEPTH, &mut json)? {
        [] => Ok(json),
        _ => Err(JsonError::Trailing),
    }
}

/// Writes one value, and returns what follows it.
fn write<'a>(bytes: &'a [u8], depth: usize, json: &mut Vec<u8>) -> Result<&'a [u8], JsonError> {
    let (head, mut rest) = super::json::read(bytes)?;
    let below = || depth.checked_sub(1).ok_or(JsonError::Deep);
    match head {
        Head::Nil => json.extend(b"null"),
        Head::Bool(value) => scalar(&value, json)?,
        Head::Unsigned(value) => scalar(&value, json)?,
        Head::Signed(value) => scalar(&value, json)?,
        Head::Float(value) if value.is_finite() => scalar(&value, json)?,
        Head::Float(_) => return Err(JsonError::Foreign("a number that is not finite")),
        Head::Text(len) => rest = text(rest, len, json)?,
        Head::Binary(_) => return Err(JsonError::Foreign("binary data or an extension type")),
        Head::List(len) => {
            let depth = below()?;
            json.push(b'[');
            for index in 0..len {
                comma(index, json);
                rest = write(rest, depth, json)?;
            }
            json.push(b']');
        }
        Head::Map(len) => {
            let depth = below()?;
            json.push(b'{');
            for index in 0..len {
                comma(index, json);
                let (Head::Text(key), after) = super::json::read(rest)? else {
                    return Err(JsonError::Key);
                };
                let value = text(after, key, json)?;
                json.push(b':');
                rest = write(value, depth, json)?;
            }
            json.push(b'}');
        }
    }
    Ok(rest)
}

fn comma(index: u32, json: &mut Vec<u8>) {
    if index > 0 {
        json.push(b',');
    }
}

/// Writes text of this length.
fn text<'a>(bytes: &'a [u8], len: usize, json: &mut Vec<u8>) -> Result<&'a [u8], JsonError> {
    let (text, rest) = bytes.split_at_checked(len).ok_or(JsonError::CutOff)?;
    let text = std::str::from_utf8(text).map_err(|_| JsonError::NotText)?;
    scalar(&text, json)?;
    Ok(rest)
}

fn scalar(value: &impl Serialize, json: &mut Vec<u8>) -> Result<(), JsonError> {
    serde_json::to_writer(json, value).map_err(|_| JsonError::Foreign("an unknown value"))
}

/// Reads one JSON value as MessagePack: the shortest form of every number and length, maps
/// in the order of the text.
///
/// Refuses, with the position: what is not JSON in UTF-8, half of a surrogate pair, an
/// integer below -2^63 or above 2^64 - 1, a number beyond the range of doubles, and lists
/// and maps that are nested deeper than about 128 levels. Two equal keys are left to
/// [`check_json`](super::check_json).
pub fn from_json(json: &[u8]) -> Result<Vec<u8>, SyntaxError> {
    let mut messagepack = Vec::with_capacity(json.len());
    let mut is_rounded = false;
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = Value {
        messagepack: &mut messagepack,
        is_rounded: &mut is_rounded,
    };
    value
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end())
        .map_err(|error| SyntaxError::new(&error))?;
    match is_rounded.then(|| long_integer(json)).flatten() {
        Some(at) => Err(at),
        None => Ok(messagepack),
    }
}

impl SyntaxError {
    fn new(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let text = error.to_string();
        let position = format!(" at line {line} column {column}");
        let problem = text.strip_suffix(&position).unwrap_or(&text).to_owned();
        Self {
            line,
            column,
            problem,
        }
    }
}

/// The least number that is too large for an integer.
const TWO_TO_THE_63: f64 = 9_223_372_036_854_775_808.0;

/// The first integer that 64 bits cannot hold. The text is JSON.
fn long_integer(json: &[u8]) -> Option<SyntaxError> {
    let (mut line, mut line_start, mut at) = (1, 0, 0);
    while let Some(byte) = json.get(at) {
        match byte {
            b'\n' => {
                line += 1;
                at += 1;
                line_start = at;
            }
            b'"' => at += string_len(json.get(at..)?),
            b'-' | b'0'..=b'9' => {
                let number = json.get(at..)?;
                let is_part =
                    |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
                let len = number.iter().take_while(|byte| is_part(byte)).count();
                if is_long(number.get(..len)?) {
                    return Some(SyntaxError {
                        line,
                        column: at - line_start + 1,
                        problem: "an integer needs more than 64 bits".to_owned(),
                    });
                }
                at += len;
            }
            _ => at += 1,
        }
    }
    None
}

/// The length of the string at the start, with its quotes.
fn string_len(json: &[u8]) -> usize {
    let mut at = 1;
    while let Some(byte) = json.get(at) {
        at += match byte {
            b'"' => return at + 1,
            b'\\' => 2,
            _ => 1,
        };
    }
    at
}

fn is_long(number: &[u8]) -> bool {
    let Ok(number) = std::str::from_utf8(number) else {
        return false;
    };
    let is_integer = !number.contains(['.', 'e', 'E']);
    is_integer && number.parse::<i64>().is_err() && number.parse::<u64>().is_err()
}

/// Reads one value into MessagePack.
struct Value<'a> {
    messagepack: &'a mut Vec<u8>,
    /// Whether a number was read that may be an integer which a double has rounded.
    is_rounded: &'a mut bool,
}

impl Value<'_> {
    /// The same, for a part of the value.
    fn part(&mut self) -> Value<'_> {
        Value {
            messagepack: self.messagepack,
            is_rounded: self.is_rounded,
        }
    }

    fn scalar<E: Error, W: fmt::Display>(
        self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), W>,
    ) -> Result<(), E> {
        write(self.messagepack).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.scalar(rmp::encode::write_nil)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(|bytes| rmp::encode::write_bool(bytes, value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(|bytes| rmp::encode::write_uint(bytes, value).map(drop))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(|bytes| rmp::encode::write_sint(bytes, value).map(drop))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        *self.is_rounded |= value.abs() >= TWO_TO_THE_63;
        self.scalar(|bytes| rmp::encode::write_f64(bytes, value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(|bytes| rmp::encode::write_str(bytes, value))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        let open = OpenContainer::array(self.messagepack);
        let mut len = 0_u32;
        while list.next_element_seed(self.part())?.is_some() {
            len += 1;
        }
        open.close(self.messagepack, len).map_err(Error::custom)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let open = OpenContainer::map(self.messagepack);
        let mut len = 0_u32;
        while map.next_key_seed(self.part())?.is_some() {
            map.next_value_seed(self.part())?;
            len += 1;
        }
        open.close(self.messagepack, len).map_err(Error::custom)
    }
}

#[cfg(test)]
mod tests;
