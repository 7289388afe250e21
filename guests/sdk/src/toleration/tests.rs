use super::*;

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        time_added: None,
    }
}

fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
    Toleration {
        key: key.to_owned(),
        operator: operator.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        toleration_seconds: None,
    }
}

/// For that many seconds, or forever.
fn lasting(seconds: Option<i64>) -> Toleration {
    Toleration {
        toleration_seconds: seconds,
        ..toleration("", "Exists", "", "")
    }
}

#[track_caller]
fn check(toleration: &Toleration, taint: &Taint, expected: bool) {
    let tolerates = toleration.tolerates(taint, true);
    assert_eq!(tolerates, expected, "{toleration:?}, {taint:?}");
}

/// Whether a toleration with this operator and value tolerates a taint of this
/// value, of the same key and effect.
#[track_caller]
fn check_value(operator: &str, own: &str, its: &str, expected: bool) {
    let toleration = toleration("foo", operator, own, "NoSchedule");
    check(&toleration, &taint("foo", its, "NoSchedule"), expected);
}

#[test]
fn te_36_exists_tolerates_a_taint_without_a_value() {
    check_value("Exists", "", "", true);
}

#[test]
fn te_37_exists_tolerates_a_taint_of_any_value() {
    check_value("Exists", "", "bar", true);
}

#[test]
fn te_38_exists_without_a_key_tolerates_every_key() {
    let all = toleration("", "Exists", "", "NoSchedule");
    check(&all, &taint("foo", "bar", "NoSchedule"), true);
    check(&all, &taint("other", "", "NoSchedule"), true);
    check(&all, &taint("foo", "bar", "NoExecute"), false);
    let all = toleration("", "Exists", "", "");
    check(&all, &taint("foo", "bar", "NoExecute"), true);
}

#[test]
fn te_39_equal_tolerates_the_same_value() {
    check_value("Equal", "bar", "bar", true);
    check_value("", "bar", "bar", true);
}

#[test]
fn te_40_equal_does_not_tolerate_another_value() {
    check_value("Equal", "value1", "value2", false);
    check_value("", "value1", "value2", false);
}

#[test]
fn te_41_another_effect_is_not_tolerated() {
    let own = toleration("foo", "Equal", "bar", "NoSchedule");
    check(&own, &taint("foo", "bar", "NoExecute"), false);
    let any = toleration("foo", "Equal", "bar", "");
    check(&any, &taint("foo", "bar", "NoExecute"), true);
}

#[test]
fn te_42_greater_does_not_tolerate_a_lesser_value() {
    check_value("Gt", "950", "800", false);
}

#[test]
fn te_43_greater_tolerates_a_greater_value() {
    check_value("Gt", "750", "950", true);
}

#[test]
fn te_44_greater_does_not_tolerate_the_same_value() {
    check_value("Gt", "950", "950", false);
}

#[test]
fn te_45_greater_tolerates_only_numbers() {
    check_value("Gt", "950", "high", false);
    check_value("Gt", "low", "950", false);
}

#[test]
fn te_46_greater_knows_negative_numbers() {
    check_value("Gt", "-200", "-100", true);
    check_value("Gt", "-100", "-200", false);
}

#[test]
fn te_47_greater_knows_large_numbers() {
    check_value("Gt", "9223372036854775806", "9223372036854775807", true);
}

#[test]
fn te_48_less_does_not_tolerate_a_greater_value() {
    check_value("Lt", "800", "950", false);
}

#[test]
fn te_49_less_tolerates_a_lesser_value() {
    check_value("Lt", "950", "800", true);
}

