//! The digest that identifies a guest's module.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

/// The SHA-256 of a module's bytes. It names the module in logs, in the cache
/// of compiled guests and in a revision's hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleDigest(pub [u8; 32]);

impl ModuleDigest {
    /// The digest of a module's bytes.
    #[must_use]
    pub fn of(wasm: &[u8]) -> Self {
        Self(Sha256::digest(wasm).into())
    }
}

/// A text that is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest has the form sha256: and 64 hexadecimal digits in lower case")]
pub struct NoDigest;

/// Reads `sha256:` and 64 hexadecimal digits, as registries write it.
impl FromStr for ModuleDigest {
    type Err = NoDigest;

    fn from_str(text: &str) -> Result<Self, NoDigest> {
        let digits = text.strip_prefix("sha256:").ok_or(NoDigest)?.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(NoDigest);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                *byte = *byte << 4 | nibble(*digit).ok_or(NoDigest)?;
            }
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        let digits = self.0.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        for (place, digit) in text.iter_mut().zip(digits) {
            *place = DIGITS.get(usize::from(digit)).copied().unwrap_or(b'0');
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModuleDigest({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_as_it_is_written() {
        let digest = ModuleDigest::of(b"wasm");
        let text = format!("sha256:{digest}");
        assert_eq!(text.parse(), Ok(digest));
        let wrong = [
            digest.to_string(),
            text.to_uppercase(),
            text.replace("sha256", "sha512"),
            text[..text.len() - 1].to_owned(),
            format!("{text}0"),
            format!("{}g", &text[..text.len() - 1]),
        ];
        for text in wrong {
            assert_eq!(text.parse::<ModuleDigest>(), Err(NoDigest), "{text}");
        }
    }
}
