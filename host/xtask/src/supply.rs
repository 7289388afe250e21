//! `cargo xtask supply`: checks the dependencies against `deny.toml` with cargo-deny.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::cargo;

/// Fails if the dependencies break a rule of `deny.toml`. The advisories need the
/// database of advisories: without a network they are skipped, with a warning, unless
/// they are `required`.
pub(crate) fn check(workspace: &Path, required: bool) -> Result<()> {
    if !runs(workspace, ["deny", "--version"]) {
        bail!(
            "cargo-deny is not installed: run `cargo install cargo-deny --locked`. Licences, \
             duplicate versions and sources are also tested without it: \
             `cargo test -p xtask --test supply`"
        );
    }
    let rules = ["licenses", "bans", "sources"];
    let check = ["deny", "--locked", "check", "--deny", "warnings"];
    cargo(workspace, check.into_iter().chain(rules))?;
    if runs(workspace, ["deny", "--locked", "fetch", "db"]) {
        return cargo(workspace, check.into_iter().chain(["advisories"]));
    }
    let skipped = "the database of advisories cannot be fetched, so no advisory is checked";
    if required {
        bail!("{skipped}");
    }
    eprintln!("warning: {skipped}");
    Ok(())
}

/// Whether cargo succeeds with these arguments; its output is not printed.
fn runs<const N: usize>(workspace: &Path, arguments: [&str; N]) -> bool {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}
