//! Random expressions over random objects: they have a result or fail, and never panic. What is
//! decided without an evaluation is what an evaluation decides.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{compile, evaluate};
use super::{Expression, Failure, Objects};
use crate::simple::{Answer, Simple};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|it| json!(it)),
        "[a-z0-9:\\-é]{0,8}".prop_map(Value::from),
        Just(json!("2026-01-01T00:00:00Z")),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4).prop_map(|it| json!(it)),
        ]
    })
}

fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "object.status.phase",
        "object.status.startTime",
        "object.status.conditions",
        "object.metadata.labels",
        "object.metadata.labels['a']",
        "object.spec.priority",
        "object.spec.containers",
        "node.spec.taints",
        "now",
        "age(object)",
        "finishedAt(object)",
        "condition(object, 'Ready')",
        "duration('1h')",
        "'a'",
        "-1",
        "9223372036854775807",
        "1.5",
        "null",
        "[1, 'a']",
        "{'a': 1}",
    ])
    .prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 2, |inner| {
        let operators = prop::sample::select(vec![
            "+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in",
        ]);
        let methods = prop::sample::select(vec![
            ".a",
            "[0]",
            "['a']",
            ".size()",
            ".first()",
            ".sum()",
            ".sort()",
            ".trim()",
            ".exists(x, x == 1)",
            ".map(x, x.a)",
            ".filter(x, x.type == 'a')",
            ".exists_one(x, true)",
            ".exists(x, x.startsWith('a'))",
            ".all(x, x > 1)",
            ".distinct()",
            ".max()",
            ".indexOf('a')",
            ".matches('a')",
            ".getHours()",
            ".getHours('+02:00')",
            ".substring(3)",
            ".split('')",
            ".charAt(9)",
        ]);
        let functions = prop::sample::select(vec![
            "size",
            "int",
            "uint",
            "bool",
            "dyn",
            "string",
            "timestamp",
            "duration",
            "quantity",
            "semver",
            "ip",
            "cidr",
            "url",
            "math.abs",
            "math.round",
            "lists.range",
            "!",
            "-",
        ]);
        prop_oneof![
            (inner.clone(), operators, inner.clone())
                .prop_map(|(one, operator, other)| format!("({one} {operator} {other})")),
            (inner.clone(), methods).prop_map(|(of, method)| format!("({of}){method}")),
            (functions, inner.clone()).prop_map(|(function, of)| format!("{function}({of})")),
            (inner.clone(), inner.clone(), inner)
                .prop_map(|(one, two, three)| format!("({one} ? {two} : {three})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_expression_over_any_object_never_panics(
        source in expression(),
        metadata in value(),
        spec in value(),
        status in value(),
    ) {
        if compile(&source).is_ok() {
            let _ = evaluate(&source, json!({"metadata": metadata, "spec": spec, "status": status}));
        }
    }
    #[test]
    fn a_clause_that_is_decided_at_once_is_as_its_evaluation(
        (field, test) in (prop::sample::select(FIELDS), prop::sample::select(TESTS)),
        text in "[ab]{0,2}",
        metadata in object(),
        status in object(),
    ) {
        let source = test.replace('T', &text).replace('F', field);
        // A time has no part, and is compared with no text.
        if let Ok(expression) = compile(&source) {
            let object = json!({"metadata": metadata, "status": status});
            let object = serde_json::from_value(object).unwrap();
            let is_compared = test.contains("now") || test.contains("null");
            match Simple::of(&expression) {
                Some(simple) => agree(&source, &simple, &expression, &object),
                None => assert!(field.contains("Time") && !is_compared, "{source} is not simple"),
            }
        }
    }
}

const FIELDS: &[&str] = &[
    "object.status.phase",
    "object.status.startTime",
    "object.metadata.labels['a']",
    "object.metadata.creationTimestamp",
    "condition(object, 'Ready').status",
    "condition(object, 'Ready').lastTransitionTime",
];

const TESTS: &[&str] = &[
    "F == 'T'",
    "F != 'T'",
    "F == null",
    "F in ['T', 'a']",
    "F.startsWith('T')",
    "F.endsWith('T')",
    "F.contains('T')",
    "now - F > duration('1h')",
    "now > timestamp(F)",
    "F < now",
];

/// The fields that the expressions of this test read, some of them of another shape.
fn object() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => "[ab]{0,3}".prop_map(Value::from),
        2 => Just(json!("2025-12-31T23:30:00Z")),
        1 => value(),
    ];
    let condition = (
        prop::sample::select(vec!["Ready", "a"]),
        leaf.clone(),
        leaf.clone(),
    );
    let condition = condition.prop_map(
        |(kind, status, time)| json!({"type": kind, "status": status, "lastTransitionTime": time}),
    );
    let conditions = prop::collection::vec(prop_oneof![8 => condition, 1 => value()], 0..3);
    let fields = ["phase", "startTime", "creationTimestamp", "a"];
    let field = prop_oneof![
        4 => (prop::sample::select(fields.to_vec()), leaf.clone()),
        2 => leaf.prop_map(|it| ("labels", json!({"a": it}))),
        3 => conditions.prop_map(|it| ("conditions", json!(it))),
    ];
    prop::collection::vec(field, 0..5).prop_map(|fields| {
        let fields = fields.into_iter();
        let fields = fields.map(|(name, value)| (name.to_owned(), value));
        fields.collect::<Value>()
    })
}

fn agree(
    source: &str,
    simple: &Simple,
    expression: &Expression,
    object: &davit_guest::dynamic::Value,
) {
    let (result, next) = expression.evaluate(&Objects::of(object), 1_767_225_600_000);
    match simple.answer(object) {
        Answer::Decided(value) => {
            assert_eq!(result, Ok(value.into()), "{source} of {object:?}");
        }
        Answer::Absent(path) => {
            let absent = Failure::Absent(path.to_owned());
            assert_eq!(result, Err(absent), "{source} of {object:?}");
            assert_eq!(next, None, "{source} of {object:?}");
        }
        Answer::Undecided => {}
    }
}

#[test]
fn a_comparison_of_times_with_more_than_one_unknown_is_evaluated() {
    for source in [
        "now - object.status.startTime > object.metadata.name.duration('x')",
        "now - object.status.startTime > null",
        "now - object.status.startTime > now - object.metadata.creationTimestamp",
    ] {
        let expression = compile(source).ok();
        let simple = expression.as_ref().and_then(Simple::of);
        assert!(simple.is_none(), "{source}");
    }
}
