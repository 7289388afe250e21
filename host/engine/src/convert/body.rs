//! The MessagePack in a guest's answer: whether it can be sent as JSON, and
//! what it contains.

use davit_core::msgpack::{self, Value};
use rmp::Marker;
use rmp::decode::{read_array_len, read_map_len, read_marker, read_str_len};

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It ends within a value.
    #[error("it is truncated")]
    CutOff,
    /// Bytes follow the value.
    #[error("bytes follow the value")]
    Trailing,
    /// Text that is not UTF-8.
    #[error("a text is not UTF-8")]
    NotText,
    /// A map with keys that JSON cannot have.
    #[error("a map has a key that is not text")]
    Key,
    /// A type that JSON does not have.
    #[error("it contains {0}, which JSON does not have")]
    Foreign(&'static str),
    /// Nested lists and maps, deeper than any object of Kubernetes.
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    Deep,
}

const MAX_DEPTH: u32 = 64;

/// Checks that a body is one value that JSON can express.
pub(super) fn check(body: &[u8]) -> Result<(), BodyError> {
    let mut rest = body;
    skip(&mut rest, 0)?;
    if rest.is_empty() {
        Ok(())
    } else {
        Err(BodyError::Trailing)
    }
}

/// The value of a map's field; none if the field is absent, or the value is not
/// a map.
pub(super) fn field<'a>(body: &'a [u8], name: &str) -> Option<&'a [u8]> {
    msgpack::field(body, name).ok()?
}

/// The text of a value; none if it is not text.
pub(super) fn text(value: &[u8]) -> Option<&str> {
    match Value::read(value) {
        Ok(Value::Text(text)) => Some(text),
        _ => None,
    }
}

/// Whether a body is a map.
pub(super) fn is_map(body: &[u8]) -> bool {
    matches!(Value::read(body), Ok(Value::Map(_)))
}

/// Whether a body is a list.
pub(super) fn is_list(body: &[u8]) -> bool {
    matches!(Value::read(body), Ok(Value::List(_)))
}

/// Skips one value and reads every byte once: bodies come from guests, and a
/// value that is nested on purpose must not cost more than its size.
fn skip(rest: &mut &[u8], depth: u32) -> Result<(), BodyError> {
    if depth > MAX_DEPTH {
        return Err(BodyError::Deep);
    }
    let start = *rest;
    let marker = read_marker(rest).map_err(|_| BodyError::CutOff)?;
    match marker {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => {
            Ok(())
        }
        Marker::U8 | Marker::I8 => take(rest, 1).map(drop),
        Marker::U16 | Marker::I16 => take(rest, 2).map(drop),
        Marker::U32 | Marker::I32 => take(rest, 4).map(drop),
        Marker::U64 | Marker::I64 => take(rest, 8).map(drop),
        Marker::F32 => finite(f64::from(f32::from_be_bytes(array(rest)?))),
        Marker::F64 => finite(f64::from_be_bytes(array(rest)?)),
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            *rest = start;
            let length = read_str_len(rest).map_err(|_| BodyError::CutOff)?;
            let bytes = take(rest, length as usize)?;
            std::str::from_utf8(bytes).map_or(Err(BodyError::NotText), |_| Ok(()))
        }
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            *rest = start;
            let length = read_array_len(rest).map_err(|_| BodyError::CutOff)?;
            (0..length).try_for_each(|_| skip(rest, depth + 1))
        }
        Marker::FixMap(_) | Marker::Map16 | Marker::Map32 => {
            *rest = start;
            let length = read_map_len(rest).map_err(|_| BodyError::CutOff)?;
            (0..length).try_for_each(|_| {
                skip_key(rest)?;
                skip(rest, depth + 1)
            })
        }
        Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => Err(BodyError::Foreign("binary data")),
        Marker::Reserved => Err(BodyError::Foreign("the reserved byte 0xc1")),
        _ => Err(BodyError::Foreign("an extension type")),
    }
}

fn skip_key(rest: &mut &[u8]) -> Result<(), BodyError> {
    let is_text = match rest.first() {
        None => return Err(BodyError::CutOff),
        Some(byte) => matches!(
            Marker::from_u8(*byte),
            Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32
        ),
    };
    if is_text {
        skip(rest, 0)
    } else {
        Err(BodyError::Key)
    }
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Result<&'a [u8], BodyError> {
    let (taken, after) = rest.split_at_checked(length).ok_or(BodyError::CutOff)?;
    *rest = after;
    Ok(taken)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], BodyError> {
    let (taken, after) = rest.split_first_chunk().ok_or(BodyError::CutOff)?;
    *rest = after;
    Ok(*taken)
}

fn finite(number: f64) -> Result<(), BodyError> {
    if number.is_finite() {
        Ok(())
    } else {
        Err(BodyError::Foreign("a number that is not finite"))
    }
}

#[cfg(test)]
mod tests {
    use rmp_serde::to_vec_named;
    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Sample {
        text: &'static str,
        long: String,
        numbers: (u8, i64, f32, f64, u64),
        nothing: Option<u8>,
        yes: bool,
        list: Vec<u16>,
        inner: Inner,
    }

    #[derive(Serialize)]
    struct Inner {
        name: &'static str,
    }

    fn sample() -> Vec<u8> {
        to_vec_named(&Sample {
            text: "grün",
            long: "x".repeat(70_000),
            numbers: (200, -70_000, 0.5, 1e300, u64::MAX),
            nothing: None,
            yes: true,
            list: (0..300).collect(),
            inner: Inner { name: "a" },
        })
        .unwrap()
    }

    #[test]
    fn a_body_that_json_can_express_is_accepted() {
        let body = sample();
        assert_eq!(check(&body), Ok(()));
        assert!(is_map(&body) && !is_list(&body));
        let inner = field(&body, "inner").unwrap();
        assert_eq!(field(inner, "name").and_then(text), Some("a"));
        assert_eq!(field(&body, "text").and_then(text), Some("grün"));
        assert_eq!(field(&body, "yes").and_then(text), None);
        assert_eq!(field(&body, "absent"), None);
        assert_eq!(field(b"\x01", "absent"), None);
    }

    #[test]
    fn every_torn_body_is_refused() {
        let mut body = sample();
        for end in (0..body.len()).step_by(97) {
            assert_eq!(check(&body[..end]), Err(BodyError::CutOff), "{end}");
        }
        body.push(0xc0);
        assert_eq!(check(&body), Err(BodyError::Trailing));
    }

    #[test]
    fn a_body_that_json_cannot_express_is_refused() {
        let cases: [(&[u8], BodyError); 7] = [
            (&[0xc1], BodyError::Foreign("the reserved byte 0xc1")),
            (&[0xc4, 1, 0], BodyError::Foreign("binary data")),
            (&[0xd4, 1, 0], BodyError::Foreign("an extension type")),
            (
                &[0xca, 0x7f, 0xc0, 0, 0],
                BodyError::Foreign("a number that is not finite"),
            ),
            (&[0xa1, 0xff], BodyError::NotText),
            (&[0x81, 1, 2], BodyError::Key),
            (&[0x91; 200], BodyError::Deep),
        ];
        for (body, error) in cases {
            assert_eq!(check(body), Err(error), "{body:x?}");
        }
    }

    #[test]
    fn a_wrong_length_costs_nothing() {
        assert_eq!(
            check(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
            Err(BodyError::CutOff)
        );
        assert_eq!(
            check(&[0xdb, 0xff, 0xff, 0xff, 0xff]),
            Err(BodyError::CutOff)
        );
    }
}
