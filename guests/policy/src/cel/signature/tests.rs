use super::super::tests::compile;
use super::ALL;

fn refused(source: &str, column: usize, words: &str) {
    let mistake = compile(source).map(|_| ()).unwrap_err();
    assert_eq!(mistake.column, column, "{source}: {mistake}");
    assert!(mistake.message.contains(words), "{source}: {mistake}");
}

#[test]
fn the_number_of_arguments_is_checked() {
    for (source, column, words) in [
        (
            "now.getHours(1, 2, 3) >= 0",
            5,
            "getHours takes 1 argument at most, not 3",
        ),
        (
            "object.metadata.name.startsWith()",
            22,
            "startsWith takes 1 argument, not 0",
        ),
        (
            "true || object.metadata.name.lowerAscii('b') == 'a'",
            30,
            "lowerAscii takes no argument, not 1",
        ),
        (
            "object.metadata.name.substring(1, 3, 4) == 'an'",
            22,
            "substring takes 1 or 2 arguments, not 3",
        ),
        (
            "isIP('10.0.0.1', '10.0.0.2')",
            1,
            "isIP takes 1 argument, not 2",
        ),
        ("math.abs(1, 2) == 1", 6, "math.abs takes 1 argument, not 2"),
        (
            "math.greatest() == 1",
            6,
            "math.greatest takes 1 argument or more, not 0",
        ),
        (
            "sets.contains(object.metadata.finalizers)",
            6,
            "sets.contains takes 2 arguments, not 1",
        ),
        ("string() == ''", 1, "string takes 1 argument, not 0"),
        (
            "object.metadata.finalizers.exists(f, f.endsWith())",
            40,
            "endsWith takes 1 argument, not 0",
        ),
        (
            "semver('1.2.3', true, 1).major() == 1",
            1,
            "semver takes 1 or 2 arguments, not 3",
        ),
    ] {
        refused(source, column, words);
    }
}

/// Neither fewer nor more operands than a function takes are accepted.
#[test]
fn each_function_has_its_number_of_arguments() {
    for signature in ALL {
        let (least, most) = (
            signature.operands.len() - signature.optional,
            signature.operands.len(),
        );
        for count in 0..6 {
            let is_method = signature.style == super::Style::Method;
            if is_method && count == 0 {
                continue;
            }
            let operands = vec![super::Type::Any; count];
            let fits = (least..=most).contains(&count) || (signature.is_variadic && count > most);
            let checked = signature.check(&operands, super::Type::Any, is_method);
            assert_eq!(checked.is_ok(), fits, "{} {count}", signature.name);
        }
    }
}

#[test]
fn a_function_is_called_as_it_is_written() {
    for (source, column, words) in [
        ("'10.0.0.1'.isIP()", 12, "isIP is no method: write isIP(…)"),
        (
            "indexOf(object.metadata.name, 'na') == 0",
            1,
            "indexOf is a method: write VALUE.indexOf(…)",
        ),
        (
            "first([1]) == 1",
            1,
            "first is a method: write VALUE.first(…)",
        ),
        (
            "isGreaterThan(quantity('2'), quantity('1'))",
            1,
            "isGreaterThan is a method",
        ),
    ] {
        refused(source, column, words);
    }
    for source in [
        "matches(object.metadata.name, 'a')",
        "ip('10.0.0.1').string() == string(ip('10.0.0.1'))",
        "max(object.spec.priority, 1) > [1].max()",
    ] {
        assert!(compile(source).is_ok(), "{source}");
    }
}

#[test]
fn the_types_of_kubernetes_are_those_of_their_functions() {
    for (source, column, words) in [
        (
            "quantity('1Gi') == 5",
            17,
            "compares a quantity with a number",
        ),
        (
            "quantity('1Gi').startsWith('x')",
            1,
            "startsWith takes a text, not a quantity",
        ),
        (
            "quantity('1Gi') > quantity('1Mi')",
            17,
            "compares a quantity with a quantity",
        ),
        (
            "quantity('1Gi').isGreaterThan(semver('1.2.3'))",
            31,
            "isGreaterThan compares a quantity with a version",
        ),
        (
            "quantity('1Gi').isGreaterThan('1Mi')",
            31,
            "isGreaterThan takes a quantity or a version, not a text",
        ),
        (
            "semver('1.2.3').family() == 4",
            1,
            "family takes an IP address, not a version",
        ),
        (
            "ip('10.0.0.1') == cidr('10.0.0.0/8')",
            16,
            "compares an IP address with a range of addresses",
        ),
        (
            "url('https://a.b') in ['https://a.b']",
            24,
            "compares a URL with a text",
        ),
        (
            "duration('1h').getHours('UTC') == 1",
            25,
            "getHours takes no zone of a duration",
        ),
    ] {
        refused(source, column, words);
    }
    for source in [
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "cidr('10.0.0.0/8').containsIP(ip('10.0.0.1')) && cidr('10.0.0.0/8').ip().family() == 4",
        "quantity(object.spec.containers[0].resources.limits['cpu']).add(1).isLessThan(quantity('5'))",
        "[quantity('1'), quantity('2')].exists(q, q == quantity('2'))",
    ] {
        assert!(compile(source).is_ok(), "{source}");
    }
}

#[test]
fn a_zone_is_a_fixed_offset() {
    for (source, column) in [
        ("now.getHours('Europe/Berlin') >= 0", 14),
        (
            "timestamp('2026-01-01T00:00:00Z').getDate('nonsense') == 1",
            43,
        ),
        ("object.status.startTime.getDayOfWeek('CET') == 1", 38),
    ] {
        refused(
            source,
            column,
            "write a fixed offset such as \"+02:00\", or \"UTC\"",
        );
    }
    for source in ["now.getHours('+02:00') >= 0", "now.getHours('UTC') >= 0"] {
        assert!(compile(source).is_ok(), "{source}");
    }
}
