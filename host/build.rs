//! Lists the files that `davit new` writes, so that the program carries them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// What a guest is built and tested with: the SDK with its derive macro, the interface, and
/// the crates that the SDK's harness uses.
const DAVIT: [&str; 13] = [
    "guests/kinds/Cargo.toml",
    "guests/kinds/src",
    "guests/sdk/Cargo.toml",
    "guests/sdk/derive/Cargo.toml",
    "guests/sdk/derive/src",
    "guests/sdk/src",
    "host/core/Cargo.toml",
    "host/core/src",
    "host/sim/Cargo.toml",
    "host/sim/src",
    "host/simulation/Cargo.toml",
    "host/simulation/src",
    "wit",
];

/// The crate of each kind of guest.
const TEMPLATES: [(&str, &str); 3] = [
    ("PERIODIC", "guests/template"),
    ("EVENT_DRIVEN", "guests/template-event"),
    ("CUSTOM_RESOURCE", "guests/examples/website"),
];

fn main() -> io::Result<()> {
    let host = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let workspace = host.join("..").canonicalize()?;
    let mut code = listed("DAVIT", &workspace, &DAVIT)?;
    for (name, directory) in TEMPLATES {
        let template = listed(name, &workspace.join(directory), &[""])?;
        if !template.contains("(\"tests/") {
            let message =
                format!("{directory} has no tests: davit new would promise what it lacks");
            return Err(io::Error::other(message));
        }
        code += &template;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("guest_files.rs"), code)
}

/// A constant with the files at these paths of a directory.
fn listed(name: &str, directory: &Path, paths: &[&str]) -> io::Result<String> {
    let mut files = Vec::new();
    for path in paths {
        let path = directory.join(path);
        println!("cargo::rerun-if-changed={}", path.display());
        collect(directory, path, &mut files)?;
    }
    files.sort();
    let mut code = format!("pub(super) const {name}: &[(&str, &str)] = &[\n");
    for file in files {
        let relative = file.strip_prefix(directory).map_err(io::Error::other)?;
        let (relative, file) = (relative.to_string_lossy(), file.to_string_lossy());
        let _ = writeln!(code, "    ({relative:?}, include_str!({file:?})),");
    }
    code.push_str("];\n");
    Ok(code)
}

/// All files below a path, without the modules of unit tests: only the project's own
/// workspace runs them.
///
/// The directory itself may be below another one named `src`.
fn collect(directory: &Path, path: PathBuf, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let relative = path.strip_prefix(directory).map_err(io::Error::other)?;
    let is_module = relative.components().any(|part| part.as_os_str() == "src");
    let is_test = path
        .file_stem()
        .is_some_and(|name| name == "tests" || name == "model_tests");
    if is_module && is_test {
        return Ok(());
    }
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        collect(directory, entry?.path(), files)?;
    }
    Ok(())
}
