//! What the language does, case by case: what it claims to have, and what fails. An expression
//! that fails has no result, so its rule does not act.

mod cases;

use std::collections::BTreeSet;

use kube_cel::cel::Value;
use serde_json::json;

use super::functions;
use super::tests::{compile, evaluate};
use cases::{GAPS, TRUE, WITHOUT_RESULT, of_many_parts};

#[test]
fn gaps_fail_and_have_no_result() {
    for source in GAPS {
        assert!(result(source).is_err(), "{source}");
    }
}

fn result(source: &str) -> Result<Value, String> {
    compile(source).map_err(|mistake| mistake.to_string())?;
    evaluate(source, json!({}))
        .0
        .map_err(|failure| failure.to_string())
}

#[test]
fn the_language_does_what_it_claims() {
    let wrong: Vec<String> = TRUE
        .iter()
        .map(|source| (source, result(source)))
        .filter(|(_, result)| *result != Ok(Value::Bool(true)))
        .map(|(source, result)| format!("{source}: {result:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_fails_is_never_a_wrong_boolean() {
    let wrong: Vec<String> = WITHOUT_RESULT
        .iter()
        .map(|source| (source, result(source)))
        .filter(|(_, result)| result.is_ok())
        .map(|(source, result)| format!("{source}: {result:?}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_function_that_a_rule_may_call_has_a_case() {
    let words: BTreeSet<&str> = TRUE
        .iter()
        .flat_map(|source| source.split(|c: char| !c.is_ascii_alphanumeric() && c != '.'))
        .flat_map(|word| {
            // `quantity('1').add` ends in a method, `math.ceil` is one name.
            std::iter::once(word).chain(word.rsplit('.'))
        })
        .collect();
    let own = ["age", "condition", "finishedAt"];
    let missing: Vec<&str> = functions::names()
        .filter(|name| !own.contains(name) && !words.contains(name))
        .collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn an_expression_of_many_parts_neither_panics_nor_overflows_the_stack() {
    let evaluate = || {
        for source in of_many_parts() {
            let _ = result(&source);
        }
    };
    // As large as that of a program. Without optimisation, a test's own stack is too small.
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    thread.spawn(evaluate).unwrap().join().unwrap();
}

#[test]
fn variables_within_variables_do_not_overflow_the_stack() {
    let mut variables = super::expand::Variables::new();
    for number in 0..40 {
        let source = format!("variables.v{}{}", number + 1, " + 1".repeat(100));
        variables.insert(format!("v{number}"), super::text::parse(&source).unwrap());
    }
    variables.insert("v40".to_owned(), super::text::parse("1").unwrap());
    let mistake = super::tests::compile_with("variables.v0 > 0", &variables).unwrap_err();
    assert!(mistake.message.contains("deeper than"), "{mistake}");
}

#[test]
fn every_function_is_in_the_documentation() {
    let page = include_str!("../../../../docs/policies.md");
    let missing: Vec<&str> = functions::names()
        .filter(|name| !page.contains(&format!("`{name}`")) && !page.contains(&format!("`{name}(")))
        .collect();
    assert_eq!(missing, [""; 0]);
}
