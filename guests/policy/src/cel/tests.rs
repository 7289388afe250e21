use std::collections::BTreeMap;

use davit_guest::dynamic;
use kube_cel::cel::Value;
use serde_json::json;

use super::expand::Variables;
use super::schema::Schema;
use super::{Expression, Failure, Mistake, Objects, Scope, text};

pub(super) fn compile(source: &str) -> Result<Expression, Mistake> {
    compile_with(source, &Variables::new())
}

pub(super) fn compile_with(source: &str, variables: &Variables) -> Result<Expression, Mistake> {
    let scope = Scope {
        bindings: BTreeMap::from([("object", schema("pods")), ("node", schema("nodes"))]),
        variables,
    };
    Expression::compile(source, &scope)
}

fn schema(plural: &str) -> Schema {
    Schema::of(&davit_guest::ApiResource::new("", "v1", plural))
}

/// The start of the tests' time: 2026-01-01T00:00:00Z.
const START: i64 = 1_767_225_600_000;

pub(super) fn evaluate(
    source: &str,
    object: serde_json::Value,
) -> (Result<Value, Failure>, Option<i64>) {
    let object: dynamic::Value = serde_json::from_value(object).unwrap();
    let objects = Objects::of(&object);
    let expression = compile(source).unwrap_or_else(|mistake| panic!("{source}: {mistake}"));
    let (result, next) = expression.evaluate(&objects, START);
    (result, next.map(|next| next - START))
}

