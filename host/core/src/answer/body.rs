//! What the MessagePack in a guest's answer contains.

use crate::msgpack::{self, Value};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_in_a_map_and_nowhere_else() {
        // {"name": "a"}
        let body = b"\x81\xa4name\xa1a";
        assert!(is_map(body) && !is_list(body));
        assert_eq!(field(body, "name").and_then(text), Some("a"));
        assert_eq!(field(body, "absent"), None);
        assert!(is_list(b"\x91\x01") && !is_map(b"\x91\x01"));
        assert_eq!(field(b"\x01", "absent"), None);
        assert_eq!(text(b"\xc3"), None);
    }
}
