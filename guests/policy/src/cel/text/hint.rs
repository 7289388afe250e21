//! What was probably meant by a text that is no expression.

use super::super::Mistake;
use super::super::token::{Token, Tokens};
use super::{ends_value, first_line};

/// Signs that other languages have, with those of CEL.
const SIGNS: [(&str, &str); 8] = [
    ("=", "=="),
    ("===", "=="),
    ("!==", "!="),
    ("<>", "!="),
    ("=>", ">="),
    ("=<", "<="),
    ("&", "&&"),
    ("|", "||"),
];

/// The units of a duration in CEL.
const UNITS: [&str; 6] = ["h", "m", "s", "ms", "us", "ns"];

/// Longer units, with their hours.
const LONG_UNITS: [(&str, u64); 2] = [("d", 24), ("w", 7 * 24)];

/// The units of a quantity that are none of a duration.
const AMOUNTS: [&str; 9] = ["Ki", "Mi", "Gi", "Ti", "Pi", "k", "M", "G", "T"];

/// The mistake in a text that the parser refuses, if it is one that people make.
pub(super) fn of(source: &str, refusal: &str) -> Option<Mistake> {
    let tokens: Vec<Token<'_>> = Tokens::new(source).collect();
    let found = (0..tokens.len()).find_map(|at| {
        let token = tokens.get(at)?;
        let message = sign(source, &tokens, at)
            .or_else(|| word(&tokens, at))
            .or_else(|| unit(token.text))?;
        Some(Mistake::at_column(token.column, message))
    });
    if found.is_none() && refusal.contains("has()") {
        return presence(source, &tokens);
    }
    found
}

/// `=` for `==`.
fn sign(source: &str, tokens: &[Token<'_>], at: usize) -> Option<String> {
    let is_sign = |token: &Token<'_>| token.text.chars().all(|c| "=!<>&|".contains(c));
    let end_of = |token: &Token<'_>| token.start + token.text.len();
    let first = tokens.get(at).filter(|token| is_sign(token))?;
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    if before.is_some_and(|it| is_sign(it) && end_of(it) == first.start) {
        return None;
    }
    let mut end = end_of(first);
    for token in tokens.get(at + 1..)? {
        if !is_sign(token) || token.start != end {
            break;
        }
        end = end_of(token);
    }
    // A negation may follow: `a=!b`.
    let written = source.get(first.start..end)?.trim_end_matches('!');
    let (_, meant) = SIGNS.iter().find(|(wrong, _)| *wrong == written)?;
    Some(no_operator(written, meant))
}

fn no_operator(written: &str, meant: &str) -> String {
    format!("\"{written}\" is no operator; did you mean \"{meant}\"?")
}

/// `a and b` for `a && b`.
fn word(tokens: &[Token<'_>], at: usize) -> Option<String> {
    let token = tokens.get(at)?;
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    let follows_value = before.is_some_and(|it| ends_value(it.text));
    let precedes_value = tokens
        .get(at + 1)
        .is_some_and(|it| it.text != "in" && it.text.starts_with(|c: char| c.is_alphabetic()));
    let meant = match token.text.to_ascii_lowercase().as_str() {
        "and" if follows_value => "&&",
        "or" if follows_value => "||",
        "not" if precedes_value => "!",
        _ => return None,
    };
    Some(no_operator(token.text, meant))
}

/// `24h` for `duration('24h')`, and `1Gi` for `quantity('1Gi')`.
fn unit(token: &str) -> Option<String> {
    let write = |text: &str| Some(format!("\"{token}\" is no number: write {text}"));
    let mut rest = token;
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic())?);
        let end = after.find(|c: char| c.is_ascii_digit());
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        if number.is_empty() {
            return None;
        }
        parts.push((number, unit));
        rest = after;
    }
    if parts.iter().all(|(_, unit)| UNITS.contains(unit)) && !parts.is_empty() {
        return write(&format!("duration('{token}')"));
    }
    let [(number, unit)] = parts.as_slice() else {
        return None;
    };
    if AMOUNTS.contains(unit) {
        return write(&format!("quantity('{token}')"));
    }
    let (_, hours) = LONG_UNITS.iter().find(|(long, _)| long == unit)?;
    let hours = number.parse::<u64>().ok()?.checked_mul(*hours)?;
    write(&format!("duration('{hours}h')"))
}

