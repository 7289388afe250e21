//! Proof that a file was written by a host with the key of its directory.

use std::io;
use std::path::Path;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use tracing::warn;

use crate::cache_files;

/// The file of the key.
pub(crate) const NAME: &str = ".key";

/// How often the key is read before somebody else's changes are an error.
const ATTEMPTS: u32 = 5;

/// The size of a key in bytes: a block of SHA-256.
const BYTES: usize = 64;

/// The secret key of a directory of cached files.
#[derive(Clone)]
pub struct Key([u8; BYTES]);

impl Key {
    /// The directory's key. Creates one if there is none, or none that only this user
    /// can have written: what was sealed with that is compiled again.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let path = directory.join(NAME);
        // Another host may create or replace the key at the same time.
        for _ in 0..ATTEMPTS {
            match cache_files::read_own(&path).map(<[u8; BYTES]>::try_from) {
                Ok(Ok(key)) => return Ok(Self(key)),
                Ok(Err(_)) => cache_files::drop_file(&path),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    warn!(path = %path.display(), %error, "replacing the key of compiled guests");
                    cache_files::drop_file(&path);
                }
            }
            let mut key = [0; BYTES];
            getrandom::fill(&mut key).map_err(io::Error::other)?;
            cache_files::write_new(&path, &key)?;
        }
        let message = format!("the key {} changes all the time", path.display());
        Err(io::Error::other(message))
    }

    /// The header, a code over header and content that only this key makes, the
    /// content.
    #[must_use]
    pub fn seal(&self, header: Vec<u8>, content: &[u8]) -> Vec<u8> {
        let code = self.over(&header, content).finalize().into_bytes();
        let mut sealed = header;
        sealed.reserve(code.len() + content.len());
        sealed.extend_from_slice(&code);
        sealed.extend_from_slice(content);
        sealed
    }

    /// The content, if it was sealed with this key under this header.
    #[must_use]
    pub fn unseal<'a>(&self, header: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
        let (code, content) = sealed.strip_prefix(header)?.split_first_chunk::<32>()?;
        let verified = self.over(header, content).verify_slice(code);
        verified.ok().map(|()| content)
    }

    fn over(&self, header: &[u8], content: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new((&self.0).into());
        mac.update(header);
        mac.update(content);
        mac
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_sealed_file_opens_only_whole_and_under_its_own_header_and_key() {
        let key = Key([1; BYTES]);
        let sealed = key.seal(b"header".to_vec(), b"code");
        assert_eq!(key.unseal(b"header", &sealed), Some(b"code".as_slice()));
        assert_eq!(key.unseal(b"Header", &sealed), None);
        assert_eq!(key.unseal(b"header", &sealed[..sealed.len() - 1]), None);
        assert_eq!(key.unseal(b"header", b"header"), None);
        assert_eq!(Key([2; BYTES]).unseal(b"header", &sealed), None);
        for position in 0..sealed.len() {
            let mut torn = sealed.clone();
            torn[position] ^= 1;
            assert_eq!(key.unseal(b"header", &torn), None, "byte {position}");
        }
    }

    #[test]
    fn a_directory_keeps_its_key() {
        let directory = tempfile::tempdir().unwrap();
        let first = Key::open(directory.path()).unwrap().0;
        assert_eq!(Key::open(directory.path()).unwrap().0, first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(Key::open(other.path()).unwrap().0, first);
    }

    /// Somebody who may create a file in the directory, or has mounted another, chose
    /// the key.
    #[test]
    fn a_key_that_others_can_have_chosen_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(NAME);
        let chosen = [7; BYTES];
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, chosen).unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert_ne!(Key::open(directory.path()).unwrap().0, chosen);
        assert_eq!(fs::read(&elsewhere).unwrap(), chosen);

        fs::write(&path, chosen).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o660)).unwrap();
        assert_ne!(Key::open(directory.path()).unwrap().0, chosen);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
