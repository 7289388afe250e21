//! The policies of `deploy/policies`: each is run against an API server in memory, on virtual
//! time, as its file has it. A changed number or clause of a file has another outcome.

#![allow(
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::unwrap_used,
    reason = "in a test, a panic is a failure; objects are written as JSON where they are used"
)]

mod explained;
mod grants;
mod nodes;
mod others;
mod pods;
mod random;
mod support;
mod terminating;

use support::{Case, config_of, names};

fn cases() -> Vec<Case> {
    let mut cases = pods::cases();
    cases.extend(nodes::cases());
    cases.extend(others::cases());
    cases
}

#[test]
fn every_policy_does_what_its_file_says() {
    for case in cases() {
        let outcome = case.outcome(&config_of(case.name), true);
        assert_eq!(outcome, case.expected, "{}", case.name);
    }
}

#[test]
fn every_number_and_clause_of_a_policy_decides_something() {
    std::thread::scope(|scope| {
        for case in cases() {
            scope.spawn(move || assert_changes_decide(&case));
        }
    });
}

fn assert_changes_decide(case: &Case) {
    assert!(!case.changes.is_empty(), "{} has no change", case.name);
    let decides_nothing = |(pointer, from, to): &&(&str, &str, &str)| {
        let mut config = config_of(case.name);
        support::change(&mut config, pointer, from, to);
        case.outcome(&config, false) == case.expected
    };
    let useless: Vec<_> = case.changes.iter().filter(decides_nothing).collect();
    assert!(useless.is_empty(), "{}: {useless:?}", case.name);
}

#[test]
fn every_policy_has_a_test() {
    let mut tested: Vec<String> = cases().iter().map(|it| it.name.to_owned()).collect();
    tested.sort();
    assert_eq!(tested, names());
}
