//! What the language does, case by case: what it claims to have, and what fails. An expression
//! that fails has no result, so its rule does not act.

use std::collections::BTreeSet;

use kube_cel::cel::Value;
use serde_json::json;

use super::functions;
use super::tests::{compile, evaluate};

/// These are true.
const TRUE: &[&str] = &[
    // Numbers.
    "1 + 2 * 3 == 7",
    "-7 / 2 == -3",
    "-7 % 2 == -1",
    "7u / 2u == 3u",
    "1.5 + 1.5 == 3.0",
    "2 == 2.0",
    "2 < 2.5",
    "!(2 != 2.0) && 2 != 2.5",
    "[1] == [1.0] && {'a': 1} == {'a': 1.0}",
    "1 in [1.0] && 1.0 in [2, 1] && !(1 in ['1'])",
    "2u < 3",
    "1u == 1",
    "0.1 + 0.2 > 0.3",
    "int('5') == 5 && int(5.9) == 5 && uint('5') == 5u && double('1.5') == 1.5",
    "9223372036854775807 > 9223372036854775806",
    // Texts.
    "'a' + 'b' == 'ab'",
    "'abc' < 'abd'",
    "'abc'.contains('b') && 'abc'.startsWith('a') && 'abc'.endsWith('c')",
    "'abc'.matches('^a.c$')",
    "size('äöü') == 3",
    "string(5) == '5' && string(1.5) == '1.5'",
    "r'\\d' == '\\\\d'",
    "size(bytes('abc')) == 3",
    // Lists and maps.
    "[1, 2] + [3] == [1, 2, 3]",
    "1 in [1, 2] && !(3 in [1, 2])",
    "'a' in {'a': 1} && {'a': 1}['a'] == 1 && {'a': 1}.a == 1",
    "[1, 2, 3][1] == 2",
    "{'a': 1, 'b': 2} == {'b': 2, 'a': 1}",
    "{'a': null}.b == null",
    "has({'a': 1}.a) && !has({'a': 1}.b)",
    // Logic.
    "true ? true : false",
    "false || true",
    "true || 1 / 0 == 1",
    "1 / 0 == 1 || true",
    "!(false && 1 / 0 == 1)",
    "!(1 / 0 == 1 && false)",
    // Loops.
    "[1, 2, 3].all(x, x > 0) && [].all(x, false)",
    "[1, 2, 3].exists(x, x == 2) && ![].exists(x, true)",
    "[1, 2, 3].exists_one(x, x == 2) && ![1, 1].exists_one(x, x == 1)",
    "[1, 2].map(x, x * 2) == [2, 4]",
    "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
    "[1, 2, 3].filter(x, x > 1) == [2, 3]",
    "{'a': 1, 'b': 2}.all(k, k != 'c')",
    "[[1], [2]].exists(x, x.exists(y, y == 2))",
    // Times.
    "timestamp('2026-01-01T00:00:00Z') < timestamp('2026-01-01T00:00:01Z')",
    "timestamp('2026-01-01T01:00:00Z') - timestamp('2026-01-01T00:00:00Z') == duration('1h')",
    "timestamp('2026-01-01T01:00:00+01:00') == timestamp('2026-01-01T00:00:00Z')",
    "duration('1h') + duration('30m') == duration('90m') && duration('1h') > duration('59m')",
    "timestamp('2026-01-02T03:04:05Z').getFullYear() == 2026",
    "timestamp('2026-01-02T03:04:05Z').getMonth() == 0",
    "timestamp('2026-01-02T03:04:05Z').getDayOfYear() == 1",
    "timestamp('2026-01-02T03:04:05Z').getDayOfMonth() == 1",
    "timestamp('2026-01-02T03:04:05Z').getDate() == 2",
    "timestamp('2026-01-02T03:04:05Z').getDayOfWeek() == 5",
    "timestamp('2026-01-02T03:04:05Z').getHours() == 3",
    "timestamp('2026-01-02T03:04:05Z').getMinutes() == 4",
    "timestamp('2026-01-02T03:04:05Z').getSeconds() == 5",
    "timestamp('2026-01-02T03:04:05.006Z').getMilliseconds() == 6",
    // Functions of texts.
    "'banana'.indexOf('na') == 2 && 'banana'.lastIndexOf('na') == 4",
    "'banana'.charAt(1) == 'a' && 'aB'.lowerAscii() == 'ab' && 'aB'.upperAscii() == 'AB'",
    "'banana'.replace('na', 'x') == 'baxx' && 'a,b'.split(',') == ['a', 'b']",
    "'banana'.substring(1, 3) == 'an' && ' a '.trim() == 'a' && ['a', 'b'].join('-') == 'a-b'",
    "'abc'.reverse() == 'cba' && strings.quote('a') == '\"a\"'",
    "'%s is %d'.format(['a', 1]) == 'a is 1'",
    "'a1b22'.find('[0-9]+') == '1' && 'a1b22'.findAll('[0-9]+') == ['1', '22']",
    "base64.encode(bytes('a')) == 'YQ==' && base64.decode('YQ==') == bytes('a')",
    "jsonpatch.escapeKey('a/b~c') == 'a~1b~0c'",
    // Functions of lists.
    "[1, 2, 2].isSorted() && [1, 2].sum() == 3 && [3, 1].min() == 1 && [3, 1].max() == 3",
    "[1, 2, 3].slice(1, 3) == [2, 3] && [2, 1].sort() == [1, 2] && [[1], [2]].flatten() == [1, 2]",
    "[1, 1, 2].distinct() == [1, 2] && [1, 2].first() == 1 && [1, 2].last() == 2",
    "[].first() == null && [].last() == null",
    "lists.range(3) == [0, 1, 2] && [1, 2, 1].indexOf(1) == 0",
    "sets.contains([1, 2], [1]) && sets.equivalent([1, 2], [2, 1]) && sets.intersects([1], [1, 2])",
    // Functions of numbers.
    "math.ceil(1.2) == 2.0 && math.floor(1.8) == 1.0 && math.round(1.5) == 2.0",
    "math.trunc(1.8) == 1.0 && math.abs(-1) == 1 && math.sign(-5) == -1 && math.sqrt(4.0) == 2.0",
    "!math.isInf(1.0) && !math.isNaN(1.0) && math.isFinite(1.0)",
    "math.greatest(1, 2) == 2 && math.least(1, 2) == 1",
    // Kubernetes' own.
    "isQuantity('1Gi') && !isQuantity('many')",
    "quantity('1Gi').isGreaterThan(quantity('1Mi')) && quantity('1m').isLessThan(quantity('1'))",
    "quantity('1000m').compareTo(quantity('1')) == 0",
    "quantity('5').isInteger() && quantity('5').asInteger() == 5 && quantity('-5').sign() == -1",
    "quantity('500m').asApproximateFloat() == 0.5",
    "quantity('1').add(quantity('1')).asInteger() == 2 && quantity('3').sub(1).asInteger() == 2",
    "isSemver('1.2.3') && semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2",
    "semver('1.2.3').patch() == 3 && semver('1.2.3').isLessThan(semver('1.10.0'))",
    "isIP('10.0.0.1') && !isIP('10.0.0') && ip('10.0.0.1').family() == 4",
    "ip.isCanonical('10.0.0.1') && ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified()",
    "ip('224.0.0.1').isLinkLocalMulticast() && ip('169.254.0.1').isLinkLocalUnicast()",
    "ip('8.8.8.8').isGlobalUnicast()",
    "isCIDR('10.0.0.0/8') && cidr('10.0.0.0/8').containsIP('10.1.2.3')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.0.0.0/8').prefixLength() == 8",
    "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.0.0.0/8').ip() == ip('10.0.0.0')",
    "isURL('https://a.b:80/c?d=e') && url('https://a.b:80/c?d=e').getScheme() == 'https'",
    "url('https://a.b:80/c').getHost() == 'a.b:80' && url('https://a.b:80/c').getHostname() == 'a.b'",
    "url('https://a.b:80/c').getPort() == '80' && url('https://a.b/c').getEscapedPath() == '/c'",
    "url('https://a.b/c?d=e').getQuery() == {'d': ['e']}",
];

