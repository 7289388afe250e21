//! The metrics and labels that an expression of Prometheus names.

use std::collections::BTreeSet;

/// Words before a list of labels.
const GROUPINGS: [&str; 6] = [
    "by",
    "on",
    "without",
    "ignoring",
    "group_left",
    "group_right",
];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// The metrics, each with the labels of its selectors.
    pub(crate) metrics: BTreeSet<(String, BTreeSet<String>)>,
    /// The labels of groupings.
    pub(crate) groupings: BTreeSet<String>,
}

/// Reads an expression. It does not check the syntax.
pub(crate) fn names(expression: &str) -> Names {
    let mut found = Names::default();
    let mut rest = without_strings(expression);
    while let Some(first) = rest.chars().next() {
        if first == '[' {
            rest = after(&rest, ']');
        } else if first.is_ascii_digit() {
            // A number or a duration.
            let (_, behind) = word(&rest);
            rest = behind;
        } else if is_word(first) {
            let (name, behind) = word(&rest);
            let behind = behind.trim_start().to_owned();
            if GROUPINGS.contains(&name.as_str()) {
                let list = behind.trim_start_matches('(').split(')').next().unwrap();
                let labels = list.split(',').map(|label| label.trim().to_owned());
                found
                    .groupings
                    .extend(labels.filter(|label| !label.is_empty()));
                rest = after(&behind, ')');
                continue;
            }
            rest = behind;
            let is_aggregation = ["by", "without"].contains(&word(&rest).0.as_str());
            let is_function = is_aggregation || rest.starts_with('(');
            if is_function || OPERATORS.contains(&name.as_str()) {
                continue;
            }
            let mut labels = BTreeSet::new();
            if let Some(selector) = rest.strip_prefix('{') {
                let selector = selector.split('}').next().unwrap();
                let matchers = selector.split(',').map(|matcher| word(matcher.trim()).0);
                labels.extend(matchers.filter(|label| !label.is_empty()));
                rest = after(&rest, '}');
            }
            found.metrics.insert((name, labels));
        } else {
            rest = rest.split_off(first.len_utf8());
        }
    }
    found
}

/// The expression with empty strings: they may hold brackets and commas.
fn without_strings(expression: &str) -> String {
    expression.split('"').step_by(2).collect()
}

fn after(text: &str, end: char) -> String {
    let behind = text.split_once(end).map_or("", |(_, behind)| behind);
    behind.to_owned()
}

fn word(text: &str) -> (String, String) {
    let end = text.find(|one| !is_word(one)).unwrap_or(text.len());
    (text[..end].to_owned(), text[end..].to_owned())
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[test]
fn metrics_labels_and_groupings_are_found() {
    let expression = r#"
        histogram_quantile(0.99, sum by (controller, le) (
          rate(one_bucket{result!~"a,}|b", role="x"}[5m]) and on (job) two offset 1h)) > 10
        or vector(0)"#;
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let expected = Names {
        metrics: BTreeSet::from([
            ("one_bucket".to_owned(), set(&["result", "role"])),
            ("two".to_owned(), set(&[])),
        ]),
        groupings: set(&["controller", "job", "le"]),
    };
    assert_eq!(names(expression), expected);
}
