//! What a module is known by.

use std::fmt;

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

impl fmt::Display for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ModuleDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ModuleDigest({self})")
    }
}
