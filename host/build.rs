//! Lists the files that `davit new` writes, so that the program carries them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let host = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let workspace = host.join("..").canonicalize()?;
    let mut code = String::new();
    for (name, directory) in [("SDK", "guests/sdk"), ("TEMPLATE", "guests/template")] {
        let directory = workspace.join(directory);
        println!("cargo::rerun-if-changed={}", directory.display());
        let mut files = Vec::new();
        collect(&directory, &mut files)?;
        files.sort();
        let _ = writeln!(code, "pub(super) const {name}: &[(&str, &str)] = &[");
        for file in files {
            let relative = file.strip_prefix(&directory).map_err(io::Error::other)?;
            let (relative, file) = (relative.to_string_lossy(), file.to_string_lossy());
            let _ = writeln!(code, "    ({relative:?}, include_str!({file:?})),");
        }
        code.push_str("];\n");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("guest_files.rs"), code)
}

/// All files but the SDK's own tests, which only its own workspace runs.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    Ok(())
}
