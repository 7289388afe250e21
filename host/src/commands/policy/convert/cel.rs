//! Pieces of CEL.

/// A text as a literal.
pub(super) fn quoted(text: &str) -> String {
    let mut literal = String::from("'");
    for c in text.chars() {
        match c {
            '\\' => literal.push_str("\\\\"),
            '\'' => literal.push_str("\\'"),
            '\n' => literal.push_str("\\n"),
            '\r' => literal.push_str("\\r"),
            '\t' => literal.push_str("\\t"),
            c => literal.push(c),
        }
    }
    literal.push('\'');
    literal
}

/// A list of texts.
pub(super) fn list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let texts: Vec<String> = texts.into_iter().map(quoted).collect();
    format!("[{}]", texts.join(", "))
}

/// A field below an object: `object.metadata.labels['a/b']`.
pub(super) fn field<'a>(object: &str, keys: impl IntoIterator<Item = &'a str>) -> String {
    let mut path = object.to_owned();
    for key in keys {
        let is_word = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !key.starts_with(|c: char| c.is_ascii_digit());
        if is_word {
            path.push('.');
            path.push_str(key);
        } else {
            path.push('[');
            path.push_str(&quoted(key));
            path.push(']');
        }
    }
    path
}

/// Conditions that all have to hold.
pub(super) fn all(conditions: &[String]) -> String {
    joined(conditions, " && ")
}

/// Conditions of which one has to hold.
pub(super) fn any(conditions: &[String]) -> String {
    joined(conditions, " || ")
}

fn joined(conditions: &[String], operator: &str) -> String {
    match conditions {
        [one] => one.clone(),
        many => {
            let parts: Vec<String> = many.iter().map(|it| in_brackets(it, operator)).collect();
            parts.join(operator)
        }
    }
}

/// A condition beside others: what binds weaker, or could be read in two ways, is in brackets.
fn in_brackets(condition: &str, operator: &str) -> String {
    let is_weaker = condition.contains("||") || condition.contains('?');
    if is_weaker || (operator == " || " && condition.contains("&&")) {
        format!("({condition})")
    } else {
        condition.to_owned()
    }
}

/// Whether a text has one of the patterns, in which `*` stands for any characters; none if a
/// pattern has a `?`, which tools do not agree about.
pub(super) fn matches_one<'a>(
    value: &str,
    patterns: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    let mut exact = Vec::new();
    let mut conditions = Vec::new();
    for pattern in patterns {
        if pattern.contains('?') {
            return None;
        }
        if pattern.contains('*') {
            conditions.push(like(value, pattern));
        } else {
            exact.push(pattern);
        }
    }
    match exact.as_slice() {
        [] => {}
        [one] => conditions.insert(0, format!("{value} == {}", quoted(one))),
        many => conditions.insert(0, format!("{value} in {}", list(many.iter().copied()))),
    }
    Some(any(&conditions))
}

/// Whether a text has a pattern with `*`.
fn like(value: &str, pattern: &str) -> String {
    let parts: Vec<&str> = pattern.split('*').collect();
    match parts.as_slice() {
        ["", ""] => format!("{value} != null"),
        [start, ""] => format!("{value}.startsWith({})", quoted(start)),
        ["", end] => format!("{value}.endsWith({})", quoted(end)),
        ["", middle, ""] => format!("{value}.contains({})", quoted(middle)),
        parts => {
            let parts: Vec<String> = parts.iter().map(|it| escaped(it)).collect();
            // A line end is a character like others.
            let expression = format!("(?s)^{}$", parts.join(".*"));
            format!("{value}.matches({})", quoted(&expression))
        }
    }
}

/// A text as a part of a regular expression.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if !c.is_ascii_alphanumeric() && !matches!(c, '-' | '_' | '/') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
