//! Regular expressions: what it takes to compile them, which each use does, and to look for them.

use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue};
use kube_cel::cel::{ExecutionError, IdedExpr, Value};

use super::arguments::wrong;
use super::expand::{call_of, node};
use super::lowered;
use super::pattern::{self, Pattern};
use super::{budget, lower};

/// The functions whose argument is a regular expression.
pub(super) const PATTERNS: [&str; 3] = ["matches", "find", "findAll"];

/// The steps of compiling the smallest pattern, and those of each character.
const COMPILATION: usize = 200;
const CHARACTER: usize = 2;

/// For so many characters of a pattern, a text is read once more.
const CHARACTERS_OF_READING: usize = 32;

/// How many characters a pattern may have that is no constant, with those that are repeated.
const MAX_COMPUTED: usize = 1000;

fn compilation(characters: usize) -> usize {
    COMPILATION.saturating_add(characters.saturating_mul(CHARACTER))
}

/// How often a text is read.
fn readings(characters: usize) -> usize {
    1 + characters / CHARACTERS_OF_READING
}

/// A pattern that is a constant, or why it is not supported.
fn literal(pattern: &IdedExpr) -> Option<Result<Pattern, String>> {
    match &pattern.expr {
        Expr::Literal(LiteralValue::String(literal)) => Some(pattern::translated(literal.inner())),
        _ => None,
    }
}

/// Checks a pattern, if it is a constant.
pub(super) fn check(name: &str, pattern: &IdedExpr) -> Result<(), String> {
    match literal(pattern) {
        Some(Err(message)) if PATTERNS.contains(&name) => Err(message),
        _ => Ok(()),
    }
}

/// Counts what a search takes: the compilation of the pattern, and the reading of the text.
pub(super) fn count(name: &str, call: &mut CallExpr) {
    let target = call.target.as_deref_mut();
    let mut operands: Vec<&mut IdedExpr> = target.into_iter().chain(&mut call.args).collect();
    let [text, pattern, ..] = operands.as_mut_slice() else {
        return;
    };
    let known = if let Some(Ok(known)) = literal(pattern) {
        **pattern = lower::string(&known.text);
        Some(known.characters)
    } else {
        let inner = std::mem::take(*pattern);
        **pattern = call_of(lowered::PATTERN, vec![inner]);
        None
    };
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
    let Value::String(text) = value else {
        return Ok(value.clone());
    };
    if text.len() > MAX_COMPUTED {
        return Err(too_long());
    }
    let pattern = pattern::translated(text).map_err(|message| wrong("expression", message))?;
    if pattern.characters > MAX_COMPUTED {
        return Err(too_long());
    }
    budget::steps(compilation(pattern.characters))?;
    Ok(Value::from(pattern.text))
}

fn too_long() -> ExecutionError {
    wrong(
        "expression",
        format!(
            "a pattern that is no constant has {MAX_COMPUTED} characters at most, with those that \
             are repeated"
        ),
    )
}