/// The comparison is between the taint's value and the toleration's:
/// `(operator, the taint's, the toleration's, tolerated)`.
#[test]
fn te_50_numbers_are_compared_strictly() {
    const MAX: &str = "9223372036854775807";
    const MIN: &str = "-9223372036854775808";
    for (operator, its, own, expected) in [
        ("Gt", "100", "50", true),
        ("Gt", "50", "100", false),
        ("Gt", "100", "100", false),
        ("Lt", "50", "100", true),
        ("Lt", "100", "50", false),
        ("Lt", "100", "100", false),
        ("Gt", "-10", "-20", true),
        ("Gt", "-20", "-10", false),
        ("Lt", "-20", "-10", true),
        ("Lt", "-10", "-20", false),
        ("Gt", "1", "-1", true),
        ("Lt", "-1", "1", true),
        ("Gt", "0", "-1", true),
        ("Lt", "0", "1", true),
        ("Gt", "0", "0", false),
        ("Gt", MAX, "0", true),
        ("Lt", MIN, "0", true),
        ("Gt", MAX, MIN, true),
        ("Gt", "9223372036854775808", "0", false),
        ("Lt", "-9223372036854775809", "0", false),
        ("Gt", "abc", "50", false),
        ("Gt", "100", "abc", false),
        ("Gt", "", "50", false),
        ("Gt", "100", "", false),
        ("Gt", "0100", "50", false),
        ("Lt", "-00", "50", false),
        ("Lt", "-0", "50", false),
        ("Gt", "+100", "50", false),
        ("Gt", "100.5", "50", false),
        ("Lt", "-", "50", false),
        ("Gt", " 100", "50", false),
        ("Gt", "100 ", "50", false),
    ] {
        check_value(operator, own, its, expected);
    }
    // The other operators compare no numbers.
    check_value("Equal", "0100", "100", false);
    check_value("Exists", "50", "100", true);
    check_value("Between", "50", "100", false);
}

#[test]
fn comparisons_match_only_if_enabled() {
    for (operator, its) in [("Gt", "2"), ("Lt", "0")] {
        let own = toleration("foo", operator, "1", "");
        let taint = taint("foo", its, "NoExecute");
        assert!(own.tolerates(&taint, true), "{operator}");
        assert!(!own.tolerates(&taint, false), "{operator}");
    }
}

#[test]
fn without_a_key_equal_compares_the_values_alone() {
    let own = toleration("", "Equal", "bar", "");
    check(&own, &taint("anything", "bar", "NoExecute"), true);
    check(&own, &taint("anything", "baz", "NoExecute"), false);
}

#[test]
fn another_key_is_not_tolerated() {
    let own = toleration("foo", "Exists", "", "");
    check(&own, &taint("bar", "", "NoExecute"), false);
}

#[test]
fn the_first_toleration_of_each_taint_counts() {
    let taints = [
        taint("a", "", "NoExecute"),
        taint("b", "", "NoExecute"),
        taint("a", "x", "NoExecute"),
    ];
    let mut tolerations = [
        toleration("b", "Exists", "", ""),
        toleration("a", "Exists", "", ""),
        toleration("", "Exists", "", ""),
    ];
    for (seconds, own) in (1..).zip(&mut tolerations) {
        own.toleration_seconds = Some(seconds);
    }
    let seconds = |taints: &[Taint], tolerations: &[Toleration]| {
        let used = matching_tolerations(taints, tolerations, false)?;
        let seconds: Vec<_> = used.iter().map(|it| it.toleration_seconds).collect();
        Some(seconds)
    };
    let expected = Some(vec![Some(2), Some(1), Some(2)]);
    assert_eq!(seconds(&taints, &tolerations), expected);
    assert_eq!(seconds(&taints, &tolerations[..1]), None);
    assert_eq!(seconds(&taints, &[]), None);
    assert_eq!(seconds(&[], &tolerations), Some(vec![]));
    assert_eq!(seconds(&[], &[]), Some(vec![]));
}

#[test]
fn a_toleration_lasts_for_its_seconds_or_forever() {
    let seconds = |seconds| Some(Duration::from_secs(seconds));
    for (toleration, expected) in [
        (None, None),
        (Some(1), seconds(1)),
        (Some(0), seconds(0)),
        (Some(-3), seconds(0)),
        (Some(i64::MIN), seconds(0)),
    ] {
        assert_eq!(lasting(toleration).time(), expected, "{toleration:?}");
    }
}

/// Kubernetes counts in nanoseconds and overflows.
#[test]
fn a_long_toleration_does_not_overflow() {
    for seconds in [9_223_372_037, 18_446_744_074, i64::MAX] {
        let expected = Some(Duration::from_secs(seconds.unsigned_abs()));
        assert_eq!(lasting(Some(seconds)).time(), expected);
    }
}
