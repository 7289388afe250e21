//! Base64 (RFC 4648): hashes in discovery, `continue` tokens.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The standard alphabet, padded.
#[must_use]
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = symbols(bytes, STANDARD);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// The URL alphabet, without padding.
#[must_use]
pub(crate) fn encode_url(bytes: &[u8]) -> String {
    symbols(bytes, URL)
}

/// Reads the URL alphabet without padding; the position of the first byte
/// that does not belong if there is one.
pub(crate) fn decode_url(text: &str) -> Result<Vec<u8>, usize> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut held) = (0u32, 0u32);
    for (at, symbol) in text.bytes().enumerate() {
        let value = URL.iter().position(|c| *c == symbol).ok_or(at)?;
        bits = (bits << 6) | u32::try_from(value).unwrap_or(0);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from((bits >> held) & 0xff).unwrap_or(0));
        }
    }
    if held == 6 {
        return Err(text.len());
    }
    Ok(bytes)
}

fn symbols(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    let mut push = |bits: u32| {
        if let Some(symbol) = alphabet.get((bits & 63) as usize) {
            text.push(char::from(*symbol));
        }
    };
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        push(bits >> 18);
        push(bits >> 12);
        if chunk.len() > 1 {
            push(bits >> 6);
        }
        if chunk.len() > 2 {
            push(bits);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_and_known_values() {
        assert_eq!(encode(b"f"), "Zg==");
        assert_eq!(encode(b"foobar"), "Zm9vYmFy");
        for text in ["", "f", "fo", "foo", "foob"] {
            assert_eq!(decode_url(&encode_url(text.as_bytes())), Ok(text.into()));
        }
        assert_eq!(decode_url("ab!d"), Err(2));
        assert_eq!(decode_url("a"), Err(1));
    }
}
