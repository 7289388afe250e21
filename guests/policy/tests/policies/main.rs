//! The policies of `deploy/policies`: each is run against an API server in memory, on virtual
//! time, as its file has it. A mutant of a policy has another outcome.

#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a panic is a failure; objects are written as JSON where they are used"
)]

mod edits;
mod explained;
mod grants;
mod mutations;
mod nodes;
mod others;
mod pods;
mod random;
mod support;
mod terminating;

use std::collections::BTreeSet;
use std::sync::Mutex;

use mutations::Mutant;
use support::{Case, config_of, names};

/// Mutants that change nothing that an API server holds, and why.
const EQUIVALENT: [(&str, &str); 8] = [
    (
        "drain-with-budgets/rules/0/unless: without t.key == ''",
        NOT_EMPTY,
    ),
    (
        "drain-with-budgets/rules/0/unless: t.key == '' -> t.key == '-other'",
        NOT_EMPTY,
    ),
    (
        "drain-with-budgets/rules/0/unless: without t.operator == ''",
        NOT_EMPTY,
    ),
    (
        "drain-with-budgets/rules/0/unless: t.operator == '' -> t.operator == '-other'",
        NOT_EMPTY,
    ),
    (
        "ended-pods-quota/rules/0/when: always",
        "what has not ended has no end, and `keep` spares what has no time",
    ),
    (
        "unreachable-node-pods/rules/0/hold: without counts.nodes == 0",
        NO_NODES,
    ),
    (
        "unreachable-node-pods/rules/0/hold: counts.nodes == 0 -> counts.nodes == -1",
        NO_NODES,
    ),
    (
        "unreachable-node-pods/rules/0/hold: counts.nodes == 0 -> counts.nodes == 1",
        "if the only node is unreachable, more than 30 % of the nodes are",
    ),
];

const NOT_EMPTY: &str = "an API server stores a toleration without its empty fields";
const NO_NODES: &str = "without nodes, no pod is on an unreachable one";

fn cases() -> Vec<Case> {
    let mut cases = pods::cases();
    cases.extend(nodes::cases());
    cases.extend(others::cases());
    cases
}

#[test]
fn every_policy_does_what_its_file_says() {
    for case in cases() {
        let outcome = case.outcome(&config_of(case.name), true).unwrap();
        assert_eq!(outcome, case.expected, "{}", case.name);
    }
}

#[test]
fn every_number_and_clause_of_a_policy_decides_something() {
    let cases = cases();
    let mutants = names().into_iter().flat_map(|name| {
        let mutants = mutations::mutants(&config_of(&name));
        mutants
            .into_iter()
            .map(move |mutant| (name.clone(), mutant))
    });
    let mutants = Mutex::new(mutants);
    let next = || mutants.lock().unwrap().next();
    let survivors: BTreeSet<String> = std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().unwrap().get();
        let threads =
            (0..threads).map(|_| scope.spawn(|| survivors(&cases, std::iter::from_fn(next))));
        let threads: Vec<_> = threads.collect();
        let survivors = threads.into_iter().flat_map(|it| it.join().unwrap());
        survivors.collect()
    });
    let equivalent = EQUIVALENT.map(|(mutant, _)| mutant.to_owned());
    assert_eq!(survivors, BTreeSet::from(equivalent));
}

/// The mutants with the outcomes of the file. One that the guest refuses has none.
fn survivors(cases: &[Case], mutants: impl Iterator<Item = (String, Mutant)>) -> Vec<String> {
    let survivors = mutants.filter(|(name, mutant)| {
        let mut of_policy = cases.iter().filter(|case| case.name == name);
        of_policy.all(|case| {
            let outcome = case.outcome(&mutant.config, false);
            outcome.is_ok_and(|it| it == case.expected)
        })
    });
    let names = survivors.map(|(name, it)| format!("{name}{}: {}", it.pointer, it.change));
    names.collect()
}

#[test]
fn every_policy_has_a_test() {
    let tested: BTreeSet<String> = cases().iter().map(|it| it.name.to_owned()).collect();
    assert!(tested.iter().eq(&names()), "{tested:?}");
}
