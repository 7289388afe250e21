//! Cargo manifests outside of their workspace.

use std::path::Path;

use anyhow::{Context as _, Result};

const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// A member's manifest with the values of the workspace filled in, so that it needs no
/// workspace and has the same versions. The lints are omitted.
pub(super) fn written_out(manifest: &str, sdk: &Path) -> Result<String> {
    let mut lines = Vec::new();
    let mut in_lints = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_lints = line == "[lints]";
        }
        if !in_lints {
            lines.push(line_written_out(line, sdk)?);
        }
    }
    Ok(lines.join("\n") + "\n")
}

fn line_written_out(line: &str, sdk: &Path) -> Result<String> {
    if let Some(key) = line.strip_suffix(".workspace = true") {
        return Ok(format!("{key} = {}", value(key, sdk)?));
    }
    let Some((key, rest)) = line.split_once(" = { workspace = true, ") else {
        return Ok(line.to_owned());
    };
    let value = value(key, sdk)?;
    let inner = value
        .strip_prefix("{ ")
        .and_then(|it| it.strip_suffix(" }"));
    let inner = match inner {
        Some(inner) => inner.to_owned(),
        None => format!("version = {value}"),
    };
    Ok(format!("{key} = {{ {inner}, {rest}"))
}

/// A workspace of these members with the values of this one: its package fields, its
/// dependencies and its lints.
pub(super) fn workspace<'a>(members: impl Iterator<Item = &'a str>) -> Result<String> {
    let values = WORKSPACE
        .find("[workspace.package]")
        .zip(WORKSPACE.find("[profile."));
    let values = values.and_then(|(start, end)| WORKSPACE.get(start..end));
    let values = values.context("the workspace has no values before its profiles")?;
    let members: Vec<String> = members.map(|member| format!("    {member:?},\n")).collect();
    Ok(format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\n{}]\n\n{}\n",
        members.concat(),
        values.trim_end()
    ))
}

/// The workspace's value of a key: each is on one line there.
fn value(key: &str, sdk: &Path) -> Result<String> {
    if key == "davit-guest" {
        // A JSON string is a valid TOML string.
        let path = serde_json::to_string(&sdk.display().to_string())?;
        return Ok(format!("{{ path = {path} }}"));
    }
    let start = format!("{key} = ");
    let value = WORKSPACE.lines().find_map(|line| line.strip_prefix(&start));
    let value = value.with_context(|| format!("the workspace does not name {key}"))?;
    Ok(value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_workspace_are_written_out() {
        let manifest = "[package]\nname = \"a\"\nedition.workspace = true\n\n[lints]\n\
            workspace = true\n\n[dependencies]\ndavit-guest = { workspace = true, features = \
            [\"testing\"] }\nserde.workspace = true\nserde_json = { workspace = true, optional = \
            true }\n";
        let expected = "[package]\nname = \"a\"\nedition = \"2024\"\n\n[dependencies]\n\
            davit-guest = { path = \"sdk\", features = [\"testing\"] }\n\
            serde = { version = \"1\", features = [\"derive\"] }\n\
            serde_json = { version = \"1\", optional = true }\n";
        assert_eq!(written_out(manifest, Path::new("sdk")).unwrap(), expected);
        assert!(written_out("nothing.workspace = true", Path::new("sdk")).is_err());
    }
}