/// `has(labels['a'])`: whether a key is there.
fn presence(source: &str, tokens: &[Token<'_>]) -> Option<Mistake> {
    let mut calls = (0..tokens.len()).filter_map(|at| {
        let [name, open, ..] = tokens.get(at..)? else {
            return None;
        };
        if name.text != "has" || open.text != "(" {
            return None;
        }
        Some((name.column, arguments(tokens.get(at + 2..)?)))
    });
    let (column, arguments) = calls.find(|(_, arguments)| !is_field(arguments))?;
    let is_key = arguments.last().is_some_and(|it| it.text == "]")
        && !arguments.iter().any(|it| it.text == ",");
    let message = match (arguments.first(), arguments.last()) {
        (Some(first), Some(last)) if is_key => {
            let written = source.get(first.start..=last.start)?;
            format!("has() takes a field: write {written} != null")
        }
        _ => "has() takes a field, such as has(object.metadata.labels)".to_owned(),
    };
    Some(Mistake::at_column(column, message))
}

/// The tokens up to the bracket that closes a call.
fn arguments<'t, 'a>(tokens: &'t [Token<'a>]) -> &'t [Token<'a>] {
    let mut depth = 0_i32;
    let end = tokens.iter().position(|token| {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    tokens
        .get(..end.unwrap_or(tokens.len()))
        .unwrap_or_default()
}

fn is_field(tokens: &[Token<'_>]) -> bool {
    matches!(tokens, [.., dot, name] if dot.text == "." && ends_value(name.text))
}

/// A refusal in plain words: the parser's own name its tokens.
pub(super) fn in_words(refusal: &str) -> String {
    let refusal = first_line(refusal);
    let quoted = |start: &str| {
        let (_, rest) = refusal.split_once(start)?;
        let rest = rest.strip_prefix('\'')?;
        let end = rest.find("' expecting").or_else(|| rest.rfind('\''))?;
        rest.get(..end)
    };
    let missing = refusal.split_once("missing ").and_then(|(_, rest)| {
        let (missing, _) = rest.split_once(" at ")?;
        Some(missing.replace('\'', "\""))
    });
    if let Some(missing) = missing {
        return format!("{missing} is missing");
    }
    let starts = [" input ", "error at: "];
    match starts.into_iter().find_map(quoted) {
        Some("<EOF>") => "the expression is not complete".to_owned(),
        Some(text) if text.starts_with(['\'', '"']) => "a text has no closing quote".to_owned(),
        Some(text) => format!("\"{}\" cannot stand here", text.trim()),
        None => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    #[test]
    fn a_common_mistake_is_refused_with_what_was_meant() {
        for (source, expected) in [
            (
                "a.b = 'Failed'",
                "column 5: \"=\" is no operator; did you mean \"==\"?",
            ),
            (
                "a=!b",
                "column 2: \"=\" is no operator; did you mean \"==\"?",
            ),
            (
                "'=' == a && a === b",
                "column 15: \"===\" is no operator; did you mean \"==\"?",
            ),
            (
                "a !== b",
                "column 3: \"!==\" is no operator; did you mean \"!=\"?",
            ),
            (
                "a => 1",
                "column 3: \"=>\" is no operator; did you mean \">=\"?",
            ),
            (
                "a & b",
                "column 3: \"&\" is no operator; did you mean \"&&\"?",
            ),
            (
                "a == 1 and b",
                "column 8: \"and\" is no operator; did you mean \"&&\"?",
            ),
            (
                "not a.b",
                "column 1: \"not\" is no operator; did you mean \"!\"?",
            ),
            (
                "age(object) > 24h",
                "column 15: \"24h\" is no number: write duration('24h')",
            ),
            (
                "a > 1.5h30m",
                "column 5: \"1.5h30m\" is no number: write duration('1.5h30m')",
            ),
            (
                "a > 7d",
                "column 5: \"7d\" is no number: write duration('168h')",
            ),
            (
                "a > 1Gi",
                "column 5: \"1Gi\" is no number: write quantity('1Gi')",
            ),
            (
                "has(a.b) && has(a.labels['b'])",
                "column 13: has() takes a field: write a.labels['b'] != null",
            ),
            (
                "has(a)",
                "column 1: has() takes a field, such as has(object.metadata.labels)",
            ),
            ("1 +", "column 4: the expression is not complete"),
            ("a b", "column 3: \"b\" cannot stand here"),
            ("(a", "column 3: \")\" is missing"),
            ("a == 'b", "column 6: a text has no closing quote"),
        ] {
            let mistake = parse(source).map(|_| ()).unwrap_err();
            assert_eq!(mistake.to_string(), expected, "{source}");
        }
    }

    #[test]
    fn what_looks_like_a_mistake_and_is_none_is_accepted() {
        for source in [
            "a.and == b.or && not != 1",
            "a == 0x1F || a == 1e5 || a == 3u",
            "a[0] >= 1 && !(a.exists(has, has == 'x = 24h'))",
            "{'a': 1}['a'] == 1",
        ] {
            assert!(parse(source).is_ok(), "{source}");
        }
    }
}
