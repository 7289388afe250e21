//! YAML files that people write, without what silently changes a text.
//!
//! An expression that starts with `!` is a tag to YAML, and one with `&` an anchor: the parser
//! would cut it off, and what is left of a condition means something else.

use granit_parser::{Event, Parser, Tag, options};
use serde_json::Value;

/// Why a text is not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum YamlError {
    /// It is no YAML.
    #[error("{0}")]
    Syntax(String),
    /// YAML would cut the beginning off a value.
    #[error(
        "line {line}, column {column}: YAML takes {found} for {what}, and cuts it off: put the value into quotes"
    )]
    CutOff {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What stands there.
        found: String,
        /// `a tag` or `an anchor`.
        what: &'static str,
    },
}

/// The only document of a text.
pub(crate) fn one(text: &str) -> Result<Value, YamlError> {
    check(text)?;
    serde_saphyr::from_str(text).map_err(|error| syntax(&error))
}

/// The documents of a text, in their order.
pub(crate) fn all(text: &str) -> Result<Vec<Value>, YamlError> {
    check(text)?;
    serde_saphyr::from_multiple(text).map_err(|error| syntax(&error))
}

/// The parser's message, without its excerpt of the file and its advice for programmers.
fn syntax(error: &serde_saphyr::Error) -> YamlError {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let advice = line.find(", set DuplicateKeyPolicy");
    let line = line.get(..advice.unwrap_or(line.len())).unwrap_or(line);
    YamlError::Syntax(line.to_owned())
}

/// Refuses tags but those of YAML's own types, and anchors whose names are operators.
fn check(text: &str) -> Result<(), YamlError> {
    let options = options! { emit_anchor_events: true, emit_comments: false };
    for parsed in Parser::new_from_str_with_options(text, options) {
        // What is no YAML is for the other parser to explain.
        let Ok((event, span)) = parsed else {
            return Ok(());
        };
        let (found, what) = match event {
            Event::Scalar(_, _, _, Some(tag))
            | Event::SequenceStart(_, _, Some(tag))
            | Event::MappingStart(_, _, Some(tag))
                if !is_of_yaml(&tag) =>
            {
                (format!("{}{}", tag.handle(), tag.suffix()), "a tag")
            }
            Event::Anchor(_, name) if !name.chars().all(is_of_name) => {
                (format!("&{name}"), "an anchor")
            }
            _ => continue,
        };
        let (line, column) = (span.start.line(), span.start.col() + 1);
        return Err(YamlError::CutOff {
            line,
            column,
            found,
            what,
        });
    }
    Ok(())
}

/// Whether a tag is the name of a type of YAML: `!!str`.
fn is_of_yaml(tag: &Tag) -> bool {
    let tag = format!("{}{}", tag.handle(), tag.suffix());
    let name = tag.strip_prefix("tag:yaml.org,2002:");
    name.is_some_and(|it| !it.is_empty() && it.chars().all(|c| c.is_ascii_lowercase()))
}

/// Whether a character belongs to the name of an anchor rather than to an expression: YAML itself
/// takes nearly any sign.
fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || "-_.".contains(c)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expression_that_yaml_would_cut_is_refused() {
        let cases = [
            (
                "when: !has(object.metadata.labels) && true",
                "!has(object.metadata.labels)",
            ),
            ("when: !variables.kept && true", "!variables.kept"),
            ("when: ! has(object.metadata.labels)", "!"),
            (
                "when: !has(object.metadata.labels)\n  && true",
                "!has(object.metadata.labels)",
            ),
            ("rules: [{when: !x.y && true}]", "!x.y"),
            ("a: 1\n---\nwhen: !x && y", "!x"),
            ("when: && true", "&&"),
            ("when:\n  &&has(x) age(object) > y", "&&has(x)"),
            (
                "when: !<tag:yaml.org,2002:has(a)> true",
                "tag:yaml.org,2002:has(a)",
            ),
        ];
        for (text, found) in cases {
            for error in [one(text).err(), all(text).err()] {
                let error = error.map(|error| error.to_string()).unwrap_or_default();
                let expected = format!("YAML takes {found} for ");
                assert!(error.contains(&expected), "{text}: {error}");
            }
        }
        let error = one("a: 1\nwhen: !x && y").unwrap_err().to_string();
        assert!(error.starts_with("line 2, column "), "{error}");
    }

    #[test]
    fn what_yaml_does_not_cut_is_read() {
        let cases = [
            ("when: '!x && y'", json!({"when": "!x && y"})),
            ("when: >-\n  !x\n  && y", json!({"when": "!x && y"})),
            ("when: a ? b : !c", json!(null)),
            ("when: x && !y", json!({"when": "x && !y"})),
            ("a: !!str 1", json!({"a": "1"})),
            ("a: &id 1\nb: *id", json!({"a": 1, "b": 1})),
            ("a: &a-1_b.c 1\nb: *a-1_b.c", json!({"a": 1, "b": 1})),
        ];
        for (text, expected) in cases {
            assert_eq!(one(text).unwrap_or_default(), expected, "{text}");
        }
        assert_eq!(all("a: 1\n---\nb: 2").unwrap().len(), 2);
        let error = one("a: [").unwrap_err();
        assert!(matches!(error, YamlError::Syntax(_)), "{error}");
    }
}
