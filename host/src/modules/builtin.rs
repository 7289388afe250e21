//! The guests that are shipped with Davit.

use std::path::{Path, PathBuf};

use davit_core::digest::ModuleDigest;

use super::file;

/// The directories of the guests that are shipped with Davit.
#[derive(Clone, Debug)]
pub struct BuiltinGuests {
    directories: Vec<PathBuf>,
}

/// Why a built-in guest is not found.
#[derive(Debug, thiserror::Error)]
pub enum BuiltinError {
    /// There is no such guest.
    #[error(
        "there is no built-in guest \"{name}\": {name}.wasm is in none of {}; name the directory \
         of the guests with --guests",
        places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NotFound {
        /// The name.
        name: String,
        /// The directories that were searched.
        places: Vec<PathBuf>,
    },
    /// The name would lead out of the directory.
    #[error(
        "\"{name}\" is not a valid name of a built-in guest: use lower-case letters, digits and dashes"
    )]
    NoName {
        /// The name.
        name: String,
    },
}

impl BuiltinGuests {
    /// Searches `directory` or, without one, the directories beside the running
    /// program: `guests`, `../share/davit/guests` (an installed program), and
    /// `../wasm32-wasip2/guest` (a program in cargo's target directory).
    #[must_use]
    pub fn new(directory: Option<PathBuf>) -> Self {
        let directories = directory.map_or_else(beside_the_program, |directory| vec![directory]);
        Self { directories }
    }

    /// The file of a guest.
    pub fn find(&self, name: &str) -> Result<PathBuf, BuiltinError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(BuiltinError::NoName { name: name.into() });
        }
        // Cargo writes the dashes of a package's name as underscores.
        let file = format!("{name}.wasm");
        let built = format!("{}.wasm", name.replace('-', "_"));
        self.directories
            .iter()
            .flat_map(|directory| [directory.join(&file), directory.join(&built)])
            .find(|path| path.is_file())
            .ok_or_else(|| BuiltinError::NotFound {
                name: name.into(),
                places: self.directories.clone(),
            })
    }
}

impl BuiltinGuests {
    /// The module with this digest, if it is one of the guests.
    pub(super) fn by_digest(&self, digest: ModuleDigest) -> Option<Vec<u8>> {
        let files = self.directories.iter().flat_map(|directory| {
            let entries = std::fs::read_dir(directory).into_iter().flatten();
            entries.filter_map(|entry| Some(entry.ok()?.path()))
        });
        let modules = files.filter(|path| path.extension().is_some_and(|it| it == "wasm"));
        modules
            .filter_map(|path| file::read_whole(&path).ok())
            .find(|wasm| ModuleDigest::of(wasm) == digest)
    }
}

fn beside_the_program() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let places = ["guests", "../share/davit/guests", "../wasm32-wasip2/guest"];
    // Tests and examples are one directory deeper than the program.
    let deeper = "../../wasm32-wasip2/guest";
    let directory = program.parent().unwrap_or(Path::new("."));
    places
        .iter()
        .chain([&deeper])
        .map(|place| directory.join(place))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_builtin_is_found_by_its_package_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("node_eviction.wasm");
        std::fs::write(&file, b"wasm").unwrap();
        let guests = BuiltinGuests::new(Some(directory.path().to_owned()));
        assert_eq!(guests.find("node-eviction").unwrap(), file);
    }

    #[test]
    fn errors_name_the_searched_directories() {
        let directory = tempfile::tempdir().unwrap();
        let guests = BuiltinGuests::new(Some(directory.path().to_owned()));
        let text = guests.find("podgc").unwrap_err().to_string();
        assert!(text.contains(directory.path().to_str().unwrap()), "{text}");
        let escape = guests.find("../../etc/passwd");
        assert!(matches!(escape, Err(BuiltinError::NoName { .. })));
    }
}
