//! Format and lints.

use std::path::Path;

use anyhow::Result;

use crate::{MUTANTS, cargo, docs};

/// A run of clippy.
struct Clippy {
    /// The packages; none: the whole workspace.
    packages: &'static [&'static str],
    /// The features that no package of the workspace enables by itself.
    features: &'static [&'static str],
}

/// Together the runs have every feature. What ships has no mutants, so that one run is
/// without them.
const RUNS: [Clippy; 2] = [
    Clippy {
        packages: &[],
        features: &[],
    },
    Clippy {
        packages: &["davit-core", "davit-stories"],
        features: &[MUTANTS],
    },
];

impl Clippy {
    fn features(&self) -> impl Iterator<Item = &'static str> {
        let features = self.features.iter();
        features.flat_map(|feature| ["--features", *feature])
    }

    fn arguments(&self) -> Vec<&'static str> {
        let mut arguments = vec!["clippy", "--all-targets", "--locked"];
        if self.packages.is_empty() {
            arguments.push("--workspace");
        }
        let packages = self.packages.iter();
        arguments.extend(packages.flat_map(|package| ["-p", *package]));
        arguments.extend(self.features());
        arguments.extend(["--", "-D", "warnings"]);
        arguments
    }
}

/// Checks the format and the lints of the workspace, and the reference of the SDK.
pub(crate) fn check(workspace: &Path) -> Result<()> {
    cargo(workspace, ["fmt", "--all", "--check"])?;
    for run in &RUNS {
        cargo(workspace, run.arguments())?;
    }
    docs::build(workspace)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::{cargo_output, list, text, workspace};

    fn metadata(run: &Clippy) -> Value {
        let workspace = workspace().unwrap();
        let arguments = ["metadata", "--format-version=1", "--locked"];
        let arguments = arguments.into_iter().chain(run.features());
        serde_json::from_str(&cargo_output(&workspace, arguments).unwrap()).unwrap()
    }

    /// The features of the workspace's packages: `package/feature`.
    fn all(metadata: &Value) -> BTreeSet<String> {
        let members = members(metadata);
        let names = members.iter().flat_map(|package| {
            let name = text(package, "name").unwrap();
            let features = package.get("features").and_then(Value::as_object).unwrap();
            features
                .keys()
                .map(move |feature| format!("{name}/{feature}"))
        });
        names.collect()
    }

    /// The features that a run enables in the packages that it checks.
    fn enabled(run: &Clippy) -> BTreeSet<String> {
        let metadata = metadata(run);
        let mut enabled = BTreeSet::new();
        for package in members(&metadata) {
            let name = text(package, "name").unwrap();
            let is_checked = run.packages.is_empty() || run.packages.contains(&name);
            let resolve = metadata.get("resolve").unwrap();
            let mut nodes = list(resolve, "nodes");
            let node = nodes.find(|node| text(node, "id") == text(package, "id"));
            let features = list(node.unwrap(), "features").filter(|_| is_checked);
            let features = features.filter_map(Value::as_str);
            enabled.extend(features.map(|feature| format!("{name}/{feature}")));
        }
        enabled
    }

    fn members(metadata: &Value) -> Vec<&Value> {
        let members: BTreeSet<&str> = list(metadata, "workspace_members")
            .filter_map(Value::as_str)
            .collect();
        let packages = list(metadata, "packages");
        let is_member = |package: &&Value| members.contains(text(package, "id").unwrap());
        packages.filter(is_member).collect()
    }

    #[test]
    fn code_of_every_feature_is_linted() {
        let [first, ..] = &RUNS;
        let all = all(&metadata(first));
        assert!(all.contains(MUTANTS), "{all:?}");
        let enabled: BTreeSet<String> = RUNS.iter().flat_map(enabled).collect();
        let missing: Vec<&String> = all.difference(&enabled).collect();
        assert!(missing.is_empty(), "clippy never checks {missing:?}");
    }
}