pub(super) fn holds(source: &str, object: serde_json::Value) -> bool {
    match evaluate(source, object).0 {
        Ok(Value::Bool(value)) => value,
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn what_an_object_lacks_is_null() {
    let pod = || json!({"metadata": {"labels": {"app": "web"}}, "status": {"phase": "Failed"}});
    for (source, expected) in [
        ("object.status.phase == 'Failed'", true),
        ("object.metadata.annotations['keep'] == 'true'", false),
        ("object.metadata.labels['team'] != 'prod'", true),
        ("has(object.metadata.labels.app)", true),
        ("has(object.metadata.labels.team)", false),
        ("object.spec.nodeName == null", true),
        ("size(object.metadata.finalizers) == 0", true),
        (
            "object.status.conditions.exists(c, c.type == 'Ready')",
            false,
        ),
        ("condition(object, 'Ready').status == 'True'", false),
        ("node == null", true),
        ("object.metadata.labels.exists(k, k == 'app')", true),
        ("'app' in object.metadata.labels", true),
    ] {
        assert_eq!(holds(source, pod()), expected, "{source}");
    }
}

/// The objects of a list do not have their kind, and those of a watch have it.
#[test]
fn the_kind_of_an_object_is_that_of_its_resource() {
    for object in [json!({}), json!({"kind": "Pod", "apiVersion": "v1"})] {
        for source in [
            "object.kind == 'Pod' && object.apiVersion == 'v1' && has(object.kind)",
            "object['kind'] in ['Pod', 'Job'] && object.kind != null",
            "!(object.kind != 'Pod')",
        ] {
            assert!(holds(source, object.clone()), "{source}: {object}");
            assert!(compile(source).unwrap().fields.is_empty(), "{source}");
        }
    }
    // There may be no node, and an owner reference has a kind of its own.
    let mistake = compile("node.kind == 'Node'").unwrap_err().to_string();
    assert!(mistake.contains("it is always \"Node\""), "{mistake}");
    let owners = json!({"metadata": {"ownerReferences": [{"kind": "Job"}]}});
    let source = "object.metadata.ownerReferences.exists(o, o.kind == 'Job')";
    assert!(holds(source, owners));
    let mistake = compile("object.metadata.resourceVersion == null").unwrap_err();
    assert!(
        mistake.message.contains("changes with each write"),
        "{mistake}"
    );
}

#[test]
fn anything_else_that_is_done_with_what_an_object_lacks_fails() {
    let (result, _) = evaluate("object.spec.priority > 3", json!({}));
    assert_eq!(
        result,
        Err(Failure::Absent("object.spec.priority".to_owned()))
    );
}

#[test]
fn fields_are_derived_from_what_is_read() {
    let fields = |source: &str| -> Vec<String> {
        let expression = compile(source).unwrap();
        expression
            .fields
            .get("object")
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    };
    assert_eq!(
        fields("object.status.phase == 'x' && object.metadata.labels['a/b'] == 'y'"),
        ["metadata.labels[\"a/b\"]", "status.phase"]
    );
    assert_eq!(
        fields(
            "object.status.conditions.exists(c, c.type == 'Ready' && now - c.lastTransitionTime > duration('1m'))"
        ),
        [
            "status.conditions[*].lastTransitionTime",
            "status.conditions[*].type"
        ]
    );
    assert_eq!(
        fields("object.status.conditions.filter(c, c.type == 'Ready')[0].status == 'x'"),
        ["status.conditions[*].status", "status.conditions[*].type"]
    );
    assert_eq!(
        fields("object.spec.tolerations.exists(t, true)"),
        ["spec.tolerations"]
    );
    assert_eq!(
        fields("age(object) > duration('1h')"),
        ["metadata.creationTimestamp"]
    );
    assert_eq!(
        fields("condition(object, 'Ready').status == 'x'"),
        ["status.conditions[*].status", "status.conditions[*].type"]
    );
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn mistakes_are_refused_with_their_place() {
    for (source, column, words) in [
        ("object.status.phase = 'x'", 21, ""),
        ("objct.status.phase == 'x'", 1, "did you mean \"object\"?"),
        ("obj.status.phase == 'x'", 1, "did you mean \"object\"?"),
        ("owner == null", 1, "needs an entry in related"),
        ("counts.failed > 3", 1, "only hold reads counts"),
        (
            "object.status.phase.startWith('x')",
            21,
            "did you mean \"startsWith\"?",
        ),
        ("1 + 'x' == 2", 3, "a number and a text"),
        ("'x' > 3", 5, "compares a text with a number"),
        ("object == 'x'", 1, "whole object"),
        ("size(object) > 1", 6, "whole object"),
        (
            "now - object.status.startTime > 5",
            31,
            "compares a duration with a number",
        ),
        (
            "now - object.status.startTime + object.spec.priority > duration('1m')",
            33,
            "computes with now and a number",
        ),
        ("true || variables.old", 19, "no variable \"old\""),
        (
            "object.status.phase == 'fase' || object.status.fase == 'x'",
            48,
            "object.status has no field \"fase\"; did you mean \"phase\"?",
        ),
        (
            "object.status.phase == 'x' && object.status.phase == 5",
            51,
            "compares a text with a number",
        ),
        (
            "true && object.spec.nodeName && false",
            9,
            "takes a text for a boolean",
        ),
        ("!object.spec.nodeName", 2, "takes a text for a boolean"),
        ("'a' in object.spec.nodeName", 8, "not into a text"),
        (
            "object.spec.containers.exists(c, c.imag == 'x')",
            36,
            "did you mean \"image\"?",
        ),
        (
            "object.spec.containers.exists(container, contaner.image == 'x')",
            42,
            "did you mean \"container\"?",
        ),
        (
            "object.spec.containers.exist(c, c.image == 'x')",
            24,
            "did you mean \"exists\"?",
        ),
        (
            "object.spec.containers.exists(c)",
            24,
            "write list.exists(x, CONDITION)",
        ),
        ("ages(object) > duration('1h')", 1, "did you mean \"age\"?"),
        ("age() > duration('1h')", 1, "age takes one object"),
        ("now() > object.status.startTime", 1, "without brackets"),
        (
            "object.status.phase > object.status.startTime",
            21,
            "compares a text with a time",
        ),
        (
            "age(object) > duration('2months')",
            15,
            "\"2months\" is no duration",
        ),
        (
            "condition(node, 'Ready').stauts == 'True'",
            26,
            "did you mean \"status\"?",
        ),
    ] {
        let mistake = compile(source).unwrap_err();
        assert_eq!(mistake.column, column, "{source}: {mistake}");
        assert!(mistake.message.contains(words), "{source}: {mistake}");
        assert_eq!(mistake.variable, None, "{source}");
    }
}

#[test]
fn types_that_never_meet_are_refused() {
    for (source, column, words) in [
        (
            "object.spec.hostNetwork in ['true']",
            29,
            "compares a boolean with a text",
        ),
        (
            "object.spec.priority in [1, '5']",
            29,
            "compares a number with a text",
        ),
        (
            "5 in object.metadata.labels",
            3,
            "looks for a number, where only a text can be",
        ),
        (
            "object.metadata.labels.exists(l, l == 5)",
            36,
            "compares a text with a number",
        ),
        (
            "object.status.phase.startsWith(5)",
            32,
            "startsWith takes a text, not a number",
        ),
        (
            "object.spec.priority.startsWith('x')",
            1,
            "startsWith takes a text, not a number",
        ),
        (
            "object.spec.containers.contains('x')",
            33,
            "looks for a text, where only a map can be",
        ),
        (
            "math.abs(object.metadata.name) == 1",
            10,
            "math.abs takes a number, not a text",
        ),
        (
            "condition(object, 5).status == 'True'",
            19,
            "takes the type as a text",
        ),
        ("object.metadata.name * 2 == 4", 1, "a text for a number"),
    ] {
        let mistake = compile(source).unwrap_err();
        assert_eq!(mistake.column, column, "{source}: {mistake}");
        assert!(mistake.message.contains(words), "{source}: {mistake}");
    }
    // What is not known may be anything.
    for source in [
        "object.metadata.annotations['a'] in ['1', null]",
        "object.spec.containers[0].resources.limits['cpu'].startsWith('1')",
        "object.spec.priority in [1, null]",
        "object.metadata.name.split('-').exists(part, part == 'a')",
    ] {
        assert!(compile(source).is_ok(), "{source}");
    }
}

/// As a text, 900Mi is more than 5Gi.
#[test]
fn the_text_of_a_quantity_is_not_compared() {
    let limit = "object.spec.containers[0].resources.limits['memory']";
    let volume = "object.spec.volumes[0].emptyDir.sizeLimit";
    for (source, column) in [
        (format!("{limit} > '5Gi'"), 54),
        (format!("'5Gi' <= {limit}"), 7),
        (format!("true && {limit} == '1Gi'"), 62),
        (format!("{volume} != '1Gi'"), 43),
        (format!("{volume} == {limit}"), 43),
        (format!("{limit} in ['1Gi', '2Gi']"), 54),
        (
            "object.spec.containers.exists(c, c.resources.requests.cpu < '1')".to_owned(),
            59,
        ),
    ] {
        let mistake = compile(&source).unwrap_err();
        assert_eq!(mistake.column, column, "{source}: {mistake}");
        let words = "it compares the text of a quantity: write quantity(";
        assert!(mistake.message.starts_with(words), "{source}: {mistake}");
    }
    for source in [
        format!("{limit} == null || null != {volume}"),
        format!("quantity({limit}).isGreaterThan(quantity('5Gi'))"),
        format!("quantity({limit}) == quantity('1Gi')"),
        format!("{limit} in [null]"),
    ] {
        assert!(compile(&source).is_ok(), "{source}");
    }
}

#[test]
fn what_an_expression_makes_is_bounded() {
    let text = "x".repeat(10_000);
    let object = json!({"metadata": {"annotations": {"a": text}}});
    for source in [
        "object.metadata.annotations['a'].replace('x', object.metadata.annotations['a']) == ''",
        "lists.range(1000).map(i, object.metadata.annotations['a']).join() == ''",
        "lists.range(1000).map(i, object.metadata.annotations['a'] + 'y').size() == 0",
        "lists.range(40).map(i, object.metadata.annotations['a'].split('')).size() == 0",
    ] {
        let (result, _) = evaluate(source, object.clone());
        let Err(Failure::Error(message)) = result else {
            panic!("{source}: {result:?}");
        };
        assert!(
            message.contains("makes more than 2097152 bytes"),
            "{source}: {message}"
        );
    }
    // An evaluation does not pay for the one before it.
    let source = "object.metadata.annotations['a'].replace('x', 'xy').size() == 20000";
    assert!(holds(source, object));
}

#[test]
fn a_mistake_in_a_variable_names_the_variable() {
    let variables = Variables::from([
        (
            "failed".to_owned(),
            text::parse_variable("object.status.fase == 'Failed'", 0).unwrap(),
        ),
        (
            "phase".to_owned(),
            text::parse_variable("object.status.phase", 1).unwrap(),
        ),
    ]);
    let mistake = compile_with("true && variables.failed", &variables).unwrap_err();
    assert_eq!(mistake.variable.as_deref(), Some("failed"));
    assert_eq!(mistake.column, 15, "{mistake}");
    // What uses a variable in a wrong way is wrong, not the variable.
    for (source, column) in [
        ("true && variables.phase", 6),
        ("object.spec.nodeName == '' && variables.phase > 5", 47),
    ] {
        let mistake = compile_with(source, &variables).unwrap_err();
        assert_eq!(mistake.variable, None, "{source}: {mistake}");
        assert_eq!(mistake.column, column, "{source}: {mistake}");
    }
}

#[test]
fn variables_stand_for_their_expressions() {
    let variables = Variables::from([
        (
            "old".to_owned(),
            text::parse("variables.age > duration('1h')").unwrap(),
        ),
        ("age".to_owned(), text::parse("age(object)").unwrap()),
        ("loop".to_owned(), text::parse("variables.loop").unwrap()),
    ]);
    let expression = compile_with("variables.old", &variables).unwrap();
    assert!(!expression.is_periodic);
    assert!(expression.fields["object"].contains("metadata.creationTimestamp"));
    let mistake = compile_with("variables.loop", &variables).unwrap_err();
    assert!(mistake.message.contains("contains itself"), "{mistake}");
}

#[test]
fn loops_are_bounded() {
    let nested = "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, true))))";
    let (result, _) = evaluate(nested, json!({}));
    assert!(matches!(result, Err(Failure::Error(text)) if text.contains("more than 10000")));
}

#[test]
fn a_pod_has_finished_only_when_it_has_ended() {
    let pod = |phase: &str| {
        json!({"status": {"phase": phase, "containerStatuses": [
            {"state": {"terminated": {"finishedAt": "2025-12-31T23:00:00Z"}}}
        ]}})
    };
    let source = "now - finishedAt(object) > duration('30m')";
    assert!(holds(source, pod("Failed")));
    assert!(matches!(
        evaluate(source, pod("Running")).0,
        Err(Failure::Absent(_))
    ));
}

/// Each part is lowered once, however deep it stands.
#[test]
fn what_nests_is_compiled_at_once() {
    let lists = format!("{}true{}", "true in [".repeat(25), "]".repeat(25));
    let times = format!(
        "{}1{} == timestamp(1)",
        "timestamp(int(".repeat(20),
        "))".repeat(20)
    );
    let compile_all = move || {
        for source in [lists, times] {
            let start = std::time::Instant::now();
            assert!(compile(&source).is_ok(), "{source}");
            assert!(start.elapsed().as_secs() < 2, "{source}");
        }
    };
    // As large as that of a program. Without optimisation, a test's own stack is too small.
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    thread.spawn(compile_all).unwrap().join().unwrap();
}

#[test]
fn the_variable_of_a_loop_hides_nothing() {
    for (source, message) in [
        (
            "object.metadata.finalizers.exists(node, node == 'a')",
            "\"node\" is an object here: give the loop's variable another name",
        ),
        ("[1].map(now, now) == [1]", "\"now\" is the time here"),
        (
            "[1].all(variables, true)",
            "\"variables\" is what the rule's",
        ),
    ] {
        let mistake = compile(source).unwrap_err();
        assert!(mistake.column > 0, "{source}: {mistake}");
        assert!(mistake.message.contains(message), "{source}: {mistake}");
    }
}

#[test]
fn a_regular_expression_that_is_not_supported_has_a_column() {
    for (source, column) in [
        (r"object.metadata.name.matches('^a\\B')", 30),
        (r"object.metadata.name.find('[\\W]') == ''", 27),
        ("object.metadata.name.findAll('[a&&b]') == []", 30),
    ] {
        let mistake = compile(source).unwrap_err();
        assert_eq!(mistake.column, column, "{source}: {mistake}");
        assert!(mistake.message.contains("is not supported"), "{mistake}");
    }
}
