//! Reading MessagePack in place, without building a tree.
//!
//! The bytes come from the host's own projector, but this module does not trust them:
//! for any bytes, the result is a value or [`DecodeError`], with bounded stack. Maps
//! have text keys; of two equal keys the first counts.

mod container;
mod json;
mod select;
mod text;

use rmp::Marker;
use rmp::decode::{RmpRead, ValueReadError};

use crate::path::{FieldPath, FieldTree, Segment};
pub(crate) use container::OpenContainer;
pub use json::{JsonError, check_json};
pub use select::select;
pub use text::{SyntaxError, from_json, to_json};

/// How deep a path or a tree descends into lists and maps. Kubernetes' own schemas have
/// fewer than 30 levels.
pub const MAX_DEPTH: usize = 128;

/// How deep a value may be nested that is sent as JSON.
const MAX_JSON_DEPTH: u32 = 64;

/// Bytes that are not a MessagePack value, or a value that is nested deeper
/// than [`MAX_DEPTH`] where a path or a tree descends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not MessagePack with text as map keys, or nested too deeply")]
pub struct DecodeError;

impl<E: rmp::decode::RmpReadErr> From<ValueReadError<E>> for DecodeError {
    fn from(_: ValueReadError<E>) -> Self {
        Self
    }
}

/// One value; the contents of a list or map are read when it is iterated.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// `null`
    Nil,
    /// `true` or `false`
    Bool(bool),
    /// An integer written without a sign.
    Unsigned(u64),
    /// An integer written with a sign.
    Signed(i64),
    /// A number with a fraction.
    Float(f64),
    /// A string.
    Text(&'a str),
    /// Raw bytes or an extension's; JSON has neither.
    Binary(&'a [u8]),
    /// A list.
    List(Elements<'a>),
    /// A map.
    Map(Entries<'a>),
}

impl<'a> Value<'a> {
    /// Reads the value at the start of the bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let (head, rest) = Head::read(bytes)?;
        Ok(match head {
            Head::Nil => Self::Nil,
            Head::Bool(value) => Self::Bool(value),
            Head::Unsigned(value) => Self::Unsigned(value),
            Head::Signed(value) => Self::Signed(value),
            Head::Float(value) => Self::Float(value),
            Head::Text(len) => Self::Text(text(split_at(rest, len)?.0)?),
            Head::Binary(len) => Self::Binary(split_at(rest, len)?.0),
            Head::List(left) => Self::List(Elements { left, bytes: rest }),
            Head::Map(left) => Self::Map(Entries { left, bytes: rest }),
        })
    }
}

/// The elements of a list, each as its bytes. Ends after an error.
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    left: u32,
    bytes: &'a [u8],
}

impl Elements<'_> {
    /// Whether no element is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        match split(self.bytes) {
            Ok((element, rest)) => {
                self.bytes = rest;
                Some(Ok(element))
            }
            Err(error) => {
                self.left = 0;
                Some(Err(error))
            }
        }
    }
}

/// The keys of a map with the bytes of their values. Ends after an error.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    left: u32,
    bytes: &'a [u8],
}

