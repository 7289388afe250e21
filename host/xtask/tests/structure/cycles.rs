//! No module uses one that uses it, directly or through others. Modules are
//! compared with their siblings: a parent and its own child are no cycle.

use std::collections::{BTreeMap, BTreeSet};

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::modules::{Crate, Use};
use crate::{metadata, workspace};

/// What no other crate uses.
const APART: [&str; 4] = ["test", "example", "bench", "custom-build"];

#[test]
fn modules_of_a_crate_depend_in_one_direction() {
    let mut problems = Vec::new();
    for root in roots() {
        let uses = Crate::load(&root).sibling_uses();
        let root = root.strip_prefix(workspace()).unwrap().display();
        problems.extend(cycles(&uses).map(|cycle| format!("{root}: a cycle: {cycle}")));
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// A reader that finds no modules would find no cycle either.
#[test]
fn the_reader_finds_every_source_file() {
    let crates: Vec<Crate> = roots().iter().map(|root| Crate::load(root)).collect();
    let directories: BTreeSet<PathBuf> = roots()
        .iter()
        .map(|root| root.parent().unwrap().to_owned())
        .collect();
    let mut files = Vec::new();
    for directory in &directories {
        sources(directory, &mut files);
    }
    assert!(files.len() >= crates.len());
    let is_unread = |file: &&PathBuf| !crates.iter().any(|one| one.has_file(file));
    let unread: Vec<&PathBuf> = files.iter().filter(is_unread).collect();
    assert!(unread.is_empty(), "{unread:#?}");
}

/// The files of the libraries and programs of all members of the workspace.
fn roots() -> BTreeSet<PathBuf> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().unwrap());
    let is_apart = |target: &Value| {
        let kinds = target["kind"].as_array().unwrap();
        kinds
            .iter()
            .any(|kind| APART.contains(&kind.as_str().unwrap()))
    };
    targets
        .filter(|target| !is_apart(target))
        .map(|target| target["src_path"].as_str().unwrap().into())
        .collect()
}

/// Every source file below a directory.
fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// For each set of modules that reach each other: the uses among them.
fn cycles(uses: &BTreeSet<Use>) -> impl Iterator<Item = String> {
    let mut found: BTreeMap<BTreeSet<&str>, Vec<String>> = BTreeMap::new();
    for (user, used) in uses {
        let mut cycle = reach(uses, used);
        if cycle.contains(user.as_str()) {
            cycle.retain(|module| reach(uses, module).contains(user.as_str()));
            let arrows = found.entry(cycle).or_default();
            arrows.push(format!("{user} -> {used}"));
        }
    }
    found.into_values().map(|arrows| arrows.join(", "))
}

/// What a module uses, directly or through others.
fn reach<'a>(uses: &'a BTreeSet<Use>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut ahead = vec![from];
    while let Some(module) = ahead.pop() {
        for (_, used) in uses.iter().filter(|(user, _)| user == module) {
            if reached.insert(used.as_str()) {
                ahead.push(used);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(arrows: &[(&str, &str)]) -> BTreeSet<Use> {
        let own = |(user, used): &(&str, &str)| ((*user).to_owned(), (*used).to_owned());
        arrows.iter().map(own).collect()
    }

    #[test]
    fn a_cycle_names_its_own_uses_only() {
        let uses = uses(&[("a", "b"), ("b", "c"), ("c", "a"), ("x", "a"), ("c", "y")]);
        let found: Vec<String> = cycles(&uses).collect();
        assert_eq!(found, ["a -> b, b -> c, c -> a"]);
    }

    #[test]
    fn a_tree_has_no_cycle() {
        let uses = uses(&[("a", "b"), ("a", "c"), ("b", "c")]);
        assert_eq!(cycles(&uses).count(), 0);
    }
}
