//! The paths of the compiled fixtures.

use std::path::{Path, PathBuf};

/// A guest that `cargo xtask guests` compiled, by its crate's name.
pub(crate) fn guest(name: &str) -> Vec<u8> {
    let file = format!("{}.wasm", name.replace('-', "_"));
    target_directories()
        .map(|target| target.join("wasm32-wasip2/guest").join(&file))
        .find_map(|path| std::fs::read(path).ok())
        .unwrap_or_else(|| panic!("{file} is not compiled: run `cargo xtask guests` first"))
}

fn target_directories() -> impl Iterator<Item = PathBuf> {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let above = crate_directory.ancestors().map(|path| path.join("target"));
    chosen.into_iter().chain(above)
}
