use kube_cel::cel::Value;
use serde_json::json;

use super::super::tests::{compile, evaluate, holds};

#[test]
fn a_comparison_with_now_knows_when_it_changes() {
    let pod = || json!({"status": {"phase": "Failed", "startTime": "2025-12-31T23:59:00Z"}});
    for (source, expected, next) in [
        (
            "now - object.status.startTime > duration('5m')",
            false,
            Some(240_001),
        ),
        (
            "now - object.status.startTime > duration('1m')",
            false,
            Some(1),
        ),
        (
            "now - object.status.startTime >= duration('1m')",
            true,
            Some(1),
        ),
        (
            "now - object.status.startTime > duration('30s')",
            true,
            None,
        ),
        (
            "duration('5m') < now - object.status.startTime",
            false,
            Some(240_001),
        ),
        (
            "now > timestamp('2026-01-01T01:00:00Z')",
            false,
            Some(3_600_001),
        ),
        (
            "now - duration('1h') > object.status.startTime",
            false,
            Some(3_540_001),
        ),
        (
            "object.status.phase == 'Running' && now - object.status.startTime > duration('5m')",
            false,
            None,
        ),
        (
            "object.status.phase == 'Running' || now - object.status.startTime > duration('5m')",
            false,
            Some(240_001),
        ),
    ] {
        let (result, change) = evaluate(source, pod());
        assert_eq!(result, Ok(Value::Bool(expected)), "{source}");
        assert_eq!(change, next, "{source}");
        assert!(!compile(source).unwrap().is_periodic, "{source}");
    }
    assert!(compile("now.getHours() == 3").unwrap().is_periodic);
}

#[test]
fn a_difference_from_now_that_is_no_duration_fails() {
    let never = || json!({"metadata": {"annotations": {"last": "0001-01-01T00:00:00Z"}}});
    for source in [
        "now - timestamp(object.metadata.annotations['last']) > duration('24h')",
        "!(now - timestamp(object.metadata.annotations['last']) <= duration('24h'))",
        "duration('24h') < now - timestamp(object.metadata.annotations['last'])",
    ] {
        let (result, next) = evaluate(source, never());
        let failure = result.unwrap_err().to_string();
        assert!(failure.contains("out of range"), "{source}: {failure}");
        assert_eq!(next, None, "{source}");
    }
    // The moment itself is one of CEL's.
    assert!(holds(
        "now > timestamp(object.metadata.annotations['last'])",
        never()
    ));
}

/// CEL compares a time with no text.
#[test]
fn a_text_beside_now_needs_a_conversion() {
    let known = "it compares now with a text: write timestamp(…)";
    let unknown = "it compares now with a field that is not known to be a time: write timestamp(…)";
    for (source, column, words) in [
        ("now > object.metadata.annotations['expires']", 7, known),
        ("object.metadata.labels.expires < now", 1, known),
        ("now - object.spec.nodeName > duration('1h')", 7, known),
        ("now > '2026-01-01T00:00:00Z'", 7, known),
        (
            "now - object.status.startTime > object.metadata.annotations['ttl']",
            33,
            known,
        ),
        ("now > object.metadata.name + 'T00:00:00Z'", 7, known),
        ("now > object.spec['newTime']", 7, unknown),
        ("now - object['newTime'] > duration('1h')", 7, unknown),
    ] {
        let mistake = compile(source).unwrap_err();
        assert_eq!(mistake.column, column, "{source}: {mistake}");
        assert!(mistake.message.starts_with(words), "{source}: {mistake}");
    }
    for source in [
        "now > timestamp(object.spec['newTime'])",
        "now > timestamp(object.metadata.annotations['expires'])",
        "now - condition(object, 'Ready').lastTransitionTime > duration('1h')",
        "now - object.status.startTime > duration(object.metadata.annotations['ttl'])",
    ] {
        assert!(compile(source).is_ok(), "{source}");
    }
    // What is known only when it is there is not compared either.
    let source = "now > [dyn(object.metadata.annotations['expires'])].first()";
    let object = json!({"metadata": {"annotations": {"expires": "2020-01-01T00:00:00Z"}}});
    let failure = evaluate(source, object).0.unwrap_err().to_string();
    assert!(
        failure.contains("is a text: write timestamp(…)"),
        "{failure}"
    );
}

/// The host gives milliseconds.
#[test]
fn a_comparison_changes_in_the_millisecond_after_a_fraction() {
    for (source, expected, next) in [
        (
            "now > timestamp('2026-01-01T00:00:00.0005Z')",
            false,
            Some(1),
        ),
        ("now < timestamp('2025-12-31T23:59:59.9995Z')", false, None),
        (
            "now - timestamp('2025-12-31T23:59:59Z') > duration('1.001s')",
            false,
            Some(2),
        ),
        (
            "now - timestamp('1800-01-01T00:00:00Z') > duration('2000000h')",
            false,
            Some(68_112_000_001),
        ),
    ] {
        let (result, change) = evaluate(source, json!({}));
        assert_eq!(result, Ok(Value::Bool(expected)), "{source}");
        assert_eq!(change, next, "{source}");
    }
}