impl<'a> Entries<'a> {
    fn read(&mut self) -> Result<(&'a str, &'a [u8]), DecodeError> {
        let (name, rest) = name(self.bytes)?;
        let (value, rest) = split(rest)?;
        self.bytes = rest;
        Ok((text(name)?, value))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(&'a str, &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.read();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

/// Splits the bytes after the first value.
pub fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    let mut rest = bytes;
    let mut left = 1_u64;
    while left > 0 {
        left -= 1;
        if let Some((_, after)) = short_text(rest) {
            rest = after;
            continue;
        }
        let (head, after) = Head::read(rest)?;
        rest = after;
        match head {
            Head::Text(len) | Head::Binary(len) => rest = split_at(rest, len)?.1,
            Head::List(len) => left = left.saturating_add(u64::from(len)),
            Head::Map(len) => left = left.saturating_add(2 * u64::from(len)),
            _ => {}
        }
    }
    bytes
        .split_at_checked(bytes.len() - rest.len())
        .ok_or(DecodeError)
}

/// The bytes of a field's value; none if the field is absent, or the value is
/// not a map.
pub fn field<'a>(bytes: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, DecodeError> {
    let Value::Map(entries) = Value::read(bytes)? else {
        return Ok(None);
    };
    for entry in entries {
        let (key, value) = entry?;
        if key == name {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Visits every value at a path, in the order of the lists on the path. An
/// absent part, or one that is not a list where the path has `[*]`, has no
/// values.
pub fn visit<'a>(
    bytes: &'a [u8],
    path: &FieldPath,
    found: &mut dyn FnMut(Value<'a>),
) -> Result<(), DecodeError> {
    visit_below(bytes, path.segments(), MAX_DEPTH, found)
}

fn visit_below<'a>(
    mut bytes: &'a [u8],
    mut path: &[Segment],
    depth: usize,
    found: &mut dyn FnMut(Value<'a>),
) -> Result<(), DecodeError> {
    while let Some((step, rest)) = path.split_first() {
        path = rest;
        match step {
            Segment::Field(name) => match field(bytes, name)? {
                Some(value) => bytes = value,
                None => return Ok(()),
            },
            Segment::Each => {
                let depth = depth.checked_sub(1).ok_or(DecodeError)?;
                if let Value::List(elements) = Value::read(bytes)? {
                    for element in elements {
                        visit_below(element?, path, depth, found)?;
                    }
                }
                return Ok(());
            }
        }
    }
    found(Value::read(bytes)?);
    Ok(())
}

/// Whether two values are equal in everything that a tree declares.
///
/// Where the tree ends, they must be equal byte for byte, so a map with its
/// keys in another order is another map. Above, an absent part equals one that
/// is null or has nothing of what the tree declares, a list whose elements are
/// declared must have the same length, and a scalar must be the same. Malformed
/// values equal only themselves.
#[must_use]
pub fn subset_equal(tree: &FieldTree, a: &[u8], b: &[u8]) -> bool {
    agree(tree, Some(a), Some(b), MAX_DEPTH).unwrap_or(false)
}

fn agree(
    tree: &FieldTree,
    a: Option<&[u8]>,
    b: Option<&[u8]>,
    depth: usize,
) -> Result<bool, DecodeError> {
    if a == b {
        return Ok(true);
    }
    let FieldTree::Some { fields, each } = tree else {
        return Ok(false);
    };
    let depth = depth.checked_sub(1).ok_or(DecodeError)?;
    let (Some(a_list), Some(b_list)) = (elements(a)?, elements(b)?) else {
        return Ok(false);
    };
    if let Some(each) = each
        && !lists_agree(each, a_list, b_list, depth)?
    {
        return Ok(false);
    }
    for (name, tree) in fields {
        if !agree(tree, field_of(a, name)?, field_of(b, name)?, depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn lists_agree(
    each: &FieldTree,
    mut a: Elements<'_>,
    mut b: Elements<'_>,
    depth: usize,
) -> Result<bool, DecodeError> {
    loop {
        match (a.next().transpose()?, b.next().transpose()?) {
            (None, None) => return Ok(true),
            (Some(a), Some(b)) if agree(each, Some(a), Some(b), depth)? => {}
            _ => return Ok(false),
        }
    }
}

/// The elements of a list; none if there is no list; nothing for a scalar,
/// which has no fields or elements.
fn elements(bytes: Option<&[u8]>) -> Result<Option<Elements<'_>>, DecodeError> {
    let none = Elements {
        left: 0,
        bytes: &[],
    };
    Ok(match bytes.map(Value::read).transpose()? {
        Some(Value::List(elements)) => Some(elements),
        None | Some(Value::Nil | Value::Map(_)) => Some(none),
        Some(_) => None,
    })
}

fn field_of<'a>(bytes: Option<&'a [u8]>, name: &str) -> Result<Option<&'a [u8]>, DecodeError> {
    bytes.map_or(Ok(None), |bytes| field(bytes, name))
}

/// The bytes before a value's contents.
pub(crate) enum Head {
    Nil,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    /// This many bytes.
    Text(usize),
    /// This many bytes.
    Binary(usize),
    /// This many elements.
    List(u32),
    /// This many entries.
    Map(u32),
}

impl Head {
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, &[u8]), DecodeError> {
        let (&first, mut rest) = bytes.split_first().ok_or(DecodeError)?;
        let from = &mut rest;
        let head = match Marker::from_u8(first) {
            Marker::Null => Self::Nil,
            Marker::True => Self::Bool(true),
            Marker::False => Self::Bool(false),
            Marker::FixPos(value) => Self::Unsigned(value.into()),
            Marker::U8 => Self::Unsigned(from.read_data_u8()?.into()),
            Marker::U16 => Self::Unsigned(from.read_data_u16()?.into()),
            Marker::U32 => Self::Unsigned(from.read_data_u32()?.into()),
            Marker::U64 => Self::Unsigned(from.read_data_u64()?),
            Marker::FixNeg(value) => Self::Signed(value.into()),
            Marker::I8 => Self::Signed(from.read_data_i8()?.into()),
            Marker::I16 => Self::Signed(from.read_data_i16()?.into()),
            Marker::I32 => Self::Signed(from.read_data_i32()?.into()),
            Marker::I64 => Self::Signed(from.read_data_i64()?),
            Marker::F32 => Self::Float(from.read_data_f32()?.into()),
            Marker::F64 => Self::Float(from.read_data_f64()?),
            Marker::FixStr(len) => Self::Text(len.into()),
            Marker::Str8 => Self::Text(from.read_data_u8()?.into()),
            Marker::Str16 => Self::Text(from.read_data_u16()?.into()),
            Marker::Str32 => Self::Text(from.read_data_u32()? as usize),
            Marker::Bin8 => Self::Binary(from.read_data_u8()?.into()),
            Marker::Bin16 => Self::Binary(from.read_data_u16()?.into()),
            Marker::Bin32 => Self::Binary(from.read_data_u32()? as usize),
            // An extension's type is between its length and its bytes: it
            // counts as one of them.
            Marker::Ext8 => Self::Binary(usize::from(from.read_data_u8()?) + 1),
            Marker::Ext16 => Self::Binary(usize::from(from.read_data_u16()?) + 1),
            Marker::Ext32 => Self::Binary((from.read_data_u32()? as usize).saturating_add(1)),
            Marker::FixExt1 => Self::Binary(2),
            Marker::FixExt2 => Self::Binary(3),
            Marker::FixExt4 => Self::Binary(5),
            Marker::FixExt8 => Self::Binary(9),
            Marker::FixExt16 => Self::Binary(17),
            Marker::FixArray(len) => Self::List(len.into()),
            Marker::Array16 => Self::List(from.read_data_u16()?.into()),
            Marker::Array32 => Self::List(from.read_data_u32()?),
            Marker::FixMap(len) => Self::Map(len.into()),
            Marker::Map16 => Self::Map(from.read_data_u16()?.into()),
            Marker::Map32 => Self::Map(from.read_data_u32()?),
            Marker::Reserved => return Err(DecodeError),
        };
        Ok((head, rest))
    }
}

/// The name of a map's entry, which may not be UTF-8, and what follows it.
fn name(bytes: &[u8]) -> Result<(&[u8], &[u8]), DecodeError> {
    if let Some(both) = short_text(bytes) {
        return Ok(both);
    }
    match Head::read(bytes)? {
        (Head::Text(len), rest) => split_at(rest, len),
        _ => Err(DecodeError),
    }
}

/// A text of less than 32 bytes, as most values and all usual names are, and what follows it: a
/// head is compared with every other type first.
fn short_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (first, rest) = bytes.split_first()?;
    match Marker::from_u8(*first) {
        Marker::FixStr(len) => rest.split_at_checked(len.into()),
        _ => None,
    }
}

fn split_at(bytes: &[u8], len: usize) -> Result<(&[u8], &[u8]), DecodeError> {
    bytes.split_at_checked(len).ok_or(DecodeError)
}

fn text(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| DecodeError)
}

#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;
