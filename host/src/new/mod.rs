//! `davit new`: a guest to begin with, in a crate of its own.
//!
//! The crate is `guests/template` under another name. What it is written with
//! comes along, so that it builds wherever Rust does.

mod files;
mod manifest;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cli::NewArguments;
use files::File;

/// Names that no crate may have, or that would clash with what a guest needs.
const TAKEN: &str = "alloc core proc-macro std test \
    davit-guest serde serde-json \
    abstract as async await become box break const continue crate do dyn else enum extern false \
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return \
    self static struct super trait true try type typeof unsafe unsized use virtual where while \
    yield";

/// Writes the crate and says how to go on.
pub fn run(arguments: &NewArguments) -> Result<()> {
    let name = &arguments.name;
    check_name(name)?;
    let directory = arguments.path.clone().unwrap_or_else(|| name.into());
    let sdk = match &arguments.sdk {
        None => None,
        Some(path) => Some(sdk_directory(path)?),
    };
    let files = files::of_guest(name, sdk.as_deref())?;
    write(&directory, &files)?;
    let place = directory.display();
    println!(
        "{place} holds the guest \"{name}\"; its policy is in src/lib.rs. To go on:\n\n  \
         cd {place}\n  \
         cargo test\n  \
         cargo build --target wasm32-wasip2 --release\n  \
         davit inspect target/wasm32-wasip2/release/{}.wasm",
        name.replace('-', "_")
    );
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = name.bytes().all(plain)
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && !name.contains("--")
        && name.len() <= 63;
    if !fits {
        bail!(
            "\"{name}\" is no name for a guest: begin with a lower-case letter, go on with such \
             letters, digits and single dashes, 63 at most"
        );
    }
    if TAKEN.split_whitespace().any(|taken| taken == name) {
        bail!("\"{name}\" is taken in Rust or by what a guest is written with: choose another");
    }
    Ok(())
}

/// An SDK that is there already.
fn sdk_directory(path: &Path) -> Result<PathBuf> {
    let found = path.canonicalize();
    let found = found.with_context(|| format!("--sdk {}", path.display()))?;
    if !found.join("Cargo.toml").is_file() {
        bail!("--sdk {}: there is no Cargo.toml in it", path.display());
    }
    Ok(found)
}

fn write(directory: &Path, files: &[File]) -> Result<()> {
    if directory.symlink_metadata().is_ok() {
        bail!(
            "{} exists already: choose another name, or another place with --path",
            directory.display()
        );
    }
    let written = files.iter().try_for_each(|file| {
        let path = directory.join(&file.path);
        let parent = path.parent().unwrap_or(directory);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, &file.text))
            .with_context(|| format!("{} cannot be written", path.display()))
    });
    if written.is_err() {
        // Half a crate helps nobody; the reason is told in any case.
        let _ = fs::remove_dir_all(directory);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_crates() {
        for name in ["keep-failed", "a", "x1-2"] {
            check_name(name).unwrap();
        }
        for name in [
            "",
            "1a",
            "-a",
            "a-",
            "a--b",
            "A",
            "a_b",
            "../a",
            "ä",
            &"x".repeat(64),
        ] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("is no name for a guest"), "{error}");
        }
        for name in ["self", "serde", "davit-guest", "test"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("is taken"), "{error}");
        }
    }

    #[test]
    fn nothing_that_exists_is_touched() {
        let directory = tempfile::tempdir().unwrap();
        let error = write(directory.path(), &[]).unwrap_err().to_string();
        assert!(error.contains("exists already"), "{error}");
        let inside_a_file = directory.path().join("file/guest");
        fs::write(directory.path().join("file"), "kept").unwrap();
        let file = File {
            path: "Cargo.toml".into(),
            text: String::new(),
        };
        write(&inside_a_file, &[file]).unwrap_err();
        assert_eq!(
            fs::read_to_string(directory.path().join("file")).unwrap(),
            "kept"
        );
    }
}