/// These fail, or are refused before they run: none of them has a result.
const WITHOUT_RESULT: &[&str] = &[
    "9223372036854775807 + 1 > 0",
    "-9223372036854775807 - 2 < 0",
    "9223372036854775807 * 2 > 0",
    "1 / 0 == 0",
    "1 % 0 == 0",
    "1u - 2u < 1u",
    "int('x') == 0",
    "int(1e300) == 0",
    "double('x') == 0.0",
    "uint(-1) == 0u",
    "1 + 'a' == '1a'",
    "'a' * 2 == 'aa'",
    "!'a'",
    "-'a' == 'a'",
    "1 && true",
    "[1, 2][5] == 1",
    "[1, 2][-1] == 1",
    "'a' < 1",
    "[1] < [2]",
    "{'a': 1} < {'a': 2}",
    "true < false",
    "null < 1",
    "null + 1 == 1",
    "timestamp('yesterday') < timestamp('2026-01-01T00:00:00Z')",
    "duration('long') > duration('1h')",
    "duration('1h') > 5",
    "'a'.matches('(')",
    "quantity('many').isLessThan(quantity('1'))",
    "semver('one').major() == 1",
    "ip('10.0.0') == ip('10.0.0.1')",
    "cidr('10.0.0.0/99').prefixLength() == 99",
    "url('nowhere').getHost() == ''",
    "'a'.substring(2, 1) == ''",
    "5.startsWith('a')",
    "'abc'.startsWith(1)",
    "[1].exists(x, x.y == 1)",
    "[1, 'a'].all(x, x > 0)",
    "1 in 5",
    "lists.range(100000000).size() > 0",
];

/// Gaps: in CEL, these have a result.
const GAPS: &[&str] = &[
    "string(true) == 'true'",
    "[{}, {'a': 1}].exists(x, x.a > 0)",
    "{'a': 1}.?a.orValue(0) == 1",
    "true < false",
];

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
    for source in [
        format!("1{} > 0", "+1".repeat(2000)),
        format!("object.metadata.labels{} == null", ".a".repeat(2000)),
        format!("{}true", "!".repeat(4000)),
        format!("{}1 < 0", "-".repeat(4001)),
        format!("true{}", "||true".repeat(650)),
        format!("{}true", "true ? true : ".repeat(290)),
    ] {
        let _ = result(&source);
    }
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
