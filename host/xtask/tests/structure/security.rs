//! `docs/security.md` and `docs/journal.md` name the test of each guarantee: those tests exist.

use crate::words::tracked;
use crate::{read, workspace};
use std::collections::BTreeSet;

/// The names of tests in a text: in backquotes, words joined by at least two underscores.
fn tests_named_in(text: &str) -> BTreeSet<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_name = |name: &&str| {
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        name.chars().all(is_part) && name.matches('_').count() >= 2 && !is_metric(name)
    };
    quoted.filter(is_name).collect()
}

fn is_metric(name: &str) -> bool {
    name.starts_with("davit_")
}

/// The names of the functions in a source.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    let after = source.split("fn ").skip(1);
    after.filter_map(|rest| rest.split(['(', '<']).next())
}

#[test]
fn every_test_that_a_page_of_guarantees_names_exists() {
    let mut sources = tracked();
    sources.retain(|path| path.extension().is_some_and(|it| it == "rs"));
    let sources: Vec<String> = sources
        .iter()
        .map(|path| read(&workspace().join(path)))
        .collect();
    let known: BTreeSet<&str> = sources.iter().flat_map(|text| functions(text)).collect();
    for page in ["docs/security.md", "docs/journal.md"] {
        let text = read(&workspace().join(page));
        let named = tests_named_in(&text);
        assert!(named.len() > 30, "{page}: {named:?}");
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(
            unknown.is_empty(),
            "{page} names no such test: {unknown:#?}"
        );
    }
}

#[test]
fn a_name_is_found_in_a_table() {
    let text = "| x | `spec.permissions` and `a_b` | `it_holds_always`, `davit_events_total` |";
    assert_eq!(tests_named_in(text), ["it_holds_always"].into());
}
