use kube_cel::cel::Value;
use serde_json::{Value as Json, json};

use super::super::tests::evaluate;
use super::super::{Failure, MAX_STEPS};
use super::taken;

/// About as large as the annotations of an object may be together.
const LARGEST: usize = 240_000;

/// Numbers, none of them twice.
fn numbers(first: usize) -> String {
    let mut text = String::new();
    for number in first.. {
        if text.len() + 8 > LARGEST {
            break;
        }
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&number.to_string());
    }
    text
}

fn annotated(annotations: &Json) -> Json {
    json!({"metadata": {"annotations": annotations}})
}

/// With `$A` and `$B` for the annotations.
fn source(template: &str) -> String {
    template
        .replace("$A", "object.metadata.annotations['a']")
        .replace("$B", "object.metadata.annotations['b']")
}

/// What would compare everything with everything is decided with steps that its length bounds.
#[test]
fn the_work_on_a_large_annotation_is_linear() {
    let lists = annotated(&json!({"a": numbers(0), "b": numbers(1_000_000)}));
    let repeated = annotated(&json!({
        "a": "x".repeat(LARGEST),
        "b": format!("{}y", "x".repeat(LARGEST / 2)),
    }));
    for (template, object, least) in [
        ("$A.split(',').distinct().size() > 40000", &lists, 160_000),
        (
            "!sets.intersects($A.split(','), $B.split(','))",
            &lists,
            140_000,
        ),
        (
            "!sets.equivalent($A.split(','), $B.split(','))",
            &lists,
            110_000,
        ),
        (
            "!sets.contains($A.split(','), $B.split(','))",
            &lists,
            110_000,
        ),
        ("$A.split(',').sort().size() > 40000", &lists, 200_000),
        ("!('x' in $A.split(','))", &lists, 40_000),
        ("$A.split(',').indexOf('x') == -1", &lists, 40_000),
        ("$A.split(',').contains('39999')", &lists, 40_000),
        ("$A.indexOf($B) == -1", &repeated, 1000),
        ("$A.lastIndexOf($B) == -1", &repeated, 1000),
        ("!$A.contains($B)", &repeated, 1000),
        ("!$A.matches('(x+x+)+y')", &repeated, 1000),
    ] {
        let (result, _) = evaluate(&source(template), object.clone());
        assert_eq!(result, Ok(Value::Bool(true)), "{template}");
        // Each element is read once or twice, and each time counts.
        let steps = taken();
        assert!((least..300_000).contains(&steps), "{template}: {steps}");
    }
}

/// What reads a large text again and again fails.
#[test]
fn the_work_on_a_large_annotation_is_bounded() {
    let object = annotated(&json!({
        "a": "x".repeat(LARGEST),
        "b": r"(\w{100}){10}",
        "empty": "",
    }));
    let constants: Vec<String> = (0..500).map(|it| format!("'{it}'")).collect();
    let constants = format!(
        "lists.range(4000).exists(i, 'x' in [{}])",
        constants.join(",")
    );
    for template in [
        "lists.range(4000).exists(i, $A.charAt(i) == 'y')",
        "lists.range(4000).all(i, $A.size() > 5)",
        "lists.range(4000).map(i, $A.startsWith('y')).size() > 0",
        "lists.range(4000).filter(i, $A == $B).size() > 0",
        "lists.range(4000).exists_one(i, $A < $B)",
        // The text as the variable of a loop around.
        "[$A].exists(x, lists.range(4000).exists(i, x.startsWith('y')))",
        "[$A].exists(x, lists.range(4000).exists(i, x.contains('y')))",
        "[$A].exists(x, lists.range(4000).exists(i, x == string(i)))",
        "[$A].exists(x, [$A].exists(z, lists.range(4000).exists(i, z < x)))",
        "[[$A]].exists(l, lists.range(4000).exists(i, string(i) in l))",
        "[[$A]].exists(l, lists.range(4000).exists(i, l.exists(x, false)))",
        "[{'a': $A}].exists(m, lists.range(4000).exists(i, m.a == 'y'))",
        "[[$A]].exists(l, lists.range(4000).exists(i, l[0] == 'y'))",
        "[$A].exists(x, lists.range(4000).exists(i, (i > 0 ? x : x).size() == i))",
        "[$A].exists(x, lists.range(4000).exists(i, dyn(x).size() == i))",
        "[$A].exists(x, lists.range(4000).exists(i, dyn(x)))",
        // What is compared one by one.
        "lists.range(4000).map(i, double(i) + 0.5).distinct().size() > 0",
        "sets.intersects(lists.range(2000).map(i, [i]), lists.range(2000).map(i, [-1 - i]))",
        // Patterns.
        r"lists.range(4000).exists(i, 'x'.matches('\\w{20}'))",
        "$A.matches('[a-z]{1000}[a-z]{1000}[a-z]{1000}[a-z]{1000}[a-z]{1000}[a-z]{1000}y')",
        &constants,
    ] {
        let (result, _) = evaluate(&source(template), object.clone());
        let Err(Failure::Error(message)) = result else {
            panic!("{template}: {result:?}");
        };
        assert!(
            message.contains("takes more than 1000000 steps"),
            "{template}: {message}"
        );
        assert!(taken() <= MAX_STEPS, "{template}");
    }
    let (result, _) = evaluate(&source("$A.matches($B)"), object.clone());
    assert!(
        matches!(&result, Err(Failure::Error(it)) if it.contains("a pattern that is no constant")),
        "{result:?}"
    );
    // What exceeds a bound is no field that is not set, and is not decided by another element.
    for template in [
        "lists.range(4000).exists(i, $A.charAt(i) == 'x' && object.spec.nodeName > 'a')",
        "lists.range(4000).exists(i, i == 3999 || $A.charAt(i) == 'y')",
    ] {
        let (result, _) = evaluate(&source(template), object.clone());
        assert!(
            matches!(&result, Err(Failure::Error(it)) if it.contains("steps")),
            "{template}: {result:?}"
        );
    }
    // An evaluation does not pay for the one before it.
    let (result, _) = evaluate(&source("$A.charAt(5) == 'x'"), object);
    assert_eq!(result, Ok(Value::Bool(true)));
}

/// A rule over related objects is far below the bound.
#[test]
fn what_rules_do_with_many_objects_is_admitted() {
    let containers: Vec<Json> = (0..1000)
        .map(|it| {
            json!({"name": format!("c{it}"), "image": format!("registry.example.com/a/b:{it}"),
            "env": [{"name": "A", "value": "b"}, {"name": "B", "value": "c"}]})
        })
        .collect();
    let object = json!({"spec": {"containers": containers}});
    for template in [
        "!object.spec.containers.exists(c, c.image.startsWith('other/') || c.env.exists(e, e.name == 'C'))",
        "object.spec.containers.map(c, c.image.split(':')[1]).distinct().size() == 1000",
        "object.spec.containers.filter(c, c.image.matches('^registry[.]example[.]com/')).size() == 1000",
    ] {
        let (result, _) = evaluate(template, object.clone());
        assert_eq!(result, Ok(Value::Bool(true)), "{template}: {}", taken());
    }
}
