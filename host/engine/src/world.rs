//! Which components may be guests: their imports and exports.

use std::fmt;

/// A version of the interface between the host and its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorldVersion {
    /// `davit:controller@0.1.0`
    V0_1_0,
}

impl WorldVersion {
    /// Every version that this host runs.
    pub const ALL: [Self; 1] = [Self::V0_1_0];

    /// The version as in `wit/`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
        }
    }
}

impl fmt::Display for WorldVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a component cannot be a guest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorldError {
    /// It exports no function that this host can call.
    #[error(
        "it does not export davit:controller/decide: build it with the guest SDK for wasm32-wasip2"
    )]
    NoGuest,
    /// It was built for other versions of the interface.
    #[error(
        "it was built for davit:controller {}; this host runs {}",
        found.join(", "),
        known_versions()
    )]
    Version {
        /// The versions that it exports.
        found: Vec<String>,
    },
    /// It imports a function that guests do not get.
    #[error("it imports {name}, which guests do not get: {}", why_not(name))]
    Import {
        /// The import's full name.
        name: String,
    },
}

const PACKAGE: &str = "davit:controller/";

/// The interfaces of [`PACKAGE`] that a guest may import; the last three hold
/// types only.
const OWN: [&str; 9] = [
    "cache",
    "live",
    "mapping",
    "queue",
    "notes",
    "log",
    "types",
    "manifests",
    "decisions",
];

/// The imports of Rust's standard library for `wasm32-wasip2` if a program uses
/// neither files nor sockets.
const WASI: [&str; 16] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure-seed",
];

/// Finds the version of the interface that a component was built for, and
/// refuses a component that imports anything else. Names are as in a
/// component's type: `wasi:io/poll@0.2.6`.
pub(crate) fn admit<'a>(
    imports: impl Iterator<Item = &'a str>,
    exports: impl Iterator<Item = &'a str>,
) -> Result<WorldVersion, WorldError> {
    let version = exported_version(exports)?;
    for import in imports {
        if !may_import(version, import) {
            return Err(WorldError::Import {
                name: import.to_owned(),
            });
        }
    }
    Ok(version)
}

fn exported_version<'a>(
    exports: impl Iterator<Item = &'a str>,
) -> Result<WorldVersion, WorldError> {
    let found: Vec<&str> = exports
        .filter_map(|name| name.strip_prefix("davit:controller/decide@"))
        .collect();
    if found.is_empty() {
        return Err(WorldError::NoGuest);
    }
    // A guest may be built for several versions; the newest is used.
    WorldVersion::ALL
        .into_iter()
        .rev()
        .find(|version| found.contains(&version.as_str()))
        .ok_or_else(|| WorldError::Version {
            found: found.into_iter().map(str::to_owned).collect(),
        })
}

fn may_import(version: WorldVersion, import: &str) -> bool {
    let Some((name, import_version)) = import.split_once('@') else {
        return false;
    };
    match name.strip_prefix(PACKAGE) {
        Some(own) => import_version == version.as_str() && OWN.contains(&own),
        None => import_version.starts_with("0.2.") && WASI.contains(&name),
    }
}

fn why_not(import: &str) -> &'static str {
    if import.starts_with("wasi:filesystem/") {
        "guests have no files; remove the code that opens them"
    } else if import.starts_with("wasi:sockets/") || import.starts_with("wasi:http/") {
        "guests have no network; use live reads and return plans"
    } else if import.starts_with("wasi:random/") {
        "guests have no randomness; a decision depends on the cluster's state alone"
    } else if import.starts_with(PACKAGE) {
        "it belongs to another version of the interface than the exports, or to an unreleased one"
    } else {
        "guests may import davit:controller and the part of WASI 0.2 that Rust's standard library needs"
    }
}

fn known_versions() -> String {
    WorldVersion::ALL.map(WorldVersion::as_str).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECIDE: &str = "davit:controller/decide@0.1.0";

    fn admit(imports: &[&str], exports: &[&str]) -> Result<WorldVersion, WorldError> {
        super::admit(imports.iter().copied(), exports.iter().copied())
    }

    #[test]
    fn imports_of_the_sdk_and_the_standard_library_are_admitted() {
        let imports = [
            "davit:controller/cache@0.1.0",
            "davit:controller/types@0.1.0",
            "wasi:cli/stderr@0.2.6",
            "wasi:random/insecure-seed@0.2.4",
            "wasi:io/streams@0.2.12",
        ];
        assert_eq!(admit(&imports, &[DECIDE]), Ok(WorldVersion::V0_1_0));
    }

    #[test]
    fn any_other_import_is_refused_by_name() {
        for import in [
            "wasi:filesystem/types@0.2.6",
            "wasi:sockets/tcp@0.2.6",
            "wasi:http/outgoing-handler@0.2.6",
            "wasi:random/random@0.2.6",
            "wasi:random/insecure@0.2.6",
            "wasi:cli/stdin@0.3.0",
            "davit:controller/cache@0.2.0",
            "davit:controller/decide@0.1.0",
            "evil:corp/phone-home@1.0.0",
            "unversioned",
        ] {
            let refused = admit(&["wasi:cli/exit@0.2.6", import], &[DECIDE]);
            let name = import.to_owned();
            assert_eq!(refused, Err(WorldError::Import { name }));
        }
    }

    #[test]
    fn other_versions_are_named() {
        let refused = admit(
            &[],
            &["davit:controller/decide@0.99.0", "wasi:cli/run@0.2.6"],
        );
        let error = refused.unwrap_err();
        assert_eq!(
            error.to_string(),
            "it was built for davit:controller 0.99.0; this host runs 0.1.0"
        );
        assert_eq!(
            admit(&[], &["wasi:cli/run@0.2.6"]),
            Err(WorldError::NoGuest)
        );
    }

    #[test]
    fn a_guest_may_also_be_built_for_a_later_version() {
        let exports = ["davit:controller/decide@0.2.0", DECIDE];
        assert_eq!(admit(&[], &exports), Ok(WorldVersion::V0_1_0));
    }
}
