//! Whether MessagePack can be sent as JSON: the one check of a guest's values, before a
//! decision is accepted and before a request is built.

use std::collections::BTreeSet;

use super::{Head, MAX_JSON_DEPTH};

/// Why bytes are not a value that JSON can express.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
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
    /// A map with two equal keys. The gate would read the first, and the API server the
    /// last.
    #[error("a map has a key twice")]
    Twice,
    /// A type that JSON does not have.
    #[error("it contains {0}, which JSON does not have")]
    Foreign(&'static str),
    /// Nested lists and maps, deeper than any object of Kubernetes.
    #[error("it is nested deeper than {MAX_JSON_DEPTH} levels")]
    Deep,
}

/// Checks that bytes are one value that JSON can express. It reads every byte once: a
/// deeply nested value must not cost more than its size.
pub fn check_json(bytes: &[u8]) -> Result<(), JsonError> {
    match skip(bytes, 0)? {
        [] => Ok(()),
        _ => Err(JsonError::Trailing),
    }
}

/// Skips one value, and returns what follows it.
fn skip(bytes: &[u8], depth: u32) -> Result<&[u8], JsonError> {
    if depth > MAX_JSON_DEPTH {
        return Err(JsonError::Deep);
    }
    let (head, mut rest) = read(bytes)?;
    match head {
        Head::Nil | Head::Bool(_) | Head::Unsigned(_) | Head::Signed(_) => {}
        Head::Float(number) if number.is_finite() => {}
        Head::Float(_) => return Err(JsonError::Foreign("a number that is not finite")),
        Head::Text(len) => rest = text(rest, len)?,
        Head::Binary(_) => return Err(JsonError::Foreign("binary data or an extension type")),
        Head::List(len) => {
            for _ in 0..len {
                rest = skip(rest, depth + 1)?;
            }
        }
        Head::Map(len) => {
            let mut keys = BTreeSet::new();
            for _ in 0..len {
                let (Head::Text(key), after) = read(rest)? else {
                    return Err(JsonError::Key);
                };
                let value = text(after, key)?;
                if !keys.insert(after.get(..key)) {
                    return Err(JsonError::Twice);
                }
                rest = skip(value, depth + 1)?;
            }
        }
    }
    Ok(rest)
}

pub(super) fn read(bytes: &[u8]) -> Result<(Head, &[u8]), JsonError> {
    // The only marker with which no value starts.
    if bytes.first() == Some(&0xc1) {
        return Err(JsonError::Foreign("the reserved byte 0xc1"));
    }
    Head::read(bytes).map_err(|_| JsonError::CutOff)
}

/// Skips text of this length.
fn text(bytes: &[u8], len: usize) -> Result<&[u8], JsonError> {
    let (text, rest) = bytes.split_at_checked(len).ok_or(JsonError::CutOff)?;
    match std::str::from_utf8(text) {
        Ok(_) => Ok(rest),
        Err(_) => Err(JsonError::NotText),
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
        assert_eq!(check_json(&body), Ok(()));
    }

    #[test]
    fn every_torn_body_is_refused() {
        let mut body = sample();
        for end in (0..body.len()).step_by(97) {
            assert_eq!(check_json(&body[..end]), Err(JsonError::CutOff), "{end}");
        }
        body.push(0xc0);
        assert_eq!(check_json(&body), Err(JsonError::Trailing));
    }

    #[test]
    fn a_body_that_json_cannot_express_is_refused() {
        let cases: [(&[u8], JsonError); 8] = [
            (&[0xc1], JsonError::Foreign("the reserved byte 0xc1")),
            (
                &[0xc4, 1, 0],
                JsonError::Foreign("binary data or an extension type"),
            ),
            (
                &[0xd4, 1, 0],
                JsonError::Foreign("binary data or an extension type"),
            ),
            (
                &[0xca, 0x7f, 0xc0, 0, 0],
                JsonError::Foreign("a number that is not finite"),
            ),
            (&[0xa1, 0xff], JsonError::NotText),
            (&[0x81, 1, 2], JsonError::Key),
            (b"\x82\xa1a\x01\xa1a\x02", JsonError::Twice),
            (&[0x91; 200], JsonError::Deep),
        ];
        for (body, error) in cases {
            assert_eq!(check_json(body), Err(error), "{body:x?}");
        }
    }

    #[test]
    fn a_wrong_length_costs_nothing() {
        assert_eq!(
            check_json(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
            Err(JsonError::CutOff)
        );
        assert_eq!(
            check_json(&[0xdb, 0xff, 0xff, 0xff, 0xff]),
            Err(JsonError::CutOff)
        );
    }
}
