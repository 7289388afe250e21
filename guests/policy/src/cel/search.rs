//! Regular expressions: what it takes to compile them, which each use does, and to look for them.

use std::str::Chars;

use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue};
use kube_cel::cel::{ExecutionError, IdedExpr, Value};

use super::budget;
use super::expand::{call_of, node};
use super::functions::{lowered, wrong};

/// The functions whose argument is a regular expression.
pub(super) const PATTERNS: [&str; 3] = ["matches", "find", "findAll"];

/// The steps of compiling the smallest pattern, and those of each character.
const COMPILATION: usize = 200;
const CHARACTER: usize = 2;

/// The characters that one stands for that is a class of Unicode, such as `\w`.
const CLASS: usize = 250;

/// For so many characters of a pattern, a text is read once more.
const CHARACTERS_OF_READING: usize = 32;

/// How many characters a pattern may have that is no constant, with those that are repeated.
const MAX_COMPUTED: usize = 1000;

/// The characters of a pattern, with those that are repeated: `a{3}` has three.
fn characters(pattern: &str) -> usize {
    // Of the pattern, and of each open group.
    let mut groups = vec![0_usize];
    let mut last = 0_usize;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let added = match c {
            '(' => {
                groups.push(0);
                continue;
            }
            ')' if groups.len() > 1 => {
                last = groups.pop().unwrap_or_default();
                last
            }
            '{' => match repetitions(chars.as_str()) {
                Some((most, rest)) => {
                    chars = rest.chars();
                    let whole = last.saturating_mul(most);
                    let added = whole.saturating_sub(last);
                    last = last.max(whole);
                    added
                }
                None => 1,
            },
            _ => {
                last = character(c, &mut chars);
                last
            }
        };
        if let Some(group) = groups.last_mut() {
            *group = group.saturating_add(added);
        }
    }
    groups.into_iter().fold(0, usize::saturating_add)
}

/// The characters that one stands for, or the class that it starts.
fn character(c: char, rest: &mut Chars<'_>) -> usize {
    match c {
        '.' => CLASS,
        '\\' => match rest.next() {
            Some('p' | 'P') => {
                // The name of the class: one letter, or in braces.
                let text = rest.as_str();
                let name = match text.strip_prefix('{') {
                    Some(name) => name.find('}').map_or(text.len(), |end| end + 2),
                    None => 1,
                };
                *rest = text.get(name..).unwrap_or_default().chars();
                CLASS
            }
            Some(escaped) if escaped.is_alphabetic() => CLASS,
            _ => 1,
        },
        '[' => {
            let text = rest.as_str();
            // A bracket that comes first is one of the class.
            let end = text.char_indices().skip(1).find(|(_, c)| *c == ']');
            let class = end.and_then(|(end, _)| text.get(..end)).unwrap_or(text);
            let is_large = class.starts_with('^') || class.contains(['\\', ':']);
            let length = class.chars().count();
            // The bracket at the end.
            rest.nth(length);
            if is_large { CLASS.max(length) } else { length }
        }
        _ => 1,
    }
}

/// The largest number of `n,m}`, and what is behind it.
fn repetitions(rest: &str) -> Option<(usize, &str)> {
    let (counts, rest) = rest.split_once('}')?;
    let counts = counts.split(',').filter_map(|it| it.trim().parse().ok());
    counts.max().map(|most| (most, rest))
}

fn compilation(characters: usize) -> usize {
    COMPILATION.saturating_add(characters.saturating_mul(CHARACTER))
}

/// How often a text is read.
fn readings(characters: usize) -> usize {
    1 + characters / CHARACTERS_OF_READING
}

/// Counts what a search takes: the compilation of the pattern, and the reading of the text.
pub(super) fn count(name: &str, call: &mut CallExpr) {
    let target = call.target.as_deref_mut();
    let mut operands: Vec<&mut IdedExpr> = target.into_iter().chain(&mut call.args).collect();
    let [text, pattern, ..] = operands.as_mut_slice() else {
        return;
    };
    let known = match &pattern.expr {
        Expr::Literal(LiteralValue::String(literal)) => Some(characters(literal.inner())),
        _ => None,
    };
    if known.is_none() {
        let inner = std::mem::take(*pattern);
        **pattern = call_of(lowered::PATTERN, vec![inner]);
    }
    // A pattern that is no constant counts its compilation itself.
    let readings = readings(known.unwrap_or(MAX_COMPUTED));
    let compilation = known.map_or(0, compilation);
    let inner = std::mem::take(*text);
    let args = vec![inner, number(readings), number(compilation)];
    **text = call_of(lowered::SEARCHED, args);
    if name == "findAll" {
        let inner = std::mem::take(*text);
        **text = call_of(lowered::HAYSTACK, vec![inner]);
    }
}

fn number(number: usize) -> IdedExpr {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    node(Expr::Literal(LiteralValue::Int(number.into())))
}

/// A text that is searched, with how often it is read, and the steps of the compilation.
pub(super) fn searched(args: &[Value]) -> Result<Value, ExecutionError> {
    let [value, Value::Int(readings), Value::Int(compilation)] = args else {
        return Err(wrong("expression", "wrong arguments"));
    };
    let steps = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    budget::steps(steps(*compilation))?;
    budget::steps(budget::weight(value).saturating_mul(steps(*readings)))?;
    Ok(value.clone())
}

/// A pattern that is no constant.
pub(super) fn pattern(args: &[Value]) -> Result<Value, ExecutionError> {
    let [value] = args else {
        return Err(wrong("expression", "wrong arguments"));
    };
    if let Value::String(text) = value {
        let is_long = text.len() > MAX_COMPUTED;
        let characters = if is_long {
            usize::MAX
        } else {
            characters(text)
        };
        if characters > MAX_COMPUTED {
            return Err(wrong(
                "expression",
                format!(
                    "a pattern that is no constant has {MAX_COMPUTED} characters at most, with \
                     those that are repeated"
                ),
            ));
        }
        budget::steps(compilation(characters))?;
    }
    Ok(value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_characters_of_a_pattern_are_those_that_are_compiled() {
        for (pattern, expected) in [
            ("", 0),
            ("^abc$", 5),
            ("[0-9]{4}-[0-9]{2}", 3 * 4 + 1 + 3 * 2),
            ("(ab{2}){3}", 9),
            ("((a{10}){10}){10}", 1000),
            (r"\w\.", 251),
            (r"\pL{1000}", 250_000),
            (r"\p{Greek}{3}a", 751),
            (r"\p", 250),
            ("[]a]b", 3),
            ("[^a]{2}", 500),
            ("a{,}", 4),
            ("a)b(", 3),
            ("[a", 1),
        ] {
            assert_eq!(characters(pattern), expected, "{pattern}");
        }
    }
}
