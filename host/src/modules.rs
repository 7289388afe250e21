//! Finding the wasm of a guest.

use std::path::{Path, PathBuf};

use crate::config::ModuleSource;

/// Where the guests that are shipped with Davit lie.
#[derive(Clone, Debug)]
pub struct Guests {
    directories: Vec<PathBuf>,
}

/// Why a guest's wasm cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// No such guest is shipped.
    #[error(
        "there is no built-in guest \"{name}\": looked for {name}.wasm in {}; name the directory \
         of the guests with --guests",
        places.iter().map(|place| place.display().to_string()).collect::<Vec<_>>().join(", ")
    )]
    NotBuiltin {
        /// The name asked for.
        name: String,
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// The name leads out of the guests' directory.
    #[error("\"{name}\" is no name of a built-in guest: use lower-case letters, digits and dashes")]
    NoName {
        /// The name asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("the module {path} cannot be read: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl Guests {
    /// Looks in `directory`, or, without one, beside the running program: in
    /// `guests`, in `../share/davit/guests` (an installed program), and in
    /// `../wasm32-wasip2/guest` (a program in cargo's target directory).
    #[must_use]
    pub fn new(directory: Option<PathBuf>) -> Self {
        let directories = directory.map_or_else(beside_the_program, |directory| vec![directory]);
        Self { directories }
    }

    /// Reads a guest's wasm.
    pub fn read(&self, module: &ModuleSource) -> Result<Vec<u8>, ModuleError> {
        match module {
            ModuleSource::File(path) => read(path),
            ModuleSource::Builtin(name) => read(&self.find(name)?),
        }
    }

    fn find(&self, name: &str) -> Result<PathBuf, ModuleError> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(ModuleError::NoName { name: name.into() });
        }
        // Cargo writes the dashes of a package's name as underscores.
        let file = format!("{name}.wasm");
        let built = format!("{}.wasm", name.replace('-', "_"));
        self.directories
            .iter()
            .flat_map(|directory| [directory.join(&file), directory.join(&built)])
            .find(|path| path.is_file())
            .ok_or_else(|| ModuleError::NotBuiltin {
                name: name.into(),
                places: self.directories.clone(),
            })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, ModuleError> {
    std::fs::read(path).map_err(|source| ModuleError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn beside_the_program() -> Vec<PathBuf> {
    let program = std::env::current_exe().unwrap_or_default();
    let places = ["guests", "../share/davit/guests", "../wasm32-wasip2/guest"];
    // Tests and examples lie one directory deeper than the program.
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
        std::fs::write(directory.path().join("node_eviction.wasm"), b"wasm").unwrap();
        let guests = Guests::new(Some(directory.path().to_owned()));
        let module = ModuleSource::Builtin("node-eviction".into());
        assert_eq!(guests.read(&module).unwrap(), b"wasm");
    }

    #[test]
    fn errors_say_where_it_was_looked_for() {
        let directory = tempfile::tempdir().unwrap();
        let guests = Guests::new(Some(directory.path().to_owned()));
        let missing = guests.read(&ModuleSource::Builtin("podgc".into()));
        let text = missing.unwrap_err().to_string();
        assert!(text.contains(directory.path().to_str().unwrap()), "{text}");
        let escape = guests.read(&ModuleSource::Builtin("../../etc/passwd".into()));
        assert!(matches!(escape, Err(ModuleError::NoName { .. })));
        let file = guests.read(&ModuleSource::File("/does/not/exist.wasm".into()));
        assert!(
            file.unwrap_err()
                .to_string()
                .contains("/does/not/exist.wasm")
        );
    }
}
