//! No module uses one that uses it, directly or through others. Modules are
//! compared with their siblings: a parent and its own child are no cycle.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{Crate, Use};
use crate::workspace;

const CORE: &str = "host/core/src/lib.rs";
const ENGINE: &str = "host/engine/src/lib.rs";
const CLUSTER: &str = "host/cluster/src/lib.rs";
const SIM: &str = "host/sim/src/lib.rs";
const HOST: &str = "host/src/lib.rs";
const SDK: &str = "guests/sdk/src/lib.rs";
const XTASK: &str = "host/xtask/src/main.rs";

/// The roots of the crates, and how many modules each has at least: a reader that
/// finds none would find no cycle either.
const CRATES: [(&str, usize); 7] = [
    (CORE, 40),
    (ENGINE, 20),
    (CLUSTER, 15),
    (SIM, 60),
    (HOST, 50),
    (SDK, 15),
    (XTASK, 1),
];

#[test]
fn modules_of_a_crate_depend_in_one_direction() {
    let mut problems = Vec::new();
    for (root, at_least) in CRATES {
        let loaded = Crate::load(&workspace().join(root));
        let count = loaded.len();
        assert!(count >= at_least, "{root} has {count} modules only");
        let uses = loaded.sibling_uses();
        problems.extend(cycles(&uses).map(|cycle| format!("{root}: a cycle: {cycle}")));
    }
    assert!(problems.is_empty(), "{problems:#?}");
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
