//! `davit new`: creates the crate of a guest.
//!
//! The crate is a template of the same kind under another name. The SDK is written beside it,
//! so that the crate builds without the repository.

mod files;
mod manifest;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cli::{NewArguments, NewKind};
use crate::commands::print::out;
use files::File;

/// Names that no crate may have, or that clash with a dependency of guests.
const TAKEN: &str = "alloc core proc-macro std test \
    davit-core davit-guest davit-guest-derive davit-kinds davit-sim davit-simulation \
    schemars serde serde-json serde-saphyr \
    abstract as async await become box break const continue crate do dyn else enum extern false \
    final fn for gen if impl in let loop macro match mod move mut override priv pub ref return \
    self static struct super trait true try type typeof unsafe unsized use virtual where while \
    yield";

/// Writes the crate and prints the next commands.
pub fn run(arguments: &NewArguments) -> Result<()> {
    let name = &arguments.name;
    check_name(name)?;
    let directory = arguments.path.clone().unwrap_or_else(|| name.into());
    let sdk = match &arguments.sdk {
        None => None,
        Some(path) => Some(sdk_directory(path)?),
    };
    let files = files::of_guest(name, arguments.kind, sdk.as_deref())?;
    write(&directory, &files)?;
    let place = directory.display();
    let objects = match arguments.kind {
        NewKind::CustomResource => " --load crd.yaml",
        _ => "",
    };
    out(&format!(
        "{place} holds the guest \"{name}\"; its policy is in src/lib.rs. Next:\n\n  \
         cd {place}\n  \
         cargo test\n  \
         davit dev{objects}"
    ))
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
            "\"{name}\" is not a valid name of a guest: use a lower-case letter, then lower-case \
             letters, digits and single dashes, 63 characters at most"
        );
    }
    if TAKEN.split_whitespace().any(|taken| taken == name) {
        bail!("\"{name}\" is reserved by Rust or by a dependency of guests: choose another name");
    }
    Ok(())
}

/// The directory of an existing SDK.
fn sdk_directory(path: &Path) -> Result<PathBuf> {
    let found = path.canonicalize();
    let found = found.with_context(|| format!("--sdk {}", path.display()))?;
    if !found.join("Cargo.toml").is_file() {
        bail!("--sdk {}: the directory has no Cargo.toml", path.display());
    }
    Ok(found)
}

fn write(directory: &Path, files: &[File]) -> Result<()> {
    if directory.symlink_metadata().is_ok() {
        bail!(
            "{} exists already: choose another name, or another directory with --path",
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
        // An incomplete crate is useless; the caller reports the error.
        let _ = fs::remove_dir_all(directory);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_name_is_a_valid_crate_name() {
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
            assert!(error.contains("is not a valid name"), "{error}");
        }
        for name in [
            "self",
            "serde",
            "schemars",
            "davit-guest",
            "davit-core",
            "test",
        ] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.contains("is reserved"), "{error}");
        }
    }

    #[test]
    fn existing_files_are_not_overwritten() {
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
