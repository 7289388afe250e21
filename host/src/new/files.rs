//! The files of a new guest.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::manifest;
use crate::cli::NewKind;

// The files of each template, with their paths there, and the files of the SDK and
// of the crates that its test harness needs, with their paths in the repository.
include!(concat!(env!("OUT_DIR"), "/guest_files.rs"));

/// The name of a template's crate, which the guest's name replaces, and its files.
fn template(kind: NewKind) -> (&'static str, &'static [(&'static str, &'static str)]) {
    match kind {
        NewKind::Periodic => ("guest-template", PERIODIC),
        NewKind::EventDriven => ("event-template", EVENT_DRIVEN),
        NewKind::CustomResource => ("website", CUSTOM_RESOURCE),
    }
}

/// The directory of the SDK in the guest's crate. It and the crates of the harness are a
/// workspace below `davit`, laid out as the repository is.
const SDK_DIRECTORY: &str = "davit/guests/sdk";
const DAVIT_DIRECTORY: &str = "davit";

/// The release profile optimises for size, because the host compiles a module when it
/// loads it. The SDK is outside the workspace, so that `cargo test` tests the guest
/// alone.
const MANIFEST_END: &str = "
[profile.release]
opt-level = \"s\"
lto = \"fat\"
codegen-units = 1
panic = \"abort\"
strip = true

[workspace]
exclude = [\"davit\"]
";

/// One file, by its path in the crate.
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// The files of a guest: with a copy of the SDK, or with an existing SDK.
pub(super) fn of_guest(name: &str, kind: NewKind, sdk: Option<&Path>) -> Result<Vec<File>> {
    let sdk_path = sdk.unwrap_or(Path::new(SDK_DIRECTORY));
    let mut files = Vec::new();
    let (former, template) = template(kind);
    for (path, text) in template {
        let text = renamed(text, former, name);
        let text = match *path {
            "Cargo.toml" => manifest::written_out(&text, sdk_path)? + MANIFEST_END,
            _ => text,
        };
        files.push(file(path, text));
    }
    files.push(file(".gitignore", "/target\n".to_owned()));
    if sdk.is_none() {
        files.extend(own_sdk()?);
    }
    Ok(files)
}

fn own_sdk() -> Result<Vec<File>> {
    let within = |path: &str| Path::new(DAVIT_DIRECTORY).join(path);
    let members = DAVIT
        .iter()
        .filter_map(|(path, _)| path.strip_suffix("/Cargo.toml"));
    let mut files = vec![File {
        path: within("Cargo.toml"),
        text: manifest::workspace(members)?,
    }];
    files.extend(DAVIT.iter().map(|(path, text)| File {
        path: within(path),
        text: (*text).to_owned(),
    }));
    Ok(files)
}

fn file(path: &str, text: String) -> File {
    File {
        path: path.into(),
        text,
    }
}

/// The template's text with the guest's name where it names the crate: a resource keeps its
/// name.
fn renamed(text: &str, former: &str, name: &str) -> String {
    let places: [fn(&str) -> String; 3] = [
        |name| format!("name = \"{name}\""),
        |name| format!("\"title\": \"{name}\""),
        |name| format!("use {}::", name.replace('-', "_")),
    ];
    places.iter().fold(text.to_owned(), |text, place| {
        text.replace(&place(former), &place(name))
    })
}
