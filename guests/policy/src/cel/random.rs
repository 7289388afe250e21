//! Random expressions over random objects: they have a result or fail, and never panic.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{compile, evaluate};

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
            ".getHours()",
            ".substring(3)",
            ".split('')",
            ".charAt(9)",
        ]);
        let functions = prop::sample::select(vec![
            "size",
            "int",
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
}
